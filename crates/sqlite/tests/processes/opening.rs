//! What is refused when a file is opened, what is made, and by whom.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use leasehold_core::{Clock, Code, Error, Store, StoreErrorKind, Turn};
use leasehold_sqlite::SqliteStore;

use crate::stage::{Player, acquire, claim, granted, open, sql, url};

/// A case: what lies at the path, and what is said about it.
struct Refused {
    what: &'static str,
    make: fn(&Path),
    code: Code,
    kind: StoreErrorKind,
}

const REFUSED: &[Refused] = &[
    Refused {
        what: "a text",
        make: |path| std::fs::write(path, "remember the milk\n".repeat(100)).unwrap(),
        code: Code::FOREIGN,
        kind: StoreErrorKind::Protocol,
    },
    Refused {
        what: "nothing at all",
        make: |path| std::fs::write(path, "").unwrap(),
        code: Code::FOREIGN,
        kind: StoreErrorKind::Protocol,
    },
    Refused {
        what: "a database of another program",
        make: |path| sql(path, "CREATE TABLE member (id); INSERT INTO member VALUES (1)"),
        code: Code::FOREIGN,
        kind: StoreErrorKind::Protocol,
    },
    Refused {
        what: "a database that only says that it is ours",
        make: |path| sql(path, "PRAGMA application_id = 0x4c484c44; CREATE TABLE cat (id)"),
        code: Code::FOREIGN,
        kind: StoreErrorKind::Protocol,
    },
    Refused {
        what: "ours, damaged",
        make: |path| {
            make(path);
            sql(path, "PRAGMA wal_checkpoint(TRUNCATE)");
            let mut bytes = std::fs::read(path).unwrap();
            bytes[4096..8192].fill(0xa5);
            std::fs::write(path, bytes).unwrap();
        },
        code: Code::CORRUPT,
        kind: StoreErrorKind::Protocol,
    },
    Refused {
        what: "another machine's",
        make: |path| {
            make(path);
            sql(path, "UPDATE state SET boot = 'elsewhere', machine = 'another'");
        },
        code: Code::OTHER_MACHINE,
        kind: StoreErrorKind::Protocol,
    },
    Refused {
        what: "a newer version's",
        make: |path| {
            make(path);
            sql(path, "UPDATE state SET compatible = 99; PRAGMA user_version = 99");
        },
        code: Code::NEWER_SCHEMA,
        kind: StoreErrorKind::Protocol,
    },
    Refused {
        what: "a symbolic link",
        make: |path| {
            make(&path.with_extension("real"));
            symlink(path.with_extension("real"), path).unwrap();
        },
        code: Code::DENIED,
        kind: StoreErrorKind::Denied,
    },
    Refused {
        what: "a file that everybody may write to",
        make: |path| {
            make(path);
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
        },
        code: Code::DENIED,
        kind: StoreErrorKind::Denied,
    },
    Refused {
        what: "a directory",
        make: |path| std::fs::create_dir(path).unwrap(),
        code: Code::FOREIGN,
        kind: StoreErrorKind::Protocol,
    },
];

/// A file of ours that nobody has open.
fn make(path: &Path) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(open(path).close()).unwrap();
}

fn contents(path: &Path) -> Option<Vec<u8>> {
    std::fs::read(path).ok()
}

#[test]
fn what_is_not_ours_is_refused_with_a_hint_and_left_as_it_is() {
    for Refused { what, make, code, kind } in REFUSED {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("locks.db");
        make(&path);
        let before = contents(&path);
        let error = SqliteStore::open(&url(&path)).expect_err(what);
        let Error::Store(shown) = &error else { panic!("{what}: {error:?}") };
        assert_eq!((error.code(), shown.kind), (*code, *kind), "{what}: {error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{what}: {error}");
        if path.is_file() {
            assert!(error.help().is_some(), "{what}: {error}");
        }
        assert_eq!(contents(&path), before, "{what} was altered");
        println!("{what}: {error}\n  hint: {}", error.help().unwrap_or_default());
    }
}

#[test]
fn a_missing_directory_is_an_error_with_a_hint() {
    let home = tempfile::tempdir().unwrap();
    let error = SqliteStore::open(&url(&home.path().join("no/such/locks.db"))).unwrap_err();
    assert!(error.is_retryable(), "it may be mounted later: {error}");
    assert!(error.help().unwrap().contains("mkdir -p"), "{error}");
}

#[test]
fn a_file_is_made_for_its_owner_alone_and_only_once() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a b?c#d%20é.db");
    let text = path.to_str().unwrap().replace('%', "%25").replace('?', "%3f");
    let url = format!("sqlite:{text}").parse().unwrap();
    let store = SqliteStore::open(&url).unwrap();
    assert!(store.created());
    assert_eq!(store.path(), path);
    assert!(!SqliteStore::open(&url).unwrap().created());
    for entry in std::fs::read_dir(home.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o077, 0, "{entry:?}");
        assert!(!entry.file_name().to_str().unwrap().ends_with(".new"), "{entry:?} was left behind");
    }
    assert_eq!(store.to_string(), format!("sqlite:{}", path.display()));
}

#[tokio::test]
async fn a_group_shares_everything() {
    let gid = 54_321;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let shared = format!("sqlite:{}?group={gid}", path.display()).parse().unwrap();
    let store = match SqliteStore::open(&shared) {
        Ok(store) => store,
        Err(error) => {
            println!("skipped: only root can give files to any group ({error})");
            return;
        }
    };
    granted(&store.claim(&claim("a", Turn::Now)).await.unwrap());
    let mut waits = vec![home.path().to_owned()];
    let mut seen = 0;
    while let Some(directory) = waits.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            assert_eq!((found.gid(), found.mode() & 0o066), (gid, 0o060), "{entry:?}");
            seen += 1;
            if found.is_dir() {
                waits.push(entry.path());
            }
        }
    }
    // The file, -wal, -shm, -run, and in it the reserve, and the FIFO and socket of one life.
    assert_eq!(seen, 7);
    // Whoever comes without the option shares it too, and whoever names another group is told.
    SqliteStore::open(&url(&path)).unwrap();
    let other = format!("sqlite:{}?group=54322", path.display()).parse().unwrap();
    assert_eq!(SqliteStore::open(&other).unwrap_err().code(), Code::DENIED);
}

#[test]
fn of_fifty_that_race_to_make_the_file_one_does() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let mut racers: Vec<_> = (0..50).map(|_| Player::start("race", &[path.to_str().unwrap()])).collect();
    for racer in &mut racers {
        assert_eq!(racer.hear(), "ready");
    }
    for racer in &mut racers {
        racer.tell("go");
    }
    let mut made = 0;
    let mut tokens = Vec::new();
    for racer in &mut racers {
        let said = racer.hear();
        let (created, token) = said.split_once(' ').unwrap();
        made += usize::from(created == "true");
        tokens.push(token.to_owned());
    }
    assert_eq!(made, 1);
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 50, "each held it once, with a token of its own");
    racers.into_iter().for_each(Player::ends_well);
    let left: Vec<_> = std::fs::read_dir(home.path().join("locks.db-run")).unwrap().flatten().collect();
    assert!(left.len() == 1 && left[0].file_name() == "reserve", "lives that ended leave no files: {left:?}");
}

#[tokio::test]
async fn a_log_without_its_database_is_not_replayed_into_a_new_one() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    granted(&store.claim(&claim("old", Turn::Now)).await.unwrap());
    store.close().await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(std::fs::metadata(home.path().join("locks.db-wal")).unwrap().len() > 0);
    let store = open(&path);
    assert!(store.created());
    assert!(store.list("", None).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_read_only_directory_is_an_error_in_words() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ro/locks.db");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    open(&path).close().await.unwrap();
    let Some(_mount) = Mount::read_only(path.parent().unwrap()) else {
        println!("skipped: only root can mount a directory read-only");
        return;
    };
    let error = SqliteStore::open(&url(&path)).unwrap_err();
    assert_eq!(error.code(), Code::DENIED, "{error}");
    assert!(!error.to_string().contains("SQLITE"), "{error}");
    let error = SqliteStore::open(&url(&path.with_file_name("new.db"))).unwrap_err();
    assert_eq!(error.code(), Code::DENIED, "{error}");
}

/// A mount that is undone when it is dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn run(arguments: &[&str], at: &Path) -> Option<Self> {
        let done = std::process::Command::new("mount").args(arguments).arg(at).output().ok()?;
        done.status.success().then(|| Self(at.to_owned()))
    }

    fn read_only(at: &Path) -> Option<Self> {
        let mount = Self::run(&["--bind", at.to_str()?], at)?;
        let again =
            std::process::Command::new("mount").args(["-o", "remount,bind,ro"]).arg(at).output().ok()?;
        again.status.success().then_some(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_writer_that_takes_its_time_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mut hog = Player::start("hog", &[path.to_str().unwrap()]);
    assert_eq!(hog.hear(), "writing");
    let (clock, mine) = (Clock::system(), claim("a", Turn::Now));
    let start = clock.now();
    hog.tell("three seconds");
    granted(&store.claim(&mine).await.unwrap());
    let took = clock.now().since(start);
    assert!(took.as_secs() < 5, "{took:?}");
    println!("a writer of 3 s was waited for {took:?}");
    // One that does not end is told of, in words, and nothing was done.
    hog.tell("for ever");
    assert_eq!(hog.hear(), "ended");
    assert_eq!(hog.hear(), "writing");
    let error = store.claim(&claim("b", Turn::Now)).await.unwrap_err();
    assert!(error.is_retryable() && !error.outcome_unknown(), "{error}");
    assert!(!error.to_string().contains("database is locked"), "{error}");
    hog.kill();
    acquire(&store, &claim("b", Turn::Any)).await;
}

//! Reboots, replaced files, full disks, other kernels, other versions, and clocks that were moved.

use std::path::Path;
use std::time::Duration;

use leasehold_core::{
    Claim, Clock, Code, Leave, Ledger, Mark, MarkKind, MarkOutcome, Note, Release, Renew, Renewal, State,
    Store, StoreErrorKind, Tenure, Token, Turn,
};
use leasehold_sqlite::SqliteStore;

use crate::opening::Mount;
use crate::stage::{Player, claim, granted, name, open, sql, url};

fn renew(claim: &Claim, token: Token) -> Renew {
    let tenure = Tenure { count: 1, token, note: Note::NONE };
    Renew { claim: std::sync::Arc::new(claim.clone()), tenure }
}

pub(crate) async fn renewed(
    store: &SqliteStore,
    claim: &Claim,
    token: Token,
) -> leasehold_core::Result<Renewal> {
    store.renew(&[renew(claim, token)]).await.remove(0)
}

fn mark() -> Mark {
    Mark {
        kind: MarkKind::Once,
        name: name("a"),
        key: "2025-06-03".into(),
        by: "h/1/x".into(),
        text: "{}".into(),
        lasting: Duration::from_secs(3600),
        age: Duration::ZERO,
    }
}

/// As after a reboot, with what a power cut may have taken.
pub(crate) const REBOOT: &str = "UPDATE state SET boot = 'before'";

#[tokio::test]
async fn a_reboot_ends_leases_and_places_and_keeps_marks_and_closures() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let clock = Clock::frozen();
    let store = SqliteStore::open_with(&url(&path), clock.clone()).unwrap();
    let (held, shut) = (claim("held", Turn::Now), claim("shut", Turn::Now));
    let last = granted(&store.claim(&held).await.unwrap()).token;
    store.claim(&claim("held", Turn::Any)).await.unwrap();
    granted(&store.claim(&shut).await.unwrap());
    let leave = Leave::Closed { lasting: Duration::from_secs(3600), note: Note::NONE };
    store.release(&shut.name, shut.id, leave).await.unwrap();
    let ledger = store.ledger().unwrap();
    assert_eq!(ledger.mark(&mark()).await.unwrap(), MarkOutcome::Made);
    store.close().await.unwrap();

    sql(&path, REBOOT);
    // The machine was off for half an hour, and its clock starts anew.
    let clock = Clock::frozen();
    clock.step_wall(30 * 60 * 1_000_000);
    let store = SqliteStore::open_with(&url(&path), clock.clone()).unwrap();
    let names: Vec<_> = store.list("", None).await.unwrap();
    assert_eq!(names, [name("shut")]);
    let closed = store.inspect(&shut.name).await.unwrap().closed.unwrap();
    assert_eq!(closed.left.as_secs(), 1800);
    let MarkOutcome::Already(standing) = store.mark(&mark()).await.unwrap() else {
        panic!("the mark is gone")
    };
    assert_eq!((standing.lasting.as_secs(), standing.age.as_secs()), (1800, 1800));
    assert!(granted(&store.claim(&claim("held", Turn::Now)).await.unwrap()).token > last);
    assert_eq!(renewed(&store, &held, last).await.unwrap(), Renewal::Lost);
}

#[tokio::test]
async fn a_reboot_into_1970_makes_no_mark_longer_than_it_was_made_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = SqliteStore::open_with(&url(&path), Clock::frozen()).unwrap();
    store.mark(&mark()).await.unwrap();
    store.close().await.unwrap();
    sql(&path, REBOOT);
    let clock = Clock::frozen();
    clock.step_wall(-1_700_000_000_000_000);
    let store = SqliteStore::open_with(&url(&path), clock).unwrap();
    let marks = store.marks(MarkKind::Once, &name("a")).await.unwrap();
    assert_eq!((marks[0].lasting.as_secs(), marks[0].age.as_secs()), (3600, 0));
}

#[tokio::test]
async fn tokens_rise_over_a_power_cut_and_a_clock_that_went_back() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let clock = Clock::frozen();
    let store = SqliteStore::open_with(&url(&path), clock.clone()).unwrap();
    // Past the mark that the file was made with, so that it has to be raised.
    clock.advance(Duration::from_secs(600));
    let last = granted(&store.claim(&claim("a", Turn::Now)).await.unwrap()).token;
    store.close().await.unwrap();
    // The power cut took all that was not committed durably, and the clock has no battery.
    sql(&path, &format!("{REBOOT}, last = 1"));
    clock.step_wall(-1_700_000_000_000_000);
    let store = SqliteStore::open_with(&url(&path), clock).unwrap();
    let next = granted(&store.claim(&claim("a", Turn::Now)).await.unwrap()).token;
    assert!(next > last, "{next} is not above {last}");
}

#[tokio::test]
async fn another_kernel_on_the_same_file_is_told_of_and_nothing_works_after() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mine = claim("a", Turn::Now);
    let token = granted(&store.claim(&mine).await.unwrap()).token;
    sql(&path, "UPDATE state SET boot = 'of another kernel'");
    for error in [
        store.claim(&claim("b", Turn::Now)).await.unwrap_err(),
        renewed(&store, &mine, token).await.unwrap_err(),
        store.release(&mine.name, mine.id, Leave::Open).await.unwrap_err(),
        store.inspect(&mine.name).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::OTHER_MACHINE, "{error}");
    }
}

#[tokio::test]
async fn a_replaced_file_is_noticed_and_leases_of_the_old_one_are_lost() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let (store, elsewhere) = (open(&path), open(&home.path().join("other.db")));
    let mine = claim("a", Turn::Now);
    let token = granted(&store.claim(&mine).await.unwrap()).token;
    elsewhere.close().await.unwrap();
    std::fs::rename(home.path().join("other.db"), &path).unwrap();
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(home.path().join(format!("locks.db{suffix}"))).unwrap();
    }
    assert_eq!(renewed(&store, &mine, token).await.unwrap(), Renewal::Lost);
    // A fresh process and this one see the same file.
    let mut other = Player::start("hold", &[path.to_str().unwrap()]);
    other.hear();
    let busy = store.claim(&claim("a", Turn::Now)).await.unwrap();
    assert!(matches!(busy.state, State::Waiting { .. }));
    other.kill();
}

#[tokio::test]
async fn a_removed_file_is_noticed_too() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mine = claim("a", Turn::Now);
    let token = granted(&store.claim(&mine).await.unwrap()).token;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(renewed(&store, &mine, token).await.unwrap(), Renewal::Lost);
    assert!(granted(&store.claim(&claim("a", Turn::Now)).await.unwrap()).token > token);
    assert!(path.exists());
}

/// Copies the database as somebody would who stopped everything first.
pub(crate) fn copy(from: &Path, to: &Path) {
    sql(from, "PRAGMA wal_checkpoint(TRUNCATE)");
    std::fs::copy(from, to).unwrap();
}

#[tokio::test]
async fn a_restored_copy_holds_no_leases_of_the_dead() {
    let home = tempfile::tempdir().unwrap();
    let (path, backup) = (home.path().join("locks.db"), home.path().join("backup.db"));
    let mut holder = Player::start("hold", &[path.to_str().unwrap()]);
    let last: u64 = holder.hear().parse().unwrap();
    copy(&path, &backup);
    holder.kill();
    // Its files are tidied away by whoever comes next, and its rows come back with the copy.
    let store = open(&path);
    granted(&store.claim(&claim("a", Turn::Now)).await.unwrap());
    store.close().await.unwrap();
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(home.path().join(format!("locks.db{suffix}"))).unwrap();
    }
    std::fs::rename(&backup, &path).unwrap();
    let store = open(&path);
    assert!(granted(&store.claim(&claim("a", Turn::Now)).await.unwrap()).token.get() > last);
}

#[tokio::test]
async fn a_tidied_directory_of_lives_frees_no_lease() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let mut holder = Player::start("hold", &[path.to_str().unwrap()]);
    holder.hear();
    std::fs::remove_dir_all(home.path().join("locks.db-run")).unwrap();
    let store = open(&path);
    let busy = store.claim(&claim("a", Turn::Now)).await.unwrap();
    assert!(matches!(busy.state, State::Waiting { .. }), "its holder lives: {busy:?}");
    holder.kill();
}

#[tokio::test]
async fn a_closed_store_keeps_its_leases_while_the_process_lives() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let (store, other) = (open(&path), open(&path));
    granted(&store.claim(&claim("a", Turn::Now)).await.unwrap());
    store.close().await.unwrap();
    let busy = other.claim(&claim("a", Turn::Now)).await.unwrap();
    assert!(matches!(busy.state, State::Waiting { .. }));
    let error = store.claim(&claim("b", Turn::Now)).await.unwrap_err();
    assert!(!error.outcome_unknown(), "{error}");
}

#[tokio::test]
async fn a_full_disk_is_told_of_and_releases_still_work() {
    let home = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::run(&["-t", "tmpfs", "-o", "size=2m", "none"], home.path()) else {
        println!("skipped: only root can mount a small tmpfs");
        return;
    };
    let path = home.path().join("locks.db");
    let store = open(&path);
    let held: Vec<Claim> = (0..20).map(|index| claim(&format!("held-{index}"), Turn::Now)).collect();
    for mine in &held {
        granted(&store.claim(mine).await.unwrap());
    }
    let filler = home.path().join("filler");
    let fill = || {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&filler).unwrap();
        while file.write_all(&[1; 512]).is_ok() {}
    };
    fill();
    // Until nothing more fits, it is granted or refused in words.
    let mut refused = None;
    for index in 0..2000 {
        let mine =
            Claim { note: Note::parse(&"x".repeat(1000)).unwrap(), ..claim(&format!("n{index}"), Turn::Now) };
        if let Err(error) = store.claim(&mine).await {
            refused = Some(error);
            break;
        }
        fill();
    }
    let error = refused.expect("the disk is full");
    let leasehold_core::Error::Store(shown) = &error else { panic!("{error:?}") };
    assert_eq!((shown.kind, error.code()), (StoreErrorKind::Full, Code::FULL), "{error}");
    assert!(error.is_retryable() && !error.outcome_unknown(), "{error}");
    for mine in &held {
        assert_eq!(store.release(&mine.name, mine.id, Leave::Open).await.unwrap(), Release::Released);
    }
    std::fs::remove_file(&filler).unwrap();
    granted(&store.claim(&claim("again", Turn::Now)).await.unwrap());
}

#[tokio::test]
async fn a_time_namespace_sees_the_same_leases() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let under = ["unshare", "--time", "--boottime", "86400"];
    let works = std::process::Command::new("unshare").args(["--time", "--boottime", "1", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        println!("skipped: no time namespace can be made here");
        return;
    }
    let store = open(&path);
    let mut holder = Player::start_under(&under, "hold", &[path.to_str().unwrap()]);
    holder.hear();
    let seen = store.inspect(&name("a")).await.unwrap();
    let left = seen.holders[0].left;
    assert!(left <= Duration::from_secs(30) && left > Duration::from_secs(20), "{left:?}");
    let busy = store.claim(&claim("a", Turn::Now)).await.unwrap();
    assert!(matches!(busy.state, State::Waiting { .. }));
    holder.tell("");
    assert_eq!(holder.hear(), "released");
}

#[tokio::test]
async fn a_dead_process_between_its_claim_and_its_commit_leaves_a_sound_file() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    for round in 0..20 {
        let mut worker = Player::start("work", &[path.to_str().unwrap()]);
        worker.hear();
        std::thread::sleep(Duration::from_micros(fastrand::u64(..3000)));
        worker.kill();
        let mine = claim("a", Turn::Any);
        crate::stage::acquire(&store, &mine).await;
        store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
        let _ = round;
    }
    let found: String =
        crate::stage::connection(&path).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

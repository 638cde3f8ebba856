//! Opening the file: where it may be, whose it must be, and how it comes into being.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::{Code, StoreErrorKind};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::config::{Settings, beside};
use crate::fail::{Fail, Result};
use crate::life::{RunDir, Sharing};
use crate::retry;
use crate::schema::{APPLICATION_ID, Schema, State, random_id};
use crate::time::{HostTime, boot_id};

/// Below this size a file is checked whenever it is opened, which takes a millisecond or two; above it only after
/// a reboot.
const SMALL: i64 = 512 << 10;

/// Which file a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: i64,
    pub(crate) inode: i64,
}

impl Identity {
    /// The file that the path leads to now; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>> {
        Ok(look(path)?.as_ref().map(Self::from))
    }
}

impl From<&Stat> for Identity {
    fn from(stat: &Stat) -> Self {
        // The bits are kept as they are: they are only compared. The types differ between systems.
        Self { device: stat.st_dev as i64, inode: stat.st_ino as i64 }
    }
}

/// A file that may be used.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) identity: Identity,
    pub(crate) id: String,
    pub(crate) boot: String,
    pub(crate) lives: Arc<RunDir>,
    pub(crate) created: bool,
}

/// Opens the file, and makes it if there is none.
pub(crate) fn open(settings: &Settings, time: &HostTime, schema: Schema) -> Result<Opened> {
    let path = resolve(settings)?;
    let mut created = false;
    // Somebody may replace or remove it between our looks; one who does that for ever is not helped.
    for _ in 0..16 {
        let Some(stat) = look(&path)? else {
            created |= create(&path, settings, time, schema)?;
            continue;
        };
        let sharing = check_rights(&path, settings, &stat)?;
        let identity = Identity::from(&stat);
        check_contents(&path, stat.st_size)?;
        let lives = Arc::new(RunDir::open(&path, sharing)?);
        let connection = connect(&path)?;
        let boot = boot_id()?;
        let id = retry::patiently(&|| false, || {
            prepare(&connection, schema, time, identity, &boot, &lives, stat.st_size)
        })?;
        share_companions(&path, sharing)?;
        if Identity::of(&path)? == Some(identity) {
            return Ok(Opened { connection, identity, id, boot, lives, created });
        }
    }
    Err(Fail::new(StoreErrorKind::Unavailable, "the file changes while it is being opened")
        .code(Code::REPLACED))
}

/// The path without symbolic links but, if there is one, the last: that one is refused.
fn resolve(settings: &Settings) -> Result<PathBuf> {
    let Settings { path, by_default, group: _ } = settings;
    let parent = path.parent().unwrap_or(Path::new("/"));
    if *by_default {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(|error| io(format!("cannot make {}", parent.display()), &error))?;
    }
    let resolved = std::fs::canonicalize(parent).map_err(|error| {
        let fail = io(format!("cannot use the directory {}", parent.display()), &error);
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                fail.help(format!("make it first: mkdir -p {}", parent.display()))
            }
            _ => fail,
        }
    })?;
    check_file_system(&resolved)?;
    Ok(resolved.join(RunDir::file_name(path)))
}

fn io(doing: String, error: &std::io::Error) -> Fail {
    Fail::io(doing, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Looks without opening: closing a descriptor of the file would drop the locks that SQLite holds on it for
/// this process.
fn look(path: &Path) -> Result<Option<Stat>> {
    match rustix::fs::lstat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(Fail::io(format_args!("cannot look at {}", path.display()), error)),
    }
}

#[cfg(target_os = "linux")]
fn check_file_system(directory: &Path) -> Result<()> {
    let found = rustix::fs::statfs(directory)
        .map_err(|error| Fail::io(format_args!("cannot look at {}", directory.display()), error))?;
    let magic = found.f_type as u64 & 0xffff_ffff;
    let Some(name) = not_of_this_host(magic) else { return Ok(()) };
    Err(Fail::protocol(Code::NETWORK_FILE, format!("it is on {name}; file locks are not reliable there"))
        .help("use a file on a local disk, or a store that is made for several hosts, such as redis:"))
}

#[cfg(not(target_os = "linux"))]
fn check_file_system(_directory: &Path) -> Result<()> {
    Ok(())
}

/// The name of a file system that other kernels may share, or that does not keep shared memory or locks.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the numbers are those of Linux"))]
fn not_of_this_host(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 | 0xfe53_4d42 => "CIFS",
        0x0102_1997 => "9p",
        // virtiofs says this too.
        0x6573_5546 => "FUSE",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0xaad7_aaea => "PanFS",
        0x564c => "NCP",
        0x786f_4256 => "a VirtualBox shared folder",
        0xbacb_acbc => "a VMware shared folder",
        0x7c7c_6673 => "a Parallels shared folder",
        _ => return None,
    })
}

/// Whether we may trust the file, and with whom it is shared.
fn check_rights(path: &Path, settings: &Settings, stat: &Stat) -> Result<Sharing> {
    let denied = |text: String| Fail::new(StoreErrorKind::Denied, text);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => {
            return Err(denied("the file is a symbolic link".to_owned())
                .help("name the file itself: a link could be turned to another file while locks are held"));
        }
        _ => return Err(Fail::foreign("this is not a file")),
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    if mode.contains(Mode::WOTH) {
        return Err(denied("everybody may write to the file, so anybody could take locks away".to_owned())
            .help(format!("chmod o-w {}", path.display())));
    }
    let shared = mode.contains(Mode::RGRP | Mode::WGRP);
    let group = Gid::from_raw(stat.st_gid);
    match &settings.group {
        Some(wanted) if !shared || wanted.gid != group => {
            Err(denied(format!("the file is not shared with the group {}", wanted.name)).help(format!(
                "chgrp {0} {1}* && chmod g+rw {1}*, while nobody uses it",
                wanted.name,
                path.display()
            )))
        }
        _ => Ok(shared.then_some(group)),
    }
}

/// Whether it is ours, read without leaving a trace in a file that is not.
fn check_contents(path: &Path, size: i64) -> Result<()> {
    if size == 0 {
        return Err(Fail::foreign("the file is empty, so it was not made by Leasehold"));
    }
    let uri = format!("file:{}?immutable=1", escaped(path));
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let looker = Connection::open_with_flags(uri, flags)?;
    let found: rusqlite::Result<i32> = looker.query_row("PRAGMA application_id", [], |row| row.get(0));
    match found {
        Ok(APPLICATION_ID) => Ok(()),
        Ok(_) => Err(Fail::foreign("the file is a database of another program")),
        // A look that ignores the log sees a file half way through a checkpoint as damaged, and one whose
        // checkpoint was killed stays so until the next. The real connection, with the log, will tell.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The path as SQLite's URIs want it.
fn escaped(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    bytes.fold(String::new(), |text, byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' => {
            text + &char::from(*byte).to_string()
        }
        _ => text + &format!("%{byte:02x}"),
    })
}

fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(64);
    // A short `run` must not pay for two fsyncs when it ends.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // Otherwise a prepared statement may be planned anew for each value that is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Checks an opened file and brings it up to this boot; gives the id of the database. Runs again when another
/// process was in the way.
fn prepare(
    connection: &Connection,
    schema: Schema,
    time: &HostTime,
    identity: Identity,
    boot: &str,
    lives: &RunDir,
    size: i64,
) -> Result<String> {
    let state = State::read(connection)?;
    if connection.is_readonly("main")? {
        return Err(Fail::new(StoreErrorKind::Denied, "the file or its file system is read-only")
            .help("the file, its -wal and -shm and their directory must be writable to us"));
    }
    // Only now, since it writes.
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Fail::new(
            StoreErrorKind::Unavailable,
            format!("the file keeps the journal mode {mode}"),
        ));
    }
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let current = state.is_current(schema, boot, identity)?;
    if !current || size < SMALL {
        check_damage(connection)?;
    }
    if current {
        return Ok(state.id);
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    let state = State::read(connection)?;
    let id = state.id.clone();
    state.bring_up(connection, schema, time, identity, lives)?;
    transaction.commit()?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(id)
}

fn check_damage(connection: &Connection) -> Result<()> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    Err(Fail::damaged(format!("the file is damaged ({found})")))
}

/// Makes the file, all at once: whoever sees it sees it whole. Says whether it was us.
fn create(path: &Path, settings: &Settings, time: &HostTime, schema: Schema) -> Result<bool> {
    let sharing = settings.group.as_ref().map(|group| group.gid);
    let lives = RunDir::open(path, sharing)?;
    let _lock = lives.lock()?;
    if look(path)?.is_some() {
        return Ok(false);
    }
    // A log that outlived its database would be replayed into the new one.
    for suffix in ["-wal", "-shm"] {
        remove(&beside(path, suffix))?;
    }
    let hidden = beside(path, &format!("-{}.new", random_id()?));
    let made = fill(&hidden, sharing, time, schema).and_then(|()| {
        let fail = |error| Fail::io(format_args!("cannot make {}", path.display()), error);
        // Made beforehand, they have the right group from their first moment on.
        make(&beside(path, "-wal"), sharing)?;
        make(&beside(path, "-shm"), sharing)?;
        lives.save_room();
        rustix::fs::rename(&hidden, path).map_err(fail)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty()).map_err(fail)?;
        rustix::fs::fsync(&parent).map_err(fail)
    });
    if made.is_err() {
        for suffix in ["", "-journal"] {
            let _ = remove(&beside(&hidden, suffix));
        }
    }
    made.map(|()| true)
}

fn fill(hidden: &Path, sharing: Sharing, time: &HostTime, schema: Schema) -> Result<()> {
    make(hidden, sharing)?;
    let Some(identity) = Identity::of(hidden)? else {
        return Err(Fail::io(format_args!("cannot make {}", hidden.display()), Errno::NOENT));
    };
    let connection = connect(hidden)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction =
        rusqlite::Transaction::new_unchecked(&connection, rusqlite::TransactionBehavior::Exclusive)?;
    schema.fill(&connection, time, identity)?;
    transaction.commit()?;
    // Last, so that the file holds everything itself when it gets its name.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// Makes an empty file with the rights that all our files have.
fn make(path: &Path, sharing: Sharing) -> Result<()> {
    let fail = |error| Fail::io(format_args!("cannot make {}", path.display()), error);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(fail)?;
    if let Some(group) = sharing {
        rustix::fs::fchown(&fd, None, Some(group)).map_err(fail)?;
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP).map_err(fail)?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(Fail::io(format_args!("cannot remove {}", path.display()), error)),
    }
}

/// SQLite gives its companion files the group of the process that makes them; the others of our group could not
/// use the file then.
fn share_companions(path: &Path, sharing: Sharing) -> Result<()> {
    let Some(group) = sharing else { return Ok(()) };
    for suffix in ["-wal", "-shm"] {
        let companion = beside(path, suffix);
        let Some(stat) = look(&companion)? else { continue };
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if ours && stat.st_gid != group.as_raw() {
            rustix::fs::chownat(CWD, &companion, None, Some(group), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| Fail::io(format_args!("cannot share {}", companion.display()), error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_several_hosts_are_told_from_local_ones() {
        for (magic, name) in
            [(0x6969, "NFS"), (0xfe53_4d42, "CIFS"), (0x6573_5546, "FUSE"), (0x0102_1997, "9p")]
        {
            assert_eq!(not_of_this_host(magic), Some(name));
        }
        // ext4, xfs, btrfs, tmpfs, overlayfs, zfs, f2fs
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010] {
            assert_eq!(not_of_this_host(magic), None, "{magic:x}");
        }
    }

    #[test]
    fn any_path_can_be_said_as_a_uri() {
        assert_eq!(escaped(Path::new("/a b/c?d#e%f")), "/a%20b/c%3fd%23e%25f");
    }
}

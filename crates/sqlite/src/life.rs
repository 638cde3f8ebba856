//! The kernel's word on who lives: for each client a FIFO that it keeps open and locked while it lives.
//!
//! The lock (`flock`) is the truth: it belongs to the open file description, so it stands as long as the client
//! or any process that inherited the descriptor lives, and the kernel drops it however they die. The FIFO adds
//! what a plain file cannot: when its last writer closes, everybody who has it open for reading gets a hang-up.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Aftermath, BootTime, Line, Member};
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags};
use rustix::io::Errno;

use crate::config::beside;
use crate::fail::{Fail, Result};
use crate::schema::random_id;

/// For how long an anchored lease that has run out is prolonged at each look while its life lasts.
pub(crate) const HOLDS_ON: Duration = Duration::from_secs(2);
/// Copies of a life are for other programs to inherit, out of the way of the low numbers that they use.
const LOWEST_COPY: i32 = 60;
/// So many foreign lives are kept open for asking again; asking one that is not costs three calls more.
const MOST_OPEN: usize = 64;

/// Room on the disk that is kept for giving locks back.
const RESERVE: &str = "reserve";
const RESERVED: u64 = 256 << 10;

/// With whom files are shared: nobody, or a group.
pub(crate) type Sharing = Option<Gid>;

/// The directory of lives: `<file>-run`.
#[derive(Debug)]
pub(crate) struct RunDir {
    fd: OwnedFd,
    path: PathBuf,
    sharing: Sharing,
}

impl RunDir {
    /// Opens the directory beside the file, and makes it if there is none.
    pub(crate) fn open(file: &Path, sharing: Sharing) -> Result<Self> {
        let path = beside(file, "-run");
        let fail = |error| Fail::io(format_args!("cannot use {}", path.display()), error);
        let made = match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(fail(error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).map_err(fail)?;
        if made && let Some(group) = sharing {
            rustix::fs::fchown(&fd, None, Some(group)).map_err(fail)?;
            rustix::fs::fchmod(&fd, Mode::RWXU | Mode::RWXG).map_err(fail)?;
        }
        Ok(Self { fd, path, sharing })
    }

    pub(crate) fn as_fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The path of a socket in it. Socket addresses end at 108 bytes, so a long path goes by our descriptor.
    fn socket_path(&self, file: &str) -> PathBuf {
        let path = self.path.join(file);
        if cfg!(target_os = "linux") && path.as_os_str().len() >= 100 {
            return format!("/proc/self/fd/{}/{file}", self.fd.as_raw_fd()).into();
        }
        path
    }

    /// Begins a life: nobody sees it before it is locked.
    fn begin(&self) -> Result<Life> {
        let id = random_id()?;
        let fail = |error| Fail::io(format_args!("cannot use {}", self.path.display()), error);
        let (hidden, fifo) = (format!("{id}.new"), format!("{id}.life"));
        // macOS opens FIFOs for both ends too, though POSIX leaves it open.
        #[cfg(target_os = "linux")]
        rustix::fs::mknodat(&self.fd, &*hidden, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(fail)?;
        #[cfg(not(target_os = "linux"))]
        rustix::fs::mkfifoat(&self.fd, &*hidden, Mode::RUSR | Mode::WUSR).map_err(fail)?;
        let begun = (|| {
            self.share(&hidden)?;
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = rustix::fs::openat(&self.fd, &*hidden, flags, Mode::empty())?;
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            rustix::fs::renameat(&self.fd, &*hidden, &self.fd, &*fifo)?;
            Ok(lock)
        })();
        let lock = begun.map_err(|error| {
            let _ = rustix::fs::unlinkat(&self.fd, &*hidden, AtFlags::empty());
            fail(error)
        })?;
        let socket = self.bind(&id).map_err(|error| {
            let _ = rustix::fs::unlinkat(&self.fd, &*fifo, AtFlags::empty());
            fail(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        Ok(Life { id: id.into(), lock, socket: Arc::new(socket) })
    }

    fn bind(&self, id: &str) -> std::io::Result<UnixDatagram> {
        let file = format!("{id}.sock");
        let socket = UnixDatagram::bind(self.socket_path(&file))?;
        socket.set_nonblocking(true)?;
        self.share(&file)?;
        Ok(socket)
    }

    /// Gives a new file in it to those who share.
    fn share(&self, file: &str) -> rustix::io::Result<()> {
        let Some(group) = self.sharing else {
            // What the umask left may be too much for a socket.
            return rustix::fs::chmodat(&self.fd, file, Mode::RUSR | Mode::WUSR, AtFlags::empty());
        };
        rustix::fs::chownat(&self.fd, file, None, Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
        rustix::fs::chmodat(&self.fd, file, mode, AtFlags::empty())
    }

    /// Keeps some room on the disk, so that a lock can be given back when there is no more.
    pub(crate) fn save_room(&self) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::openat(&self.fd, RESERVE, flags, Mode::RUSR | Mode::WUSR) else { return };
        // Where there is no room now, there may be some when somebody tidies up again.
        if self.share(RESERVE).and_then(|()| allocate(&fd)).is_err() {
            self.spend_room();
        }
    }

    /// Gives the room back; says whether there was any.
    pub(crate) fn spend_room(&self) -> bool {
        rustix::fs::unlinkat(&self.fd, RESERVE, AtFlags::empty()).is_ok()
    }

    /// Opens a life to look at it.
    pub(crate) fn watch(&self, life: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, format!("{life}.life"), flags, Mode::empty())
    }

    /// Whether somebody surely lives it.
    pub(crate) fn is_alive(&self, life: &str) -> bool {
        self.watch(life).is_ok_and(|fd| !is_over(&fd))
    }

    /// Sends a few bytes to the socket of a life.
    pub(crate) fn send(&self, from: &UnixDatagram, life: &str, bytes: &[u8]) -> std::io::Result<()> {
        from.send_to(bytes, self.socket_path(&format!("{life}.sock"))).map(drop)
    }

    /// Removes the files of a life that is over.
    pub(crate) fn bury(&self, life: &str) {
        for suffix in ["life", "sock"] {
            // Somebody else may have been faster, or may come after us: nothing depends on it.
            let _ = rustix::fs::unlinkat(&self.fd, format!("{life}.{suffix}"), AtFlags::empty());
        }
    }

    /// Lives that are over. Nobody may come upon one that was killed before it claimed anything.
    fn over(&self) -> Vec<Arc<str>> {
        let Ok(listing) = rustix::fs::Dir::read_from(&self.fd) else { return Vec::new() };
        let lives = listing.flatten().filter_map(|entry| {
            let name = entry.file_name().to_string_lossy();
            let life = name.strip_suffix(".life")?;
            self.watch(life).is_ok_and(|fd| is_over(&fd)).then(|| life.into())
        });
        lives.collect()
    }

    /// Takes the lock under which the database file is made, and gives it back when the answer is dropped.
    pub(crate) fn lock(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fail = |error| Fail::io(format_args!("cannot use {}", self.path.display()), error);
        let fd = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(fail)?;
        rustix::fs::flock(&fd, FlockOperation::LockExclusive).map_err(fail)?;
        Ok(fd)
    }

    pub(crate) fn file_name(path: &Path) -> OsString {
        path.file_name().unwrap_or_default().to_owned()
    }
}

#[cfg(target_os = "linux")]
fn allocate(fd: &OwnedFd) -> rustix::io::Result<()> {
    rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, RESERVED)
}

#[cfg(not(target_os = "linux"))]
fn allocate(fd: &OwnedFd) -> rustix::io::Result<()> {
    rustix::io::write(fd, &[0; RESERVED as usize]).map(drop)
}

/// Whether the life behind this descriptor is over: nobody holds its lock any more.
pub(crate) fn is_over(fd: &impl AsFd) -> bool {
    if leasehold_core::fault!("sqlite_ignores_life") {
        return false;
    }
    match rustix::fs::flock(fd, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
            true
        }
        // Anything but a free lock is no proof of death.
        Err(_) => false,
    }
}

/// What can be said of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pulse {
    Lives,
    Over,
    Unknown,
}

/// Our own life.
#[derive(Debug)]
struct Life {
    id: Arc<str>,
    lock: OwnedFd,
    socket: Arc<UnixDatagram>,
}

/// Our own life, and what is known of others.
#[derive(Debug)]
pub(crate) struct Lives {
    dir: Arc<RunDir>,
    mine: Option<Life>,
    open: RefCell<HashMap<Arc<str>, OwnedFd>>,
    over: RefCell<HashSet<Arc<str>>>,
}

impl Lives {
    pub(crate) fn new(dir: Arc<RunDir>) -> Self {
        Self { dir, mine: None, open: RefCell::default(), over: RefCell::default() }
    }

    pub(crate) fn dir(&self) -> &Arc<RunDir> {
        &self.dir
    }

    /// Our own life, begun when it is first needed: whoever only looks needs none.
    pub(crate) fn mine(&mut self) -> Result<Arc<str>> {
        let life = match self.mine.take() {
            Some(life) => life,
            None => self.dir.begin()?,
        };
        Ok(self.mine.insert(life).id.clone())
    }

    /// Our own life, if it was begun.
    pub(crate) fn id(&self) -> Option<Arc<str>> {
        self.mine.as_ref().map(|life| life.id.clone())
    }

    /// Goes on beside another file, where our life is known only if it is the same directory.
    pub(crate) fn move_to(&mut self, dir: Arc<RunDir>, now: BootTime) {
        self.forget();
        let same = self.mine.as_ref().is_none_or(|mine| dir.is_alive(&mine.id));
        if !same {
            // Whoever still uses the old file must not think that we died: nothing there was given back.
            self.end(Some(BootTime::from_nanos(u64::MAX)), now);
        }
        self.dir = dir;
    }

    /// Our socket, once we have a life.
    pub(crate) fn socket(&self) -> Option<Arc<UnixDatagram>> {
        self.mine.as_ref().map(|life| life.socket.clone())
    }

    pub(crate) fn is_mine(&self, life: &str) -> bool {
        self.mine.as_ref().is_some_and(|mine| &*mine.id == life)
    }

    /// Whether a life is surely over.
    pub(crate) fn is_over(&self, life: &Arc<str>) -> bool {
        self.pulse(life) == Pulse::Over
    }

    /// What can be said of a life. One whose file is missing is not over: somebody may have tidied up what he did
    /// not know, and the ttl ends its leases all the same.
    fn pulse(&self, life: &Arc<str>) -> Pulse {
        if self.is_mine(life) {
            return Pulse::Lives;
        }
        let mut open = self.open.borrow_mut();
        let over = match open.get(life) {
            Some(fd) => is_over(fd),
            None => match self.dir.watch(life) {
                Ok(fd) => {
                    let over = is_over(&fd);
                    if open.len() >= MOST_OPEN {
                        open.clear();
                    }
                    open.insert(life.clone(), fd);
                    over
                }
                Err(_) => return Pulse::Unknown,
            },
        };
        if !over {
            return Pulse::Lives;
        }
        open.remove(life);
        self.over.borrow_mut().insert(life.clone());
        Pulse::Over
    }

    /// Drops from a line what has run out, and whose process has died; an anchored lease that has run out holds on
    /// while its life surely lasts.
    ///
    /// Only those are looked at whose death lets somebody in: who holds, and the waiters up to the first that
    /// lives. The others' places lapse by themselves, and looking at a crowd would cost each step two system calls
    /// for every one of them.
    ///
    /// Says whether the death of somebody began a closure: it ends so long after it was written down.
    pub(crate) fn sweep(&self, line: &mut Line, now: BootTime) -> bool {
        let mut head_lives = false;
        let mut dead = Vec::new();
        for member in &mut line.members {
            let holds = member.held.is_some();
            let (out, anchored) = (member.until <= now, holds && member.anchored);
            if (out && !anchored) || (!holds && head_lives) {
                continue;
            }
            match member.life.as_ref().map_or(Pulse::Unknown, |life| self.pulse(life)) {
                Pulse::Over => dead.push(member.id),
                // The next look comes when it ends, or then.
                Pulse::Lives if out => member.until = now.after(HOLDS_ON),
                // Its anchor may have held until now, for all that is known.
                Pulse::Unknown if out => dead.push(member.id),
                Pulse::Lives | Pulse::Unknown => head_lives |= !holds,
            }
        }
        let begins = |member: &Member| {
            let early = member.until > now || member.anchored;
            early && member.held.is_some() && member.aftermath != Aftermath::NONE && dead.contains(&member.id)
        };
        let begins = line.members.iter().any(begins);
        line.sweep(now, |member| dead.contains(&member.id));
        begins
    }

    /// A duplicate of the descriptor that is our life, begun if need be.
    pub(crate) fn anchor(&mut self) -> Result<OwnedFd> {
        let life = match self.mine.take() {
            Some(life) => life,
            None => self.dir.begin()?,
        };
        let copy = rustix::io::fcntl_dupfd_cloexec(&life.lock, LOWEST_COPY);
        self.mine = Some(life);
        copy.map_err(|error| Fail::io("cannot share the lock of this process", error))
    }

    /// Lives that were found over since this was asked last.
    pub(crate) fn take_over(&self) -> Vec<Arc<str>> {
        self.over.borrow_mut().drain().collect()
    }

    /// Finds all that are over, also those that nobody has come upon.
    pub(crate) fn find_over(&self) {
        self.over.borrow_mut().extend(self.dir.over());
    }

    /// Forgets descriptors of lives, so that none is kept open for long.
    pub(crate) fn forget(&self) {
        self.open.borrow_mut().clear();
    }

    /// Ends our own life. While it still `holds` something until a moment it goes on as long as the process:
    /// closing a store gives nothing back, and the work may still be running.
    pub(crate) fn end(&mut self, holds: Option<BootTime>, now: BootTime) {
        let Some(Life { id, lock, socket }) = self.mine.take() else { return };
        drop(socket);
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|(_, until)| *until > now);
        match holds {
            Some(until) => left.push((lock, until)),
            None => {
                self.dir.bury(&id);
                return;
            }
        }
        let _ = rustix::fs::unlinkat(self.dir.as_fd(), format!("{id}.sock"), AtFlags::empty());
    }
}

/// Lives of closed stores that still hold leases.
static LEFT: Mutex<Vec<(OwnedFd, BootTime)>> = Mutex::new(Vec::new());

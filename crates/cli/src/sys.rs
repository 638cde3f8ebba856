//! The only file with `unsafe`: what neither std, rustix nor tokio offers safely.
#![expect(
    unsafe_code,
    reason = "sigaction, sigprocmask, pre_exec and AsyncFd have no safe form; each block says why it is sound"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Pid;

/// Has all threads take memory from one place, in few and larger steps. A place for each thread is for programs whose
/// threads allocate all the time; here it costs a few dozen system calls and pages, in the milliseconds before a command
/// starts.
pub(crate) fn allocate_modestly() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it is called first of all, while there is one thread, and only sets numbers of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 256 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

/// Whether a signal was set to be ignored when this process started: by nohup, or by `&` in a script.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null `act` the call only reads, into memory that is large enough and stays ours; all bits
    // zero is a valid `sigaction`, so reading it is sound even if the call failed.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Ignores SIGTTOU from here on, so that a process in the background may take its terminal back and write to it.
/// Called after the child was started, which must not inherit it.
pub(crate) fn ignore_background_writes() {
    // SAFETY: SIG_IGN installs no handler, so no code of ours runs in a signal context.
    unsafe {
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
    }
}

/// Has the child look once more right before it becomes the command, and not become it on an error. If asked, it
/// puts its own group into the foreground of the terminal on stdin first: had the parent to do that, the command
/// could read before, and would be stopped for it.
pub(crate) fn before_exec(
    command: &mut Command,
    to_foreground: bool,
    look: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    let prepare = move || {
        if to_foreground {
            take_foreground()?;
        }
        look()
    };
    // SAFETY: between fork and exec only async-signal-safe work is allowed. `prepare` makes system calls, reads
    // atomics and the clock; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(prepare);
    }
}

fn take_foreground() -> io::Result<()> {
    let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the sets are initialised by the calls before they are read. The child has one thread.
    unsafe {
        libc::sigemptyset(blocked.as_mut_ptr());
        libc::sigaddset(blocked.as_mut_ptr(), libc::SIGTTOU);
        libc::sigprocmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
    }
    let taken = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), rustix::process::getpgrp());
    // SAFETY: `before` was filled by the first call.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    Ok(taken?)
}

/// A file that tells when it can be read.
#[cfg(target_os = "linux")]
pub(crate) fn readable(
    file: std::os::fd::OwnedFd,
) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    // SAFETY: tokio asks that the number stay open and the same while it is registered; an `OwnedFd` is, and is
    // closed only when the `AsyncFd` that owns it has taken it out of the reactor.
    Ok(unsafe { tokio::io::unix::AsyncFd::register(file) }?)
}

/// A copy of an open file that whoever started us left open for us.
pub(crate) fn inherited(number: i32) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: both calls take any number, and say so if it is not open. Everything that this process has opened
    // itself is closed on exec, so what is not was inherited: nobody can have a report written into the database.
    // The copy is a new number that nobody else knows of, so it is ours alone.
    unsafe {
        match libc::fcntl(number, libc::F_GETFD) {
            -1 => return Err(io::Error::last_os_error()),
            flags if flags & libc::FD_CLOEXEC != 0 => return Err(io::Error::from_raw_os_error(libc::EBADF)),
            _ => {}
        }
        match libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) {
            -1 => Err(io::Error::last_os_error()),
            copy => Ok(std::os::fd::OwnedFd::from_raw_fd(copy)),
        }
    }
}

/// The socket with this number, which whoever started this process left open for it.
pub(crate) fn inherited_socket(number: i32) -> io::Result<std::os::unix::net::UnixStream> {
    use std::os::fd::{FromRawFd as _, OwnedFd};
    // SAFETY: it is looked at, and not kept, before it is known to be open.
    let there = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if number <= 2 || there < 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: it is open, and nothing in this process knows of it: this is called once, before anything is opened.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    if rustix::net::sockopt::socket_domain(&socket)? != rustix::net::AddressFamily::UNIX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(socket.into())
}

/// Lets all that this process starts inherit a file, under a number of at least `least`.
pub(crate) fn pass_on(file: std::os::fd::OwnedFd, least: i32) -> io::Result<std::os::fd::OwnedFd> {
    // Few files may be allowed: then any number must do.
    let high = rustix::io::fcntl_dupfd_cloexec(&file, least).unwrap_or(file);
    rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty())?;
    Ok(high)
}

/// Keeps nobody's pipes and terminals open from here on.
pub(crate) fn let_go_of_stdio() {
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null");
    // Without it they stay as they are, which is no more than late.
    if let Ok(nothing) = nothing {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

/// The number of a child as rustix takes it.
pub(crate) fn pid_of(child: &std::process::Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_ignored_signal_is_told_from_others() {
        // Rust ignores SIGPIPE in every program, and nobody sets SIGUSR2 in this one.
        assert!(super::is_ignored(libc::SIGPIPE));
        assert!(!super::is_ignored(libc::SIGUSR2));
    }
}

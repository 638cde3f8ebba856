//! How the guard starts the command: the child waits for a last word from `run` before it becomes it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use leasehold::{BootTime, Clock};
use rustix::process::Pid;

use super::link::Link;
use super::{CANNOT_GO, SIGNALLED, TOO_LATE};
use crate::sys;

/// Starts the command in a group of its own, in the foreground of the terminal if asked, unless it is `before`
/// already or `run` says no.
pub(super) fn spawn(
    link: &Link,
    words: &[OsString],
    clock: &Clock,
    before: Option<BootTime>,
    foreground: bool,
    variables: &[(String, Option<String>)],
) -> io::Result<Pid> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let (link, clock) = (link.again()?, clock.clone());
    sys::before_exec(&mut command, foreground, move || {
        let refuse = |number| Err(io::Error::from_raw_os_error(number));
        // From here on `run` knows the number, and no signal that it hears is lost: it says no, or passes it on.
        match link.may_go() {
            Ok(true) => {}
            Ok(false) => return refuse(SIGNALLED),
            Err(_) => return refuse(CANNOT_GO),
        }
        match before {
            Some(before) if clock.now() >= before => refuse(TOO_LATE),
            _ => Ok(()),
        }
    });
    let child = command.spawn()?;
    sys::pid_of(&child).ok_or_else(|| io::ErrorKind::NotFound.into())
}

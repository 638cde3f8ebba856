//! The exit codes: each one constant with one sentence, and the table that `leasehold explain exit-codes` prints.

macro_rules! exits {
    ($($name:ident = $code:literal, $kind:literal, $sentence:literal;)+) => {
        $(#[doc = $sentence] pub(crate) const $name: u8 = $code;)+

        /// All of them, by number: code, kind and sentence.
        pub(crate) const ALL: &[(u8, &str, &str)] = &[$(($code, $kind, $sentence)),+];
    };
}

exits! {
    OK = 0, "ok", "The command ended well, or was skipped: the lock is busy and --busy skip stands, it is done already, or it is paused.";
    FREE = 1, "free", "status: nobody holds the lock. doctor: something must be fixed.";
    PAUSED = 2, "paused", "status: nobody holds the lock, and it is paused.";
    USAGE = 64, "usage", "A flag, a name or a duration is wrong, or -- is missing; the command was not run.";
    UNAVAILABLE = 69, "unavailable", "The store cannot be reached; the command was not run.";
    TEMPFAIL = 75, "busy", "Somebody else has the lock (--busy fail, acquire, or --wait ran out), or break was given an old token; nothing was run.";
    PROTOCOL = 76, "protocol", "Something else lives in the store's place, or data of a newer version; the command was not run.";
    NOPERM = 77, "denied", "The store refused us: login or rights; the command was not run.";
    CONFIG = 78, "config", "The configuration or the URL is wrong, or the store cannot do what was asked; the command was not run.";
    LOST = 79, "lost", "The lease was lost and the command had to be stopped; check, renew, release: it is not yours any more.";
    AT_MOST = 124, "at_most", "The command took longer than --at-most, and was stopped.";
    BUG = 125, "bug", "A defect of Leasehold's own.";
    NOT_EXECUTABLE = 126, "not_started", "The command is not executable; the lock was given back at once.";
    NOT_FOUND = 127, "not_started", "The command was not found; the lock was given back at once.";
}

/// As [`FREE`], which a status says: `doctor` found something that must be fixed.
pub(crate) const SICK: u8 = FREE;

/// What is added to the number of a signal that ended the command, or that made us leave the line.
const SIGNALLED: u8 = 128;

/// The exit code for a signal.
pub(crate) fn signalled(signal: i32) -> u8 {
    u8::try_from(signal).map_or(BUG, |signal| SIGNALLED.saturating_add(signal))
}

/// How a command ended, as the exit code that says the same: not by raising its signal again, since cron and
/// systemd read the code.
pub(crate) fn like(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(BUG),
        (None, Some(signal)) => signalled(signal),
        (None, None) => BUG,
    }
}

/// What kind of failure a code stands for.
pub(crate) fn kind(code: u8) -> &'static str {
    ALL.iter().find(|(number, ..)| *number == code).map_or("signal", |(_, kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn codes_are_sorted_and_the_end_of_a_command_is_kept() {
        assert!(ALL.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(like(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(like(ExitStatus::from_raw(9)), 137);
        assert_eq!(kind(UNAVAILABLE), "unavailable");
    }
}

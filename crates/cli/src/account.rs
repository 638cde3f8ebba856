//! The account of one run: what its report and its record say.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{BootTime, Busy, Code, RecordKind};
use serde_json::{Value, json};

use crate::exit;
use crate::failure::Failure;
use crate::human::{millis, utc};

/// Why a command was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skipped {
    Busy,
    Done,
    Paused,
    StoreDown,
}

impl Skipped {
    const fn word(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Done => "done",
            Self::Paused => "paused",
            Self::StoreDown => "store_down",
        }
    }
}

/// What is known of one run so far.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// By the wall clock, in microseconds.
    pub(crate) asked_at: u64,
    pub(crate) waited: Option<Duration>,
    pub(crate) token: Option<u64>,
    pub(crate) holder: Option<String>,
    /// When the command was started, and the same by the wall clock.
    pub(crate) started: Option<(BootTime, u64)>,
    pub(crate) ran: Option<Duration>,
    pub(crate) status: Option<ExitStatus>,
    /// Its time was over, and it was stopped: `--at-most`.
    pub(crate) cut_short: bool,
    pub(crate) skipped: Option<Skipped>,
    /// The slot, and whether it is done as far as is known.
    pub(crate) slot: Option<(String, bool)>,
    /// For how long the name was left shut.
    pub(crate) shut: Option<Duration>,
    /// Who had it.
    pub(crate) busy: Option<Busy>,
}

impl Account {
    /// How it ended, in one word.
    pub(crate) fn outcome(&self, result: &Result<u8, Failure>) -> &'static str {
        match (result, self.status) {
            _ if self.skipped.is_some() => "skipped",
            (Err(failure), _) => match failure.code {
                Code::LOST => "lost",
                Code::BUSY => "busy",
                Code::TIMED_OUT => "timed_out",
                Code::NOT_STARTED => "not_started",
                _ => "error",
            },
            (Ok(_), Some(_)) if self.cut_short => "at_most",
            (Ok(exit::OK), Some(_)) => "ok",
            (Ok(_), Some(_)) => "failed",
            (Ok(_), None) => "signalled",
        }
    }

    /// What kind of record it makes, if any: of what never came to a decision there is none.
    pub(crate) fn kind(&self, result: &Result<u8, Failure>) -> Option<RecordKind> {
        match self.outcome(result) {
            "ok" | "failed" | "at_most" | "lost" | "not_started" => Some(RecordKind::Run),
            "skipped" | "busy" | "timed_out" => Some(RecordKind::Skip),
            _ => None,
        }
    }

    /// What a record says of it. Others read it for as long as the store keeps it, so it is short.
    pub(crate) fn record(&self, result: &Result<u8, Failure>, host: &str) -> Value {
        let outcome = self.outcome(result);
        let started = self.started.map(|(_, at)| at);
        json!({
            "v": 1, "host": host, "outcome": outcome, "ok": outcome == "ok", "reason": self.reason(),
            "token": self.token, "started_at": started.and_then(utc), "ms": self.ran.map(millis),
            "waited_ms": self.waited.map(millis), "exit_code": self.code(), "signal": self.signal(),
            "slot": self.slot.as_ref().map(|(slot, _)| slot),
        })
    }

    /// What `--report` says of it: every key always there, what is not known is null.
    pub(crate) fn report(
        &self,
        result: &Result<u8, Failure>,
        name: &str,
        store: &str,
        period: Option<&str>,
    ) -> Value {
        let ended = self.started.zip(self.ran).map(|((_, at), ran)| at.saturating_add(millis(ran) * 1000));
        let (exit, error) = match result {
            Ok(code) => (*code, None),
            Err(failure) => {
                (failure.exit, Some(json!({"code": failure.code.to_string(), "message": failure.message})))
            }
        };
        let once =
            self.slot.as_ref().map(|(slot, done)| json!({"period": period, "slot": slot, "done": done}));
        json!({
            "v": 1, "name": name, "store": store, "outcome": self.outcome(result), "reason": self.reason(),
            "token": self.token, "holder": self.holder, "asked_at": utc(self.asked_at),
            "waited_ms": self.waited.map(millis), "started_at": self.started.and_then(|(_, at)| utc(at)),
            "ended_at": ended.and_then(utc), "ms": self.ran.map(millis), "exit_code": self.code(),
            "signal": self.signal(), "exit": exit, "once": once, "shut_ms": self.shut.map(millis),
            "error": error,
        })
    }

    fn reason(&self) -> Option<&'static str> {
        self.skipped.map(Skipped::word)
    }

    fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_word_and_its_record() {
        let ended = |raw| Account { status: Some(ExitStatus::from_raw(raw)), ..Account::default() };
        let cut_short = Account { cut_short: true, ..ended(0) };
        let skipped = Account { skipped: Some(Skipped::Done), ..Account::default() };
        let fails = |code| Err(Failure::new(code, 1, "x"));
        for (account, result, outcome, kind) in [
            (ended(0), Ok(0), "ok", Some(RecordKind::Run)),
            (ended(7 << 8), Ok(7), "failed", Some(RecordKind::Run)),
            (ended(9), Ok(137), "failed", Some(RecordKind::Run)),
            (cut_short, Ok(124), "at_most", Some(RecordKind::Run)),
            (ended(0), fails(Code::LOST), "lost", Some(RecordKind::Run)),
            (skipped, Ok(0), "skipped", Some(RecordKind::Skip)),
            (Account::default(), fails(Code::BUSY), "busy", Some(RecordKind::Skip)),
            (Account::default(), fails(Code::UNREACHABLE), "error", None),
            (Account::default(), Ok(143), "signalled", None),
        ] {
            assert_eq!(account.outcome(&result), outcome);
            assert_eq!(account.kind(&result), kind, "{outcome}");
            assert_eq!(account.record(&result, "h")["ok"], outcome == "ok");
        }
        assert_eq!(ended(9).report(&Ok(137), "n", "s", None)["signal"], 9);
    }
}

//! One record of a history, and its line of text.

use std::fmt;
use std::str::FromStr;

use leasehold_core::{BootTime, LockName, Share, Token, Turn};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What would end a field or a line, and the sign of the encoding itself.
const BLANKS: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// One thing that happened.
///
/// Its line is `<nanoseconds> <process> <claim> <kind> <details>`: numbers and words with one blank between, names
/// percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When, by the boot clock of the host.
    pub at: BootTime,
    /// To or by which process: a number that no other process of this history has.
    pub process: u32,
    /// Which claim of this process, from 1; zero for what befalls the process.
    pub claim: u64,
    /// What.
    pub what: Happened,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// The claim is about to be stated, for the how-manieth time.
    Asked {
        /// What is locked.
        name: LockName,
        /// For the how-manieth time, from 1.
        attempt: u32,
        /// How it takes its turn.
        turn: Turn,
        /// How much it takes.
        share: Share,
    },
    /// The store answered that it waits: it has a place in line now.
    Queued,
    /// The grant was returned.
    Granted {
        /// The token.
        token: Token,
        /// Until when the holder may act on it.
        valid_until: BootTime,
    },
    /// A renewal was answered.
    Renewed {
        /// Until when the holder may act on it now.
        valid_until: BootTime,
    },
    /// The lease, or the place, is about to be given back.
    ReleaseCalled,
    /// The store has acknowledged that.
    Released,
    /// The holder was told that the lease is lost.
    Lost,
    /// The claimant no longer wants it.
    GaveUp,
    /// Something was broken on purpose.
    Fault(FaultKind),
}

/// What was broken on purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The process was killed: it acts no longer.
    Killed,
    /// The process was stopped, and does not know it.
    Stopped,
    /// The process goes on.
    Continued,
    /// Anything else, in one word.
    Other(String),
}

/// Why a line is not a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError(String);

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a record of a history: {}", self.0)
    }
}

impl std::error::Error for RecordError {}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, process, claim, what } = self;
        write!(f, "{} {process} {claim} ", at.as_nanos())?;
        match what {
            Happened::Asked { name, attempt, turn, share } => {
                let name = utf8_percent_encode(name.as_str(), BLANKS);
                let turn = match turn {
                    Turn::Now => "now",
                    Turn::Any => "any",
                    Turn::Fifo => "fifo",
                };
                write!(f, "asked {name} {attempt} {turn} {} {}", share.take(), share.of())
            }
            Happened::Queued => f.write_str("queued"),
            Happened::Granted { token, valid_until } => {
                write!(f, "granted {token} {}", valid_until.as_nanos())
            }
            Happened::Renewed { valid_until } => write!(f, "renewed {}", valid_until.as_nanos()),
            Happened::ReleaseCalled => f.write_str("release_called"),
            Happened::Released => f.write_str("released"),
            Happened::Lost => f.write_str("lost"),
            Happened::GaveUp => f.write_str("gave_up"),
            Happened::Fault(kind) => match kind {
                FaultKind::Killed => f.write_str("fault killed"),
                FaultKind::Stopped => f.write_str("fault stopped"),
                FaultKind::Continued => f.write_str("fault continued"),
                FaultKind::Other(word) => write!(f, "fault {}", utf8_percent_encode(word, BLANKS)),
            },
        }
    }
}

/// The fields of a line, taken one after the other.
struct Fields<'a>(std::str::Split<'a, char>);

impl<'a> Fields<'a> {
    fn word(&mut self, what: &str) -> Result<&'a str, RecordError> {
        self.0.next().filter(|word| !word.is_empty()).ok_or_else(|| RecordError(format!("no {what}")))
    }

    fn number<T: FromStr>(&mut self, what: &str) -> Result<T, RecordError> {
        let word = self.word(what)?;
        word.parse().map_err(|_| RecordError(format!("{word:?} is no {what}")))
    }

    fn text(&mut self, what: &str) -> Result<String, RecordError> {
        let word = self.word(what)?;
        let text = percent_decode_str(word).decode_utf8();
        Ok(text.map_err(|_| RecordError(format!("{word:?} is no {what}")))?.into_owned())
    }

    fn time(&mut self, what: &str) -> Result<BootTime, RecordError> {
        self.number(what).map(BootTime::from_nanos)
    }

    fn asked(&mut self) -> Result<Happened, RecordError> {
        let name = self.text("name")?;
        let name = LockName::parse(&name).map_err(|error| RecordError(error.to_string()))?;
        let attempt = self.number("attempt")?;
        let turn = match self.word("turn")? {
            "now" => Turn::Now,
            "any" => Turn::Any,
            "fifo" => Turn::Fifo,
            other => return Err(RecordError(format!("{other:?} is no turn"))),
        };
        let share = Share::from_parts(self.number("share")?, self.number("size")?);
        let share = share.map_err(|error| RecordError(error.to_string()))?;
        Ok(Happened::Asked { name, attempt, turn, share })
    }

    fn granted(&mut self) -> Result<Happened, RecordError> {
        let number = self.number("token")?;
        let token = Token::new(number).ok_or_else(|| RecordError(format!("{number} is no token")))?;
        Ok(Happened::Granted { token, valid_until: self.time("time")? })
    }

    fn fault(&mut self) -> Result<Happened, RecordError> {
        let kind = match self.text("fault")?.as_str() {
            "killed" => FaultKind::Killed,
            "stopped" => FaultKind::Stopped,
            "continued" => FaultKind::Continued,
            other => FaultKind::Other(other.to_owned()),
        };
        Ok(Happened::Fault(kind))
    }
}

impl FromStr for Record {
    type Err = RecordError;

    fn from_str(line: &str) -> Result<Self, RecordError> {
        let mut fields = Fields(line.split(' '));
        let (at, process) = (fields.time("time")?, fields.number("process")?);
        let claim = fields.number("claim")?;
        let what = match fields.word("kind")? {
            "asked" => fields.asked()?,
            "queued" => Happened::Queued,
            "granted" => fields.granted()?,
            "renewed" => Happened::Renewed { valid_until: fields.time("time")? },
            "release_called" => Happened::ReleaseCalled,
            "released" => Happened::Released,
            "lost" => Happened::Lost,
            "gave_up" => Happened::GaveUp,
            "fault" => fields.fault()?,
            other => return Err(RecordError(format!("{other:?} is no kind"))),
        };
        match fields.0.next() {
            Some(more) => Err(RecordError(format!("{more:?} is too much"))),
            None => Ok(Self { at, process, claim, what }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(what: Happened) -> Record {
        Record { at: BootTime::from_nanos(123), process: 4, claim: 5, what }
    }

    #[test]
    fn every_kind_of_record_reads_back_as_it_was_written() {
        let name = LockName::parse("daily report 100%").unwrap();
        let (turn, share) = (Turn::Fifo, Share::permits(2, 5).unwrap());
        let valid_until = BootTime::from_nanos(999);
        let all = [
            Happened::Asked { name, attempt: 2, turn, share },
            Happened::Queued,
            Happened::Granted { token: Token::new(77).unwrap(), valid_until },
            Happened::Renewed { valid_until },
            Happened::ReleaseCalled,
            Happened::Released,
            Happened::Lost,
            Happened::GaveUp,
            Happened::Fault(FaultKind::Killed),
            Happened::Fault(FaultKind::Stopped),
            Happened::Fault(FaultKind::Continued),
            Happened::Fault(FaultKind::Other("reply lost".to_owned())),
        ];
        for what in all {
            let record = record(what);
            assert_eq!(record.to_string().parse::<Record>().unwrap(), record);
            assert!(!record.to_string().contains('\n'));
        }
    }

    #[test]
    fn a_line_that_is_not_whole_is_not_a_record() {
        let line = record(Happened::Granted {
            token: Token::new(77).unwrap(),
            valid_until: BootTime::from_nanos(999),
        })
        .to_string();
        assert_eq!(line, "123 4 5 granted 77 999");
        for bad in
            ["", "123", "123 4 5", "123 4 5 granted 77", "123 4 5 granted 0 9", "123 4 5 x", "1 2 3 lost 4"]
        {
            assert!(bad.parse::<Record>().is_err(), "{bad:?}");
        }
    }
}

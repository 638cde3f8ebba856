//! A claim as scripts read it, and what they answer.

use std::time::Duration;

use leasehold_core::{
    Aftermath, Claim, Cursor, Grant, Overruled, PLACE_LIFE, Result, ServerTime, Share, Standing, State,
    Token, Turn, Watch,
};
use redis::Value;

use crate::fail::{self, Fail};
use crate::keys::{Keys, hex};
use crate::line::closure;
use crate::pack;
use crate::script::Answer;

/// The most that a member of a line says of its aftermath.
const MOST_AFTERMATH: Duration = Duration::from_secs(40 * 24 * 3600);

/// Where a claim stands, as the server said.
#[derive(Debug)]
pub(crate) struct Stated {
    pub(crate) state: State,
    pub(crate) at: ServerTime,
    /// Whether it holds and waits for more.
    pub(crate) wants: bool,
    /// When to look again at the latest.
    pub(crate) retry: Option<Duration>,
    /// Whether it is the first in line behind another client's key.
    pub(crate) foreign: bool,
}

impl Stated {
    pub(crate) fn parse(claim: &Claim, keys: &Keys, value: Value) -> fail::Result<Result<Self, Overruled>> {
        let mut answer = Answer::new(value)?;
        let what = answer.text()?;
        let at = ServerTime::from_micros(answer.natural()?);
        let said = |state| Self { state, at, wants: false, retry: None, foreign: false };
        let token = |number| Token::new(number).ok_or_else(|| Fail::garbled("a token is out of range"));
        Ok(Ok(match what.as_str() {
            "g" => {
                let (first, run, left) = (answer.natural()?, answer.natural()?, answer.number()?);
                let ttl = Duration::from_micros(u64::try_from(left).unwrap_or(0));
                let tokens = u32::try_from(run).unwrap_or(1);
                said(State::Granted(Grant { token: token(first)?, tokens, ttl }))
            }
            "w" | "W" => {
                let ahead = u32::try_from(answer.natural()?).ok();
                let retry = u64::try_from(answer.number()?).ok().map(Duration::from_micros);
                let state = State::Waiting { ahead, retry_after: retry };
                let foreign = answer.number().is_ok_and(|first| first == 1);
                Self { state, at, wants: what == "W", retry, foreign }
            }
            "s" | "S" => {
                let left = answer.natural()?;
                let closure = closure(left, &answer.text()?, &answer.text()?);
                // Who holds and waits for more waits no longer than its lease.
                let lapse = answer.number().ok().and_then(|micros| u64::try_from(micros).ok());
                let lapse = lapse.map_or(PLACE_LIFE, Duration::from_micros);
                let retry = Some(closure.left.min(lapse));
                Self { state: State::Closed(closure), at, wants: what == "S", retry, foreign: false }
            }
            "x" => said(State::Spent),
            "r" => said(State::Refused { counter: token(answer.natural()?)? }),
            "T" => return Err(Fail::foreign(&keys.plain, &answer.text()?)),
            "L" => return Ok(Err(Overruled::Late)),
            "N" => return Ok(Err(Overruled::NoTokenLeft)),
            "U" => return Ok(Err(Overruled::Outdated)),
            "D" | "C" | "K" | "O" => {
                let share = pack::share(answer.natural()?, answer.natural()?).unwrap_or(claim.share);
                return Ok(Err(match what.as_str() {
                    "D" => Overruled::Disagrees { theirs: share },
                    "K" => Overruled::OtherKind { held: share },
                    "O" => Overruled::OtherShare { stands: share },
                    _ => Overruled::CannotGrow { held: share },
                }));
            }
            _ => return Err(Fail::garbled("an unknown state")),
        }))
    }

    pub(crate) fn standing(self, claim: &Claim, claimed: u64) -> Standing {
        let turn = || joined(&Watch::Turn(claim.id).cursor(), claimed);
        let cursor = match &self.state {
            State::Granted(_) => Watch::Hold(claim.id).cursor(),
            State::Waiting { .. } | State::Closed(_) if self.wants => turn(),
            State::Waiting { .. } | State::Closed(_) if claim.turn != Turn::Now => turn(),
            // Nobody has looked, so whatever is there may be a change.
            _ => Cursor::default(),
        };
        Standing { state: self.state, cursor, server_time: Some(self.at) }
    }
}

/// A cursor with the number of the claim that it came with.
pub(crate) fn joined(cursor: &Cursor, claimed: u64) -> Cursor {
    Cursor::new([cursor.as_bytes(), &claimed.to_be_bytes()].concat())
}

/// The two again.
pub(crate) fn split(cursor: &Cursor) -> (Cursor, Option<u64>) {
    match cursor.as_bytes().split_last_chunk::<8>() {
        Some((watch, claimed)) if watch.len() == 17 => {
            (Cursor::new(watch.to_vec()), Some(u64::from_be_bytes(*claimed)))
        }
        _ => (cursor.clone(), None),
    }
}

/// Whether a plain key tells all there is to a lease of this claim.
pub(crate) fn is_plain(claim: &Claim) -> bool {
    claim.share == Share::EXCLUSIVE && claim.aftermath == Aftermath::NONE
}

pub(crate) fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// A claim as scripts read it.
pub(crate) fn claim_args(claim: &Claim, channel: &str) -> [Vec<u8>; 16] {
    // Destructured in full: a script that is not told of something new would pass it over in silence.
    let Claim {
        name: _,
        id,
        owner,
        share,
        reshape,
        turn,
        ttl,
        note,
        // No kernel tells this server who lives.
        anchored: _,
        aftermath: Aftermath { delay, at_least },
        succeeds,
        tokens,
        seen,
        proposed,
        not_after,
    } = claim;
    let token = |token: Option<Token>| token.map(|token| token.to_string()).unwrap_or_default();
    let turn = match turn {
        Turn::Now => "N",
        Turn::Any => "A",
        Turn::Fifo => "F",
    };
    [
        hex(*id),
        share.take().to_string(),
        share.of().to_string(),
        turn.to_owned(),
        millis(*ttl),
        pack::owner(owner),
        note.text().unwrap_or("").to_owned(),
        tokens.max(&1).to_string(),
        token(*seen),
        token(*proposed),
        not_after.map(|last| last.as_micros().to_string()).unwrap_or_default(),
        succeeds.map(hex).unwrap_or_default(),
        millis((*delay).min(MOST_AFTERMATH)),
        millis((*at_least).min(MOST_AFTERMATH)),
        channel.to_owned(),
        reshape.to_string(),
    ]
    .map(String::into_bytes)
}

//! One name as the server keeps it, read into the law's own line: so looks and waits are judged by the law itself.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use leasehold_core::{
    Aftermath, BootTime, ClaimId, Closure, Cursor, Entry, Held, Line, LockName, Member, Moment, Note, Owner,
    PLACE_LIFE, Ruling, SHORT_GRANT, ServerTime, Share, Shut, Snapshot, Token, Turn, Watch,
};
use redis::Value;

use crate::fail::{Fail, Result};
use crate::keys::id_of;
use crate::pack;
use crate::script::{Answer, number, text};

/// What stands under a plain key whose holders are in the line.
pub(crate) const OCCUPIED: &str = "leasehold:occupied";
/// What is left of a lease that never ends by itself.
const FOR_EVER: Duration = Duration::MAX;

/// One name, looked at.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) at: Moment,
    pub(crate) line: Line,
    /// Whether the mark of those who hold is gone: they have lost, and nobody is admitted until they have ended.
    pub(crate) broken: bool,
    /// Somebody else's value under the plain key: what it is, and how long it lives, if not for ever.
    pub(crate) foreign: Option<(String, Option<Duration>)>,
    /// Until when the name is shut.
    shut_until: Option<BootTime>,
    /// When something of ours runs out next.
    next_lapse: Option<BootTime>,
}

impl Looked {
    /// Reads what the script answered.
    pub(crate) fn parse(name: &LockName, plain: &str, value: Value) -> Result<Self> {
        let mut answer = Answer::new(value)?;
        if answer.text()? == "T" {
            answer.next()?;
            return Err(Fail::foreign(plain, &answer.text()?));
        }
        let now = answer.natural()?;
        let at = Moment { boot: boot(now), wall: ServerTime::from_micros(now) };
        let stands = answer.text()?;
        let left = answer.number()?;
        let places = pairs(answer.next()?)?;
        let holders = pairs(answer.next()?)?;
        let ends: HashMap<String, u64> = pairs(answer.next()?)?.into_iter().collect();
        let info = Answer::new(answer.next()?)?.texts()?;
        let info: HashMap<&str, &str> =
            info.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();

        let mut line = Line { shut: info.get("s").and_then(|text| shut(text, now)), ..Line::default() };
        let mut foreign = None;
        // The server drops a key only after the millisecond of its end.
        let left = u64::try_from(left).ok().map(|left| (left + 1).saturating_mul(1000));
        match leased(&stands, now, left.unwrap_or(0)) {
            Some(member) => line.members.push(member),
            None if stands == OCCUPIED || stands.is_empty() => {}
            None => foreign = Some((stands.clone(), left.map(Duration::from_micros))),
        }
        for (text, place) in &places {
            line.members.extend(waiting(text, *place, &ends, &info));
        }
        let first = line.members.len();
        for (text, place) in &holders {
            line.members.extend(holding(text, *place, &ends, &info));
        }
        let broken =
            stands != OCCUPIED && line.members.iter().skip(first).any(|member| member.until > at.boot);
        line.members.sort_by_key(|member| member.place);
        // What is over and not yet swept is the law's to judge.
        let law = line.snapshot(at, name);
        let shut_until = law.closed.map(|closure| at.boot.after(closure.left));
        let next_lapse = Watch::parse(&law.cursor).and_then(|watch| match line.rule(at.boot, watch) {
            Ruling::NotBefore(until) => Some(until),
            Ruling::Ready | Ruling::NotYet => None,
        });
        Ok(Self { at, line, broken, foreign, shut_until, next_lapse })
    }

    /// The name as people look at it.
    pub(crate) fn snapshot(&self, name: &LockName) -> Snapshot {
        let mut snapshot = self.line.snapshot(self.at, name);
        if let Some((value, left)) = &self.foreign {
            snapshot.holders.insert(0, stranger(value, *left));
        }
        snapshot.cursor = self.cursor();
        snapshot
    }

    /// From what to wait for a change: whoever stands here now, and whoever keeps the name shut.
    pub(crate) fn cursor(&self) -> Cursor {
        let mut hasher = DefaultHasher::new();
        let live = self.line.members.iter().filter(|member| member.until > self.at.boot);
        for Member { id, share, wanted, held, .. } in live {
            (id, share, wanted, held.is_some()).hash(&mut hasher);
        }
        self.shut_until.hash(&mut hasher);
        self.foreign.as_ref().map(|(value, _)| value).hash(&mut hasher);
        Cursor::new([&b"l"[..], &hasher.finish().to_be_bytes()].concat())
    }

    /// When the first of those who stand here may run out.
    pub(crate) fn next_lapse(&self) -> Option<Duration> {
        let ours = self.next_lapse.map(|until| until.since(self.at.boot));
        let foreign = self.foreign.as_ref().and_then(|(_, left)| *left);
        ours.into_iter().chain(foreign).min()
    }
}

/// The server's clock is the only one here, so it stands for the boot clock that the law judges by.
fn boot(micros: u64) -> BootTime {
    BootTime::from_nanos(micros.saturating_mul(1000))
}

fn pairs(value: Value) -> Result<Vec<(String, u64)>> {
    let flat: Vec<Value> = Answer::new(value)?.rest().collect();
    let pair = |pair: &[Value]| {
        let score = match &pair[1] {
            Value::BulkString(bytes) => {
                let score: Option<f64> = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
                score.filter(|score| *score >= 0.0).map(|score| score as u64)
            }
            other => number(other).ok().and_then(|number| u64::try_from(number).ok()),
        };
        Ok((text(pair[0].clone())?, score.ok_or_else(|| Fail::garbled("a score is no number"))?))
    };
    flat.chunks_exact(2).map(pair).collect()
}

/// A plain lease of ours.
fn leased(value: &str, now: u64, left: u64) -> Option<Member> {
    let mut parts = value.splitn(11, '|');
    let id = id_of(parts.next()?)?;
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (place, first, run) = (number()?, number()?, number()?);
    let (ttl, since, reshape) = (number()?, number()?, number()?);
    let owner = pack::owner_of(parts.next()?);
    let token = parts.next()?.parse().ok()?;
    let tenure = parts.next()?.parse().ok()?;
    let note = Note::parse(parts.next()?).ok()?;
    let ttl = Duration::from_millis(ttl);
    let until = boot(now + left);
    Some(Member {
        id,
        owner,
        share: Share::EXCLUSIVE,
        wanted: None,
        reshape: u32::try_from(reshape).ok()?,
        turn: Turn::Any,
        ttl,
        aftermath: Aftermath::NONE,
        note,
        place,
        since: boot(since),
        until,
        renewed: renewed(boot(since), until, ttl),
        held: Some(Held {
            token: Token::new(token)?,
            first: Token::new(first)?,
            run: u32::try_from(run).ok()?,
            since: boot(since),
            // A renewal writes nothing that could be counted.
            renewals: 0,
            tenure,
        }),
        anchored: false,
        life: None,
    })
}

/// When a lease was last renewed, or granted: nothing else sets its end.
fn renewed(since: BootTime, until: BootTime, ttl: Duration) -> BootTime {
    let grain = Duration::from_millis(1);
    let as_granted = until <= since.after(ttl.min(SHORT_GRANT) + grain);
    if as_granted { since } else { until.before(ttl).max(since) }
}

fn waiting(
    text: &str,
    place: u64,
    ends: &HashMap<String, u64>,
    info: &HashMap<&str, &str>,
) -> Option<Member> {
    let mut member = member(text, place, ends, info)?;
    member.renewed = member.until.before(PLACE_LIFE);
    Some(member)
}

fn holding(
    text: &str,
    place: u64,
    ends: &HashMap<String, u64>,
    info: &HashMap<&str, &str>,
) -> Option<Member> {
    let mut member = member(text, place, ends, info)?;
    let key = format!("g{}", text.get(..32)?);
    let mut parts = info.get(key.as_str())?.split('|');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (first, run, renewals, token, tenure) = (number()?, number()?, number()?, number()?, number()?);
    member.renewed = renewed(member.since, member.until, member.ttl);
    member.held = Some(Held {
        token: Token::new(token)?,
        first: Token::new(first)?,
        run: u32::try_from(run).ok()?,
        since: member.since,
        renewals: u32::try_from(renewals).unwrap_or(u32::MAX),
        tenure: u32::try_from(tenure).ok()?,
    });
    Some(member)
}

/// A member of the line: id, turn, share, wanted share, ttl, delay, at_least, reshape, since.
fn member(text: &str, place: u64, ends: &HashMap<String, u64>, info: &HashMap<&str, &str>) -> Option<Member> {
    let hex = |from: usize| u64::from_str_radix(text.get(from..from + 8)?, 16).ok();
    let millis = |from: usize| hex(from).map(Duration::from_millis);
    let written = text.get(..32)?;
    let (owner, note) = info.get(written)?.split_once('|')?;
    let until = boot(*ends.get(written)?);
    Some(Member {
        id: id_of(written)?,
        owner: pack::owner_of(owner),
        share: pack::share(hex(33)?, hex(41)?)?,
        wanted: pack::share(hex(49)?, hex(57)?),
        reshape: u32::try_from(hex(89)?).ok()?,
        turn: if text.get(32..33)? == "F" { Turn::Fifo } else { Turn::Any },
        ttl: millis(65)?,
        aftermath: Aftermath { delay: millis(73)?, at_least: millis(81)? },
        note: Note::parse(note).ok()?,
        place,
        since: boot(text.get(97..)?.parse().ok()?),
        until,
        renewed: until,
        held: None,
        anchored: false,
        life: None,
    })
}

fn shut(text: &str, now: u64) -> Option<Shut> {
    let mut parts = text.splitn(4, '|');
    let till: u64 = parts.next()?.parse().ok()?;
    let lasting: u64 = parts.next()?.parse().ok()?;
    let by = pack::owner_of(parts.next()?);
    let note = Note::parse(parts.next()?).ok()?;
    Some(Shut { until: boot(till.min(now.saturating_add(lasting))), by, note })
}

/// The closure that an answer tells of.
pub(crate) fn closure(left: u64, owner: &str, note: &str) -> Closure {
    let note = Note::parse(note).unwrap_or_default();
    Closure { left: Duration::from_micros(left), by: pack::owner_of(owner), note }
}

/// A holder that speaks another language: its value is all that is known, and may be its secret.
fn stranger(value: &str, left: Option<Duration>) -> Entry {
    let shown: String = value.chars().filter(|c| !c.is_control()).take(8).collect();
    let note = match left {
        Some(_) => "another client of this key holds it",
        None => {
            "another client of this key holds it, and it never ends by itself: look whether its holder lives"
        }
    };
    Entry {
        id: ClaimId::from_bytes([0; 16]),
        owner: Owner {
            host: "another client".to_owned(),
            user: "unknown".to_owned(),
            pid: 0,
            program: "foreign".to_owned(),
            tag: format!("{shown}.."),
        },
        share: Share::EXCLUSIVE,
        wanted: None,
        reshape: 0,
        note: Note::parse(note).unwrap_or_default(),
        token: None,
        tenure: 0,
        age: Duration::ZERO,
        renewed: Duration::ZERO,
        renewals: 0,
        left: left.unwrap_or(FOR_EVER),
        ttl: left.unwrap_or(FOR_EVER),
    }
}

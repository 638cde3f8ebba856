//! The checker against brute force on small random histories: the same promises, said again in the plainest way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{BootTime, LockName, PLACE_LIFE, Share, Token, Turn};

use super::check::check;
use super::{ClaimKey, FaultKind, Happened, Record, Violation};

/// Time goes in these, so that small numbers come near the life of a place.
const UNIT: Duration = Duration::from_millis(250);

fn unit(number: u64) -> BootTime {
    BootTime::from_nanos(0).after(UNIT * u32::try_from(number).unwrap())
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// One of few names, shares and turns, so that claims meet.
fn asked(dice: &mut fastrand::Rng) -> Happened {
    let permits = [Share::permits(1, 2).unwrap(), Share::permits(2, 3).unwrap()];
    let shares = [Share::EXCLUSIVE, Share::EXCLUSIVE, Share::SHARED, permits[0], permits[1]];
    Happened::Asked {
        name: LockName::parse(["a", "a", "a", "b"][dice.usize(..4)]).unwrap(),
        attempt: 1,
        turn: [Turn::Now, Turn::Any, Turn::Fifo, Turn::Fifo][dice.usize(..4)],
        share: shares[dice.usize(..shares.len())],
    }
}

/// A claim with a plausible life, or, if it is to be `wild`, with any.
fn claim(dice: &mut fastrand::Rng, key: ClaimKey, wild: bool) -> Vec<Record> {
    let mut at = dice.u64(..60);
    let mut records: Vec<Record> = Vec::new();
    let mut push = |at: &mut u64, what: Happened, then: u64| {
        records.push(Record { at: unit(*at), process: key.0, claim: key.1, what });
        *at += then;
    };
    let first = asked(dice);
    if !wild || dice.u8(..10) > 0 {
        push(&mut at, first.clone(), dice.u64(1..4));
    }
    for _ in 0..dice.u8(..4) {
        push(&mut at, Happened::Queued, dice.u64(0..6));
        let again = if wild && dice.u8(..10) == 0 { asked(dice) } else { first.clone() };
        push(&mut at, again, dice.u64(0..4));
    }
    let mut valid_until = at + dice.u64(1..12);
    if dice.u8(..12) > 0 {
        let granted = Happened::Granted { token: token(dice.u64(1..12)), valid_until: unit(valid_until) };
        push(&mut at, granted, dice.u64(1..8));
        if !wild && at <= valid_until && dice.bool() {
            valid_until = at + dice.u64(1..12);
            push(&mut at, Happened::Renewed { valid_until: unit(valid_until) }, dice.u64(1..6));
        }
        if !wild && dice.u8(..4) > 0 {
            push(&mut at, Happened::ReleaseCalled, dice.u64(0..3));
            push(&mut at, Happened::Released, 0);
        }
    }
    for _ in 0..if wild { dice.u8(..4) } else { 0 } {
        let what = match dice.u8(..12) {
            0..4 => Happened::Renewed { valid_until: unit(at + dice.u64(1..12)) },
            4..7 => Happened::ReleaseCalled,
            7..9 => Happened::Released,
            9 => Happened::Lost,
            10 => Happened::Queued,
            _ => Happened::Granted { token: token(dice.u64(1..12)), valid_until: unit(at + 5) },
        };
        push(&mut at, what, dice.u64(0..6));
    }
    records
}

fn history(dice: &mut fastrand::Rng) -> Vec<Record> {
    let wild = dice.u8(..3) == 0;
    let mut records = Vec::new();
    for number in 1..=dice.u64(1..=8) {
        records.extend(claim(dice, (1 + u32::try_from(number % 3).unwrap(), number), wild));
    }
    if dice.u8(..4) == 0 {
        let (at, process) = (unit(dice.u64(..80)), dice.u32(1..4));
        records.push(Record { at, process, claim: 0, what: Happened::Fault(FaultKind::Killed) });
    }
    records.sort_by_key(|record| record.at);
    // Most histories have tokens in the order of their grants.
    if dice.u8(..4) > 0 {
        let mut next = 0;
        for record in &mut records {
            if let Happened::Granted { token: given, .. } = &mut record.what {
                next += 1;
                *given = token(next);
            }
        }
    }
    records
}

/// A claim as brute force sees it: its records, and nothing worked out beforehand.
struct Plain<'a> {
    records: Vec<&'a Record>,
    killed: Option<BootTime>,
}

impl Plain<'_> {
    fn first(&self, wanted: impl Fn(&Happened) -> bool) -> Option<usize> {
        self.records.iter().position(|record| wanted(&record.what))
    }

    fn asked(&self) -> Option<(&LockName, Turn, Share)> {
        match &self.records[0].what {
            Happened::Asked { name, turn, share, .. } => Some((name, *turn, *share)),
            _ => None,
        }
    }

    fn granted(&self) -> Option<(usize, BootTime, Token, BootTime)> {
        let index = self.first(|what| matches!(what, Happened::Granted { .. }))?;
        let Happened::Granted { token, valid_until } = self.records[index].what else { return None };
        Some((index, self.records[index].at, token, valid_until))
    }

    /// When it ended by release or loss, as of the record at `until`.
    fn ended_before(&self, until: usize) -> Option<BootTime> {
        let ends = |record: &&&Record| match record.what {
            Happened::ReleaseCalled => true,
            Happened::Lost => self.granted().is_some_and(|(_, at, ..)| at <= record.at),
            _ => false,
        };
        self.records[..until].iter().find(ends).map(|record| record.at)
    }

    /// Until when it was valid; each renewal that came in time moves that.
    fn valid(&self) -> Option<(BootTime, BootTime)> {
        let (index, from, _, mut until) = self.granted()?;
        for (at, record) in self.records.iter().enumerate().skip(index) {
            let Happened::Renewed { valid_until } = record.what else { continue };
            if self.ended_before(at).is_none() && record.at <= until {
                until = valid_until;
            }
        }
        let ends = [Some(until), self.ended_before(self.records.len()), self.killed];
        Some((from, ends.into_iter().flatten().min()?))
    }

    /// The last ask that was answered with "wait", or the first ask.
    fn since(&self) -> BootTime {
        let granted = self.granted().map_or(self.records.len(), |(index, ..)| index);
        let asks = (0..granted).filter(|at| {
            let answered = self.records[*at + 1..granted]
                .iter()
                .find(|next| matches!(next.what, Happened::Queued | Happened::Asked { .. }));
            let asks = matches!(self.records[*at].what, Happened::Asked { .. });
            asks && answered.is_some_and(|answer| answer.what == Happened::Queued)
        });
        self.records[asks.max().unwrap_or(0)].at
    }

    fn queued(&self) -> Option<BootTime> {
        let granted = self.granted().map_or(self.records.len(), |(index, ..)| index);
        let queued = self.first(|what| *what == Happened::Queued).filter(|at| *at < granted);
        queued.map(|at| self.records[at].at)
    }

    /// Whether no two answers are so far apart that the place may have lapsed between them.
    fn steady(&self) -> bool {
        let (mut refreshed, mut asked) = (None, self.records[0].at);
        for record in &self.records {
            let answer = matches!(record.what, Happened::Queued | Happened::Granted { .. });
            if let (true, Some(refreshed)) = (answer, refreshed)
                && record.at.since(refreshed) > PLACE_LIFE - Duration::from_millis(100)
            {
                return false;
            }
            match record.what {
                Happened::Asked { .. } => asked = record.at,
                Happened::Queued => refreshed = Some(asked),
                Happened::Granted { .. } => return true,
                _ => {}
            }
        }
        true
    }
}

/// The kinds of violations, by brute force.
fn brute(records: &[Record]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut by_key: BTreeMap<ClaimKey, Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.claim != 0) {
        by_key.entry((record.process, record.claim)).or_default().push(record);
    }
    let killed = |process| {
        let kills = records.iter().filter(|r| r.process == process && r.claim == 0);
        kills.map(|record| record.at).min()
    };
    let mut claims = Vec::new();
    for ((process, _), mut records) in by_key {
        // What comes before the first ask is impossible, and told apart from the rest.
        let first = records.iter().position(|record| matches!(record.what, Happened::Asked { .. }));
        if first != Some(0) {
            found.insert("impossible");
        }
        records.drain(..first.unwrap_or(records.len()));
        if !records.is_empty() {
            claims.push(Plain { records, killed: killed(process) });
        }
    }
    claims.iter().for_each(|claim| alone(claim, &mut found));
    for one in &claims {
        for other in &claims {
            if !std::ptr::eq(one, other) && one.asked().map(|a| a.0) == other.asked().map(|a| a.0) {
                together(one, other, &mut found);
            }
        }
        if let Some((from, _)) = one.valid().filter(|(from, end)| from < end) {
            let inside = |other: &&Plain<'_>| {
                let same = one.asked().map(|a| a.0) == other.asked().map(|a| a.0);
                same && other.valid().is_some_and(|(start, end)| start <= from && from < end)
            };
            let shares: Vec<Share> =
                claims.iter().filter(inside).filter_map(|c| Some(c.asked()?.2)).collect();
            let taken: u64 = shares.iter().map(|share| u64::from(share.take())).sum();
            if shares.iter().any(|share| taken > u64::from(share.of())) {
                found.insert("overlap");
            }
        }
    }
    found
}

fn alone(claim: &Plain<'_>, found: &mut BTreeSet<&'static str>) {
    let granted = claim.granted().map(|(index, ..)| index);
    for (at, record) in claim.records.iter().enumerate() {
        let before = granted.is_none_or(|granted| at < granted);
        let kind = match &record.what {
            Happened::Asked { name, turn, share, .. } if claim.asked() != Some((name, *turn, *share)) => {
                "impossible"
            }
            Happened::Queued if !before => "impossible",
            Happened::Granted { .. } if granted != Some(at) => "granted twice",
            Happened::Renewed { .. } | Happened::Lost if before => "impossible",
            Happened::Renewed { .. } => {
                let until = Plain { records: claim.records[..at].to_vec(), killed: None };
                let late = until.valid().is_some_and(|(_, end)| record.at > end);
                if late || until.ended_before(at).is_some() { "revived" } else { continue }
            }
            Happened::Released => {
                let called = claim.records[..at].iter().any(|r| r.what == Happened::ReleaseCalled);
                if called { continue } else { "impossible" }
            }
            _ => continue,
        };
        found.insert(kind);
    }
}

fn together(one: &Plain<'_>, other: &Plain<'_>, found: &mut BTreeSet<&'static str>) {
    let (Some((_, at, mine, _)), Some((_, _, theirs, _))) = (one.granted(), other.granted()) else { return };
    if mine == theirs {
        found.insert("token twice");
    }
    if at < other.since() && mine >= theirs {
        found.insert("token order");
    }
    let (Some((_, turn, share)), Some((_, their_turn, their_share))) = (one.asked(), other.asked()) else {
        return;
    };
    let strict = turn == Turn::Fifo || their_turn == Turn::Fifo;
    let stood = one.queued().is_some_and(|queued| queued < other.records[0].at) && one.steady();
    if strict && stood && share.excludes(their_share) && mine > theirs {
        found.insert("line order");
    }
}

fn kind(violation: &Violation) -> &'static str {
    match violation {
        Violation::Overlap { .. } => "overlap",
        Violation::TokenTwice { .. } => "token twice",
        Violation::TokenOrder { .. } => "token order",
        Violation::LineOrder { .. } => "line order",
        Violation::Revived { .. } => "revived",
        Violation::GrantedTwice { .. } => "granted twice",
        Violation::Impossible { .. } => "impossible",
    }
}

#[test]
fn the_checker_finds_what_brute_force_finds() {
    let mut met: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..20_000 {
        let records = history(&mut fastrand::Rng::with_seed(seed));
        let report = check(&records);
        let found: BTreeSet<_> = report.violations.iter().map(kind).collect();
        let brute = brute(&records);
        let story: Vec<String> = records.iter().map(ToString::to_string).collect();
        assert_eq!(found, brute, "seed {seed}: {:#?}\n{}", report.violations, story.join("\n"));
        for kind in if found.is_empty() { BTreeSet::from(["nothing"]) } else { found } {
            *met.entry(kind).or_default() += 1;
        }
    }
    println!("20000 random histories: {met:?}");
    assert_eq!(met.len(), 8, "{met:?}");
    assert!(met.values().all(|times| *times >= 200), "every kind must be met often: {met:?}");
}

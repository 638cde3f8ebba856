//! Whether a history may have happened: exclusion, tokens and order, in time O(n log n).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use leasehold_core::{BootTime, LockName, Token, Turn};

use super::Record;
use super::claims::{ClaimKey, Stories, Story};
use crate::{Check, Failure, ensure};

/// What must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// More was held at once than may be: the last to come in, and some of those who were in.
    Overlap {
        /// Who came in last.
        key: ClaimKey,
        /// Some of those who were in.
        others: Vec<ClaimKey>,
    },
    /// Two grants of one name had one token.
    TokenTwice {
        /// The two.
        keys: [ClaimKey; 2],
    },
    /// The first was granted before the second was asked for, and has no lower token.
    TokenOrder {
        /// The two.
        keys: [ClaimKey; 2],
    },
    /// The first stood in line before the second was asked for, and the second was granted first.
    LineOrder {
        /// The two.
        keys: [ClaimKey; 2],
    },
    /// A lease that had ended was renewed.
    Revived {
        /// Which.
        key: ClaimKey,
    },
    /// One claim was granted twice.
    GrantedTwice {
        /// Which.
        key: ClaimKey,
    },
    /// The records of a claim make no story: the history itself is damaged.
    Impossible {
        /// Which.
        key: ClaimKey,
        /// Why not.
        why: &'static str,
    },
}

/// What was looked at, and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Records.
    pub records: u64,
    /// Processes that stated claims.
    pub processes: u64,
    /// Names that were asked for.
    pub names: u64,
    /// Claims.
    pub claims: u64,
    /// Grants.
    pub grants: u64,
    /// Renewals.
    pub renewals: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Grants that were asked for while somebody else's lease of the name was valid: without these, exclusion was
    /// not put to the test.
    pub contended: u64,
    /// Grants that began while others were valid, as the rule allows for readers and permits.
    pub together: u64,
    /// Grants whose token was compared with one that was returned before they were asked for.
    pub tokens_compared: u64,
    /// Grants whose turn was compared with that of one who stood in line before them.
    pub turns_compared: u64,
    /// What must never happen, and did.
    pub violations: Vec<Violation>,
}

/// The least traffic that makes a history worth its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Least {
    /// Grants.
    pub grants: u64,
    /// Grants asked for while the name was taken.
    pub contended: u64,
    /// Faults.
    pub faults: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, processes, names, claims, grants, renewals, faults, .. } = self;
        let Self { contended, together, tokens_compared, turns_compared, violations, .. } = self;
        write!(
            f,
            "{records} records of {processes} processes: {claims} claims of {names} names, {grants} grants, \
             {renewals} renewals, {faults} faults; looked at {contended} contended grants, {together} held \
             together, {tokens_compared} tokens, {turns_compared} turns: {} violations",
            violations.len()
        )
    }
}

impl Report {
    /// The verdict.
    ///
    /// # Errors
    ///
    /// When something happened that must never happen, and when too little happened at all.
    pub fn judge(&self, least: &Least) -> Check {
        let first: Vec<String> = self.violations.iter().take(5).map(|found| format!("{found:?}")).collect();
        ensure!(first.is_empty(), "{self}, such as {}", first.join(", "));
        let Least { grants, contended, faults } = *least;
        let enough = self.grants >= grants && self.contended >= contended && self.faults >= faults;
        if enough { Ok(()) } else { Err(Failure::new(format!("too little happened ({least:?}): {self}"))) }
    }
}

/// Looks at a history: the records of all processes of one host, in any order.
#[must_use]
pub fn check(records: &[Record]) -> Report {
    let Stories { all, renewals, faults, violations } = Stories::from_records(records);
    let mut report = Report { renewals, faults, violations, ..Report::default() };
    report.records = records.len() as u64;
    report.claims = all.len() as u64;
    report.processes = all.iter().map(|story| story.key.0).collect::<HashSet<_>>().len() as u64;
    let mut names: HashMap<&LockName, Vec<&Story>> = HashMap::new();
    for story in &all {
        names.entry(&story.name).or_default().push(story);
    }
    report.names = names.len() as u64;
    for stories in names.values() {
        let granted: Vec<&Story> = stories.iter().copied().filter(|story| story.granted.is_some()).collect();
        report.grants += granted.len() as u64;
        exclusion(&granted, &mut report);
        tokens_once(&granted, &mut report);
        token_order(&granted, &mut report);
        line_order(&granted, &mut report);
    }
    report
}

/// In which order what happens at one moment is looked at: who leaves makes room for who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Leaves,
    Asks,
    Comes,
}

fn exclusion(granted: &[&Story], report: &mut Report) {
    let mut edges = Vec::with_capacity(3 * granted.len());
    for (index, story) in granted.iter().enumerate() {
        let Some((from, _, end)) = story.held() else { continue };
        edges.push((story.asked, Edge::Asks, index));
        if end > from {
            edges.push((from, Edge::Comes, index));
            edges.push((end, Edge::Leaves, index));
        }
    }
    edges.sort_unstable();
    let mut inside: BTreeSet<usize> = BTreeSet::new();
    let mut limits: BTreeMap<u32, usize> = BTreeMap::new();
    let mut taken: u64 = 0;
    for (_, edge, index) in edges {
        let (take, of) = (u64::from(granted[index].share.take()), granted[index].share.of());
        match edge {
            Edge::Asks => report.contended += u64::from(!inside.is_empty()),
            Edge::Leaves => {
                inside.remove(&index);
                taken -= take;
                if let Some(left) = limits.get_mut(&of) {
                    *left -= 1;
                    if *left == 0 {
                        limits.remove(&of);
                    }
                }
            }
            Edge::Comes => {
                report.together += u64::from(!inside.is_empty());
                taken += take;
                *limits.entry(of).or_insert(0) += 1;
                let limit = limits.first_key_value().map_or(of, |(limit, _)| *limit);
                if taken > u64::from(limit) {
                    let others = inside.iter().take(3).map(|other| granted[*other].key).collect();
                    report.violations.push(Violation::Overlap { key: granted[index].key, others });
                }
                inside.insert(index);
            }
        }
    }
}

fn tokens_once(granted: &[&Story], report: &mut Report) {
    let mut by_token: HashMap<Token, ClaimKey> = HashMap::new();
    for story in granted {
        let Some((_, token, _)) = story.held() else { continue };
        if let Some(other) = by_token.insert(token, story.key) {
            report.violations.push(Violation::TokenTwice { keys: [other, story.key] });
        }
    }
}

/// The highest token so far, and whose it is.
type Highest = Option<(Token, ClaimKey)>;

fn token_order(granted: &[&Story], report: &mut Report) {
    let mut returned: Vec<(BootTime, Token, ClaimKey)> =
        granted.iter().filter_map(|story| story.granted.map(|(at, token)| (at, token, story.key))).collect();
    returned.sort_unstable();
    let mut asked: Vec<&Story> = granted.to_vec();
    asked.sort_unstable_by_key(|story| story.since);
    let mut returned = returned.into_iter().peekable();
    let mut highest: Highest = None;
    for later in asked {
        while let Some((_, token, key)) = returned.next_if(|(at, ..)| *at < later.since) {
            highest = highest.max(Some((token, key)));
        }
        let (Some((before, key)), Some((_, token))) = (highest, later.granted) else { continue };
        report.tokens_compared += 1;
        if before >= token {
            report.violations.push(Violation::TokenOrder { keys: [key, later.key] });
        }
    }
}

/// Those who stand in line, in classes of equal behaviour towards others: there are few of them, so that looking at
/// each is cheap.
fn line_order(granted: &[&Story], report: &mut Report) {
    let mut queued: Vec<(BootTime, &Story)> =
        granted.iter().filter_map(|story| Some((story.queued?, *story))).collect();
    queued.sort_unstable_by_key(|(at, _)| *at);
    let mut asked: Vec<&Story> = granted.to_vec();
    asked.sort_unstable_by_key(|story| story.asked);
    let mut queued = queued.into_iter().peekable();
    let mut classes: HashMap<(u32, u32, bool), (Token, &Story)> = HashMap::new();
    for later in asked {
        while let Some((_, story)) = queued.next_if(|(at, _)| *at < later.asked) {
            let (Some((_, token)), true) = (story.granted, story.steady) else { continue };
            let class = (story.share.take(), story.share.of(), story.turn == Turn::Fifo);
            let highest = classes.entry(class).or_insert((token, story));
            if token > highest.0 {
                *highest = (token, story);
            }
        }
        let Some((_, token)) = later.granted else { continue };
        let mut before = classes.values().filter(|(_, early)| early.goes_before(later)).peekable();
        report.turns_compared += u64::from(before.peek().is_some());
        if let Some((_, early)) = before.find(|(early, _)| *early > token) {
            report.violations.push(Violation::LineOrder { keys: [early.key, later.key] });
        }
    }
}

//! Every short story of a few claims on one line, and many long ones at random, held to what must always be so.

use std::time::Duration;

use super::{Line, Moment, Ruling, Watch};
use crate::{
    Aftermath, BootTime, Claim, ClaimId, Counter, Leave, LockName, Note, Owner, ServerTime, Share, State,
    Token, Turn, Verdict, admit,
};

const TTL: Duration = Duration::from_secs(5);
const DELAY: Duration = Duration::from_secs(3);
const SHARES: [Share; 3] = [Share::SHARED, Share::UPGRADEABLE, Share::EXCLUSIVE];
const TURNS: [Turn; 3] = [Turn::Now, Turn::Any, Turn::Fifo];
/// Claims that a story is about: number 2 leaves its name shut if it ends uncleanly.
const CLAIMS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A claim is stated, with this share.
    State(usize, Share, Turn),
    /// A claim is stated again as it was before its last change.
    Old(usize),
    Release(usize),
    /// Its lease goes to a new claim, which takes its number.
    Succeed(usize),
    Pass(Duration),
}

fn steps() -> Vec<Step> {
    let states = (0..CLAIMS).flat_map(|claim| {
        SHARES.into_iter().flat_map(move |share| TURNS.map(|turn| Step::State(claim, share, turn)))
    });
    let others = (0..CLAIMS).flat_map(|claim| [Step::Old(claim), Step::Release(claim), Step::Succeed(claim)]);
    let passes = [50, 1500, 2500, 5500].map(Duration::from_millis).map(Step::Pass);
    states.chain(others).chain(passes).collect()
}

fn claim(id: u128, number: usize) -> Claim {
    let delay = if number == 2 { DELAY } else { Duration::ZERO };
    Claim {
        name: LockName::parse("a").unwrap(),
        id: ClaimId::from_bytes(id.to_be_bytes()),
        owner: Owner::default(),
        share: Share::SHARED,
        reshape: 0,
        turn: Turn::Any,
        ttl: TTL,
        note: Note::NONE,
        anchored: false,
        aftermath: Aftermath { delay, at_least: Duration::ZERO },
        succeeds: None,
        tokens: 2,
        seen: None,
        proposed: None,
        not_after: None,
    }
}

/// A line, and what its owners know.
#[derive(Clone)]
struct Story {
    line: Line,
    counter: Counter,
    now: BootTime,
    claims: [Claim; CLAIMS],
    ids: u128,
    highest: Option<Token>,
    told: Vec<Step>,
}

impl Story {
    fn new() -> Self {
        let claims = [0, 1, 2].map(|number| claim(1 + number as u128, number));
        let now = BootTime::from_nanos(1_000_000_000);
        let (line, counter, highest) = (Line::default(), Counter::default(), None);
        Self { line, counter, now, claims, ids: 10, highest, told: Vec::new() }
    }

    fn at(&self) -> Moment {
        Moment { boot: self.now, wall: ServerTime::from_micros(self.now.as_nanos() / 1000) }
    }

    fn held(&self, claim: &Claim) -> Option<(Share, Token)> {
        let member = self.line.members.iter().find(|member| member.id == claim.id)?;
        Some((member.share, member.held.as_ref()?.first))
    }

    fn go(&mut self, step: Step) {
        self.told.push(step);
        if let Step::Pass(by) = step {
            self.pass(by);
            return;
        }
        self.line.sweep(self.now, |_| false);
        match step {
            Step::State(number, share, turn) => {
                let was = &self.claims[number];
                let reshape = was.reshape + u32::from(was.share != share && self.held(was).is_some());
                self.claims[number] = Claim { share, reshape, turn, ..was.clone() };
                self.state(&self.claims[number].clone());
            }
            Step::Old(number) => {
                let claim = &self.claims[number];
                if let Some(reshape) = claim.reshape.checked_sub(1) {
                    let share = if claim.share == Share::SHARED { Share::UPGRADEABLE } else { Share::SHARED };
                    let old = Claim { share, reshape, ..claim.clone() };
                    let before = self.held(&old);
                    self.state(&old);
                    // What holds no longer may have been forgotten, and is then a claim like any other.
                    let same = before.is_none() || self.held(&old) == before;
                    assert!(same, "an old statement changes nothing: {:?}", self.told);
                }
            }
            Step::Release(number) => {
                let id = self.claims[number].id;
                self.line.release(self.now, id, Leave::Open);
                assert!(self.line.members.iter().all(|member| member.id != id), "{:?}", self.told);
                self.renew_id(number, None);
            }
            Step::Succeed(number) => {
                let old = self.claims[number].id;
                self.renew_id(number, Some(old));
                self.state(&self.claims[number].clone());
            }
            Step::Pass(_) => {}
        }
        self.check();
    }

    fn renew_id(&mut self, number: usize, succeeds: Option<ClaimId>) {
        self.ids += 1;
        let share = self.claims[number].share;
        self.claims[number] = Claim { succeeds, share, ..claim(self.ids, number) };
    }

    fn state(&mut self, claim: &Claim) {
        let (before, held) = (self.line.clone(), self.held(claim));
        let at = self.at();
        let answer = self.line.claim(at, claim, &mut self.counter, None);
        let told = &self.told;
        match &answer {
            Err(_) => assert_eq!(self.line, before, "what is not judged changes nothing: {told:?}"),
            Ok(State::Granted(grant)) => {
                let is_new = held.is_none_or(|(_, token)| token != grant.token);
                assert!(!is_new || self.highest < Some(grant.token), "tokens rise: {told:?}");
                self.highest = self.highest.max(grant.token.after(grant.tokens - 1));
                assert_eq!(self.held(claim), Some((claim.share, grant.token)), "{told:?}");
                let mut mine = self.line.members.iter().filter(|member| member.id == claim.id);
                assert!(mine.all(|member| member.wanted.is_none()), "it has what it wants: {told:?}");
                let fits = claim.succeeds.is_some() || held.is_some() || {
                    let others =
                        self.line.members.iter().filter(|other| other.id != claim.id && other.held.is_some());
                    let others: Vec<Share> = others.map(super::Member::claims).collect();
                    admit(&others, claim.share) == Verdict::Admit
                };
                assert!(fits, "a newcomer stands back for a wish: {told:?}");
                assert!(
                    before.shut.is_none() || held.is_some() || claim.succeeds.is_some(),
                    "shut: {told:?}"
                );
            }
            Ok(_) => {
                assert_eq!(self.held(claim), held, "a lease ends by no statement: {told:?}");
                let stands = self.line.members.iter().any(|member| {
                    member.id == claim.id && (member.held.is_none() || member.wanted.is_some())
                });
                let stood =
                    before.members.iter().any(|member| member.id == claim.id && member.held.is_none());
                assert!(claim.turn != Turn::Now || !stands || stood, "a try leaves nothing: {told:?}");
            }
        }
        // Asking again changes nothing, and has the same answer.
        let (line, counter) = (self.line.clone(), self.counter);
        let again = self.line.claim(at, claim, &mut self.counter, None);
        assert_eq!((self.counter, &again), (counter, &answer), "{told:?}");
        assert_eq!(self.line, line, "{told:?}");
    }

    /// What must be so at any time, once the line is swept.
    fn check(&self) {
        let (line, told) = (&self.line, &self.told);
        let holders: Vec<_> = line.members.iter().filter(|member| member.held.is_some()).collect();
        let taken: u64 = holders.iter().map(|member| u64::from(member.share.take())).sum();
        assert!(holders.iter().all(|member| taken <= u64::from(member.share.of())), "the rule: {told:?}");
        let wishes: Vec<_> = line.members.iter().filter(|member| member.wanted.is_some()).collect();
        assert!(wishes.len() <= 1, "two would wait for each other: {told:?}");
        assert!(
            wishes.iter().all(|member| member.held.is_some() && member.claims().take() > member.share.take()),
            "{told:?}"
        );
        // Whoever is woken finds that its turn has come, and whose turn has come is woken.
        let woken: Vec<ClaimId> = line.ready().map(|member| member.id).collect();
        for member in line.members.iter().filter(|member| member.held.is_none() || member.wanted.is_some()) {
            let ready = line.rule(self.now, Watch::Turn(member.id)) == Ruling::Ready;
            assert_eq!(ready, woken.contains(&member.id), "{member:?} of {line:?}: {told:?}");
        }
        // Of those who wait, somebody can go, or something in the way runs out by itself.
        let stuck = woken.is_empty() && holders.is_empty() && line.shut.is_none();
        assert!(!stuck || line.members.is_empty(), "nobody can go: {told:?}");
    }

    /// Lets time pass in small steps: who looks sees what a sweep would make of it, and hears of each change.
    fn pass(&mut self, by: Duration) {
        let name = LockName::parse("a").unwrap();
        let end = self.now.after(by);
        let look = |line: &Line, at| {
            let seen = line.snapshot(at, &name);
            (seen.holders, seen.waiters.len(), seen.closed.map(|closed| closed.by), seen.cursor)
        };
        let mut last = look(&self.line, self.at());
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(250)).min(end);
            let seen = look(&self.line, self.at());
            let mut swept = self.line.clone();
            swept.sweep(self.now, |_| false);
            assert_eq!(seen, look(&swept, self.at()), "before a sweep and after: {:?}", self.told);
            let ids = |seen: &[crate::Entry]| seen.iter().map(|entry| entry.id).collect::<Vec<_>>();
            let moved = (ids(&seen.0), seen.1, &seen.2) != (ids(&last.0), last.1, &last.2);
            assert_eq!(moved, seen.3 != last.3, "a look is out of date when it is: {:?}", self.told);
            last = seen;
        }
    }
}

fn search(story: &Story, depth: usize, count: &mut u64) {
    *count += 1;
    if depth == 0 {
        return;
    }
    for step in steps() {
        let mut story = story.clone();
        story.go(step);
        search(&story, depth - 1, count);
    }
}

#[test]
fn every_short_story_of_three_claims_keeps_the_law() {
    let mut count = 0;
    search(&Story::new(), 3, &mut count);
    println!("{count} stories");
}

#[test]
fn many_long_stories_keep_the_law() {
    let steps = steps();
    // A generator of its own: the same stories each time, and no crate more.
    let mut dice: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        usize::try_from(dice % sides as u64).unwrap()
    };
    for _ in 0..1500 {
        let mut story = Story::new();
        for _ in 0..40 {
            story.go(steps[roll(steps.len())]);
        }
    }
}

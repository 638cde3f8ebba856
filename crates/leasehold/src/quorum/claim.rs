//! How a quorum is claimed: a proposal to all nodes, higher ones while counters are in the way, and everything given
//! back on every node when a majority is out of reach.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{Tally, Verdict, Vote, proposal};
use leasehold_core::{
    Claim, ClaimId, Closure, Cursor, Entry, Grant, Leave, LockName, Op, Release, Result, ServerTime,
    Standing, State, TOMBSTONE_LIFE, Token, Turn, fault,
};
use tokio::sync::mpsc;

use super::Quorum;
use super::node::Node;
use super::round::{Answer, Answers, Heard, request};
use super::view;

/// So many proposals are made before the claim counts as beaten: others propose as well.
pub(super) const ROUNDS: u32 = 4;
/// A claim that a node has not executed by then is not executed any more.
const UNDER_WAY: Duration = Duration::from_secs(5);
/// The first pause before a node that did not answer is told again that a claim is given up; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Those who got in each other's way ask again within this, and within twice as much after each time.
const SPREAD: Duration = Duration::from_millis(10);
/// The most that it grows to is 2 to this times as much.
const MOST_DOUBLINGS: u32 = 6;

/// What became of one proposal.
struct Round {
    /// No node can have anything of an earlier one.
    first: bool,
    /// The nodes to which an earlier one may still be on its way.
    unheard: Vec<usize>,
    /// Which nodes said what became of this one.
    answered: Vec<usize>,
    verdict: Verdict,
    spent: bool,
    /// From what each node's wait goes on.
    cursors: Vec<(usize, Cursor)>,
    closed: Vec<Closure>,
    heard: Heard,
    /// Which nodes answered otherwise than that they have nothing of it.
    involved: Vec<usize>,
    /// What was not heard any more.
    rest: Answers<Standing>,
}

impl Quorum {
    /// One claim, in as many proposals as it takes.
    pub(super) async fn propose(&self, claim: &Claim) -> Result<Standing> {
        let name = &claim.name;
        if self.0.spent.has(claim.id, &self.0.clock).await {
            return Ok(self.standing(State::Spent, Vec::new()));
        }
        if let Some(repeat) = self.repeat(claim).await? {
            return Ok(repeat);
        }
        self.stand_back(claim).await;
        let mut above = claim.seen.max(self.known().get(name).and_then(|known| known.highest));
        let mut unheard = Vec::new();
        for number in 0..ROUNDS {
            let Some(proposal) = self.proposal(above) else { break };
            let round = self.round(claim, proposal, number == 0, unheard.clone()).await;
            match round.verdict {
                Verdict::Won { left } => {
                    self.learn(name, |known| {
                        (known.highest, known.conflicts) = (known.highest.max(Some(proposal)), 0);
                    });
                    self.remember(claim);
                    let grant = Grant { token: proposal, tokens: 1, ttl: left };
                    return Ok(self.standing(State::Granted(grant), round.cursors));
                }
                Verdict::Higher(counter) if !round.spent => {
                    above = above.max(Some(counter));
                    unheard.extend((0..self.0.nodes.len()).filter(|index| !round.answered.contains(index)));
                    self.learn(name, |known| known.highest = known.highest.max(Some(counter)));
                }
                Verdict::Unanswered => {
                    let mut round = round;
                    // What is wrong is told of each node, and none has longer than its own deadline.
                    while let Some(answer) = round.rest.next().await {
                        round.hear(answer);
                    }
                    let error = self.too_few(Op::Claim, Some(name), &round.heard);
                    if !round.involved.is_empty() {
                        // Nobody waits once more for those that did not answer.
                        self.gives_up(claim);
                        let (quorum, claim) = (self.clone(), claim.clone());
                        tokio::spawn(async move { quorum.withdraw(&claim, round).await });
                    }
                    return Err(error);
                }
                Verdict::Open | Verdict::Beaten | Verdict::Higher(_) => {
                    let mut round = round;
                    self.hear_of_closure(&mut round).await;
                    let state = self.beaten(name, &round);
                    let cursors = self.withdraw(claim, round).await;
                    return Ok(self.standing(state, cursors));
                }
            }
        }
        self.take_back(claim).await;
        self.learn(name, |known| known.conflicts = known.conflicts.saturating_add(1));
        Ok(self.standing(State::Waiting { ahead: None, retry_after: None }, Vec::new()))
    }

    /// Whether enough nodes keep the name shut is not known where some say so and not all were heard: it would depend on
    /// who is first.
    async fn hear_of_closure(&self, round: &mut Round) {
        let in_the_way = self.in_the_way();
        while !round.closed.is_empty() && round.closed.len() < in_the_way {
            let Some(answer) = round.rest.next().await else { return };
            round.hear(answer);
        }
    }

    /// As many nodes as no majority can do without.
    pub(super) fn in_the_way(&self) -> usize {
        self.0.nodes.len() + 1 - self.needed()
    }

    /// What is told of a claim that others were in the way of.
    fn beaten(&self, name: &LockName, round: &Round) -> State {
        if round.spent {
            return State::Spent;
        }
        if round.closed.len() >= self.in_the_way()
            && let Some(closure) = round.closed.iter().max_by_key(|closure| closure.left)
        {
            return State::Closed(closure.clone());
        }
        // Where nothing has to be given back, somebody simply has it.
        let conflict = !round.involved.is_empty();
        self.learn(name, |known| {
            known.conflicts = if conflict { known.conflicts.saturating_add(1) } else { 0 }
        });
        State::Waiting { ahead: None, retry_after: None }
    }

    /// The grant again, with what is left of it, of a claim that was granted here before and still holds: proposed
    /// anew it would get another token. Of one that holds no longer the nodes know that its id is spent.
    async fn repeat(&self, claim: &Claim) -> Result<Option<Standing>> {
        if !self.was_granted(claim.id) {
            return Ok(None);
        }
        let seen = self.look(&claim.name).await?;
        Ok(match seen.holders.iter().find(|holder| holder.id == claim.id) {
            Some(Entry { token: Some(token), left, .. }) => {
                let state = State::Granted(Grant { token: *token, tokens: 1, ttl: *left });
                Some(Standing { state, cursor: seen.cursor, server_time: None })
            }
            _ => None,
        })
    }

    /// Those who got in each other's way ask at random moments: one is to be first on a majority.
    async fn stand_back(&self, claim: &Claim) {
        let conflicts = self.known().get(&claim.name).map_or(0, |known| known.conflicts);
        if conflicts == 0 || claim.turn == Turn::Now {
            return;
        }
        let spread = SPREAD * (1 << conflicts.min(MOST_DOUBLINGS));
        self.0.clock.sleep_until(self.0.clock.now().after(spread.mul_f64(fastrand::f64()))).await;
    }

    fn standing(&self, state: State, cursors: Vec<(usize, Cursor)>) -> Standing {
        // Nodes have clocks of their own: none of them is the clock of them all.
        Standing { state, cursor: view::pack(&cursors), server_time: None }
    }

    fn proposal(&self, above: Option<Token>) -> Option<Token> {
        let mut clocks: Vec<ServerTime> = self.0.nodes.iter().filter_map(|node| node.time()).collect();
        let own = ServerTime::from_micros(self.0.clock.wall_micros());
        proposal(&mut clocks, own, above)
    }

    /// Puts one proposal to all nodes, and hears them until it is decided.
    async fn round(&self, claim: &Claim, proposal: Token, first: bool, unheard: Vec<usize>) -> Round {
        let answers = self.ask(Op::Claim, Some(&claim.name), self.limit(claim.ttl), |node| {
            let claim = to_node(claim, proposal, node);
            request(node, async move |store| store.claim(&claim).await)
        });
        let mut tally = Tally::new(self.0.nodes.len(), proposal);
        let mut round = Round {
            first,
            unheard,
            answered: Vec::new(),
            verdict: Verdict::Open,
            spent: false,
            cursors: Vec::new(),
            closed: Vec::new(),
            heard: Heard::default(),
            involved: Vec::new(),
            rest: answers,
        };
        while round.verdict == Verdict::Open {
            let Some(answer) = round.rest.next().await else { break };
            tally.count(round.hear(answer));
            round.verdict = tally.verdict();
            round.spent = tally.is_spent();
        }
        round
    }

    /// Gives up what any node may have of this claim, those included that did not answer. Returns once each that is
    /// known to have some has said that it has nothing, or has had its time; those that have not go on being told.
    async fn withdraw(&self, claim: &Claim, round: Round) -> Vec<(usize, Cursor)> {
        let Round { first, unheard, involved, mut rest, cursors, .. } = round;
        if fault!("quorum_keeps_partial") {
            return cursors;
        }
        self.0.spent.open(claim.id, self.0.clock.now(), remembered(claim.ttl));
        let (quorum, late) = (self.clone(), claim.clone());
        tokio::spawn(async move {
            // A node that has nothing is not told: the id would be spent there.
            while let Some(answer) = rest.next().await {
                if !has_nothing(&answer.said, first, unheard.contains(&answer.index)) {
                    quorum.gives_up(&late);
                    drop(quorum.give_back_on(&[answer.index], &late.name, late.id, &Leave::Open, late.ttl));
                }
            }
            quorum.0.spent.close(late.id);
        });
        if !involved.is_empty() {
            self.gives_up(claim);
        }
        let mut answers = self.give_back_on(&involved, &claim.name, claim.id, &Leave::Open, claim.ttl);
        while answers.recv().await.is_some() {}
        cursors
    }

    /// Its id is not claimed again while nodes are told to give it back.
    fn gives_up(&self, claim: &Claim) {
        self.0.spent.add(claim.id, self.0.clock.now(), remembered(claim.ttl));
    }

    /// As [`withdraw`](Self::withdraw), on every node: after several proposals.
    async fn take_back(&self, claim: &Claim) {
        self.gives_up(claim);
        let mut answers = self.give_back(&claim.name, claim.id, &Leave::Open, claim.ttl);
        while answers.recv().await.is_some() {}
    }

    /// Has every node give this back, also those that have never answered: what they did not say they may have done.
    /// The first answer of each is heard; a node that does not answer is told again until it does, or until what it has
    /// has run out.
    pub(super) fn give_back(
        &self,
        name: &LockName,
        id: ClaimId,
        leave: &Leave,
        ttl: Duration,
    ) -> mpsc::UnboundedReceiver<Answer<Release>> {
        let all: Vec<usize> = (0..self.0.nodes.len()).collect();
        self.give_back_on(&all, name, id, leave, ttl)
    }

    /// The same on these nodes only.
    pub(super) fn give_back_on(
        &self,
        on: &[usize],
        name: &LockName,
        id: ClaimId,
        leave: &Leave,
        ttl: Duration,
    ) -> mpsc::UnboundedReceiver<Answer<Release>> {
        let (tell, hear) = mpsc::unbounded_channel();
        let now = self.0.clock.now();
        let ends = now.after(ttl);
        for (index, node) in self.0.nodes.iter().enumerate().filter(|(index, _)| on.contains(index)) {
            let (node, name, leave, tell) = (node.clone(), name.clone(), leave.clone(), tell.clone());
            let (clock, limit) = (self.0.clock.clone(), self.limit(ttl));
            tokio::spawn(async move {
                let mut tell = Some(tell);
                let mut pause = FIRST_PAUSE;
                loop {
                    let sent = clock.now();
                    let ask = node.store.release(&name, id, leave.clone());
                    let said = node.ask(Op::Release, Some(&name), limit, ask).await;
                    let done = said.is_ok();
                    if let Some(tell) = tell.take() {
                        // Whoever asked may have heard enough.
                        drop(tell.send(Answer { node: node.clone(), index, sent, said }));
                    }
                    let next = clock.now().after(pause);
                    if done || next >= ends {
                        return;
                    }
                    clock.sleep_until(next).await;
                    pause *= 2;
                }
            });
        }
        hear
    }
}

impl Round {
    fn hear(&mut self, answer: Answer<Standing>) -> Vote {
        let Answer { node, index, sent, said } = answer;
        if !has_nothing(&said, self.first, self.unheard.contains(&index)) {
            self.involved.push(index);
        }
        if said.as_ref().map_or_else(|error| !error.outcome_unknown(), |_| true) {
            self.answered.push(index);
        }
        let Standing { state, cursor, server_time } = match said {
            Ok(standing) => standing,
            Err(error) => {
                self.heard.failed(&node, &error);
                return Vote::Silent;
            }
        };
        node.tell_time(sent, server_time);
        self.cursors.push((index, cursor));
        if let Some(why) = node.mute() {
            self.heard.mute(&node, why);
            return Vote::Mute;
        }
        self.heard.ok(&node);
        match state {
            State::Granted(Grant { token, tokens: _, ttl }) => Vote::Accepted { token, left: ttl },
            State::Refused { counter } => Vote::Above(counter),
            State::Spent => Vote::Spent,
            State::Closed(closure) => {
                self.closed.push(closure);
                Vote::Taken
            }
            _ => Vote::Taken,
        }
    }
}

/// For how long an id is known that was granted or given up: the nodes forget it no later.
pub(super) fn remembered(ttl: Duration) -> Duration {
    ttl * 2 + TOMBSTONE_LIFE
}

/// Whether a node has surely nothing of a claim that it answered so, the first proposal or a later one. One whose counter
/// was in the way, or which did not do what it was told, may have what an earlier proposal got; and to one of which an
/// earlier one was not heard it may still be on its way, by a connection that was given up.
fn has_nothing(said: &Result<Standing>, first: bool, unheard: bool) -> bool {
    match said {
        Ok(Standing { state: State::Waiting { .. } | State::Closed(_), .. }) => !unheard,
        Ok(Standing { state, .. }) => *state == State::Spent,
        Err(error) => first && !error.outcome_unknown(),
    }
}

/// The claim as one node gets it: a try, with a token that it must take or leave.
pub(super) fn to_node(claim: &Claim, proposal: Token, node: &Arc<Node>) -> Claim {
    Claim {
        turn: Turn::Now,
        tokens: 1,
        seen: None,
        proposed: Some(proposal),
        // Each by its own clock.
        not_after: [claim.not_after, node.time().map(|time| time.after(UNDER_WAY))]
            .into_iter()
            .flatten()
            .min(),
        anchored: false,
        ..claim.clone()
    }
}

//! How a claim is stated: its node is created at the end of the line, and the one rule judges the line before it.

use std::time::Duration;

use futures_util::future::join4;
use leasehold_core::{
    BootTime, Claim, ClaimId, Grant, LockName, Overruled, Standing, State, StoreErrorKind, TOMBSTONE_LIFE,
    Turn, Verdict, Watch, admit, fault,
};
use zookeeper_client::{CreateMode, Error, MultiWriteError};

use crate::fail::{Fail, Result};
use crate::holds::{Granted, Hold, Node};
use crate::line::{View, token};
use crate::node::{LONGEST_LINE, stem};
use crate::session::Session;
use crate::store::ZooKeeperStore;
use crate::value::Value;

/// So often a claim is judged anew because a directory went as it was needed, or a place was lost.
const ROUNDS: usize = 8;

/// What came of a step.
enum Next {
    Stands(Standing),
    Overruled(Overruled),
    /// Its place is gone: it takes a new one.
    Anew,
}

pub(crate) fn stands(state: State, watch: Watch) -> Standing {
    Standing { state, cursor: watch.cursor(), server_time: None }
}

impl ZooKeeperStore {
    /// One step of a claim.
    pub(crate) async fn stand(&self, claim: &Claim) -> Result<Result<Standing, Overruled>> {
        let asked = self.0.clock.now();
        self.watch_over();
        for _ in 0..ROUNDS {
            self.0.holds.refresh(claim.id, self.0.clock.now());
            match self.0.holds.lapsing(claim.id) {
                None => {}
                Some(Some(_)) => return Ok(Ok(stands(State::Spent, Watch::Turn(claim.id)))),
                Some(None) => {
                    let message = "its place has lapsed, and is taken away";
                    return Err(Fail::new(StoreErrorKind::Unavailable, message));
                }
            }
            if self.0.holds.has_ended(claim.id) {
                return Ok(Ok(stands(State::Spent, Watch::Turn(claim.id))));
            }
            let next = match self.0.holds.get(claim.id) {
                None => self.enter(claim, asked).await?,
                Some(hold) if hold.session.has_ended() => {
                    // Its node goes with the session, if it has not gone; what held is over.
                    if hold.granted.is_some() {
                        self.end_here(claim);
                    } else {
                        self.leave_behind(&claim.name, claim.id).await?;
                    }
                    Next::Anew
                }
                Some(hold) => self.restate(claim, &hold, asked).await?,
            };
            match next {
                Next::Stands(standing) => return Ok(Ok(standing)),
                Next::Overruled(overruled) => return Ok(Err(overruled)),
                Next::Anew => {}
            }
        }
        Err(Fail::new(StoreErrorKind::Unavailable, "the line moved each time it was looked at").unknown())
    }

    /// Whoever held this cannot do so again under this id.
    fn end_here(&self, claim: &Claim) {
        self.0.holds.end(claim.id, self.0.clock.now(), claim.ttl + TOMBSTONE_LIFE);
        self.0.sessions.forget(claim.id);
    }

    /// A claim that is not known to stand anywhere.
    async fn enter(&self, claim: &Claim, asked: BootTime) -> Result<Next> {
        let session = self.0.sessions.of(claim.id, claim.ttl).await?;
        if claim.turn == Turn::Now {
            // A try leaves no trace, not even for a moment, where it cannot succeed. Nor does it fail for what is over: this
            // server may be behind the one that somebody else let go at.
            let view = self.look_anew(&session, &claim.name).await?;
            let ahead = view.members.len();
            if view.place_of(claim.id).is_none()
                && let Some(next) = self.refused(&session, claim, &view, ahead).await?
            {
                self.0
                    .holds
                    .note(claim.id, Hold::new(session, self.0.paths.line(&claim.name), claim.share, asked));
                return Ok(next);
            }
        }
        // Before it may exist: whoever gives up from here on looks for it.
        let line = self.0.paths.line(&claim.name);
        let hold = Hold { sent: true, ..Hold::new(session.clone(), line, claim.share, asked) };
        self.0.holds.note(claim.id, hold);
        self.join(claim, &session, asked).await
    }

    /// Creates its node, and looks at the line that it stands in then: all in one go.
    async fn join(&self, claim: &Claim, session: &Session, asked: BootTime) -> Result<Next> {
        let paths = &self.0.paths;
        let line = paths.line(&claim.name);
        let (spent, shut) = (paths.spent(claim.id), paths.shut(&claim.name));
        let path = format!("{line}/{}", stem(claim.id, claim.share));
        let mode = CreateMode::EphemeralSequential.with_acls(session.acls());
        let sent = self.0.clock.now();
        let client = session.client();
        let data = Value::of(claim).to_bytes();
        // Whoever releases an id that it does not find leaves a sign, and then looks again: one of the two sees the other.
        let created = client.create(&path, &data, &mode);
        let spent = client.check_stat(&spent);
        let children = client.list_children(&line);
        let shut = client.get_data(&shut);
        let answers = async { Ok::<_, Error>(join4(created, spent, children, shut).await) };
        let (created, spent, children, shut) = session.ask(answers).await?;
        let stat = match created {
            Ok((stat, _)) => stat,
            Err(Error::NoNode) => {
                let container = CreateMode::Container.with_acls(session.acls());
                session.ask(client.mkdir(&line, &container)).await?;
                return self.again(claim);
            }
            Err(error) => return Err(error.into()),
        };
        let spent = spent?.is_some() && !fault!("zookeeper_no_tombstone");
        let view = View::parse(&line, children, shut)?;
        // One that was created before, when the answer was lost, stands before this one: that is its place.
        let Some(ahead) = view.place_of(claim.id) else {
            // Somebody has taken it away already.
            return self.again(claim);
        };
        let path = format!("{line}/{}", view.members[ahead].node);
        let of_id = view.members.iter().filter(|member| member.is(claim.id)).count();
        if spent {
            self.remove(session, &claim.name, &view, claim.id).await?;
            self.end_here(claim);
            return Ok(Next::Stands(stands(State::Spent, Watch::Turn(claim.id))));
        }
        if of_id > 1 {
            return self.adopt(claim, session, &view).await;
        }
        let node = Node { path, token: token(stat.czxid)? };
        if let Some(next) = self.refused(session, claim, &view, ahead).await? {
            if claim.turn == Turn::Now || matches!(next, Next::Overruled(_)) {
                self.take_away(session, &node.path).await?;
                self.0.holds.note(claim.id, self.without_node(claim)?);
            } else {
                self.stood(claim, node);
            }
            return Ok(next);
        }
        if claim.seen.is_some_and(|seen| node.token <= seen) {
            self.take_away(session, &node.path).await?;
            return Err(Fail::new(
                StoreErrorKind::Protocol,
                format!(
                    "its changes count from {} again: it was restored from a copy, or is another one",
                    node.token
                ),
            )
            .help("tokens would fall: stop who uses them, or go on under another name"));
        }
        self.stood(claim, node.clone());
        self.granted(claim, session, node, sent, asked)
    }

    fn again(&self, claim: &Claim) -> Result<Next> {
        self.0.holds.forget(claim.id);
        Ok(Next::Anew)
    }

    fn without_node(&self, claim: &Claim) -> Result<Hold> {
        let hold = self
            .0
            .holds
            .get(claim.id)
            .ok_or_else(|| Fail::new(StoreErrorKind::Unavailable, "it was released"))?;
        Ok(Hold { node: None, sent: false, ..hold })
    }

    /// Notes where it stands, unless it was released meanwhile.
    fn stood(&self, claim: &Claim, node: Node) {
        if let Some(hold) = self.0.holds.get(claim.id) {
            self.0.holds.note(claim.id, Hold { node: Some(node), ..hold });
        }
    }

    /// A claim that stands, as far as is known, is looked at again.
    async fn restate(&self, claim: &Claim, hold: &Hold, asked: BootTime) -> Result<Next> {
        let session = &*hold.session;
        let Some(node) = &hold.node else {
            // Its answer was lost, or it was a try.
            let view = self.look_surely(session, &claim.name).await?;
            if view.place_of(claim.id).is_some() {
                return self.adopt(claim, session, &view).await;
            }
            return self.again(claim);
        };
        if hold.share != claim.share {
            return Ok(Next::Overruled(Overruled::OtherShare { stands: hold.share }));
        }
        if hold.granted.is_some() {
            return self.repeat(claim, session, node, asked).await;
        }
        let view = self.look(session, &claim.name).await?;
        let Some(ahead) = view.place_of(claim.id) else {
            return self.again(claim);
        };
        if let Some(next) = self.refused(session, claim, &view, ahead).await? {
            if claim.turn == Turn::Now {
                self.take_away(session, &node.path).await?;
                self.0.holds.note(claim.id, self.without_node(claim)?);
            }
            return Ok(next);
        }
        // This server may be behind: the node may have gone, and the next in line hold already. A write tells.
        let sent = self.0.clock.now();
        if !fault!("zookeeper_turn_not_confirmed") && !self.stands(session, &node.path).await? {
            return self.again(claim);
        }
        self.granted(claim, session, node.clone(), sent, asked)
    }

    /// Takes the node that a lost answer told of, if it was created by this very session.
    async fn adopt(&self, claim: &Claim, session: &Session, view: &View) -> Result<Next> {
        let line = self.0.paths.line(&claim.name);
        let (mut adopted, mut stranger): (Option<Node>, Option<(usize, Node)>) = (None, None);
        for (place, member) in view.members.iter().enumerate().filter(|(_, member)| member.is(claim.id)) {
            let path = format!("{line}/{}", member.node);
            let Some(stat) = session.ask(session.client().check_stat(&path)).await? else { continue };
            let node = Node { path, token: token(stat.czxid)? };
            if !session.made(&stat) && !fault!("zookeeper_adopts_any") {
                stranger.get_or_insert((place, node));
            } else if adopted.is_none() && stranger.is_none() && member.share == claim.share {
                adopted = Some(node);
            } else {
                // One too many.
                self.take_away(session, &node.path).await?;
            }
        }
        if let Some(node) = adopted {
            self.stood(claim, node);
            return Ok(Next::Anew);
        }
        self.0.holds.forget(claim.id);
        match stranger {
            Some((place, node)) => self.of_stranger(claim, session, view, place, node).await,
            None => Ok(Next::Anew),
        }
    }

    /// Another client stated this claim. It lives with a session of that one, which alone knows for how long: here nothing
    /// is known to be left of it.
    async fn of_stranger(
        &self,
        claim: &Claim,
        session: &Session,
        view: &View,
        place: usize,
        node: Node,
    ) -> Result<Next> {
        let stands_as = view.members[place].share;
        if stands_as != claim.share {
            return Ok(Next::Overruled(Overruled::OtherShare { stands: stands_as }));
        }
        if let Some(next) = self.refused(session, claim, view, place).await? {
            return Ok(next);
        }
        let grant = Grant { token: node.token, tokens: 1, ttl: Duration::ZERO };
        Ok(Next::Stands(stands(State::Granted(grant), Watch::Hold(claim.id))))
    }

    /// What is in the way of a claim with so many ahead. `None` when nothing is.
    async fn refused(
        &self,
        session: &Session,
        claim: &Claim,
        view: &View,
        ahead: usize,
    ) -> Result<Option<Next>> {
        if let Some(overruled) = view.disagrees(ahead, claim.share) {
            return Ok(Some(Next::Overruled(overruled)));
        }
        if ahead >= LONGEST_LINE {
            return Err(Fail::new(StoreErrorKind::Full, format!("{ahead} wait for this name already"))
                .help("a longer line would be more than a server sends at a time; let fewer wait"));
        }
        let state = if let Some(closure) = self.closed(session, &claim.name, view.shut.as_ref()).await? {
            State::Closed(closure)
        } else if admit(&view.shares(ahead), claim.share) == Verdict::Admit {
            return Ok(None);
        } else {
            State::Waiting { ahead: u32::try_from(ahead).ok(), retry_after: None }
        };
        Ok(Some(Next::Stands(stands(state, Watch::Turn(claim.id)))))
    }

    /// Notes what was granted by a write that was sent then.
    fn granted(
        &self,
        claim: &Claim,
        session: &Session,
        node: Node,
        sent: BootTime,
        asked: BootTime,
    ) -> Result<Next> {
        let ttl = session.lives(sent, asked);
        if ttl.is_zero() {
            return Err(
                Fail::new(StoreErrorKind::Unavailable, "the session may have run out meanwhile").unknown()
            );
        }
        let granted = Granted { until: asked.after(ttl), tenure: 1, note: claim.note.clone() };
        if !self.0.holds.grant(claim.id, granted) {
            return Ok(Next::Anew);
        }
        let grant = Grant { token: node.token, tokens: 1, ttl };
        Ok(Next::Stands(stands(State::Granted(grant), Watch::Hold(claim.id))))
    }

    /// The grant again, with what is left of it.
    async fn repeat(&self, claim: &Claim, session: &Session, node: &Node, asked: BootTime) -> Result<Next> {
        let known = self.0.holds.get(claim.id).and_then(|hold| hold.granted);
        let left = known.map(|granted| granted.until.since(asked)).unwrap_or_default();
        if left.is_zero() || !self.stands(session, &node.path).await? {
            self.end_here(claim);
            return Ok(Next::Anew);
        }
        let grant = Grant { token: node.token, tokens: 1, ttl: left };
        Ok(Next::Stands(stands(State::Granted(grant), Watch::Hold(claim.id))))
    }

    /// Whether a node stands, by a step that changes nothing and yet goes the way of a write: through the leader and most
    /// servers. What only reads is answered by a server that may be cut off from the others.
    pub(crate) async fn stands(&self, session: &Session, path: &str) -> Result<bool> {
        let mut check = session.client().new_multi_writer();
        check.add_check_version(path, -1)?;
        match session.try_ask(check.commit()).await? {
            Ok(_) => Ok(true),
            Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => Ok(false),
            Err(
                MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source },
            ) => Err(source.into()),
        }
    }

    pub(crate) async fn take_away(&self, session: &Session, path: &str) -> Result<bool> {
        match session.try_ask(session.client().delete(path, None)).await? {
            Ok(()) => Ok(true),
            Err(Error::NoNode) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes all nodes of an id away that a view shows.
    pub(crate) async fn remove(
        &self,
        session: &Session,
        name: &LockName,
        view: &View,
        id: ClaimId,
    ) -> Result<bool> {
        let line = self.0.paths.line(name);
        let mut any = false;
        for member in view.members.iter().filter(|member| member.is(id)) {
            any |= self.take_away(session, &format!("{line}/{}", member.node)).await?;
        }
        Ok(any)
    }

    /// A session has ended under a claim that waited: what may be left of it is taken away, and never adopted.
    async fn leave_behind(&self, name: &LockName, id: ClaimId) -> Result<()> {
        let session = self.0.sessions.any().await?;
        let view = self.look_surely(&session, name).await?;
        if !fault!("zookeeper_adopts_any") {
            self.remove(&session, name, &view, id).await?;
        }
        self.0.holds.forget(id);
        self.0.sessions.forget(id);
        Ok(())
    }
}

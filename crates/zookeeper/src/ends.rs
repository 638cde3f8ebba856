//! How a claim ends, and what it leaves behind: the name may be shut, and an id that is not found leaves a sign.

use std::time::Duration;

use leasehold_core::{
    ClaimId, Leave, LockName, Note, Owner, Release, StoreErrorKind, TOMBSTONE_LIFE, Verdict, admit, fault,
};
use zookeeper_client::{CreateMode, Error, MultiWriteError};

use crate::fail::{Fail, Result};
use crate::holds::Hold;
use crate::line::{Shut, View};
use crate::session::Session;
use crate::store::ZooKeeperStore;
use crate::value::Value;

const ROUNDS: usize = 8;
/// An id that ended here is remembered for so long beyond its ttl.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Signs of ids that were not found are swept after so long, in milliseconds, so many at a time.
const SIGNS_KEPT: i64 = 3_600_000;
const SWEPT: usize = 16;

impl ZooKeeperStore {
    pub(crate) async fn end(&self, name: &LockName, id: ClaimId, leave: &Leave) -> Result<Release> {
        let hold = self.0.holds.get(id);
        let known = hold.as_ref().is_some_and(|hold| hold.node.is_some() && !hold.session.has_ended());
        // Its own session orders what is asked of it: nothing of this claim can come after.
        let session = match &hold {
            Some(hold) if !hold.session.has_ended() => hold.session.clone(),
            _ => self.0.sessions.any().await?,
        };
        let ttl = session.life.max(TOMBSTONE_LIFE);
        self.0.holds.end(id, self.0.clock.now(), ttl + REMEMBERED);
        let ended = match hold {
            Some(Hold { node: Some(node), granted, .. }) if known => {
                let held = granted.is_some();
                let gone = self.go(&session, name, &node.path, held, leave).await?;
                match (gone, held) {
                    (false, _) => Release::NotHeld,
                    (true, true) => Release::Released,
                    (true, false) => Release::Withdrawn,
                }
            }
            hold => self.end_found(&session, name, id, hold.is_some(), leave).await?,
        };
        self.0.sessions.forget(id);
        Ok(ended)
    }

    /// The end of what was stated elsewhere, or of what had no answer.
    async fn end_found(
        &self,
        session: &Session,
        name: &LockName,
        id: ClaimId,
        ours: bool,
        leave: &Leave,
    ) -> Result<Release> {
        if !ours && !fault!("zookeeper_no_tombstone") {
            // Before the look: a claim that is on its way sees this, or is seen.
            self.sign(session, id).await?;
        }
        let view = self.look_surely(session, name).await?;
        let place = match view.place_of(id) {
            None if !ours => self.place_of_stranger(session, name, &view, id).await?,
            place => place,
        };
        let Some(place) = place else { return Ok(Release::NotHeld) };
        let held =
            view.shut.is_none() && admit(&view.shares(place), view.members[place].share) == Verdict::Admit;
        let path = format!("{}/{}", self.0.paths.line(name), view.members[place].node);
        let gone = self.go(session, name, &path, held, leave).await?;
        // What a lost answer may have made besides.
        let rest = View { members: view.members.iter().skip(place + 1).cloned().collect(), ..view.clone() };
        self.remove(session, name, &rest, id).await?;
        Ok(match (gone, held) {
            (false, _) => Release::NotHeld,
            (true, true) => Release::Released,
            (true, false) => Release::Withdrawn,
        })
    }

    /// Takes a node away, and shuts the name in the same step where that is asked of who held it.
    async fn go(
        &self,
        session: &Session,
        name: &LockName,
        path: &str,
        held: bool,
        leave: &Leave,
    ) -> Result<bool> {
        match leave {
            Leave::Closed { lasting, note } if held && !lasting.is_zero() => {
                self.go_and_shut(session, name, path, *lasting, note).await
            }
            Leave::Open | Leave::Closed { .. } => self.take_away(session, path).await,
        }
    }

    async fn go_and_shut(
        &self,
        session: &Session,
        name: &LockName,
        path: &str,
        lasting: Duration,
        note: &Note,
    ) -> Result<bool> {
        let at = self.0.paths.shut(name);
        for _ in 0..ROUNDS {
            let Some((data, _)) = session.read(path).await? else { return Ok(false) };
            let by = Value::parse(&data).map_or_else(Owner::default, |value| value.owner);
            let view = self.look(session, name).await?;
            let closure = match &view.shut {
                Some(shut) => shut.closure(self.server_time(session).await?),
                None => None,
            };
            if closure.is_some_and(|closure| closure.left >= lasting) {
                // A shorter one opens nothing early.
                return self.take_away(session, path).await;
            }
            let data = Shut::data(lasting, &by, note);
            let stays = CreateMode::Persistent.with_acls(session.acls());
            let mut step = session.client().new_multi_writer();
            match &view.shut {
                Some(shut) => step.add_set_data(&at, &data, Some(shut.version))?,
                None => step.add_create(&at, &data, &stays)?,
            }
            step.add_delete(path, None)?;
            match session.try_ask(step.commit()).await? {
                Ok(_) => return Ok(true),
                Err(MultiWriteError::OperationFailed { index: 0, source: Error::NoNode })
                    if view.shut.is_none() =>
                {
                    session.ask(session.client().mkdir(&self.0.paths.shuts(), &stays)).await?;
                }
                // Somebody else shut it, or opened it, or has taken the lease away.
                Err(MultiWriteError::OperationFailed { .. }) => {}
                Err(MultiWriteError::RequestFailed { source }) => return Err(source.into()),
            }
        }
        Err(Fail::new(StoreErrorKind::Unavailable, "the name was shut and opened each time it was looked at"))
    }

    /// Leaves a sign that an id has ended, and sweeps old ones.
    async fn sign(&self, session: &Session, id: ClaimId) -> Result<()> {
        let now = match self.try_create(session, &self.0.paths.spent(id), b"").await? {
            Ok(stat) => stat.ctime,
            Err(Error::NodeExists) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let all = self.0.paths.spents();
        let signs = session.ask(session.client().list_children(&all)).await?;
        let from = fastrand::usize(..signs.len().max(1));
        for sign in signs.iter().cycle().skip(from).take(SWEPT.min(signs.len())) {
            let path = format!("{all}/{sign}");
            let Some(stat) = session.ask(session.client().check_stat(&path)).await? else { continue };
            if now.saturating_sub(stat.ctime) > SIGNS_KEPT {
                self.take_away(session, &path).await?;
            }
        }
        Ok(())
    }
}

//! How long a wait lasts: only the node that must go is watched, so that whoever goes wakes one waiter and no other.

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_core::{ClaimId, LockName, Verdict, admit, fault};
use zookeeper_client::{Error, OneshotWatcher};

use crate::fail::Result;
use crate::holds::Hold;
use crate::session::Session;
use crate::store::ZooKeeperStore;

/// What is waited for is looked at so often, whatever watches say.
const POLL: Duration = Duration::from_secs(5);

impl ZooKeeperStore {
    /// Waits for the turn of a claim.
    pub(crate) async fn await_turn(&self, name: &LockName, id: ClaimId) -> Result<()> {
        let Some(Hold { session, share, node, waits, .. }) = self.0.holds.get(id) else { return Ok(()) };
        // While it waits, its place does not lapse.
        let _waits = waits;
        let line = self.0.paths.line(name);
        loop {
            if session.has_ended() {
                return Ok(());
            }
            let view = self.look(&session, name).await?;
            let ahead = match view.place_of(id) {
                Some(ahead) => ahead,
                // Its place is gone.
                None if node.is_some() => return Ok(()),
                None => view.members.len(),
            };
            if let Some(closure) = self.closed(&session, name, view.shut.as_ref()).await? {
                let shut = self.0.paths.shut(name);
                let (stat, watcher) = session.ask(session.client().check_and_watch_stat(&shut)).await?;
                if stat.is_some() {
                    self.told(&session, watcher, closure.left).await;
                }
                continue;
            }
            match admit(&view.shares(ahead), share) {
                Verdict::Admit => return Ok(()),
                Verdict::Behind(at) => {
                    let before = if fault!("zookeeper_watches_the_first") { 0 } else { at };
                    let path = format!("{line}/{}", view.members[before].node);
                    let (stat, watcher) = session.ask(session.client().check_and_watch_stat(&path)).await?;
                    if stat.is_some() {
                        self.told(&session, watcher, POLL).await;
                    }
                }
                Verdict::Crowded => {
                    let watched = session.client().list_and_watch_children(&line);
                    let (mut children, watcher) = match session.try_ask(watched).await? {
                        Ok(watched) => watched,
                        Err(Error::NoNode) => continue,
                        Err(error) => return Err(error.into()),
                    };
                    children.sort_unstable();
                    let seen = |node: &String| children.binary_search(node).is_ok();
                    if view.members[..ahead].iter().all(|member| seen(&member.node)) {
                        self.told(&session, watcher, POLL).await;
                    }
                }
            }
        }
    }

    /// Waits until a claim holds no longer.
    pub(crate) async fn await_end(&self, name: &LockName, id: ClaimId) -> Result<()> {
        let (session, node) = match self.0.holds.get(id) {
            Some(Hold { session, node: Some(node), .. }) => (session, node.path),
            _ => {
                let session = self.0.sessions.any().await?;
                let view = self.look_anew(&session, name).await?;
                let Some(place) = view.place_of(id) else { return Ok(()) };
                let node = format!("{}/{}", self.0.paths.line(name), view.members[place].node);
                (session, node)
            }
        };
        while !session.has_ended() {
            let (stat, watcher) = session.ask(session.client().check_and_watch_stat(&node)).await?;
            if stat.is_none() {
                break;
            }
            self.told(&session, watcher, POLL).await;
        }
        Ok(())
    }

    /// Waits until what was seen of a name is out of date.
    pub(crate) async fn await_change(&self, name: &LockName, version: u64) -> Result<()> {
        let session = self.0.sessions.any().await?;
        let (line, shut) = (self.0.paths.line(name), self.0.paths.shut(name));
        while !session.has_ended() {
            // The watches are set before the look, so that nothing falls between.
            let children = session.client().list_and_watch_children(&line);
            let stat = session.client().check_and_watch_stat(&line);
            let shut = session.client().check_and_watch_stat(&shut);
            let all = async { Ok::<_, Error>(futures_util::future::join3(children, stat, shut).await) };
            let (children, stat, shut) = session.ask(all).await?;
            let view = self.look(&session, name).await?;
            if view.version() != version {
                break;
            }
            let left = match self.closed(&session, name, view.shut.as_ref()).await? {
                Some(closure) => closure.left,
                None if view.shut.is_some() => break,
                None => POLL,
            };
            let ((_, line), (_, shut)) = (stat?, shut?);
            let children = async {
                match children {
                    Ok((_, watcher)) => drop(watcher.changed().await),
                    // There is no such directory; that it is made tells the other.
                    Err(_) => std::future::pending().await,
                }
            };
            let any = async {
                tokio::select! {
                    () = children => {}
                    _ = line.changed() => {}
                    _ = shut.changed() => {}
                    () = session.ends() => {}
                }
            };
            let _ = self.0.clock.within(left.min(POLL), any).await;
        }
        Ok(())
    }

    /// Something happened to what is watched, or enough time has passed to look anyway.
    async fn told(&self, session: &Session, watcher: OneshotWatcher, most: Duration) {
        let any = async {
            tokio::select! {
                () = watcher.changed().map(drop) => {}
                () = session.ends() => {}
            }
        };
        let _ = self.0.clock.within(most.min(POLL), any).await;
    }
}

//! Who leads, for those who follow.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{Error, Holder, LockName, NameError, Op, Result, Share, Snapshot};
use tokio::sync::watch;

use crate::client::Client;
use crate::engine::{Command, Engine};
use crate::{janitor, patience, terms};

/// How long to wait before a failing store is asked again; it doubles up to [`MOST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MOST_PAUSE: Duration = Duration::from_secs(1);
/// A look is due after this long even if nothing was heard: the store is not told when one task of a process hands the
/// lead on to another.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Who leads, as a follower hears of it; see [`Election::watch`](crate::Election::watch).
#[derive(Debug, Clone)]
pub struct LeaderWatch {
    seen: watch::Receiver<Seen>,
    /// What is watched is watched by this client's thread.
    client: Arc<Client>,
}

/// What a follower has seen last.
#[derive(Debug, Clone, Default)]
struct Seen {
    leader: Option<Holder>,
    trouble: Option<Error>,
}

impl LeaderWatch {
    /// Has the client's thread look from now on. What cannot be begun is told by the first [`changed`](Self::changed).
    pub(crate) fn start(client: Arc<Client>, name: Result<LockName, NameError>) -> Self {
        let (tell, seen) = watch::channel(Seen::default());
        let told = tell.clone();
        let started = name.map_err(Error::from).and_then(|name| {
            let follow = |engine: Rc<Engine>| follow(engine, name, told).boxed_local();
            client.send(Command::Run(Box::new(follow)))
        });
        if let Err(error) = started {
            tell.send_replace(Seen { leader: None, trouble: Some(error) });
        }
        Self { seen, client }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Who led when it was last seen; `None` while nobody does, and before the first answer of
    /// [`changed`](Self::changed). What it says of ages was true then.
    #[must_use]
    pub fn latest(&self) -> Option<Holder> {
        self.seen.borrow().leader.clone()
    }

    /// Who leads: at the first call as soon as it is known, then at each change. Changes that follow upon one another
    /// while nobody asks are one change.
    ///
    /// # Errors
    ///
    /// That it is not known who leads: a bad name, a store that refuses us or has been silent for longer than the
    /// client's timeout (told once; it is asked again all the while), a client that was closed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is missed.
    pub async fn changed(&mut self) -> Result<Option<Holder>> {
        let more = self.seen.changed().await;
        let Seen { leader, trouble } = self.seen.borrow_and_update().clone();
        match (more, trouble) {
            (_, Some(trouble)) => Err(trouble),
            (Ok(()), None) => Ok(leader),
            (Err(_), None) => Err(janitor::ended()),
        }
    }
}

/// Follows who leads, for as long as somebody wants to know.
async fn follow(engine: Rc<Engine>, name: LockName, tell: watch::Sender<Seen>) {
    let follows = async {
        let (mut told, mut failing, mut troubled, mut pauses) = (None, None, false, 0_u32);
        loop {
            let look = engine.store.inspect(&name);
            let watched = match engine.call(Op::Inspect, Some(&name), engine.settings.timeout, look).await {
                Ok(snapshot) => {
                    failing = None;
                    let leader = leader(&engine, &snapshot);
                    let now = Some(leader.as_ref().map(|leader| (leader.id.clone(), leader.token)));
                    if told != now || troubled {
                        (told, troubled) = (now, false);
                        tell.send_replace(Seen { leader, trouble: None });
                    }
                    patience::watch(&engine, &name, &snapshot.cursor, terms::jitter(LOOK_AGAIN)).await
                }
                Err(error) => Err(error),
            };
            let Err(error) = watched else {
                pauses = 0;
                continue;
            };
            let now = engine.clock.now();
            let silent = now.since(*failing.get_or_insert(now)) >= engine.settings.timeout;
            let hopeless = !error.is_retryable() && !error.outcome_unknown();
            if (silent || hopeless) && !troubled {
                troubled = true;
                tell.send_modify(|seen| seen.trouble = Some(error));
            }
            let pause = FIRST_PAUSE.saturating_mul(1 << pauses.min(10)).min(MOST_PAUSE);
            pauses += 1;
            engine.clock.sleep_until(engine.clock.now().after(terms::jitter(pause))).await;
        }
    };
    tokio::select! {
        () = tell.closed() => {}
        () = follows => {}
    }
}

fn leader(engine: &Engine, snapshot: &Snapshot) -> Option<Holder> {
    let mut holders = snapshot.holders.iter().filter(|entry| entry.share == Share::EXCLUSIVE);
    holders.find_map(|entry| Holder::of(entry, &engine.settings.owner))
}

//! Gives back what was released, dropped, cancelled, or left with an unknown outcome: by id, in the background,
//! until the store acknowledges it or it has run out anyway, which under a session that lives on it never does.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{BootTime, Claim, Clock, Error, Expiry, Leave, Op, Release, Result, fault};
use tokio::sync::{Notify, oneshot};

use crate::engine::Engine;
use crate::event::Event;
use crate::terms;

/// How long to wait before the first repetition; it doubles up to [`MOST`].
const FIRST: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_secs(2);

/// What became of giving something back.
#[derive(Debug)]
pub(crate) struct GivenBack {
    pub(crate) release: Release,
    /// Whether it had to be asked more than once: then `NotHeld` may mean that an earlier try succeeded.
    pub(crate) repeated: bool,
}

/// Counts what is under way.
#[derive(Debug, Default)]
pub(crate) struct Janitor {
    open: Cell<usize>,
    done: Notify,
}

impl Janitor {
    /// Counts it as under way until it is done.
    pub(crate) async fn sees_to<T>(&self, work: impl Future<Output = T>) -> T {
        self.open.set(self.open.get() + 1);
        let done = work.await;
        self.open.set(self.open.get() - 1);
        self.done.notify_waiters();
        done
    }

    /// Returns once nothing is under way, after `most` at the latest.
    pub(crate) async fn idle(&self, clock: &Clock, most: Duration) {
        let until = clock.now().after(most);
        while self.open.get() > 0 && clock.now() < until {
            tokio::select! {
                () = self.done.notified() => {}
                () = clock.sleep_until(until) => {}
            }
        }
    }
}

/// Gives a claim back. The receiver hears the outcome, or an error once the store has been silent for too long;
/// the attempts go on until `expires`, when the store has dropped the claim by itself; or for as long as it takes, where
/// a claim ends only with a session, which may carry others and outlive this one by days.
pub(crate) fn give_back(
    engine: &Rc<Engine>,
    claim: &Claim,
    leave: Leave,
    expires: BootTime,
) -> oneshot::Receiver<Result<GivenBack>> {
    let (reply, receiver) = oneshot::channel();
    let (engine, name, id) = (engine.clone(), claim.name.clone(), claim.id);
    engine.janitor.open.set(engine.janitor.open.get() + 1);
    tokio::task::spawn_local(async move {
        let patience = engine.clock.now().after(engine.settings.timeout);
        let runs_out =
            engine.store.capabilities().expiry == Expiry::PerClaim || fault!("session_claim_left_to_itself");
        let mut reply = Some(reply);
        let mut tries = 0_u32;
        loop {
            let deadline = engine.settings.timeout;
            let ask = engine.store.release(&name, id, leave.clone());
            match engine.call(Op::Release, Some(&name), deadline, ask).await {
                Ok(release) => {
                    let given = GivenBack { release, repeated: tries > 0 };
                    // Nobody may be listening: a dropped lease is given back all the same.
                    if let Some(reply) = reply.take() {
                        drop(reply.send(Ok(given)));
                    }
                    break;
                }
                Err(error) => {
                    if tries == 0 {
                        engine.emit(&Event::ReleaseFailed { name: name.clone(), error: error.clone() });
                    }
                    let now = engine.clock.now();
                    let hopeless = !error.is_retryable() && !error.outcome_unknown();
                    // A ttl may be shorter than the patience: who waits for the outcome hears the store's error then.
                    if (now >= patience || now >= expires || hopeless)
                        && let Some(reply) = reply.take()
                    {
                        drop(reply.send(Err(error)));
                    }
                    if hopeless || (runs_out && now >= expires) {
                        break;
                    }
                }
            }
            let pause = terms::jitter(FIRST.saturating_mul(1 << tries.min(10)).min(MOST));
            tries += 1;
            engine.clock.sleep_until(engine.clock.now().after(pause)).await;
        }
        engine.janitor.open.set(engine.janitor.open.get() - 1);
        engine.janitor.done.notify_waiters();
    });
    receiver
}

/// The error of a reply that never came, since the engine ended.
pub(crate) fn ended() -> Error {
    leasehold_core::ConfigError::new("the client was closed")
        .help("keep it open while leases are held")
        .into()
}

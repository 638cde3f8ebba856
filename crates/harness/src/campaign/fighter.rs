//! One client that fights: it takes a name, works under it, and gives it back, whatever befalls the store.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Error, Lease, Leasehold, LockName};
use leasehold_conformance::Check;
use tokio::sync::watch;

use super::fence::Fence;
use super::pen::Pen;
use super::{KEEPERS, NAMES};

/// One client.
#[derive(Debug)]
pub(super) struct Fighter {
    number: usize,
    url: String,
    ttl: Duration,
    fence: Arc<Fence>,
    stop: watch::Receiver<bool>,
    seed: u64,
    pub(super) pen: Arc<Pen>,
}

impl Fighter {
    pub(super) fn new(
        number: usize,
        url: String,
        ttl: Duration,
        fence: Arc<Fence>,
        stop: watch::Receiver<bool>,
        seed: u64,
    ) -> Self {
        let pen = Arc::new(Pen::new(u32::try_from(number).unwrap_or(u32::MAX) + 1));
        Self { number, url, ttl, fence, stop, seed, pen }
    }

    fn goes_on(&self) -> bool {
        !*self.stop.borrow()
    }

    /// Returns once it is to stop.
    async fn stopped(&self) {
        // Whoever says so lives longer.
        drop(self.stop.clone().wait_for(|stop| *stop).await);
    }

    async fn tenure(&self, name: usize, lease: Lease, dice: &mut fastrand::Rng, new: u64) -> Check {
        self.pen.got(&lease);
        let read = self.fence.read(name, lease.token());
        // Now and then so long that somebody else could be in the middle of it, or that it must be renewed.
        let hold = match dice.u8(..20) {
            _ if self.number < KEEPERS => self.ttl.mul_f64(1.0 + 1.5 * dice.f64()),
            0 => self.ttl.mul_f64(0.5 + 1.5 * dice.f64()),
            1 | 2 => self.ttl.mul_f64(0.1 + 0.3 * dice.f64()),
            _ => (self.ttl / 100).mul_f64(dice.f64()),
        };
        tokio::select! {
            () = tokio::time::sleep(hold) => {}
            _ = lease.lost() => {}
            () = self.stopped() => {}
        }
        let Ok(token) = lease.check() else {
            self.pen.loses();
            return Ok(());
        };
        self.fence.write(name, token, read, new);
        if !self.pen.gives_back() {
            return Ok(());
        }
        match lease.release().await {
            Ok(()) => self.pen.given_back(),
            // It ended while it was given back, or the janitor goes on with it.
            Err(Error::Lost(_) | Error::Store(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Fights until it is told to stop.
pub(super) async fn fight(fighter: Arc<Fighter>) -> Check {
    let (ttl, mut dice) = (fighter.ttl, fastrand::Rng::with_seed(fighter.seed));
    let builder = Leasehold::builder().observer(fighter.pen.clone()).timeout(ttl);
    let client = builder.connect(&fighter.url).await?;
    let mut written = 0_u64;
    while fighter.goes_on() {
        // Mostly what no keeper has, or all would wait for those.
        let name = match dice.u8(..6) {
            _ if fighter.number < KEEPERS => fighter.number,
            0 => dice.usize(..KEEPERS),
            _ => dice.usize(KEEPERS..NAMES.len()),
        };
        let lock = client.lock(NAMES[name]).ttl(ttl);
        fighter.pen.asks(&LockName::parse(NAMES[name])?);
        let acquired = tokio::select! {
            acquired = lock.acquire_within(ttl * 2) => acquired,
            () = fighter.stopped() => {
                fighter.pen.gives_up();
                break;
            }
        };
        match acquired {
            Ok(lease) => {
                written += 1;
                let new = written * 1000 + fighter.number as u64;
                fighter.tenure(name, lease, &mut dice, new).await?;
            }
            // What a program does that tries again: not at once.
            Err(Error::TimedOut { .. } | Error::Busy(_) | Error::Store(_) | Error::Lost(_)) => {
                fighter.pen.gives_up();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_micros(dice.u64(..2000))).await;
    }
    // Whatever is left under way is not waited for: the server may have gone.
    drop(client.close().await);
    Ok(())
}

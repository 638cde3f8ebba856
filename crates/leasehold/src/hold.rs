//! What a lease and the engine share: until when it holds, and what became of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, Clock, LockName, Lost, LostReason, Token};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::nesting::Asker;
use crate::pulse::Pulse;
use crate::shape::Shape;

/// Where a lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// It holds.
    Held,
    /// Renewals fail and the end is near: wind down.
    Endangered,
    /// It no longer holds, and never will again.
    Lost,
}

/// What the holder is told, with a count so that each renewal is news too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) state: LeaseState,
    pub(crate) reason: Option<LostReason>,
    renewals: u64,
}

/// One tenure of a lease.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Tells tenures of one client apart.
    pub(crate) id: u64,
    pub(crate) name: LockName,
    /// What it takes, and under which token.
    pub(crate) shape: Shape,
    pub(crate) ttl: Duration,
    pub(crate) owner_id: String,
    pub(crate) since: BootTime,
    pub(crate) clock: Clock,
    /// The process that it was granted to: a fork does not inherit it.
    pid: u32,
    /// The end of validity in nanoseconds on the boot clock; 0 once the lease has ended, for good.
    until: AtomicU64,
    /// Set once the acquire has returned it: what nobody took is not renewed.
    taken: AtomicBool,
    /// The future that it waits with for others, if it does.
    pulse: Mutex<Option<Arc<Pulse>>>,
    /// Since when somebody has worked under it, as far as may be: what is held while others are waited for is not.
    begun: AtomicU64,
    /// Set by a holder under whose lease nothing was done: it need not keep the name shut.
    idle: AtomicBool,
    /// Who took it, where an acquire did.
    asker: OnceLock<Arc<Asker>>,
    news: watch::Sender<News>,
    cancelled: CancellationToken,
}

impl Hold {
    #[expect(clippy::too_many_arguments, reason = "made in one place, and each is a fact of the grant")]
    pub(crate) fn new(
        id: u64,
        name: LockName,
        shape: Shape,
        ttl: Duration,
        owner_id: String,
        since: BootTime,
        clock: Clock,
        until: BootTime,
    ) -> Self {
        let news = News { state: LeaseState::Held, reason: None, renewals: 0 };
        Self {
            id,
            name,
            shape,
            ttl,
            owner_id,
            since,
            clock,
            pid: std::process::id(),
            until: AtomicU64::new(until.as_nanos()),
            taken: AtomicBool::new(false),
            pulse: Mutex::default(),
            begun: AtomicU64::new(since.as_nanos()),
            idle: AtomicBool::new(false),
            asker: OnceLock::new(),
            news: watch::Sender::new(news),
            cancelled: CancellationToken::new(),
        }
    }

    /// Until when it holds; the beginning of time once it ended.
    pub(crate) fn until(&self) -> BootTime {
        BootTime::from_nanos(self.until.load(Ordering::SeqCst))
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_forked() { Duration::ZERO } else { self.until().since(self.clock.now()) }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Whether it holds now. Once this said no it always will: whoever was told "lost" has acted on it.
    pub(crate) fn check(&self) -> Result<Token, Lost> {
        if self.is_forked() {
            return Err(Lost::new(LostReason::Forked));
        }
        if let Some(reason) = self.news.borrow().reason {
            return Err(Lost::new(reason));
        }
        if self.clock.now() >= self.until() {
            return Err(self.end(LostReason::Expired));
        }
        Ok(self.token())
    }

    /// The token of the present tenure; it rises when the lease grows.
    pub(crate) fn token(&self) -> Token {
        self.shape.token()
    }

    /// Prolongs it, unless it has ended or its time is up: a lost lease never comes back to life, even if the
    /// store kept it a little longer.
    pub(crate) fn extend(&self, until: BootTime) -> bool {
        let now = self.clock.now().as_nanos();
        let extended = self.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |end| {
            let alive = end != 0 && now < end;
            (alive || leasehold_core::fault!("lost_comes_back")).then(|| end.max(until.as_nanos()))
        });
        if extended.is_ok() {
            let fresh = |news: &mut News| {
                let revived = leasehold_core::fault!("lost_comes_back");
                if news.reason.is_none() || revived {
                    *news = News { state: LeaseState::Held, reason: None, renewals: news.renewals + 1 };
                }
            };
            self.news.send_modify(fresh);
        }
        extended.is_ok()
    }

    /// Warns the holder, once; says whether this was the time.
    pub(crate) fn endanger(&self) -> bool {
        self.news.send_if_modified(|news| {
            let warn = news.state == LeaseState::Held;
            if warn {
                news.state = LeaseState::Endangered;
            }
            warn
        })
    }

    /// Ends it for this reason, unless it has ended for another; gives the reason that stands.
    pub(crate) fn end(&self, reason: LostReason) -> Lost {
        self.until.store(0, Ordering::SeqCst);
        let mut stands = reason;
        self.news.send_if_modified(|news| match news.reason {
            Some(earlier) => {
                stands = earlier;
                false
            }
            None => {
                (news.state, news.reason) = (LeaseState::Lost, Some(reason));
                true
            }
        });
        self.cancelled.cancel();
        Lost::new(stands)
    }

    /// What became of it.
    pub(crate) fn reason(&self) -> Option<LostReason> {
        self.news.borrow().reason
    }

    pub(crate) fn state(&self) -> LeaseState {
        match self.check() {
            Ok(_) => self.news.borrow().state,
            Err(_) => LeaseState::Lost,
        }
    }

    pub(crate) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.cancelled.clone()
    }

    /// Remembers who took it.
    pub(crate) fn asked_by(&self, asker: Arc<Asker>) {
        // A hold is taken once.
        drop(self.asker.set(asker));
    }

    /// Who took it, where an acquire did.
    pub(crate) fn asker(&self) -> Option<&Arc<Asker>> {
        self.asker.get()
    }

    pub(crate) fn take(&self) {
        self.taken.store(true, Ordering::SeqCst);
    }

    pub(crate) fn was_idle(&self) {
        self.idle.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst)
    }

    /// Ties it to a future that waits for others with it.
    pub(crate) fn follow(&self, pulse: &Arc<Pulse>) {
        self.begun.store(u64::MAX, Ordering::SeqCst);
        *self.pulse.lock().unwrap_or_else(PoisonError::into_inner) = Some(pulse.clone());
    }

    /// Unties it: all are held.
    pub(crate) fn begin(&self) {
        self.begun.store(self.clock.now().as_nanos(), Ordering::SeqCst);
        *self.pulse.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// From when on it counts how long it is held; `None` while others are waited for with it.
    pub(crate) fn begun(&self) -> Option<BootTime> {
        Some(self.begun.load(Ordering::SeqCst)).filter(|begun| *begun != u64::MAX).map(BootTime::from_nanos)
    }

    /// Whether somebody wants it renewed: it was taken, and the future that has it, if one still has, was polled in so
    /// long a time.
    pub(crate) fn is_wanted(&self, within: Duration) -> bool {
        let pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.is_taken() && pulse.is_none_or(|pulse| pulse.shows_life(within))
    }
}

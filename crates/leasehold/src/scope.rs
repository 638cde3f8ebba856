//! Re-entrancy: an identity that travels with a piece of work, and holds each name once however often it asks.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::{Code, ConfigError, Leave, LockName, Result, Share, fault};
use tokio::sync::Notify;

use crate::acquire::Acquire;
use crate::client::{Client, Leasehold};
use crate::hold::Hold;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::nesting::ScopeMark;
use crate::terms::Terms;

/// An identity that travels with a piece of work: what it holds it may take again.
///
/// A plain lock is not re-entrant, and async Rust has no thread that could be asked "is it you?". A scope says it:
/// pass it along (it is cheap to clone, and may go to other tasks and threads), and take locks through it.
///
/// - An acquire of what the scope already holds gives another [`Lease`] of *the same hold*, at once and without
///   asking the store: same token, counted. The store gets it back when the last of them is released or dropped.
/// - A loss is a loss for all of them. What was lost is not re-entered: the next acquire asks the store anew, and
///   has a new token.
/// - Tasks of one scope that race for the first acquire get it together: the second joins the first's lease.
/// - A scope holds a name *once*. It counts as one user of it, also of a semaphore: tasks that are to exclude each
///   other need scopes of their own, or none.
/// - The hold keeps the ttl, note and other options of the acquire that took it; those of a later one mean nothing
///   while it is held.
/// - Who holds a name exclusively, has it shared too. Who holds it shared cannot take it exclusively, since two such
///   would wait for each other: that is an [`Error::Config`](crate::Error::Config) with [`Code::GROW`].
///
/// Where you can, pass `&Lease` to what needs the lock instead: then the compiler sees it.
///
/// ```
/// # leasehold::doc_test(async {
/// use leasehold::{Result, Scope};
///
/// async fn charge(me: &Scope) -> Result<()> {
///     let again = me.lock("customer:7").acquire().await?; // counted: no deadlock, no round trip
///     println!("charged under token {}", again.check()?);
///     again.release().await
/// }
///
/// let client = leasehold::Leasehold::memory();
/// let me = client.scope("request-8c1f");
/// let lease = me.lock("customer:7").acquire().await?;
/// charge(&me).await?;
/// lease.check()?; // still held
/// lease.release().await
/// # });
/// ```
#[derive(Clone)]
pub struct Scope {
    client: Leasehold,
    inner: Arc<Inner>,
}

/// What all clones of a scope share.
pub(crate) struct Inner {
    label: Arc<str>,
    places: Mutex<HashMap<Key, Place>>,
}

/// A client, by its address, and a name in it. The address is good while a lease or a visit keeps the client.
type Key = (usize, LockName);

/// One name of a scope, while somebody holds it or asks for it.
#[derive(Default)]
struct Place {
    held: Option<Held>,
    visitors: usize,
    moved: Arc<Notify>,
}

/// What the scope holds of a name.
struct Held {
    hold: Arc<Hold>,
    share: Share,
    /// How many leases there are of it.
    count: usize,
    /// How it is to be given back in the end.
    end: End,
}

/// How the last of several leases ends the hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// It is given back.
    GiveBack(Leave),
    /// It is left to run out, since one of them was [kept](Lease::keep).
    Keep,
}

impl End {
    /// What is left of two ends: what shuts a name for longer stands over what opens it, and kept over both.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Keep, _) | (_, Self::Keep) => Self::Keep,
            (Self::GiveBack(a), Self::GiveBack(b)) => Self::GiveBack(match (a, b) {
                (Leave::Closed { lasting: a, .. }, Leave::Closed { lasting: b, note }) if b > a => {
                    Leave::Closed { lasting: b, note }
                }
                (Leave::Open, b) => b,
                (a, _) => a,
            }),
        }
    }
}

impl Inner {
    fn places(&self) -> MutexGuard<'_, HashMap<Key, Place>> {
        // Each change is whole before anything can panic.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What makes a lease one of several.
pub(crate) struct Counted {
    scope: Arc<Inner>,
    key: Key,
}

impl Counted {
    /// One lease less of this hold. Gives the way in which the hold is to end, if that was the last.
    pub(crate) fn leave(&self, hold: &Hold, end: End) -> Option<End> {
        let mut places = self.scope.places();
        let Some(place) = places.get_mut(&self.key) else { return Some(end) };
        // A hold that was lost, and that the scope has replaced since, has nobody who counts.
        let Some(held) = place.held.as_mut().filter(|held| held.hold.id == hold.id) else { return Some(end) };
        held.end = held.end.clone().and(end);
        held.count -= 1;
        if held.count > 0 && !fault!("scope_forgets_count") {
            return None;
        }
        let held = place.held.take();
        if place.visitors == 0 {
            places.remove(&self.key);
        }
        held.map(|held| held.end)
    }

    /// The hold has gone elsewhere: nobody enters it any more.
    pub(crate) fn forget(&self, hold: &Hold) {
        let mut places = self.scope.places();
        let Some(place) = places.get_mut(&self.key) else { return };
        if place.held.as_ref().is_some_and(|held| held.hold.id == hold.id) {
            place.held = None;
        }
        if place.held.is_none() && place.visitors == 0 {
            places.remove(&self.key);
        }
    }
}

/// Somebody of the scope who asks for a name.
struct Visit<'a> {
    scope: &'a Arc<Inner>,
    client: &'a Arc<Client>,
    key: Key,
    moved: Arc<Notify>,
}

impl<'a> Visit<'a> {
    fn new(scope: &'a Arc<Inner>, client: &'a Arc<Client>, name: LockName) -> Self {
        let key = (Arc::as_ptr(client).addr(), name);
        let mut places = scope.places();
        let place = places.entry(key.clone()).or_default();
        place.visitors += 1;
        let moved = place.moved.clone();
        drop(places);
        Self { scope, client, key, moved }
    }

    /// Another lease of what the scope holds, if it does.
    fn join(&self, share: Share) -> Result<Option<Lease>> {
        let hold = {
            let places = self.scope.places();
            let held = places.get(&self.key).and_then(|place| place.held.as_ref());
            held.map(|held| held.hold.clone())
        };
        // Looked at outside the mutex: whoever hears of a loss may run anything.
        let Some(hold) = hold.filter(|hold| hold.check().is_ok()) else { return Ok(None) };
        let mut places = self.scope.places();
        let held = places.get_mut(&self.key).and_then(|place| place.held.as_mut());
        let Some(held) = held.filter(|held| held.hold.id == hold.id) else { return Ok(None) };
        if !covers(held.share, share) {
            return Err(cannot_grow(&self.key.1, held.share, share).into());
        }
        held.count += 1;
        drop(places);
        Ok(Some(self.lease(hold)))
    }

    /// Makes a lease that was just granted the scope's.
    fn admit(&self, lease: Lease, share: Share) -> Result<Lease> {
        // Two readers of one scope may be granted at the same moment: the later gives his back and joins.
        if let Some(joined) = self.join(share)? {
            return Ok(joined);
        }
        let hold = lease.hold().clone();
        let held = Held { hold: hold.clone(), share, count: 1, end: End::GiveBack(Leave::Open) };
        let before = {
            let mut places = self.scope.places();
            places.entry(self.key.clone()).or_default().held.replace(held)
        };
        drop(before);
        // Outside the mutex: a waker may run the future right here.
        self.moved.notify_waiters();
        Ok(lease.counted(Counted { scope: self.scope.clone(), key: self.key.clone() }))
    }

    fn lease(&self, hold: Arc<Hold>) -> Lease {
        let counted = Counted { scope: self.scope.clone(), key: self.key.clone() };
        Lease::new(hold, self.client.clone()).counted(counted)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut places = self.scope.places();
        let Some(place) = places.get_mut(&self.key) else { return };
        place.visitors -= 1;
        if place.visitors == 0 && place.held.is_none() {
            places.remove(&self.key);
        }
    }
}

/// Whether who holds the one has the other too.
fn covers(held: Share, wanted: Share) -> bool {
    held == Share::EXCLUSIVE || (held.of() == wanted.of() && held.take() >= wanted.take())
}

fn cannot_grow(name: &LockName, held: Share, wanted: Share) -> ConfigError {
    let help = if held == Share::UPGRADEABLE {
        "upgrade the lease that the scope holds instead of asking for another"
    } else {
        "take it upgradeable, or in full, the first time; or give it back and ask anew"
    };
    let message = format!(
        "{name}: this scope holds it {held} and cannot take it {wanted} besides: two such would wait for each other"
    );
    ConfigError::new(message).code(Code::GROW).help(help)
}

impl Scope {
    /// Describes the lock of this name, to be taken by this scope.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.client.lock(name).within(self)
    }

    /// How it is called in reports and logs.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.inner.label
    }

    /// Its address tells it apart for as long as it holds or waits for anything.
    fn mark(&self) -> ScopeMark {
        ScopeMark { id: Arc::as_ptr(&self.inner).addr(), label: self.inner.label.clone() }
    }

    /// The acquire behind every verb of a lock that is taken by this scope.
    pub(crate) async fn acquire(
        &self,
        client: &Arc<Client>,
        terms: Terms,
        wait: Option<Duration>,
        wants_busy: bool,
    ) -> Result<Lease> {
        let share = terms.share;
        let visit = Visit::new(&self.inner, client, terms.name.clone());
        let acquire = Acquire::new(client.clone(), terms, wait, wants_busy).of(self.mark());
        // It asks for nothing before it is polled, and stands in the line of this process when it waits: so whoever
        // of the scope is first in it is granted, and the others join him.
        let mut acquire = pin!(acquire);
        loop {
            let mut moved = pin!(visit.moved.notified());
            // Before the look, so that a grant between the look and the wait is not missed.
            moved.as_mut().enable();
            if let Some(lease) = visit.join(share)? {
                return Ok(lease);
            }
            match select(acquire.as_mut(), moved).await {
                Either::Left((lease, _)) => return visit.admit(lease?, share),
                Either::Right(((), _)) => {}
            }
        }
    }
}

impl Leasehold {
    /// A new identity that may take again what it holds; `label` says in reports whose it is. Two scopes are two
    /// identities, whatever their labels: pass clones of one along.
    pub fn scope(&self, label: impl AsRef<str>) -> Scope {
        let inner = Inner { label: label.as_ref().into(), places: Mutex::default() };
        Scope { client: self.clone(), inner: Arc::new(inner) }
    }
}

impl Lock {
    /// Has this lock taken by a scope: what the scope holds it may take again.
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let me = client.scope("nightly");
    /// let lock = client.lock("stock").within(&me);
    /// let (first, second) = (lock.acquire().await?, lock.acquire().await?);
    /// assert_eq!(first.token(), second.token());
    /// # Ok(()) });
    /// ```
    pub fn within(mut self, scope: &Scope) -> Self {
        self.scope = Some(scope.clone());
        self
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("label", &self.label()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

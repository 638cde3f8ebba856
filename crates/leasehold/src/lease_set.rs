//! The proof that several locks are held: all of them, or it is lost.

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all, try_join_all};
use leasehold_core::{LockName, Lost, Result, Token};
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::engine::{Command, Engine};
use crate::hold::LeaseState;
use crate::lease::Lease;

/// The proof that several locks are held. Each is renewed in the background; when one of them is lost the set is, and
/// the others stay held until the set is given back by [`release`](LeaseSet::release) or on drop.
///
/// # When it is dropped
///
/// As a [`Lease`]: all are given back in the background.
///
/// ```
/// # leasehold::doc_test(async {
/// # let client = leasehold::Leasehold::memory();
/// let both = client.lock_all(["account:17", "account:42"]).acquire().await?;
/// both.check()?;
/// for (name, token) in both.tokens() {
///     println!("{name}: write under {token}");
/// }
/// both.release().await
/// # });
/// ```
#[must_use = "leases that are not kept are given back at once"]
pub struct LeaseSet {
    client: Arc<Client>,
    namespace: Arc<str>,
    /// Sorted by name.
    leases: Vec<Lease>,
    cancelled: OnceLock<CancellationToken>,
}

impl LeaseSet {
    pub(crate) fn new(client: Arc<Client>, namespace: Arc<str>, leases: Vec<Lease>) -> Self {
        Self { client, namespace, leases, cancelled: OnceLock::new() }
    }

    /// The fencing token of one of the names, as it was given to
    /// [`lock_all`](crate::Leasehold::lock_all); `None` if it is not among them. Each name has its own, and it stays
    /// readable after the loss.
    #[must_use]
    pub fn token_of(&self, name: impl AsRef<str>) -> Option<Token> {
        let name = LockName::parse(name.as_ref()).and_then(|name| name.within(&self.namespace)).ok()?;
        let index = self.leases.binary_search_by(|lease| lease.name().cmp(&name)).ok()?;
        Some(self.leases[index].token())
    }

    /// The names in byte order, with their namespace, each with its fencing token.
    pub fn tokens(&self) -> impl Iterator<Item = (&LockName, Token)> {
        self.leases.iter().map(|lease| (lease.name(), lease.token()))
    }

    /// The leases in the byte order of their names, to see which of them was lost.
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Whether all of them hold right now. As [`Lease::check`] it asks nobody; put it before each step that matters.
    ///
    /// # Errors
    ///
    /// [`Lost`], for good, as soon as one of them is lost.
    pub fn check(&self) -> Result<(), Lost> {
        self.leases.iter().try_for_each(|lease| lease.check().map(drop))
    }

    /// For how long all of them still hold if no renewal succeeds any more; zero once one is lost. By the boot clock.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.leases.iter().map(Lease::remaining).min().unwrap_or_default()
    }

    /// Lost if one of them is lost, endangered if one is endangered, else held.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        let states = self.leases.iter().map(Lease::state);
        states.fold(LeaseState::Held, |worst, state| match (worst, state) {
            (LeaseState::Lost, _) | (_, LeaseState::Lost) => LeaseState::Lost,
            (LeaseState::Endangered, _) | (_, LeaseState::Endangered) => LeaseState::Endangered,
            (LeaseState::Held, LeaseState::Held) => LeaseState::Held,
        })
    }

    /// Makes sure that at least `least` is left of each, renewing those that have less, in one request where it can.
    ///
    /// # Errors
    ///
    /// As [`Lease::ensure`], of the first that fails.
    ///
    /// # Cancel safety
    ///
    /// The renewals go on.
    pub async fn ensure(&self, least: Duration) -> Result<()> {
        self.check()?;
        try_join_all(self.leases.iter().map(|lease| lease.ensure(least))).await.map(drop)
    }

    /// Returns once one of them is lost, with the reason; for `select!`.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens when it is dropped.
    pub async fn lost(&self) -> Lost {
        // There is at least one: nobody gets a set of no names.
        select_all(self.leases.iter().map(|lease| lease.lost().boxed())).await.0
    }

    /// A token that is cancelled when one of them is lost, or the set was given back; for code that takes one.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        let watched = || {
            let token = CancellationToken::new();
            if self.check().is_err() {
                token.cancel();
                return token;
            }
            let (ends, cancel): (Vec<_>, _) =
                (self.leases.iter().map(Lease::cancelled).collect(), token.clone());
            let watch = move |_: Rc<Engine>| {
                let watch = async move {
                    select_all(ends.iter().map(|end| end.cancelled().boxed())).await;
                    cancel.cancel();
                };
                watch.boxed_local()
            };
            if self.client.send(Command::Run(Box::new(watch))).is_err() {
                // Nobody renews for a client that was closed, or made before a fork.
                token.cancel();
            }
            token
        };
        self.cancelled.get_or_init(watched).clone()
    }

    /// Gives all of them back, and waits until the store has acknowledged that.
    ///
    /// # Errors
    ///
    /// As [`Lease::release`], of the first that fails; the others are given back all the same.
    ///
    /// # Cancel safety
    ///
    /// They are given back all the same.
    pub async fn release(self) -> Result<()> {
        let Self { client: _, namespace: _, leases, cancelled: _ } = self;
        join_all(leases.into_iter().map(Lease::release)).await.into_iter().collect()
    }
}

impl fmt::Debug for LeaseSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.leases).finish()
    }
}

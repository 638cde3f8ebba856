//! What joins the suite: a way to get a fresh, empty store for each case.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use leasehold_core::{Clock, Store};

use crate::Check;

/// A fresh, empty store for one case, and what else there is to test it with.
pub struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) second: Option<Arc<dyn Store>>,
    pub(crate) clock: Option<Clock>,
    pub(crate) one_clock: bool,
    pub(crate) of_several: bool,
    pub(crate) guard: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// A store that nobody else uses, without any claims.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self {
            store: Arc::new(store),
            second: None,
            clock: None,
            one_clock: false,
            of_several: false,
            guard: Box::new(()),
        }
    }

    /// Another client of the same store: another connection, as another process would have one. It may be
    /// left out only where a store cannot have two.
    #[must_use]
    pub fn second(mut self, store: impl Store) -> Self {
        self.second = Some(Arc::new(store));
        self
    }

    /// The clock that the store, and its second client, judge by. Without one the suite waits for real time.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The store has one clock for everything, so that the one that dates tokens cannot step alone.
    #[must_use]
    pub fn one_clock(mut self) -> Self {
        self.one_clock = true;
        self
    }

    /// The store is made of several that know nothing of each other, and hear of everything one after the other:
    ///
    /// - a claim that holds is repeated by the client that stated it first; another one that states it is granted it
    ///   anew, under a higher token;
    /// - a claim that some of them had taken, and were told to let go, is spent before it was ever granted: the next
    ///   attempt is made under another id;
    /// - what runs out or opens does so in each of them at a moment of its own, never earlier than in a single one, so
    ///   that two looks may be told different times, and a name may be neither held nor shut for a moment.
    #[must_use]
    pub fn of_several(mut self) -> Self {
        self.of_several = true;
        self
    }

    /// Whatever must live as long as the case, such as a directory that is removed when it is dropped.
    #[must_use]
    pub fn guard(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guard = Box::new(guard);
        self
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, second, clock, one_clock, of_several, guard: _ } = self;
        let second = second.is_some();
        f.debug_struct("Fixture")
            .field("store", store)
            .field("second", &second)
            .field("clock", clock)
            .field("one_clock", one_clock)
            .field("of_several", of_several)
            .finish()
    }
}

/// A store under test. Any `async || Ok(Fixture::new(..))` is one.
pub trait Subject: Send + Sync + 'static {
    /// A fresh, empty store.
    fn fresh(&self) -> impl Future<Output = Check<Fixture>>;
}

impl<F, Fut> Subject for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Check<Fixture>>,
{
    fn fresh(&self) -> impl Future<Output = Check<Fixture>> {
        self()
    }
}

//! What a case needs of a store, and what is said when it is not there.

use leasehold_core::{Capabilities, Clock, Expiry, Minting, Queueing, Shares, Wake};

/// What a case needs of a store or of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A line of waiters.
    Line,
    /// Shared claims and permits.
    Shares,
    /// Closures.
    Closing,
    /// Several names in one step.
    Together,
    /// Leases that change their share.
    Reshaping,
    /// Leases that go to another owner.
    Succession,
    /// Names that stay shut after an unclean end.
    Aftermath,
    /// Tokens from a counter.
    Counter,
    /// Leases that end one by one.
    PerClaim,
    /// Waiters that are told.
    Push,
    /// Marks and records.
    Ledger,
    /// A second client.
    Second,
    /// A clock that the suite can move.
    Movable,
    /// A clock that stands still unless it is moved.
    Frozen,
    /// A clock that dates tokens and can step while the one that judges leases does not.
    Stepping,
}

/// What a store and its subject have to offer.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) capabilities: Capabilities,
    pub(crate) ledger: bool,
    pub(crate) second: bool,
    pub(crate) clock: Option<Clock>,
    pub(crate) one_clock: bool,
    pub(crate) of_several: bool,
}

impl Need {
    /// Why a case with this need is skipped; `None` when it is met.
    pub(crate) fn unmet(self, offer: &Offer) -> Option<&'static str> {
        // No `..`: a new capability must be given its place here.
        let Capabilities {
            fencing: _,
            minting,
            shares,
            queueing,
            expiry,
            wake,
            closing,
            together,
            reshaping,
            succession,
            aftermath,
            reach: _,
            ttl: _,
        } = &offer.capabilities;
        let (met, why) = match self {
            Self::Line => (*queueing != Queueing::Never, "it keeps no line of waiters"),
            Self::Shares => (*shares == Shares::Any, "it knows exclusive claims only"),
            Self::Closing => (*closing, "it cannot keep a name shut"),
            Self::Together => (*together, "it cannot claim several names in one step"),
            Self::Reshaping => (*reshaping, "its leases cannot change their share"),
            Self::Succession => (*succession, "its leases cannot go to another owner"),
            Self::Aftermath => (*aftermath, "it cannot keep a name shut after an unclean end"),
            Self::Counter => (*minting == Minting::Counter, "its tokens are revisions of its own"),
            Self::PerClaim => (*expiry == Expiry::PerClaim, "its leases end with a session, not one by one"),
            Self::Push => (*wake == Wake::Push, "its waiters ask, they are not told"),
            Self::Ledger => (offer.ledger, "it keeps no marks and records"),
            Self::Second => (offer.second, "its subject gives no second client"),
            Self::Movable => (offer.clock.is_some(), "its clock cannot be moved"),
            Self::Frozen => {
                let frozen = offer.clock.as_ref().is_some_and(|clock| !clock.runs());
                (frozen, "its clock cannot be made to stand still")
            }
            Self::Stepping => {
                let steps = offer.clock.is_some() && !offer.one_clock;
                (steps, "it has no clock that could step alone")
            }
        };
        if met { None } else { Some(why) }
    }
}

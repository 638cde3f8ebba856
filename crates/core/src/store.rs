//! The trait that every store implements; its documentation is the contract.

use std::fmt;
use std::os::fd::OwnedFd;

use async_trait::async_trait;

use crate::{
    Capabilities, Claim, ClaimId, Cursor, Doctor, Doubt, Leave, Ledger, LockName, Release, Renew, Renewal,
    Result, Snapshot, Standing, Together,
};

/// Where claims are kept and judged.
///
/// A store keeps, for each name, a line of claims in order of arrival, and gives leases by one rule
/// ([`admit`](crate::admit)). Everything it must do is six verbs on claims.
///
/// # Contract
///
/// Each line is a test of the conformance suite, which carries its number.
///
/// 1. **Idempotent in the id.** Two claims with one id are one claim: asked again while waiting it says where it
///    stands and refreshes its place; asked again while held it repeats the grant, with what is left of it. A
///    repeat prolongs nothing. A waiter whose place is gone takes a new one at the end. An id is granted at most
///    once in its life: what was released or lost answers [`State::Spent`](crate::State::Spent). (A store may
///    forget that after [`TOMBSTONE_LIFE`](crate::TOMBSTONE_LIFE), and after the ttl besides where it was held;
///    a repeat that comes later still gets a new grant with a higher token. A store that is made of several says so,
///    too, of a claim that some of them had granted and were told to let go: whoever wants it asks under a new id.)
/// 2. **[`Turn::Now`](crate::Turn::Now) leaves nothing** behind when it is not granted.
/// 3. **Exclusion.** Never two admitted against the rule, and no queued claim is overtaken by a later one that
///    stands in the line too. ([`Turn::Any`](crate::Turn::Any) lets a newcomer take a *free* name, but not past
///    a waiter in strict order or one that has waited long.)
/// 4. **Tokens of a name rise strictly** with each grant, across release, expiry and an emptied line, and above
///    [`Claim::seen`] where there is a counter.
/// 5. **Waits have no gap.** A change after the answer and before the wait still ends the wait. A waiter's
///    cursor asks "is it my turn?", not "did anything move?"; a holder's moves only when its own claim is gone.
/// 6. **Waits end by themselves** when a lease that is in the way may have run out: nobody publishes an expiry.
/// 7. **[`Grant::ttl`](crate::Grant::ttl) counts from the moment the caller asked**, and may differ from what was
///    asked for.
/// 8. **A renewal answers for the claim**, not merely for its session. An error is *unknown*; only
///    [`Renewal::Lost`] is lost. A renewal never creates.
/// 9. **A place in line lives 2 s** and is refreshed by its waiter; unrefreshed it is dropped, whatever the ttl.
///    A grant to a claim that has waited is short (1.4 s) until it is renewed. So each dead or frozen waiter
///    costs the others at most 2 s.
/// 10. **Durations cross the wire, instants never do.** Expiry is judged by the store's clock alone.
/// 11. **Every future may be dropped at any await**; what it left is found and released by id. A release of an
///     unknown id leaves a tombstone, so that a claim overtaken by its own release is never granted; and a claim
///     is not executed after its [`not_after`](Claim::not_after).
/// 12. **Only the owner.** Renewal and release touch the claim with that id and no other, whatever became of it.
/// 13. **Closures** ([`Leave::Closed`]) keep everybody out for their time, and end by themselves.
/// 14. **Different sizes are refused**: permits of 3 and permits of 5 on one name are an error for the later.
/// 15. **Looking changes nothing**: [`inspect`](Store::inspect) and [`list`](Store::list) leave no trace.
/// 16. **Several at once are all or none**: [`claim_all`](Store::claim_all) grants every claim in one step, or
///    leaves nothing of any behind, no place either; asked again it repeats the grants. Two of one name are refused.
/// 17. **A held claim that is stated with another share changes it**, under the same id and without a gap. Less is
///    granted at once, under the same token. More waits until the other holders leave room and the name is not shut,
///    ahead of every waiter and newcomer, and gets a new token and no more time; stating the held share again gives up
///    the wish, and a try leaves none. Only a share that excludes its own kind may grow, so no two ever wait for each
///    other; any other is refused. What [`Claim::reshape`](crate::Claim::reshape) says is older than what was executed
///    changes nothing. What does not hold keeps the share that it was stated with.
/// 18. **A lease goes to another owner without ever being free**: a claim that [succeeds](crate::Claim::succeeds) a
///    held one, and states its share, takes its place, with a new token and the full ttl; the old id is spent from
///    then on, and a place in line that the heir had is gone. Of a claim that holds nothing there is nothing to take
///    over: the answer is [`State::Spent`](crate::State::Spent), for good.
/// 19. **An unclean end may leave the name shut** ([`Aftermath`](crate::Aftermath)): a lease that ran out or whose
///    holder died, never one that was given back or went to another owner. It is seen by who looks, and its end heard
///    of, before anybody has asked for the name.
///
/// # How it is called
///
/// Methods run on the engine's own thread, on a tokio runtime with timers and I/O, many at a time. Each call is
/// given a deadline by the engine; a call that is dropped has an unknown outcome.
#[async_trait]
pub trait Store: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// What this store can do. Cheap, and never changes.
    fn capabilities(&self) -> Capabilities;

    /// One step: states the claim, or restates it, and answers where it stands. Never waits for another claim.
    ///
    /// # Errors
    ///
    /// The error tells whether the claim may have been executed all the same
    /// ([`StoreError::effect`](crate::StoreError)).
    ///
    /// # Cancel safety
    ///
    /// The claim may stand; [`release`](Self::release) it by its id.
    async fn claim(&self, claim: &Claim) -> Result<Standing>;

    /// States several claims, for different names, in one step: all are granted, or none is and nothing is left
    /// behind, whatever their turn. The standing of the one that was in the way can be waited on. No claims at all are
    /// granted.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim); when two of them are for one name; and a store that cannot do it for these names
    /// answers that it is not supported.
    ///
    /// # Cancel safety
    ///
    /// Each of the claims may be held; [`release`](Self::release) them by their ids.
    async fn claim_all(&self, claims: &[Claim]) -> Result<Together>;

    /// Returns once the standing or snapshot that `since` came with may be out of date. It may return too early,
    /// never too late.
    ///
    /// # Errors
    ///
    /// When the store can no longer be listened to; asking again is always right.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: a new call with the same cursor sees the same change.
    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()>;

    /// Prolongs held claims: one answer each, in their order.
    ///
    /// # Errors
    ///
    /// An error in the place of an answer means *unknown*, not lost.
    ///
    /// # Cancel safety
    ///
    /// Each may or may not have been prolonged.
    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>>;

    /// Gives back a lease, or a place in line.
    ///
    /// # Errors
    ///
    /// On unknown outcome ask again: releasing twice is releasing once.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have been released; ask again.
    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release>;

    /// One name in full.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked.
    async fn inspect(&self, name: &LockName) -> Result<Snapshot>;

    /// Names that start with `prefix` and have a holder, a waiter or a closure, in byte order, after `after`; a
    /// page of at most 1,000. An empty page is the end.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked.
    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>>;

    /// A duplicate of the descriptor by which the kernel tells others that this client lives, where there is one:
    /// as long as any copy of it is open, in whatever process, leases that were claimed
    /// [`anchored`](Claim::anchored) outlast their ttl. It closes on exec unless told otherwise.
    ///
    /// # Errors
    ///
    /// When it cannot be duplicated.
    async fn anchor(&self) -> Result<Option<OwnedFd>>;

    /// What the store keeps beside claims, if it can.
    fn ledger(&self) -> Option<&dyn Ledger>;

    /// Returns once leases that were granted here may be gone although their time is not up. They are then asked for at
    /// once, not when they are due; after [`Doubt::Replaced`] their holders are warned as well. A store that cannot know,
    /// or whose leases cannot go like that, never returns; so does this, unless it is overridden.
    ///
    /// # Cancel safety
    ///
    /// A doubt that came up meanwhile is told to the next call.
    async fn doubt(&self) -> Doubt {
        std::future::pending().await
    }

    /// What the store tells of itself beside locks. Nothing, unless a store says otherwise: locks need none of it.
    fn doctor(&self) -> Option<&dyn Doctor> {
        None
    }

    /// Closes connections and files, and waits until they are closed. Leases are not given back by this.
    ///
    /// # Errors
    ///
    /// When closing fails; there is nothing to be done about it but to tell.
    async fn close(&self) -> Result<()>;
}

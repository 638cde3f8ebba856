//! What an unclean end leaves behind: keys beside that of a lease, which outlive it. While the lease's own key stands they
//! say nothing; once it is gone they shut the name, until they run out themselves. A release takes them along.

use std::time::Duration;

use leasehold_core::{Aftermath, Claim, Note};

use crate::client::{Leased, none_since, puts};
use crate::fail::Result;
use crate::keys::{Keys, Own};
use crate::line::{Shut, View};
use crate::proto::{Compare, RequestOp};
use crate::store::{EtcdStore, Shared};

/// The leases that such keys have, and the steps that put them.
#[derive(Debug, Default)]
pub(crate) struct After {
    pub(crate) puts: Vec<RequestOp>,
    /// In which terms they were prolonged.
    pub(crate) terms: Vec<Option<u64>>,
}

impl EtcdStore {
    /// Makes what is left behind by a lease that is granted now and lives for `ttl`.
    pub(crate) async fn leaves(
        &self,
        claim: &Claim,
        keys: &Keys,
        own: &Own,
        lease: i64,
        ttl: Duration,
    ) -> Result<After> {
        let Aftermath { delay, at_least } = claim.aftermath;
        let Shared { link, holds, .. } = &*self.0;
        let mut after = After::default();
        if claim.aftermath == Aftermath::NONE {
            return Ok(after);
        }
        holds.note(claim.id, |hold| hold.after = true);
        if !delay.is_zero() {
            let short = lease == own.place;
            let id = if short { own.after_place } else { own.after };
            let leased = link.grant(id, ttl + delay).await?;
            after.put(&keys.after(own, "delay"), Shut::value(delay, &claim.owner, &Note::NONE), leased);
        }
        // What ends before the lease does leaves nothing.
        if at_least > ttl {
            let leased = link.grant(own.least, at_least).await?;
            after.put(&keys.after(own, "least"), Shut::value(at_least, &claim.owner, &Note::NONE), leased);
        }
        Ok(after)
    }

    /// The same for a lease that is renewed: the delay counts from its new end, the rest from its grant as before.
    pub(crate) async fn leaves_later(
        &self,
        claim: &Claim,
        keys: &Keys,
        own: &Own,
        ttl: Duration,
    ) -> Result<After> {
        let delayed = Aftermath { at_least: Duration::ZERO, ..claim.aftermath };
        let claim = Claim { aftermath: delayed, ..claim.clone() };
        self.leaves(&claim, keys, own, own.lease, ttl).await
    }
}

impl After {
    fn put(&mut self, key: &[u8], value: Vec<u8>, leased: Leased) {
        self.puts.push(puts(key, value, leased.id));
        self.terms.push(leased.term);
    }
}

/// The name is as open as it was when this was read: nothing shuts it that came since, and all live on whose end would.
pub(crate) fn still_open(keys: &Keys, view: &View) -> Vec<Compare> {
    let (first, end) = keys.shutters();
    let mut compare = vec![none_since(&first, &end, view.revision)];
    compare.extend(view.lives());
    compare
}

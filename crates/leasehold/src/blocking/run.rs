//! Work that is done in this thread, under whatever was acquired for it.

use leasehold_core::{Error, Result};

use super::wait;
use crate::lock::{self, Outcome};
use crate::nesting;
use crate::proof::Proof;

/// Works under a proof, and says afterwards whether it held all the time.
pub(super) fn run_under<P: Proof, T>(proof: P, work: impl FnOnce(&P) -> T) -> Result<T> {
    let value = {
        let leases = proof.leases();
        let work = || nesting::called_under(&leases, || work(&proof));
        let value = lock::span_of(&leases).in_scope(work);
        leases.iter().try_for_each(|lease| lease.check().map(drop))?;
        value
    };
    wait(lock::give_back(proof));
    Ok(value)
}

/// The same, if there is a proof; that there is none since somebody else has it is no error.
pub(super) fn try_under<P: Proof, T>(attempt: Result<P>, work: impl FnOnce(&P) -> T) -> Result<Outcome<T>> {
    match attempt {
        Ok(proof) => run_under(proof, work).map(Outcome::Ran),
        Err(Error::Busy(busy)) => Ok(Outcome::Skipped(busy)),
        Err(error) => Err(error),
    }
}

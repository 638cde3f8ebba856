//! The blocking side of re-entrancy.

use super::lock::Lock;
use super::mirror::{both_ways, mirror};

/// As [`crate::Scope`]: an identity that travels with a piece of work, and may take again what it holds. Cheap to
/// clone, and may go to other threads: an identity is what is passed along here as well, not the thread.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use leasehold::Result;
/// use leasehold::blocking::{Leasehold, Scope};
///
/// fn charge(me: &Scope) -> Result<()> {
///     let again = me.lock("customer:7").acquire()?; // counted: no deadlock, no round trip
///     println!("charged under token {}", again.check()?);
///     again.release()
/// }
///
/// let client = Leasehold::memory();
/// let me = client.scope("request-8c1f");
/// let lease = me.lock("customer:7").acquire()?;
/// charge(&me)?;
/// lease.check()?; // still held
/// lease.release()
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Scope(crate::Scope);

impl Scope {
    mirror! { "Scope"
        describe lock(name: impl AsRef<str>) -> Lock;
        look label() -> &str;
    }

    pub(super) fn twin(&self) -> &crate::Scope {
        &self.0
    }
}

both_ways!(Scope);

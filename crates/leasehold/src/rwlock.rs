//! Readers and a writer: three ways to describe a lock of one name.

use leasehold_core::Share;

use crate::client::Leasehold;
use crate::lock::Lock;

/// Describes a readers-writer lock: any number read at once, one writes alone. It holds nothing, and may be used any
/// number of times.
///
/// | | beside it |
/// |---|---|
/// | [`read`](Self::read) | readers, and one upgradeable reader |
/// | [`upgradeable`](Self::upgradeable) | readers |
/// | [`write`](Self::write) | nobody |
///
/// Each is a [`Lock`] with all its verbs and options, and gives the same kind of [`Lease`](crate::Lease). All of them
/// wait in strict order of arrival, so a writer that waits holds new readers back, and a reader that waits the next
/// writer: neither starves. (Tasks of one process that write hand the lease on among themselves for at most half a
/// second.)
///
/// The name is the same one that [`Leasehold::lock`] locks: whoever has that excludes readers and writers.
///
/// # Not re-entrant
///
/// Whoever reads and asks to write under the same name waits for himself: take it [`upgradeable`](Self::upgradeable).
///
/// ```
/// # leasehold::doc_test(async {
/// use std::time::Duration;
///
/// # let client = leasehold::Leasehold::memory();
/// let config = client.rwlock("config");
/// let one = config.read().acquire().await?;
/// let two = config.read().acquire().await?; // many
/// one.release().await?;
/// two.release().await?;
/// let writer = config.write().acquire_within(Duration::from_secs(30)).await?; // alone
/// writer.release().await
/// # });
/// ```
#[derive(Debug, Clone)]
#[must_use = "a readers-writer lock is only a description: acquire `read()`, `write()` or `upgradeable()`"]
pub struct RwLock {
    lock: Lock,
}

impl RwLock {
    /// A reader: others may read beside it, nobody writes.
    pub fn read(&self) -> Lock {
        self.lock.clone().sharing(Ok(Share::SHARED)).fair()
    }

    /// The writer: nobody else reads or writes.
    pub fn write(&self) -> Lock {
        self.lock.clone().sharing(Ok(Share::EXCLUSIVE)).fair()
    }

    /// A reader that may become the writer by [`Lease::upgrade`](crate::Lease::upgrade). Others may read beside it, but
    /// only one may be upgradeable, so no two ever wait for each other to stop reading.
    pub fn upgradeable(&self) -> Lock {
        self.lock.clone().sharing(Ok(Share::UPGRADEABLE)).fair()
    }
}

impl Leasehold {
    /// Describes the readers-writer lock of this name; nothing happens until it is asked for. A bad name is reported
    /// then, and so is a store that knows exclusive locks only.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock { lock: self.lock(name) }
    }
}

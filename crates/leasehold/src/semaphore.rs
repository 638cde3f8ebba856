//! At most so many at once: a lock of a number of permits.

use leasehold_core::{ConfigError, Share, ShareError};

use crate::client::Leasehold;
use crate::lock::Lock;

impl Leasehold {
    /// Describes a semaphore: at most `permits` hold the name at once, on all hosts together. It is a [`Lock`] for one
    /// permit, with all its verbs and options; [`Lock::permits`] asks for several at once. Nothing happens until it is
    /// asked for.
    ///
    /// A permit is a lease: renewed in the background, with a token of its own, and back after its ttl when its holder
    /// dies.
    ///
    /// All users of a name must say the same number. One who says another while somebody holds it or waits gets an
    /// error (LH0132): 3 here and 5 there is a deployment gone wrong.
    ///
    /// # Errors
    ///
    /// Reported when it is asked for: a bad name, a number that is 0 or above 536,870,910, and a store that knows
    /// exclusive locks only.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// use std::time::Duration;
    ///
    /// # let client = leasehold::Leasehold::memory();
    /// let smtp = client.semaphore("smtp", 5);
    /// let slot = smtp.acquire_within(Duration::from_secs(60)).await?;
    /// println!("sending under token {}", slot.check()?);
    /// slot.release().await
    /// # });
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Lock {
        self.lock(name).sharing(Share::permits(1, permits).map_err(bad))
    }
}

impl Lock {
    /// Asks for so many permits of a [semaphore](Leasehold::semaphore) at once: all of them or none, and they are given
    /// back together. Defaults to 1. Who asks for many is not passed for long by those who ask for few.
    ///
    /// # Errors
    ///
    /// Reported when it is asked for: a lock that is no semaphore, and a number that is 0 or more than there are.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let gpus = client.semaphore("gpus", 8);
    /// let job = gpus.clone().permits(6).acquire().await?;
    /// assert!(gpus.clone().permits(3).try_acquire().await?.is_none(), "2 are left");
    /// let small = gpus.permits(2).acquire().await?;
    /// # small.release().await?;
    /// job.release().await
    /// # });
    /// ```
    pub fn permits(self, permits: u32) -> Self {
        let share = match self.share() {
            Ok(share) if share.of() == Share::EXCLUSIVE.of() => {
                Err(ConfigError::new("this lock is no semaphore, so there are no permits to ask for")
                    .help("describe it with `semaphore(name, permits)`"))
            }
            Ok(share) => Share::permits(permits, share.of()).map_err(bad),
            Err(error) => Err(error.clone()),
        };
        self.sharing(share)
    }
}

fn bad(error: ShareError) -> ConfigError {
    ConfigError::new(error.to_string())
        .help("give the semaphore at least as many permits as one asks for at once")
}

//! What a holder may do to take more or less without giving the lease back: upgrade and downgrade.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{Error, Result, Share, Token};
use tokio::sync::oneshot;

use crate::engine::{Command, Engine};
use crate::janitor;
use crate::lease::Lease;
use crate::reshape::{self, Wait};

impl Lease {
    /// How much of the name it takes: all of it ([`Share::EXCLUSIVE`]), a reader's part, or permits. It changes with
    /// [`upgrade`](Self::upgrade) and [`downgrade`](Self::downgrade).
    #[must_use]
    pub fn share(&self) -> Share {
        self.parts().0.shape.share()
    }

    /// Makes this [upgradeable](crate::RwLock::upgradeable) reader the writer, without letting another writer in
    /// between: what it read still stands. Waits for the other readers to leave, as long as it takes; new readers are
    /// held back meanwhile. Gives the new token, which is also that of [`token`](Self::token) and
    /// [`check`](Self::check) from then on: writes under the old one, by a reader that was paused, can be told from it.
    ///
    /// A lease that is the writer already stays so, under its token. Two upgrades never wait for each other, since
    /// there is one upgradeable reader at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when it was taken as a plain reader or as permits; [`Error::Lost`] when it ends before, or
    /// has ended; [`Error::Unsupported`] when the store cannot do it; and a store that has been silent for longer than
    /// the client's timeout. After any of them but the loss it is the reader that it was.
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives up the wish: the lease is the reader that it was, and the store is told so in the background,
    /// until it has acknowledged that or the lease has ended. If it had just been granted, the new token stays.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let mut lease = client.rwlock("config").upgradeable().acquire().await?;
    /// let read_under = lease.check()?;
    /// // .. what was read is out of date ..
    /// let token = lease.upgrade().await?;
    /// assert!(token > read_under && token == lease.check()?);
    /// // .. write it ..
    /// lease.downgrade().await?;
    /// lease.release().await
    /// # });
    /// ```
    pub async fn upgrade(&mut self) -> Result<Token> {
        self.grow(Wait::For(None)).await
    }

    /// As [`upgrade`](Self::upgrade), waiting for at most `wait`.
    ///
    /// # Errors
    ///
    /// As [`upgrade`](Self::upgrade), and [`Error::TimedOut`], which says who still reads.
    ///
    /// # Cancel safety
    ///
    /// As [`upgrade`](Self::upgrade).
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// use std::time::Duration;
    /// use leasehold::Error;
    ///
    /// let config = client.rwlock("config");
    /// let reader = config.read().acquire().await?;
    /// let mut lease = config.upgradeable().acquire().await?;
    /// let upgraded = lease.upgrade_within(Duration::from_millis(10)).await;
    /// assert!(matches!(upgraded, Err(Error::TimedOut { .. })), "somebody still reads");
    /// reader.release().await?;
    /// lease.upgrade_within(Duration::from_secs(1)).await?;
    /// # Ok(()) });
    /// ```
    pub async fn upgrade_within(&mut self, wait: Duration) -> Result<Token> {
        self.grow(Wait::For(Some(wait))).await
    }

    /// As [`upgrade`](Self::upgrade), if nobody else reads; `None` if somebody does, and then it has held nobody back
    /// for longer than two questions to the store.
    ///
    /// # Errors
    ///
    /// As [`upgrade`](Self::upgrade).
    ///
    /// # Cancel safety
    ///
    /// As [`upgrade`](Self::upgrade).
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let mut lease = client.rwlock("config").upgradeable().acquire().await?;
    /// if let Some(token) = lease.try_upgrade().await? {
    ///     println!("nobody else reads: writing under {token}");
    /// }
    /// # Ok(()) });
    /// ```
    pub async fn try_upgrade(&mut self) -> Result<Option<Token>> {
        match self.grow(Wait::Try).await {
            Ok(token) => Ok(Some(token)),
            Err(Error::Busy(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the writer a reader, without letting another writer in between, and keeps the token. One step down: a
    /// writer that was [upgradeable](crate::RwLock::upgradeable) before its upgrade is so again, any other writer and
    /// an upgradeable reader become plain readers; a plain reader stays one.
    ///
    /// It counts as a reader *from the call on*: write nothing more, even if the store has not answered.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when it is neither a reader nor a writer, [`Error::Unsupported`] where leases of the store
    /// never change their share, [`Error::Lost`] when it has ended, and a store that has been silent for longer than
    /// the client's timeout; it is asked again in the background until the lease ends.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it goes on in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// # let client = leasehold::Leasehold::memory();
    /// let config = client.rwlock("config");
    /// let mut lease = config.write().acquire().await?;
    /// assert!(config.read().try_acquire().await?.is_none());
    /// lease.downgrade().await?;
    /// assert!(config.read().try_acquire().await?.is_some(), "readers get in beside it");
    /// # Ok(()) });
    /// ```
    pub async fn downgrade(&mut self) -> Result<()> {
        let (hold, client) = self.parts();
        hold.check()?;
        let (reply, answer) = oneshot::channel();
        let hold = hold.clone();
        let shrink = move |engine: std::rc::Rc<Engine>| reshape::shrink(engine, hold, reply).boxed_local();
        client.send(Command::Run(Box::new(shrink)))?;
        answer.await.map_err(|_| janitor::ended())?
    }

    async fn grow(&mut self, wait: Wait) -> Result<Token> {
        let (hold, client) = self.parts();
        hold.check()?;
        let (reply, answer) = oneshot::channel();
        let hold = hold.clone();
        let grow = move |engine: std::rc::Rc<Engine>| reshape::grow(engine, hold, wait, reply).boxed_local();
        client.send(Command::Run(Box::new(grow)))?;
        let grown = answer.await.map_err(|_| janitor::ended())??;
        // Nothing is awaited between the answer and this: whoever drops the future before has not heard it.
        let _heard = grown.taken.send(());
        Ok(grown.token)
    }
}

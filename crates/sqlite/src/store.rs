//! The store: the trait's verbs as jobs for the database thread, and the waits.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Clock, Code, Cursor, Doctor, Error, Expiry, Fencing, Joint, Leave, Ledger,
    Line, LockName, Minting, Moment, Op, Overruled, Queueing, Reach, Release, Renew, Renewal, Result, Ruling,
    Shares, Snapshot, Standing, State, Store, StoreErrorKind, StoreUrl, Together, Wake, Watch,
};
use tokio::task::JoinHandle;

use crate::config::Settings;
use crate::db::{Db, How, View};
use crate::fail::{self, Fail};
use crate::notice::{Commits, Ends};
use crate::retry::Gone;
use crate::schema::Schema;
use crate::thread::Worker;
use crate::time::HostTime;
use crate::wake::{Called, Waits};

/// So many renewals share a transaction; more would keep other processes out for too long.
const MOST_AT_ONCE: usize = 128;
/// A page of names.
const PAGE: usize = 1000;

/// Locks in a SQLite file, for the processes of one host. Clones share one connection.
///
/// See the [crate] for what it promises and what it cannot.
#[derive(Clone)]
pub struct SqliteStore(Arc<Shared>, Ties);

/// What ends the leases of a client, besides their ttl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ties {
    /// The end of its process.
    Life,
    /// Nothing.
    None,
}

struct Shared {
    worker: Worker,
    time: HostTime,
    waits: Arc<Waits>,
    /// The task that reads our socket, on the runtime that first waited.
    receiver: Mutex<Option<JoinHandle<()>>>,
    settings: Settings,
    label: String,
    created: bool,
    /// The process that opened it: a fork must not touch the connection.
    pid: u32,
}

impl SqliteStore {
    /// Opens the file of a `sqlite:` URL on the machine's clock, and makes it if there is none.
    ///
    /// Blocks for a few file operations; up to some milliseconds where the file is made, and up to 5 s while
    /// another process keeps writing to it.
    ///
    /// # Errors
    ///
    /// A path that cannot be used, a group that does not exist, a file of another program, of another machine,
    /// of a newer version, on a network file system, or damaged. None of these is ever altered.
    pub fn open(url: &StoreUrl) -> Result<Self> {
        Self::open_with(url, Clock::system())
    }

    /// Opens the file as [`open`](Self::open), on this clock.
    ///
    /// All processes that use a file must agree on its time: another clock than the machine's is for tests.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(url: &StoreUrl, clock: Clock) -> Result<Self> {
        Self::open_as(url, clock, Schema::PRESENT)
    }

    pub(crate) fn open_as(url: &StoreUrl, clock: Clock, schema: Schema) -> Result<Self> {
        let settings = Settings::parse(url)?;
        let label = format!("sqlite:{}", settings.path.display());
        let waits = Arc::new(Waits::default());
        let opened = HostTime::new(clock).and_then(|time| {
            let (db, created) = Db::open(settings.clone(), schema, time.clone(), waits.clone())?;
            Ok((Worker::start(db)?, time, created))
        });
        let (worker, time, created) = opened.map_err(|fail| fail.into_error(Op::Open, None, &label))?;
        let (receiver, pid) = (Mutex::default(), std::process::id());
        let shared = Shared { worker, time, waits, receiver, settings, label, created, pid };
        Ok(Self(Arc::new(shared), Ties::Life))
    }

    /// Whether the file did not exist and was made when this store was opened.
    #[must_use]
    pub fn created(&self) -> bool {
        self.0.created
    }

    /// The file, as an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.settings.path
    }

    /// The same store, for leases that outlive this process: what is granted through it ends by its ttl, or when
    /// somebody releases it by its id, and not with the process that asked.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(self.0.clone(), Ties::None)
    }

    /// Has a job done by the database thread.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        op: Op,
        name: Option<&LockName>,
        job: impl FnOnce(&mut Db, Gone<'_>) -> fail::Result<T> + Send + 'static,
    ) -> Result<T> {
        let done = if std::process::id() == self.0.pid {
            self.0.worker.ask(job).await
        } else {
            Err(Fail::new(
                StoreErrorKind::Unexpected,
                "this process is a fork of the one that opened the store",
            )
            .code(Code::FORKED)
            .help("open the store after the fork"))
        };
        done.map_err(|fail| fail.into_error(op, name, &self.0.label))
    }

    /// Reads our socket from now on, on this runtime, unless somebody does.
    async fn listen(&self, op: Op, name: &LockName) -> Result<()> {
        if self.hears() {
            return Ok(());
        }
        let socket = self
            .ask(op, Some(name), |db, _| {
                db.lives.mine()?;
                let socket = db.lives.socket().map(|socket| socket.try_clone()).transpose();
                socket.map_err(|error| Fail::new(StoreErrorKind::Full, format!("no socket: {error}")))
            })
            .await?;
        let socket = socket.map(tokio::net::UnixDatagram::from_std).transpose().map_err(|error| {
            let fail = Fail::new(StoreErrorKind::Unexpected, format!("cannot listen: {error}"));
            fail.into_error(op, Some(name), &self.0.label)
        })?;
        let Some(socket) = socket else { return Ok(()) };
        let mut receiver = self.0.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        if receiver.as_ref().is_none_or(JoinHandle::is_finished) {
            *receiver = Some(tokio::spawn(self.0.waits.clone().receive(socket)));
        }
        Ok(())
    }

    /// Whether somebody reads our socket.
    fn hears(&self) -> bool {
        let receiver = self.0.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.as_ref().is_some_and(|task| !task.is_finished())
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fencing: Fencing::Strong,
            minting: Minting::Counter,
            shares: Shares::Any,
            queueing: Queueing::OnRequest,
            expiry: Expiry::PerClaim,
            wake: Wake::Push,
            closing: true,
            together: true,
            reshaping: true,
            succession: true,
            aftermath: true,
            reach: Reach::Host,
            ttl: Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60),
        }
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let (asked, ties) = (claim.clone(), self.1);
        let standing = self
            .ask(Op::Claim, Some(&claim.name), move |db, gone| {
                let life = db.lives.mine()?;
                let done = db.write(How::claiming([&asked]), gone, |round| {
                    round.step(&asked.name, Some(asked.id), |line, at, counter| {
                        let state = line.claim(at, &asked, counter, Some(life.clone()))?;
                        tie(line, asked.id, &life, ties);
                        Ok(standing(line, asked.id, state, at))
                    })
                });
                db.tidy_seldom();
                done
            })
            .await?;
        standing.map_err(|overruled: Overruled| overruled.into_error(&self.0.label, claim))
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        let (asked, ties) = (claims.to_vec(), self.1);
        let together = self
            .ask(Op::Claim, None, move |db, gone| {
                let life = db.lives.mine()?;
                let done = db.write(How::claiming(&asked), gone, |round| {
                    round.step_all(&asked, |pairs, at, counter| {
                        Ok(match Line::claim_all(at, pairs, counter, Some(&life))? {
                            Joint::All(states) => Together::All(
                                pairs
                                    .iter_mut()
                                    .zip(states)
                                    .map(|((line, claim), state)| {
                                        tie(line, claim.id, &life, ties);
                                        standing(line, claim.id, state, at)
                                    })
                                    .collect(),
                            ),
                            Joint::None { index, state } => {
                                let (line, claim) = &pairs[index];
                                Together::None { index, standing: standing(line, claim.id, state, at) }
                            }
                        })
                    })
                });
                db.tidy_seldom();
                done
            })
            .await?;
        together.map_err(|(index, overruled): (usize, Overruled)| {
            overruled.into_error(&self.0.label, &claims[index])
        })
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let Some(watch) = Watch::parse(since) else { return Ok(()) };
        let mut mailbox = None;
        let mut commits = None;
        match watch {
            Watch::Turn(id) | Watch::Hold(id) => {
                mailbox = Some(self.0.waits.begin(Called::of(id)));
                self.listen(Op::Wait, name).await?;
            }
            Watch::Any(_) => commits = Some(Commits::watch(&self.0.settings.path)),
        }
        let mut ends = Ends::default();
        loop {
            let mark = mailbox.as_ref().map(crate::wake::Listening::mark);
            let asked = name.clone();
            let (view, dir) = self
                .ask(Op::Wait, Some(name), move |db, gone| {
                    Ok((db.look(&asked, watch, gone)?, db.lives.dir().clone()))
                })
                .await?;
            let View { ruling, lives, alone } = view;
            if alone && commits.is_none() {
                commits = Some(Commits::watch(&self.0.settings.path));
                // What was committed before that is seen by another look.
                continue;
            }
            let until = match ruling {
                Ruling::Ready => return Ok(()),
                Ruling::NotBefore(until) => Some(until),
                Ruling::NotYet => None,
            };
            if ends.watch(&dir, &lives) {
                continue;
            }
            tokio::select! {
                go = async {
                    match (&mut mailbox, mark) {
                        (Some(mailbox), Some(mark)) => mailbox.heard(mark).await,
                        _ => std::future::pending().await,
                    }
                } => if go { return Ok(()) },
                () = async {
                    match &commits {
                        Some(commits) => commits.next().await,
                        None => std::future::pending().await,
                    }
                } => {}
                () = ends.any() => {}
                () = async {
                    match until {
                        Some(until) => self.0.time.sleep_until(until).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(batch.len());
        for part in batch.chunks(MOST_AT_ONCE) {
            let owned = part.to_vec();
            let name = part.first().map(|renew| &renew.claim.name).filter(|_| part.len() == 1);
            let done = self
                .ask(Op::Renew, name, move |db, gone| {
                    let how = How::claiming(owned.iter().map(|renew| &*renew.claim));
                    db.write(how, gone, |round| {
                        let renew = |Renew { claim, tenure }: &Renew| {
                            // Whoever renews need not be who lives behind it: `renew` in a script ends at once.
                            round.step(&claim.name, Some(claim.id), |line, at, _| {
                                line.renew(at, claim.id, tenure)
                            })
                        };
                        owned.iter().map(renew).collect::<fail::Result<Vec<_>>>()
                    })
                })
                .await;
            match done {
                Ok(done) => answers.extend(done.into_iter().map(Ok)),
                Err(error) => answers.extend(part.iter().map(|renew| Err(about(&error, &renew.claim.name)))),
            }
        }
        answers
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        let asked = name.clone();
        // A closure outlives a power cut, a free name need not.
        let how = How { durable: matches!(leave, Leave::Closed { .. }), gives: true };
        self.ask(Op::Release, Some(name), move |db, _| {
            // Even when nobody waits for the answer any more: somebody waits for the lock.
            let done = db.write(how, &|| false, |round| {
                round.step(&asked, Some(id), |line, at, _| line.release(at.boot, id, leave.clone()))
            });
            db.tidy_seldom();
            done
        })
        .await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        let asked = name.clone();
        self.ask(Op::Inspect, Some(name), move |db, gone| {
            db.read(gone, |db, at| Ok(db.line(&asked, at)?.snapshot(at, &asked)))
        })
        .await
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let (prefix, after) = (prefix.to_owned(), after.cloned());
        self.ask(Op::List, None, move |db, gone| {
            db.read(gone, |db, at| db.names(&prefix, after.as_ref(), at, PAGE))
        })
        .await
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        self.ask(Op::Open, None, |db, _| db.lives.anchor().map(Some)).await
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    fn doctor(&self) -> Option<&dyn Doctor> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        let receiver = self.0.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(receiver) = receiver {
            receiver.abort();
        }
        if std::process::id() != self.0.pid {
            return Ok(());
        }
        self.0.worker.close().await.map_err(|fail| fail.into_error(Op::Close, None, &self.0.label))
    }
}

/// Where a claim stands after this step.
fn standing(line: &Line, id: ClaimId, state: State, at: Moment) -> Standing {
    Standing { cursor: line.watch(id, &state).cursor(), state, server_time: Some(at.wall) }
}

/// Whoever stated a claim last lives behind it. A waiter needs a life in any case: by it he is woken.
fn tie(line: &mut Line, id: ClaimId, life: &Arc<str>, ties: Ties) {
    if let Some(member) = line.members.iter_mut().find(|member| member.id == id) {
        let life = (ties == Ties::Life || member.held.is_none()).then_some(life);
        if member.life.as_ref() != life {
            member.life = life.cloned();
        }
    }
}

/// The failure of a batch, for one of those in it.
fn about(error: &Error, name: &LockName) -> Error {
    match error {
        Error::Store(error) => Error::Store(Box::new((**error).clone().about(name))),
        other => other.clone(),
    }
}

impl fmt::Display for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.label)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.0.settings.path).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            receiver.abort();
        }
    }
}

//! The store: the trait's verbs as scripts, and the waits.

use std::collections::HashSet;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Capabilities, Claim, ClaimId, Clock, Cursor, Doctor, Doubt, Error, Expiry, Fencing, Leave, Ledger,
    LockName, Minting, Op, Overruled, PLACE_LIFE, Queueing, Reach, Release, Renew, Renewal, Result, Ruling,
    Shares, Snapshot, Standing, State, Store, StoreErrorKind, StoreUrl, Together, Turn, Wake, Watch,
};
use redis::Value;

use crate::config::Settings;
use crate::events::channel_of;
use crate::fail::{self, Fail};
use crate::keys::{Keys, TOKENS, hex};
use crate::line::Looked;
use crate::link::{Link, Live};
use crate::script::{Answer, CLAIM, CLAIM_ALL, LOOK, RELEASE};
use crate::stated::{Stated, claim_args, is_plain, millis, split};
use crate::wake::Wakes;

/// No closure lasts longer: times in microseconds must stay below 2^53.
const MOST_LASTING: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

/// Locks in a Redis, Valkey or Tair server. Clones share one connection.
///
/// See the [crate] for what it promises and what it cannot.
#[derive(Clone)]
pub struct RedisStore(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) link: Link,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) clock: Clock,
}

impl RedisStore {
    /// Prepares to speak to the server of a URL: `redis:`, `valkey:`, `tair:`, `redis+sentinel:`, each also over TLS,
    /// or `redis+unix:`. Reads the files that the URL names; connects with the first call, not here.
    ///
    /// # Errors
    ///
    /// A URL that cannot be used, or a file in it that cannot be read.
    pub fn open(url: &StoreUrl) -> Result<Self> {
        Self::open_with(url, Clock::system())
    }

    /// As [`open`](Self::open), with waits by this clock. Leases are judged by the server's clock alone.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(url: &StoreUrl, clock: Clock) -> Result<Self> {
        Self::with(Settings::parse(url)?, clock)
    }

    pub(crate) fn with(settings: Settings, clock: Clock) -> Result<Self> {
        let opened = Link::new(&settings, clock.clone()).and_then(|link| Ok((link, Arc::new(Wakes::new()?))));
        let (link, wakes) = opened.map_err(|fail| fail.into_error(Op::Open, None, &settings.label))?;
        Ok(Self(Arc::new(Shared { settings, link, wakes, clock })))
    }

    pub(crate) fn keys(&self, name: &LockName) -> Result<Keys> {
        Keys::of(&self.0.settings.prefix, name)
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.0.settings.prefix
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0.link
    }

    pub(crate) fn failed(&self, op: Op, name: Option<&LockName>) -> impl Fn(Fail) -> Error {
        move |fail| fail.into_error(op, name, &self.0.settings.label)
    }

    /// The server's clock says when, ours how long.
    pub(crate) fn after(&self, wait: Duration) -> leasehold_core::BootTime {
        self.0.clock.now().after(wait)
    }

    pub(crate) async fn look(&self, name: &LockName, keys: &Keys) -> fail::Result<Looked> {
        let value = self.0.link.run(&LOOK, &keys.line(), &[]).await?;
        Looked::parse(name, &keys.plain, value)
    }

    async fn claim_once(&self, live: &Live, claim: &Claim, keys: &Keys, channel: &str) -> Result<Stated> {
        let mut args = vec![b"0".to_vec()];
        if is_plain(claim) && claim.succeeds.is_none() && claim.proposed.is_none() {
            args = vec![b"1".to_vec()];
        }
        args.extend(claim_args(claim, channel));
        args.push(keys.base.clone().into_bytes());
        let old = keys.tombstone(claim.succeeds.unwrap_or(claim.id));
        let mut all = keys.line().to_vec();
        // Those who propose for different names must not refuse each other.
        let tokens = claim.proposed.map_or_else(|| TOKENS.to_owned(), |_| keys.proposals());
        all.extend([keys.tombstone(claim.id), tokens, old]);
        let fails = self.failed(Op::Claim, Some(&claim.name));
        let value = self.0.link.run_on(live, &CLAIM, &all, &args).await.map_err(&fails)?;
        self.stated(claim, keys, value)
    }

    /// What the server said of a claim.
    fn stated(&self, claim: &Claim, keys: &Keys, value: Value) -> Result<Stated> {
        let fails = self.failed(Op::Claim, Some(&claim.name));
        match Stated::parse(claim, keys, value).map_err(fails)? {
            Ok(stated) => Ok(stated),
            Err(overruled) => Err(overruled.into_error(&self.0.settings.label, claim)),
        }
    }

    /// Where too few replicas have what was just granted, it is given back.
    async fn replicate(&self, live: &Live, claims: &[&Claim]) -> Result<()> {
        let wanted = self.0.settings.min_replicas;
        if wanted == 0 {
            return Ok(());
        }
        let name = claims.first().map(|claim| &claim.name);
        match self.0.link.replicated(live, wanted).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                for claim in claims {
                    // Whoever asks again does so under the same id, which is then spent.
                    self.release(&claim.name, claim.id, Leave::Open).await?;
                }
                Err(self.failed(Op::Claim, name)(too_few(wanted)))
            }
            Err(fail) => Err(self.failed(Op::Claim, name)(fail.unknown())),
        }
    }

    /// Subscribes where that has not been done. Without it waits are slower, and right all the same.
    async fn listen(&self) -> bool {
        self.0.wakes.listen(&self.0.link).await.is_ok()
    }
}

pub(crate) fn too_few(wanted: u32) -> Fail {
    let message = format!("fewer than {wanted} replicas have it (min_replicas={wanted})");
    Fail::new(StoreErrorKind::Unavailable, message).help("look at its replicas: `redis-cli INFO replication`")
}

#[async_trait]
impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fencing: Fencing::BestEffort,
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
            reach: Reach::Fleet,
            ttl: Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60),
        }
    }

    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let Shared { wakes, clock, link, .. } = &*self.0;
        let keys = self.keys(&claim.name)?;
        let fails = self.failed(Op::Claim, Some(&claim.name));
        let live = link.live().await.map_err(&fails)?;
        link.may_grant(&live).map_err(&fails)?;
        let waits = claim.turn != Turn::Now;
        let channel = |hears| if hears { wakes.channel.as_str() } else { "" };
        // A push may come before the answer, so it is expected before the claim is sent.
        let mut hears = wakes.is_live();
        let mut claimed = if waits { wakes.expect(claim.id, clock.now()) } else { 0 };
        let mut stated = self.claim_once(&live, claim, &keys, channel(hears)).await?;
        let pending = |stated: &Stated| {
            stated.wants || (waits && matches!(stated.state, State::Waiting { .. } | State::Closed(_)))
        };
        // Nobody needs to be told anything who gets what he asked for, so only now it is time to listen.
        if pending(&stated) && (!hears || !waits) {
            hears = self.listen().await;
            claimed = wakes.expect(claim.id, clock.now());
            if hears {
                stated = self.claim_once(&live, claim, &keys, channel(hears)).await?;
            }
        }
        if pending(&stated) {
            // The own place too: whoever does not refresh it in time stands nowhere after it lapsed.
            let retry = stated.retry.unwrap_or(PLACE_LIFE);
            let retry = if stated.wants { retry } else { retry.min(PLACE_LIFE) };
            wakes.look_at(claim.id, hears.then(|| self.after(retry)));
            let foreign =
                (hears && stated.foreign).then(|| channel_of(self.0.settings.database, &keys.plain));
            wakes.mind(claim.id, foreign);
        } else {
            wakes.forget(claim.id);
        }
        if matches!(stated.state, State::Granted(_)) {
            self.replicate(&live, &[claim]).await?;
        }
        Ok(stated.standing(claim, claimed))
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        let mut names = HashSet::new();
        if let Some(twice) = claims.iter().find(|claim| !names.insert(&claim.name)) {
            return Err(Overruled::NamedTwice.into_error(&self.0.settings.label, twice));
        }
        let mut keys = vec![TOKENS.to_owned()];
        let mut args = Vec::new();
        let mut of = Vec::new();
        for claim in claims {
            let names = self.keys(&claim.name)?;
            keys.extend(names.line());
            keys.extend([names.tombstone(claim.id), names.tombstone(claim.succeeds.unwrap_or(claim.id))]);
            args.extend(claim_args(claim, ""));
            args.push(names.base.clone().into_bytes());
            of.push(names);
        }
        let fails = self.failed(Op::Claim, None);
        let live = self.0.link.live().await.map_err(&fails)?;
        self.0.link.may_grant(&live).map_err(&fails)?;
        let value = self.0.link.run_on(&live, &CLAIM_ALL, &keys, &args).await.map_err(&fails)?;
        let mut answer = Answer::new(value).map_err(&fails)?;
        let what = answer.text().map_err(&fails)?;
        answer.next().map_err(&fails)?;
        if what == "A" {
            let told = Answer::new(answer.next().map_err(&fails)?).map_err(&fails)?;
            let mut standings = Vec::with_capacity(claims.len());
            for ((claim, keys), value) in claims.iter().zip(&of).zip(told.rest()) {
                standings.push(self.stated(claim, keys, value)?.standing(claim, 0));
            }
            self.replicate(&live, &claims.iter().collect::<Vec<_>>()).await?;
            return Ok(Together::All(standings));
        }
        let index = usize::try_from(answer.natural().map_err(&fails)?).unwrap_or(0);
        let Some((claim, keys)) = claims.get(index).zip(of.get(index)) else {
            return Err(fails(Fail::garbled("a claim that was not stated")));
        };
        let stated = self.stated(claim, keys, answer.next().map_err(&fails)?)?;
        // Whatever its turn, it stands nowhere, so there is no turn to wait for.
        let now = Claim { turn: Turn::Now, ..claim.clone() };
        Ok(Together::None { index, standing: Stated { wants: false, ..stated }.standing(&now, 0) })
    }

    async fn changed(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let keys = self.keys(name)?;
        let fails = self.failed(Op::Wait, Some(name));
        let (since, claimed) = split(since);
        let done = match Watch::parse(&since) {
            Some(Watch::Turn(id)) => self.await_turn(name, &keys, id, claimed).await,
            Some(Watch::Hold(id)) => {
                let gone = |looked: &Looked| {
                    looked.broken || looked.line.rule(looked.at.boot, Watch::Hold(id)) == Ruling::Ready
                };
                self.await_change(name, &keys, gone, Some(id)).await
            }
            Some(Watch::Any(_)) => Ok(()),
            None if since.as_bytes().first() == Some(&b'l') => {
                self.await_change(name, &keys, |looked| looked.cursor() != since, None).await
            }
            None => Ok(()),
        };
        done.map_err(fails)
    }

    async fn renew(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        self.renew_all(batch).await
    }

    async fn release(&self, name: &LockName, id: ClaimId, leave: Leave) -> Result<Release> {
        let keys = self.keys(name)?;
        let fails = self.failed(Op::Release, Some(name));
        let (lasting, note) = match &leave {
            Leave::Open => (Duration::ZERO, ""),
            Leave::Closed { lasting, note } => ((*lasting).min(MOST_LASTING), note.text().unwrap_or("")),
        };
        let mut all = keys.line().to_vec();
        all.push(keys.tombstone(id));
        let channel = &self.0.wakes.channel;
        let args = [hex(id), millis(lasting), note.to_owned(), keys.base.clone(), channel.clone()];
        let args = args.map(String::into_bytes);
        let value = self.0.link.run(&RELEASE, &all, &args).await.map_err(&fails)?;
        self.0.wakes.forget(id);
        let mut answer = Answer::new(value).map_err(&fails)?;
        match answer.text().map_err(&fails)?.as_str() {
            "R" => Ok(Release::Released),
            "W" => Ok(Release::Withdrawn),
            "O" => Ok(Release::NotHeld),
            // What is not ours is not held by us.
            "T" => Ok(Release::NotHeld),
            _ => Err(fails(Fail::garbled("an unknown release"))),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot> {
        let keys = self.keys(name)?;
        let looked = self.look(name, &keys).await.map_err(self.failed(Op::Inspect, Some(name)))?;
        Ok(looked.snapshot(name))
    }

    async fn list(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        self.names(prefix, after).await.map_err(self.failed(Op::List, None))
    }

    async fn anchor(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    async fn doubt(&self) -> Doubt {
        self.0.link.doubt().await
    }

    fn doctor(&self) -> Option<&dyn Doctor> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.0.wakes.close();
        self.0.link.close().await;
        Ok(())
    }
}

impl fmt::Display for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.settings.label)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("server", &self.0.settings.label).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.wakes.close();
    }
}

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
    Shares, Snapshot, Standing, State, Store, StoreErrorKind, StoreUrl, Together, Turn, Unsupported, Wake,
    Watch,
};
use redis::Value;

use crate::config::Settings;
use crate::events::channel_of;
use crate::fail::{self, Fail};
use crate::keys::{Keys, hex};
use crate::line::Looked;
use crate::script::{Answer, CLAIM, CLAIM_ALL, LOOK, RELEASE};
use crate::servers::{Servers, Visit};
use crate::stated::{Stated, claim_args, is_plain, millis, split};
use crate::wake::{Ear, Wakes};

/// No closure lasts longer: times in microseconds must stay below 2^53.
const MOST_LASTING: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

/// Locks in a Redis, Valkey or Tair server. Clones share one connection.
///
/// See the [crate] for what it promises and what it cannot.
#[derive(Clone)]
pub struct RedisStore(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) servers: Servers,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) clock: Clock,
}

impl RedisStore {
    /// Prepares to speak to the server of a URL: `redis:`, `valkey:`, `tair:`, `redis+sentinel:`, each also over TLS,
    /// or `redis+unix:`; or to the nodes of a cluster: `redis+cluster:`, `rediss+cluster:`. Reads the files that the
    /// URL names; connects with the first call, not here.
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
        let opened = || {
            let wakes = Arc::new(Wakes::new()?);
            Ok((Servers::new(&settings, &clock, &wakes)?, wakes))
        };
        let opened: fail::Result<_> = opened();
        let (servers, wakes) = opened.map_err(|fail| fail.into_error(Op::Open, None, &settings.label))?;
        Ok(Self(Arc::new(Shared { settings, servers, wakes, clock })))
    }

    pub(crate) fn keys(&self, name: &LockName) -> Result<Keys> {
        Keys::of(&self.0.settings.prefix, name)
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.0.settings.prefix
    }

    pub(crate) fn servers(&self) -> &Servers {
        &self.0.servers
    }

    pub(crate) fn failed(&self, op: Op, name: Option<&LockName>) -> impl Fn(Fail) -> Error {
        move |fail| fail.into_error(op, name, &self.0.settings.label)
    }

    /// The server's clock says when, ours how long.
    pub(crate) fn after(&self, wait: Duration) -> leasehold_core::BootTime {
        self.0.clock.now().after(wait)
    }

    pub(crate) async fn look(&self, name: &LockName, keys: &Keys) -> fail::Result<Looked> {
        let value = self.0.servers.run(&LOOK, &keys.line(), &[]).await?;
        Looked::parse(name, &keys.plain, value)
    }

    /// What the server said of a claim.
    fn stated(&self, claim: &Claim, keys: &Keys, value: Value) -> Result<Stated> {
        let fails = self.failed(Op::Claim, Some(&claim.name));
        let stated = Stated::parse(claim, keys, value).map_err(fails)?;
        stated.map_err(|overruled| overruled.into_error(&self.0.settings.label, claim))
    }

    /// States a claim once, at the server where its name is. Pushes for it go to this ear, or to nobody.
    async fn claim_once(
        &self,
        visit: &Visit,
        claim: &Claim,
        keys: &Keys,
        ear: Option<&Ear>,
    ) -> fail::Result<Result<Stated, Overruled>> {
        let mut args = vec![b"0".to_vec()];
        if is_plain(claim) && claim.succeeds.is_none() && claim.proposed.is_none() {
            args = vec![b"1".to_vec()];
        }
        args.extend(claim_args(claim, ear.map_or("", |ear| &ear.channel)));
        args.push(keys.base.clone().into_bytes());
        let old = keys.tombstone(claim.succeeds.unwrap_or(claim.id));
        let mut all = keys.line().to_vec();
        // Those who propose for different names must not refuse each other.
        let tokens = claim.proposed.map_or_else(|| self.0.servers.tokens(keys), |_| keys.proposals());
        all.extend([keys.tombstone(claim.id), tokens, old]);
        Stated::parse(claim, keys, visit.run(&CLAIM, &all, &args).await?)
    }

    /// States a claim at this server. Says whether it may stand there, if that went wrong later.
    async fn claim_at(
        &self,
        visit: &Visit,
        claim: &Claim,
        keys: &Keys,
        stands: &mut bool,
    ) -> fail::Result<Result<Standing, Overruled>> {
        let Shared { wakes, clock, servers, settings } = &*self.0;
        let node = &visit.node;
        node.link.may_grant(&visit.live)?;
        let waits = claim.turn != Turn::Now;
        let slot = servers.slot(&keys.plain);
        let mut ear = wakes.ear(node, slot);
        // A push may come before the answer, so it is expected before the claim is sent.
        let mut hears = wakes.hears(&ear);
        let mut claimed = if waits { wakes.expect(claim.id, clock.now(), Some(&ear)) } else { 0 };
        let mut stated = match self.claim_once(visit, claim, keys, hears.then_some(&ear)).await? {
            Ok(stated) => stated,
            Err(overruled) => return Ok(Err(overruled)),
        };
        *stands = true;
        let pending = |stated: &Stated| {
            stated.wants || (waits && matches!(stated.state, State::Waiting { .. } | State::Closed(_)))
        };
        // Nobody needs to be told anything who gets what he asked for, so only now it is time to listen. Without it
        // waits are slower, and right all the same.
        if pending(&stated) && (!hears || !waits) {
            let heard = wakes.listen(node, slot).await;
            hears = heard.is_ok();
            ear = heard.unwrap_or(ear);
            claimed = wakes.expect(claim.id, clock.now(), Some(&ear));
            if hears {
                stated = match self.claim_once(visit, claim, keys, Some(&ear)).await? {
                    Ok(stated) => stated,
                    Err(overruled) => return Ok(Err(overruled)),
                };
            }
        }
        if pending(&stated) {
            // The own place too: whoever does not refresh it in time stands nowhere after it lapsed.
            let retry = stated.retry.unwrap_or(PLACE_LIFE);
            let retry = if stated.wants { retry } else { retry.min(PLACE_LIFE) };
            wakes.look_at(claim.id, hears.then(|| self.after(retry)));
            let foreign = (hears && stated.foreign).then(|| channel_of(settings.database, &keys.plain));
            wakes.mind(claim.id, foreign);
        } else {
            wakes.forget(claim.id);
        }
        Ok(Ok(stated.standing(claim, claimed)))
    }

    /// Where too few replicas have what was just granted, it is given back.
    async fn replicate(&self, visit: &Visit, claims: &[&Claim]) -> Result<()> {
        let wanted = self.0.settings.min_replicas;
        if wanted == 0 {
            return Ok(());
        }
        let name = claims.first().map(|claim| &claim.name);
        match visit.node.link.replicated(&visit.live, wanted).await {
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
        let keys = self.keys(&claim.name)?;
        let fails = self.failed(Op::Claim, Some(&claim.name));
        let mut route = self.0.servers.route(&keys.plain);
        let mut stands = false;
        let (visit, standing) = loop {
            let visit = route.here().await.map_err(&fails)?;
            match self.claim_at(&visit, claim, &keys, &mut stands).await {
                Ok(standing) => break (visit, standing),
                Err(fail) => {
                    let on = route.turn(&visit, fail).await;
                    on.map_err(|fail| if stands { fail.unknown() } else { fail }).map_err(&fails)?;
                }
            }
        };
        let standing = standing.map_err(|overruled| overruled.into_error(&self.0.settings.label, claim))?;
        if matches!(standing.state, State::Granted(_)) {
            self.replicate(&visit, &[claim]).await?;
        }
        Ok(standing)
    }

    async fn claim_all(&self, claims: &[Claim]) -> Result<Together> {
        let mut names = HashSet::new();
        if let Some(twice) = claims.iter().find(|claim| !names.insert(&claim.name)) {
            return Err(Overruled::NamedTwice.into_error(&self.0.settings.label, twice));
        }
        let of = claims.iter().map(|claim| self.keys(&claim.name)).collect::<Result<Vec<_>>>()?;
        let Some(first) = of.first() else { return Ok(Together::All(Vec::new())) };
        let slot = |keys: &Keys| self.0.servers.slot(&keys.plain);
        if of.iter().any(|keys| slot(keys) != slot(first)) {
            let what = "claiming names of several slots of a cluster in one step";
            let help = "names with the same part in braces share a slot: {orders}:1, {orders}:2";
            return Err(Unsupported::new(what).help(help).into());
        }
        let mut keys = vec![self.0.servers.tokens(first)];
        let mut args = Vec::new();
        for (claim, names) in claims.iter().zip(&of) {
            keys.extend(names.line());
            keys.extend([names.tombstone(claim.id), names.tombstone(claim.succeeds.unwrap_or(claim.id))]);
            args.extend(claim_args(claim, ""));
            args.push(names.base.clone().into_bytes());
        }
        let fails = self.failed(Op::Claim, None);
        let mut route = self.0.servers.route(&first.plain);
        let (visit, value) = loop {
            let visit = route.here().await.map_err(&fails)?;
            let claimed = match visit.node.link.may_grant(&visit.live) {
                Ok(()) => visit.run(&CLAIM_ALL, &keys, &args).await,
                Err(fail) => Err(fail),
            };
            match claimed {
                Ok(value) => break (visit, value),
                Err(fail) => route.turn(&visit, fail).await.map_err(&fails)?,
            }
        };
        let mut answer = Answer::new(value).map_err(&fails)?;
        let what = answer.text().map_err(&fails)?;
        answer.next().map_err(&fails)?;
        if what == "A" {
            let told = Answer::new(answer.next().map_err(&fails)?).map_err(&fails)?;
            let mut standings = Vec::with_capacity(claims.len());
            for ((claim, keys), value) in claims.iter().zip(&of).zip(told.rest()) {
                standings.push(self.stated(claim, keys, value)?.standing(claim, 0));
            }
            self.replicate(&visit, &claims.iter().collect::<Vec<_>>()).await?;
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
        let Shared { servers, wakes, .. } = &*self.0;
        let mut route = servers.route(&keys.plain);
        let value = loop {
            let visit = route.here().await.map_err(&fails)?;
            let Ear { channel, .. } = wakes.ear(&visit.node, servers.slot(&keys.plain));
            let args = [hex(id), millis(lasting), note.to_owned(), keys.base.clone(), channel];
            match visit.run(&RELEASE, &all, &args.map(String::into_bytes)).await {
                Ok(value) => break value,
                Err(fail) => route.turn(&visit, fail).await.map_err(&fails)?,
            }
        };
        wakes.forget(id);
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
        self.0.servers.doubt().await
    }

    fn doctor(&self) -> Option<&dyn Doctor> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.0.wakes.close();
        self.0.servers.close().await;
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

//! The store: the trait's verbs as scripts, and the waits.

use std::collections::HashSet;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Aftermath, Capabilities, Claim, ClaimId, Clock, Cursor, Error, Expiry, Fencing, Grant, Leave, Ledger,
    LockName, Minting, Op, Overruled, PLACE_LIFE, Queueing, Reach, Release, Renew, Renewal, Result, Ruling,
    ServerTime, Share, Shares, Snapshot, Standing, State, Store, StoreErrorKind, StoreUrl, Together, Token,
    Turn, Wake, Watch,
};
use redis::Value;

use crate::config::Settings;
use crate::fail::{self, Fail};
use crate::keys::{Keys, TOKENS, hex};
use crate::line::{Looked, closure};
use crate::link::{Link, Live};
use crate::pack;
use crate::script::{Answer, CLAIM, CLAIM_ALL, LOOK, RELEASE, RENEW, RENEW_LINE, number};
use crate::wake::Wakes;

/// So many renewals share a script: more would keep the server from everybody else for too long.
const MOST_AT_ONCE: usize = 100;
/// How often those look again whom nobody pushes: watchers of a name, and holders.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// No closure lasts longer: times in microseconds must stay below 2^53.
const MOST_LASTING: Duration = Duration::from_secs(50 * 365 * 24 * 3600);
/// The most that a member of a line says of its aftermath.
const MOST_AFTERMATH: Duration = Duration::from_secs(40 * 24 * 3600);

/// Locks in a Redis, Valkey or Tair server. Clones share one connection.
///
/// See the [crate] for what it promises and what it cannot.
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

struct Shared {
    settings: Settings,
    link: Link,
    wakes: Arc<Wakes>,
    clock: Clock,
}

impl RedisStore {
    /// Prepares to speak to the server of a URL: `redis:`, `valkey:`, `tair:`, each also over TLS, or
    /// `redis+unix:`. Reads the files that the URL names; connects with the first call, not here.
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
        let settings = Settings::parse(url)?;
        let opened = Link::new(&settings).and_then(|link| Ok((link, Arc::new(Wakes::new()?))));
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
    fn after(&self, wait: Duration) -> leasehold_core::BootTime {
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
        all.extend([keys.tombstone(claim.id), TOKENS.to_owned(), old]);
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

    async fn renew_plain(&self, batch: &[&Renew]) -> fail::Result<Vec<Renewed>> {
        let mut keys = Vec::with_capacity(2 * batch.len());
        let mut args = Vec::with_capacity(3 * batch.len());
        for Renew { claim, tenure } in batch {
            let of = self.keys(&claim.name).map_err(|_| Fail::garbled("a name without keys"))?;
            let tombstone = of.tombstone(claim.id);
            keys.extend([of.plain, tombstone]);
            args.push(hex(claim.id).into_bytes());
            args.push(millis(claim.ttl).into_bytes());
            let note = tenure.note.text().unwrap_or("");
            args.push(format!("{}|{}|{note}", tenure.token, tenure.count).into_bytes());
        }
        self.renew_by(&RENEW, batch, &keys, &args).await
    }

    async fn renew_line(&self, batch: &[&Renew]) -> fail::Result<Vec<Renewed>> {
        let mut keys = Vec::with_capacity(6 * batch.len());
        let mut args = Vec::with_capacity(5 * batch.len());
        for Renew { claim, tenure } in batch {
            let of = self.keys(&claim.name).map_err(|_| Fail::garbled("a name without keys"))?;
            keys.extend(of.line());
            keys.push(of.tombstone(claim.id));
            args.push(hex(claim.id).into_bytes());
            args.push(of.base.into_bytes());
            args.push(tenure.token.to_string().into_bytes());
            args.push(tenure.count.to_string().into_bytes());
            args.push(tenure.note.text().unwrap_or("").as_bytes().to_vec());
        }
        self.renew_by(&RENEW_LINE, batch, &keys, &args).await
    }

    async fn renew_by(
        &self,
        script: &crate::script::Script,
        batch: &[&Renew],
        keys: &[String],
        args: &[Vec<u8>],
    ) -> fail::Result<Vec<Renewed>> {
        let live = self.0.link.live().await?;
        let mut answer = Answer::new(self.0.link.run_on(&live, script, keys, args).await?)?;
        let server_time = Some(ServerTime::from_micros(answer.natural()?));
        let told: Vec<Value> = answer.rest().collect();
        if told.len() != batch.len() {
            return Err(Fail::garbled("another number of answers than of renewals"));
        }
        let wanted = self.0.settings.min_replicas;
        if wanted > 0 && !self.0.link.replicated(&live, wanted).await.map_err(Fail::unknown)? {
            // It may be lost with this server: who holds must not rely on it.
            return Err(too_few(wanted).unknown());
        }
        let renewed = |(renew, told): (&&Renew, &Value)| {
            Ok(match number(told)? {
                1 => Renewed::Done(Renewal::Kept { ttl: renew.claim.ttl, server_time }),
                2 => Renewed::Elsewhere,
                _ => Renewed::Done(Renewal::Lost),
            })
        };
        batch.iter().zip(&told).map(renewed).collect()
    }

    /// Renews these, by the script for plain leases or for those in the line; what stands elsewhere is left out.
    async fn renew_where(
        &self,
        batch: &[Renew],
        which: &[usize],
        plain: bool,
        answers: &mut [Option<Result<Renewal>>],
    ) {
        for part in which.chunks(MOST_AT_ONCE) {
            let renews: Vec<&Renew> = part.iter().map(|at| &batch[*at]).collect();
            let done = if plain { self.renew_plain(&renews).await } else { self.renew_line(&renews).await };
            match done {
                Ok(done) => {
                    for (at, renewed) in part.iter().zip(done) {
                        if let Renewed::Done(renewal) = renewed {
                            answers[*at] = Some(Ok(renewal));
                        }
                    }
                }
                Err(fail) => {
                    for (at, renew) in part.iter().zip(renews) {
                        let error = self.failed(Op::Renew, Some(&renew.claim.name))(fail.clone());
                        answers[*at] = Some(Err(error));
                    }
                }
            }
        }
    }

    /// Waits for the pushes of one claim, and looks when something in the way may have run out.
    async fn await_turn(
        &self,
        name: &LockName,
        keys: &Keys,
        id: ClaimId,
        claimed: Option<u64>,
    ) -> fail::Result<()> {
        let Shared { wakes, clock, .. } = &*self.0;
        let registered = wakes.pushes(id).filter(|pushes| Some(pushes.claimed) == claimed);
        let known = registered.is_some();
        let mut pushes = match registered {
            Some(pushes) => pushes,
            None => {
                // Asked by another client, or long ago: whoever is pushed is whoever claimed last.
                wakes.expect(id, clock.now());
                match wakes.pushes(id) {
                    Some(pushes) => pushes,
                    None => return Ok(()),
                }
            }
        };
        let mut until = pushes.until.filter(|_| known);
        loop {
            if until.is_none() {
                let looked = self.look(name, keys).await?;
                if looked.broken {
                    until = Some(self.after(looked.next_lapse().unwrap_or(LOOK_EVERY)));
                } else {
                    match looked.line.rule(looked.at.boot, Watch::Turn(id)) {
                        Ruling::Ready if looked.foreign.is_none() || !stands(&looked, id) => return Ok(()),
                        Ruling::NotBefore(lapse) => until = Some(self.after(lapse.since(looked.at.boot))),
                        Ruling::Ready | Ruling::NotYet => {}
                    }
                }
            }
            let deaf = !known || !wakes.is_live();
            tokio::select! {
                () = pushes.next() => return Ok(()),
                () = async {
                    match until {
                        Some(until) => clock.sleep_until(until).await,
                        None => std::future::pending().await,
                    }
                } => {}
                () = tokio::time::sleep(LOOK_EVERY), if deaf || until.is_none() => {}
            }
            until = None;
        }
    }

    /// Looks again and again: nobody tells of everything that moves.
    async fn await_change(
        &self,
        name: &LockName,
        keys: &Keys,
        over: impl Fn(&Looked) -> bool,
        id: Option<ClaimId>,
    ) -> fail::Result<()> {
        let Shared { wakes, clock, .. } = &*self.0;
        if let Some(id) = id.filter(|id| wakes.pushes(*id).is_none()) {
            wakes.expect(id, clock.now());
        }
        let mut pushes = id.and_then(|id| wakes.pushes(id));
        loop {
            let looked = self.look(name, keys).await?;
            if over(&looked) {
                return Ok(());
            }
            let lapse = looked.next_lapse().map(|left| self.after(left));
            tokio::select! {
                () = async {
                    match &mut pushes {
                        Some(pushes) => pushes.next().await,
                        None => std::future::pending().await,
                    }
                } => return Ok(()),
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = async {
                    match lapse {
                        Some(lapse) => clock.sleep_until(lapse).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }
}

/// Whether this claim stands in the line.
fn stands(looked: &Looked, id: ClaimId) -> bool {
    looked.line.members.iter().any(|member| member.id == id && member.until > looked.at.boot)
}

fn too_few(wanted: u32) -> Fail {
    let message = format!("fewer than {wanted} replicas have it (min_replicas={wanted})");
    Fail::new(StoreErrorKind::Unavailable, message).help("look at its replicas: `redis-cli INFO replication`")
}

/// What became of one renewal in a script.
enum Renewed {
    Done(Renewal),
    /// The other script must be asked.
    Elsewhere,
}

/// Where a claim stands, as the server said.
#[derive(Debug)]
struct Stated {
    state: State,
    at: ServerTime,
    /// Whether it holds and waits for more.
    wants: bool,
    /// When to look again at the latest.
    retry: Option<Duration>,
}

impl Stated {
    fn parse(claim: &Claim, keys: &Keys, value: Value) -> fail::Result<Result<Self, Overruled>> {
        let mut answer = Answer::new(value)?;
        let what = answer.text()?;
        let at = ServerTime::from_micros(answer.natural()?);
        let said = |state| Self { state, at, wants: false, retry: None };
        let token = |number| Token::new(number).ok_or_else(|| Fail::garbled("a token is out of range"));
        Ok(Ok(match what.as_str() {
            "g" => {
                let (first, run, left) = (answer.natural()?, answer.natural()?, answer.number()?);
                let ttl = Duration::from_micros(u64::try_from(left).unwrap_or(0));
                let tokens = u32::try_from(run).unwrap_or(1);
                said(State::Granted(Grant { token: token(first)?, tokens, ttl }))
            }
            "w" | "W" => {
                let ahead = u32::try_from(answer.natural()?).ok();
                let retry = u64::try_from(answer.number()?).ok().map(Duration::from_micros);
                let state = State::Waiting { ahead, retry_after: retry };
                Self { state, at, wants: what == "W", retry }
            }
            "s" | "S" => {
                let left = answer.natural()?;
                let closure = closure(left, &answer.text()?, &answer.text()?);
                let retry = Some(closure.left.min(PLACE_LIFE));
                Self { state: State::Closed(closure), at, wants: what == "S", retry }
            }
            "x" => said(State::Spent),
            "r" => said(State::Refused { counter: token(answer.natural()?)? }),
            "T" => return Err(Fail::foreign(&keys.plain, &answer.text()?)),
            "L" => return Ok(Err(Overruled::Late)),
            "N" => return Ok(Err(Overruled::NoTokenLeft)),
            "U" => return Ok(Err(Overruled::Outdated)),
            "D" | "C" | "K" | "O" => {
                let share = pack::share(answer.natural()?, answer.natural()?).unwrap_or(claim.share);
                return Ok(Err(match what.as_str() {
                    "D" => Overruled::Disagrees { theirs: share },
                    "K" => Overruled::OtherKind { held: share },
                    "O" => Overruled::OtherShare { stands: share },
                    _ => Overruled::CannotGrow { held: share },
                }));
            }
            _ => return Err(Fail::garbled("an unknown state")),
        }))
    }

    fn standing(self, claim: &Claim, claimed: u64) -> Standing {
        let turn = || joined(&Watch::Turn(claim.id).cursor(), claimed);
        let cursor = match &self.state {
            State::Granted(_) => Watch::Hold(claim.id).cursor(),
            State::Waiting { .. } | State::Closed(_) if self.wants => turn(),
            State::Waiting { .. } | State::Closed(_) if claim.turn != Turn::Now => turn(),
            // Nobody has looked, so whatever is there may be a change.
            _ => Cursor::default(),
        };
        Standing { state: self.state, cursor, server_time: Some(self.at) }
    }
}

/// A cursor with the number of the claim that it came with.
fn joined(cursor: &Cursor, claimed: u64) -> Cursor {
    Cursor::new([cursor.as_bytes(), &claimed.to_be_bytes()].concat())
}

/// The two again.
fn split(cursor: &Cursor) -> (Cursor, Option<u64>) {
    match cursor.as_bytes().split_last_chunk::<8>() {
        Some((watch, claimed)) if watch.len() == 17 => {
            (Cursor::new(watch.to_vec()), Some(u64::from_be_bytes(*claimed)))
        }
        _ => (cursor.clone(), None),
    }
}

/// Whether a plain key tells all there is to a lease of this claim.
fn is_plain(claim: &Claim) -> bool {
    claim.share == Share::EXCLUSIVE && claim.aftermath == Aftermath::NONE
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// A claim as scripts read it.
fn claim_args(claim: &Claim, channel: &str) -> [Vec<u8>; 16] {
    // Destructured in full: a script that is not told of something new would pass it over in silence.
    let Claim {
        name: _,
        id,
        owner,
        share,
        reshape,
        turn,
        ttl,
        note,
        // No kernel tells this server who lives.
        anchored: _,
        aftermath: Aftermath { delay, at_least },
        succeeds,
        tokens,
        seen,
        proposed,
        not_after,
    } = claim;
    let token = |token: Option<Token>| token.map(|token| token.to_string()).unwrap_or_default();
    let turn = match turn {
        Turn::Now => "N",
        Turn::Any => "A",
        Turn::Fifo => "F",
    };
    [
        hex(*id),
        share.take().to_string(),
        share.of().to_string(),
        turn.to_owned(),
        millis(*ttl),
        pack::owner(owner),
        note.text().unwrap_or("").to_owned(),
        tokens.max(&1).to_string(),
        token(*seen),
        token(*proposed),
        not_after.map(|last| last.as_micros().to_string()).unwrap_or_default(),
        succeeds.map(hex).unwrap_or_default(),
        millis((*delay).min(MOST_AFTERMATH)),
        millis((*at_least).min(MOST_AFTERMATH)),
        channel.to_owned(),
        reshape.to_string(),
    ]
    .map(String::into_bytes)
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
        let live = link.live().await.map_err(self.failed(Op::Claim, Some(&claim.name)))?;
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
        let mut answers: Vec<Option<Result<Renewal>>> = vec![None; batch.len()];
        let (plain, line): (Vec<usize>, Vec<usize>) =
            (0..batch.len()).partition(|at| is_plain(&batch[*at].claim));
        self.renew_where(batch, &plain, true, &mut answers).await;
        self.renew_where(batch, &line, false, &mut answers).await;
        // A lease that changed its share stands where its claim does not say.
        let elsewhere = |which: Vec<usize>, answers: &[Option<Result<Renewal>>]| -> Vec<usize> {
            which.into_iter().filter(|at| answers[*at].is_none()).collect()
        };
        let (plain, line) = (elsewhere(plain, &answers), elsewhere(line, &answers));
        self.renew_where(batch, &plain, false, &mut answers).await;
        self.renew_where(batch, &line, true, &mut answers).await;
        answers.into_iter().map(|answer| answer.unwrap_or(Ok(Renewal::Lost))).collect()
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

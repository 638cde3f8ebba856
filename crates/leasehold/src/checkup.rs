//! Whether a store is fit to keep locks: what holds for every store, and what the store tells of itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{Check, ClaimId, Clock, Code, Error, LockName, Op, Reach, Result, ServerTime, Store};

use crate::client::Leasehold;
use crate::config::exact;

/// How often the way to the store is measured, and for how long at most.
const ASKS: usize = 100;
const MEASURING: Duration = Duration::from_secs(2);
/// A lease is renewed at a third of its ttl, and must outlive some requests that fail or are slow.
const ROUND_TRIPS: u32 = 20;
/// A shorter ttl ends by a pause that any machine may have.
const SHORT: Duration = Duration::from_secs(5);
/// So far apart, "02:00" and "once a day" mean something else to the two.
const APART: Duration = Duration::from_millis(500);
/// The ttl of the lock that is tried out.
const TRIAL: Duration = Duration::from_secs(10);

impl Leasehold {
    /// Looks at everything about the store that may harm locks with this ttl: whether it answers and how fast, what its
    /// clock says, whether a lock can be taken, and whatever else its kind of store can be asked. It takes a lock of a
    /// name that nobody else uses, and gives it back. A check that finds something wrong is no error.
    ///
    /// # Errors
    ///
    /// A store that cannot be reached, or refuses us: then there is nothing to look at.
    ///
    /// # Cancel safety
    ///
    /// The lock that is tried out is given back.
    ///
    /// ```
    /// # leasehold::doc_test(async {
    /// use std::time::Duration;
    ///
    /// let client = leasehold::Leasehold::memory();
    /// for check in client.checkup(Duration::from_secs(30)).await? {
    ///     println!("{} {}: {}", check.health, check.name, check.says);
    /// }
    /// client.close().await
    /// # });
    /// ```
    pub async fn checkup(&self, ttl: Duration) -> Result<Vec<Check>> {
        let mut checks = vec![Check::ok("reachable", self.ask_store(|store| greet(store).boxed()).await?)];
        let clock = self.clock().clone();
        match self.sample(clock).await {
            Ok(samples) => {
                let trips = Trips::of(&samples);
                checks.extend([trips.check(), trips.check_ttl(ttl), check_clock(&samples, self.reach())]);
            }
            Err(error) => checks.push(Check::untold("round_trip", &error)),
        }
        checks.push(self.try_out().await);
        let own = |store: Arc<dyn Store>| {
            async move {
                match store.doctor() {
                    Some(doctor) => doctor.checkup().await,
                    None => Vec::new(),
                }
            }
            .boxed()
        };
        checks.extend(self.with_store(own).await?);
        checks.push(check_case(self.list("").await));
        checks.push(check_scope(self.reach()));
        Ok(checks)
    }

    /// Takes a name and gives it back with the store's own cheapest means, over and over, so many at once, until
    /// `lasting` has passed: what [`lock`](Self::lock) is measured against. Says what was done, and how long each
    /// took. The names are `prefix` and a number; nothing of them is left behind.
    ///
    /// # Errors
    ///
    /// A bad name, and a store that cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// It goes on for as long as it was to last.
    pub async fn bare(&self, prefix: &str, at_once: usize, lasting: Duration) -> Result<Option<Bare>> {
        let names: Result<Vec<_>> = (0..at_once)
            .map(|at| Ok(LockName::parse(&format!("{prefix}{at}"))?.within(&self.namespace)?))
            .collect();
        let (names, clock) = (names?, self.clock().clone());
        let work = move |store: Arc<dyn Store>| {
            async move {
                let until = clock.now().after(lasting);
                let each = names.iter().map(|name| {
                    let (store, clock) = (&store, &clock);
                    async move {
                        let mut took = Vec::new();
                        let mut what = None;
                        while clock.now() < until {
                            let started = clock.now();
                            let Some(doctor) = store.doctor() else { return Ok((what, took)) };
                            what = doctor.bare(name).await?;
                            if what.is_none() {
                                return Ok((None, took));
                            }
                            took.push(clock.now().since(started));
                        }
                        Ok::<_, Error>((what, took))
                    }
                });
                let done = futures_util::future::try_join_all(each).await?;
                let what = done.iter().find_map(|(what, _)| *what);
                let took = done.into_iter().flat_map(|(_, took)| took).collect();
                Ok(what.map(|what| Bare { what, took }))
            }
            .boxed()
        };
        self.with_store(work).await?
    }

    fn reach(&self) -> Reach {
        self.capabilities().reach
    }

    async fn ask_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<dyn Store>) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.client.ask(Op::Check, None, work).await
    }

    /// As [`ask_store`](Self::ask_store), for as long as it takes: many requests, each with a limit of its own.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<dyn Store>) -> BoxFuture<'static, T> + Send + 'static,
    ) -> Result<T> {
        self.client.on_engine(move |engine| work(engine.store.clone()).boxed_local()).await
    }

    /// How long the way to the store takes, and what its clock says.
    async fn sample(&self, clock: Clock) -> Result<Vec<Sample>> {
        let mut samples = Vec::with_capacity(ASKS);
        let until = clock.now().after(MEASURING);
        // The first one may have to connect.
        for at in 0..=ASKS {
            let clock = clock.clone();
            let sample = self.ask_store(|store| ask(store, clock).boxed()).await?;
            if at > 0 {
                samples.push(sample);
            }
            if self.clock().now() >= until && !samples.is_empty() {
                break;
            }
        }
        Ok(samples)
    }

    /// Whether a lock can be had, and given back.
    async fn try_out(&self) -> Check {
        const NAME: &str = "trial";
        let started = self.clock().now();
        let tried = async {
            let name =
                format!("leasehold-doctor:{:08x}", u128::from_be_bytes(ClaimId::random()?.to_bytes()) >> 96);
            let lease =
                self.lock(name).ttl(TRIAL).note("leasehold doctor tries it out").try_acquire().await?;
            if let Some(lease) = lease {
                lease.release().await?;
            }
            Ok::<_, Error>(())
        };
        match tried.await {
            Ok(()) => {
                let took = self.clock().now().since(started);
                Check::ok(NAME, format!("a lock was taken and given back in {}", millis(took)))
            }
            Err(error) => Check::failed_by(NAME, &error),
        }
    }
}

/// What the store's own cheapest means took, see [`Leasehold::bare`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bare {
    /// What was done, in a few words.
    pub what: &'static str,
    /// How long each took, in no order.
    pub took: Vec<Duration>,
}

/// One round trip.
#[derive(Debug, Clone, Copy)]
struct Sample {
    took: Duration,
    /// How far the store's clock is ahead of ours, in microseconds, give or take half of the way there and back.
    ahead: Option<i128>,
}

/// A name that nobody has: whoever looks at it costs one round trip on any store.
const NOBODYS: &str = "leasehold-doctor";

async fn greet(store: Arc<dyn Store>) -> Result<String> {
    match store.doctor() {
        Some(doctor) => doctor.greet().await,
        None => {
            store.inspect(&LockName::parse(NOBODYS)?).await?;
            Ok(store.to_string())
        }
    }
}

async fn ask(store: Arc<dyn Store>, clock: Clock) -> Result<Sample> {
    let (sent, before) = (clock.now(), clock.wall_micros());
    let time: Option<ServerTime> = match store.doctor() {
        Some(doctor) => doctor.ping().await?,
        None => store.inspect(&LockName::parse(NOBODYS)?).await?.server_time,
    };
    let took = clock.now().since(sent);
    let middle = i128::from(before) + i128::try_from(took.as_micros() / 2).unwrap_or(0);
    Ok(Sample { took, ahead: time.map(|time| i128::from(time.as_micros()) - middle) })
}

/// How long the way there and back takes.
struct Trips {
    count: usize,
    half: Duration,
    most: Duration,
}

impl Trips {
    fn of(samples: &[Sample]) -> Self {
        let mut took: Vec<_> = samples.iter().map(|sample| sample.took).collect();
        took.sort();
        let at = |percent: usize| {
            took.get(took.len() * percent / 100).or(took.last()).copied().unwrap_or_default()
        };
        Self { count: took.len(), half: at(50), most: at(99) }
    }

    fn check(&self) -> Check {
        let Self { count, half, most } = self;
        Check::ok("round_trip", format!("p50 {}, p99 {} over {count} asks", millis(*half), millis(*most)))
    }

    fn check_ttl(&self, ttl: Duration) -> Check {
        const NAME: &str = "ttl";
        let least = self.half.saturating_mul(ROUND_TRIPS);
        if ttl < least {
            return Check::warning(
                NAME,
                Code::SHORT_TTL,
                format!("{} is less than {ROUND_TRIPS} round trips of {}", exact(ttl), millis(self.half)),
                format!("--ttl {}s or more", least.max(SHORT).as_secs() + 1),
            );
        }
        if ttl < SHORT {
            return Check::warning(
                NAME,
                Code::SHORT_TTL,
                format!("{} is over after a pause that any machine may have", exact(ttl)),
                format!("--ttl {} or more", exact(SHORT)),
            );
        }
        Check::ok(NAME, format!("{} is more than {ROUND_TRIPS} round trips", exact(ttl)))
    }
}

/// The quickest of the samples tells most of the clock.
fn check_clock(samples: &[Sample], reach: Reach) -> Check {
    const NAME: &str = "clock";
    let best = samples.iter().filter_map(|sample| Some((sample.took, sample.ahead?))).min();
    let Some((took, ahead)) = best else {
        return match reach {
            Reach::Process | Reach::Host => Check::ok(NAME, "the store goes by the clock of this host"),
            _ => Check::unknown(NAME, "not told: the store names no time", "compare the clocks by hand"),
        };
    };
    let apart = Duration::from_micros(u64::try_from(ahead.unsigned_abs()).unwrap_or(u64::MAX));
    let give_or_take = took / 2;
    let way = if ahead < 0 { "ahead of" } else { "behind" };
    let says = format!(
        "this host is {} {way} the store, give or take {} (limit {})",
        millis(apart),
        millis(give_or_take),
        exact(APART)
    );
    if apart.saturating_sub(give_or_take) <= APART {
        return Check::ok(NAME, says);
    }
    let fix = "set both clocks by NTP; leases do not mind, but --once periods, cron and shown times do";
    Check::warning(NAME, Code::CLOCKS, says, fix)
}

/// Names that somebody will take for one another.
fn check_case(names: Result<Vec<LockName>>) -> Check {
    const NAME: &str = "names";
    let names = match names {
        Ok(names) => names,
        Err(error) => return Check::untold(NAME, &error),
    };
    let mut folded: BTreeMap<String, &LockName> = BTreeMap::new();
    for name in &names {
        if let Some(other) = folded.insert(name.as_str().to_lowercase(), name) {
            return Check::warning(
                NAME,
                Code::LETTER_CASE,
                format!("{other} and {name} differ only by case, so they do not exclude each other"),
                "use one of them everywhere",
            );
        }
    }
    let count = names.len();
    let live = if count == 1 { "1 name in use".to_owned() } else { format!("{count} names in use") };
    Check::ok(NAME, format!("{live}, no two that differ only by case"))
}

fn check_scope(reach: Reach) -> Check {
    let says = match reach {
        Reach::Process => "process: nobody outside of this process can see the locks",
        Reach::Host => "host: locks of this machine only",
        _ => "fleet: all hosts that reach the store",
    };
    Check::ok("scope", says)
}

fn millis(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    if millis < 10.0 { format!("{millis:.1} ms") } else { format!("{millis:.0} ms") }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Health;

    use super::*;

    fn sample(millis: u64, ahead_millis: Option<i128>) -> Sample {
        Sample { took: Duration::from_millis(millis), ahead: ahead_millis.map(|ahead| ahead * 1000) }
    }

    #[test]
    fn a_ttl_of_few_round_trips_is_too_short() {
        let trips = Trips::of(&[sample(400, None), sample(400, None), sample(900, None)]);
        assert_eq!(trips.check_ttl(Duration::from_secs(30)).health, Health::Ok);
        let check = trips.check_ttl(Duration::from_secs(7));
        assert_eq!((check.health, check.code), (Health::Warning, Some(Code::SHORT_TTL)), "{check:?}");
        let near = Trips::of(&[sample(1, None)]);
        assert_eq!(near.check_ttl(Duration::from_secs(2)).health, Health::Warning);
        assert_eq!(near.check_ttl(Duration::from_secs(5)).health, Health::Ok);
    }

    #[test]
    fn clocks_are_apart_only_beyond_what_the_way_may_hide() {
        let health = |samples: &[Sample]| check_clock(samples, Reach::Fleet).health;
        assert_eq!(health(&[sample(1, Some(12))]), Health::Ok);
        assert_eq!(health(&[sample(1, Some(-2000))]), Health::Warning);
        assert_eq!(health(&[sample(4000, Some(2000))]), Health::Ok);
        // A slow one tells nothing beside a quick one.
        assert_eq!(health(&[sample(4000, Some(2000)), sample(2, Some(2000))]), Health::Warning);
        assert_eq!(health(&[sample(1, None)]), Health::Unknown);
        assert_eq!(check_clock(&[sample(1, None)], Reach::Host).health, Health::Ok);
        assert!(check_clock(&[sample(1, Some(2000))], Reach::Fleet).says.contains("behind the store"));
    }

    #[test]
    fn names_that_differ_by_case_alone_are_told() {
        let names = |texts: &[&str]| Ok(texts.iter().map(|text| LockName::parse(text).unwrap()).collect());
        assert_eq!(check_case(names(&["Report", "report:x"])).health, Health::Ok);
        let check = check_case(names(&["Report", "other", "report"]));
        assert_eq!(check.health, Health::Warning);
        assert!(check.says.starts_with("Report and report differ"), "{}", check.says);
    }
}

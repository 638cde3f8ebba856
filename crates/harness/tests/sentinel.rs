//! Three sentinels over a master and its replicas, all real: what becomes of leases when another server takes over.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Clock, Event, Lease, LeaseState, Leasehold, LockName, LostReason, Observer, Store, Token};
use leasehold_core::{Code, Doubt, Health};
use leasehold_harness::foreign::ours::built;
use leasehold_harness::servers::redis::{Redis, ask};
use leasehold_harness::servers::sentinel::{Shape, Watched};
use leasehold_harness::servers::{NoServer, Server};
use leasehold_redis::RedisStore;
use rustix::process::Signal;
use tokio::io::AsyncReadExt as _;

/// Longer than any failover here takes.
const TTL: Duration = Duration::from_secs(20);
/// Whoever holds what the new master does not have hears of it so soon after a sentinel knows that master.
const TOLD: Duration = Duration::from_secs(2);
/// Whatever is to happen has happened by then.
const PATIENCE: Duration = Duration::from_secs(30);

/// `None` where there is no server, which is said.
fn watched() -> Option<Watched> {
    match Watched::start(&Shape::default()) {
        Ok(watched) => Some(watched),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

async fn connect(watched: &Watched, more: &str) -> Leasehold {
    Leasehold::builder().timeout(Duration::from_secs(1)).connect(&watched.url(more)).await.unwrap()
}

/// What became of the leases of one client.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<&'static str>>);

impl Observer for Seen {
    fn on(&self, event: &Event) {
        let what = match event {
            Event::Endangered { .. } => "endangered",
            Event::Renewed { .. } => "renewed",
            Event::Lost { .. } => "lost",
            _ => return,
        };
        self.0.lock().unwrap().push(what);
    }
}

impl Seen {
    async fn client(watched: &Watched, more: &str) -> (Leasehold, Arc<Self>) {
        let seen = Arc::new(Self::default());
        let builder = Leasehold::builder().timeout(Duration::from_secs(1)).observer(seen.clone());
        (builder.connect(&watched.url(more)).await.unwrap(), seen)
    }

    /// Returns once the holders were warned, and what followed is this.
    async fn ends_with(&self, last: &str) {
        let seen = || self.0.lock().unwrap().clone();
        let known = async {
            until("endangered, and then it is known", || {
                let seen = seen();
                seen.contains(&"endangered") && seen.last() == Some(&last)
            })
            .await;
        };
        tokio::time::timeout(PATIENCE / 2, known).await.unwrap_or_else(|_| panic!("{:?}", seen()));
    }
}

/// Returns once it holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    while !holds() {
        assert!(clock.now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn acquire(client: &Leasehold, name: &str) -> Lease {
    client.lock(name).ttl(TTL).acquire_within(PATIENCE).await.unwrap()
}

async fn token(client: &Leasehold, name: &str) -> Token {
    let lease = acquire(client, name).await;
    let token = lease.token();
    lease.release().await.unwrap();
    token
}

#[tokio::test]
async fn a_lease_that_the_new_master_has_is_kept_and_excludes_others_there() {
    let Some(watched) = watched() else { return };
    let (other, (holder, seen)) = (connect(&watched, "").await, Seen::client(&watched, "").await);
    let lease = acquire(&holder, "x").await;
    until("both replicas have it", || watched.has(1, "lock:x") && watched.has(2, "lock:x")).await;
    watched.servers[0].signal(Signal::STOP).unwrap();
    let new = watched.master_after(0).unwrap();
    // It is asked for there at once.
    seen.ends_with("renewed").await;
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(other.lock("x").ttl(TTL).try_acquire().await.unwrap().is_none());
    watched.servers[0].signal(Signal::CONT).unwrap();
    let held = lease.token();
    lease.release().await.unwrap();
    assert!(!watched.has(new, "lock:x"), "it is given back where it is");
    assert!(token(&other, "x").await > held);
}

#[tokio::test]
async fn a_failover_that_somebody_ordered_costs_no_lease_and_whoever_waits_goes_on_waiting() {
    let Some(watched) = watched() else { return };
    let (waiter, (holder, seen)) = (connect(&watched, "").await, Seen::client(&watched, "").await);
    let lease = acquire(&holder, "x").await;
    let held = lease.token();
    let waiting = tokio::spawn(async move { token(&waiter, "x").await });
    let listens =
        |server| watched.say(server, &["PUBSUB", "CHANNELS", "lh:wake:*"]).unwrap().contains("lh:wake");
    until("somebody waits", || listens(0)).await;
    until("both replicas have it", || watched.has(1, "lock:x") && watched.has(2, "lock:x")).await;
    let new = watched.fail_over(0).unwrap();
    seen.ends_with("renewed").await;
    until("he listens to the new master", || listens(new)).await;
    assert_eq!(lease.state(), LeaseState::Held);
    lease.release().await.unwrap();
    assert!(waiting.await.unwrap() > held);
}

#[tokio::test]
async fn a_lease_that_the_new_master_does_not_have_is_lost_at_once_and_tokens_rise() {
    let Some(watched) = watched() else { return };
    let (other, holder) = (connect(&watched, "").await, connect(&watched, "").await);
    let before = token(&other, "x").await;
    watched.cut_off(1).unwrap();
    watched.cut_off(2).unwrap();
    let lease = acquire(&holder, "x").await;
    assert!(lease.token() > before);
    watched.servers[0].signal(Signal::STOP).unwrap();
    let new = watched.master_after(0).unwrap();
    let lost = tokio::time::timeout(TOLD, lease.lost()).await.expect("it is told long before its end");
    assert_eq!(lost.reason, LostReason::StoreForgot);
    assert!(!watched.has(new, "lock:x"), "nothing was taken again in silence");
    let next = acquire(&other, "x").await;
    assert!(next.token() > lease.token(), "whoever checks tokens refuses the old holder");
    // The old master, which still has the old lease, changes nothing any more.
    watched.servers[0].signal(Signal::CONT).unwrap();
    watched.let_in(1).unwrap();
    watched.let_in(2).unwrap();
    watched.settled().unwrap();
    assert_eq!(next.state(), LeaseState::Held);
    next.release().await.unwrap();
}

#[tokio::test]
async fn what_both_replicas_must_have_is_never_granted_to_be_lost() {
    let Some(watched) = watched() else { return };
    let careful = connect(&watched, "?min_replicas=2").await;
    let (holder, other) = (connect(&watched, "?min_replicas=2").await, connect(&watched, "").await);
    let ttl = Duration::from_secs(4);
    let lease = holder.lock("x").ttl(ttl).acquire_within(PATIENCE).await.unwrap();
    // The one that will take over knows how long it was granted for, and hears of no renewal any more.
    watched.never_promote(1).unwrap();
    watched.cut_off(2).unwrap();
    let error = careful.lock("y").ttl(ttl).acquire_within(Duration::from_secs(3)).await.unwrap_err();
    assert!(error.to_string().contains("fewer than 2 replicas"), "{error}");
    watched.servers[0].signal(Signal::STOP).unwrap();
    assert_eq!(watched.master_after(0).unwrap(), 2);
    let next = acquire(&other, "x").await;
    assert_eq!(lease.state(), LeaseState::Lost, "two hold it");
    assert!(next.token() > lease.token());
    assert!(token(&other, "y").await > next.token(), "what was not granted is not held");
}

#[tokio::test]
async fn an_old_master_that_wakes_is_never_used_again_by_whoever_still_had_a_connection_to_it() {
    let Some(watched) = watched() else { return };
    let idle = RedisStore::open(&watched.url("").parse().unwrap()).unwrap();
    idle.inspect(&LockName::parse("x").unwrap()).await.unwrap();
    // While it sleeps nobody asks it for anything, so no missed answer tells that it is gone.
    watched.servers[0].signal(Signal::STOP).unwrap();
    let new = watched.master_after(0).unwrap();
    let heard = tokio::time::timeout(TOLD, idle.doubt()).await.expect("it is heard at once");
    assert_eq!(heard, Doubt::Replaced);
    // The sentinels let it be a master for a while, before they make it a replica.
    for sentinel in &watched.sentinels {
        ask(sentinel, &["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "20000"]).unwrap();
    }
    watched.servers[0].signal(Signal::CONT).unwrap();
    let idle = Leasehold::builder().store(Arc::new(idle));
    let lease = acquire(&idle, "x").await;
    assert!(watched.say(0, &["ROLE"]).unwrap().contains("master"), "it believes that it is one");
    assert!(watched.has(new, "lock:x") && !watched.has(0, "lock:x"), "it was asked");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn what_an_old_master_has_not_answered_is_waited_for_no_longer() {
    let Some(watched) = watched() else { return };
    // So long that whoever waited for it would be seen.
    let store = RedisStore::open(&watched.url("?timeout=60s").parse().unwrap()).unwrap();
    let name = LockName::parse("x").unwrap();
    store.inspect(&name).await.unwrap();
    watched.servers[0].signal(Signal::STOP).unwrap();
    let asking = store.clone();
    let asked = tokio::spawn(async move { asking.inspect(&name).await });
    watched.master_after(0).unwrap();
    let answer = tokio::time::timeout(TOLD, asked).await.expect("it is over at once").unwrap();
    let error = answer.unwrap_err();
    assert!(error.is_retryable() && error.outcome_unknown(), "{error}");
    assert!(error.to_string().contains(&watched.servers[0].address().to_string()), "{error}");
    assert_eq!(store.doubt().await, Doubt::Replaced);
}

#[tokio::test]
async fn a_server_that_the_sentinels_name_and_that_is_a_replica_is_not_asked() {
    let Some(watched) = watched() else { return };
    let stranger = Redis::default().line("repl-diskless-sync-delay 0").start().unwrap();
    let holder = connect(&watched, "").await;
    let _lease = acquire(&holder, "x").await;
    until("both replicas have it", || watched.has(1, "lock:x") && watched.has(2, "lock:x")).await;
    // Somebody makes the master a replica of another, with other data, and the sentinels have not seen it yet. Its own
    // replicas would follow.
    watched.cut_off(1).unwrap();
    watched.cut_off(2).unwrap();
    let port = stranger.address().port().to_string();
    watched.say(0, &["REPLICAOF", "127.0.0.1", &port]).unwrap();
    until("it has the other's data", || !watched.has(0, "lock:x")).await;
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    let looked = loop {
        match connect(&watched, "").await.inspect("x").await {
            Ok(looked) => break looked,
            Err(error) => {
                assert!(clock.now() < end, "in vain: {error}");
                assert!(error.to_string().contains("replica"), "{error}");
            }
        }
    };
    assert_eq!(looked.holders.len(), 1, "a replica was asked");
}

#[tokio::test]
async fn the_sentinels_that_are_up_suffice_and_one_that_slept_is_not_believed() {
    let Some(mut watched) = watched() else { return };
    let client = connect(&watched, "").await;
    let mut last = token(&client, "x").await;
    let mut rises = async |client: &Leasehold, what: &str| {
        let token = token(client, "x").await;
        assert!(token > last, "{what}: {token:?} after {last:?}");
        last = token;
    };
    // The first one in the URL does not hear of the failover.
    watched.sentinels[0].signal(Signal::STOP).unwrap();
    watched.servers[0].signal(Signal::STOP).unwrap();
    watched.master_after(0).unwrap();
    rises(&client, "one sentinel stands still").await;
    watched.servers[0].signal(Signal::CONT).unwrap();
    watched.sentinels[0].signal(Signal::CONT).unwrap();
    rises(&connect(&watched, "").await, "it tells of the past").await;
    watched.settled().unwrap();
    watched.sentinels[1..].iter_mut().for_each(Server::kill);
    rises(&connect(&watched, "").await, "two are gone").await;
    // Now that nobody can fail over any more, it has the connection that it goes on with.
    rises(&client, "they are gone for this one, too").await;
    watched.sentinels[0].kill();
    rises(&client, "all are gone, and the master is there").await;
    let alone = connect(&watched, "").await;
    let error = alone.lock("x").ttl(TTL).acquire_within(Duration::from_secs(1)).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    for sentinel in &watched.sentinels {
        assert!(error.to_string().contains(&sentinel.address().to_string()), "{error}");
    }
    assert!(error.help().is_some_and(|help| help.contains("sentinels")), "{error}");
}

#[tokio::test]
async fn what_is_no_sentinel_or_knows_no_such_master_says_so() {
    let Some(watched) = watched() else { return };
    let wrong = watched.url("").replace("/main", "/mian");
    let client = Leasehold::connect(&wrong).await.unwrap();
    let error = client.lock("x").acquire_within(PATIENCE).await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains("no sentinel knows a master \"mian\"") && !error.is_retryable(), "{told}");
    for sentinel in &watched.sentinels {
        assert!(told.contains(&format!("{} watches only main", sentinel.address())), "{told}");
    }
    let server = watched.servers[0].address();
    let client = Leasehold::connect(&format!("redis+sentinel://{server}/main")).await.unwrap();
    let error = client.lock("x").acquire_within(PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("what answers there is no sentinel"), "{error}");
}

/// A command under `leasehold run`, which writes down that it lives.
struct Run {
    child: tokio::process::Child,
    folder: tempfile::TempDir,
}

impl Run {
    async fn start(watched: &Watched) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let beat = folder.path().join("beat");
        let script = format!("while :; do date >> {}; sleep 0.02; done", beat.display());
        let mut command = tokio::process::Command::new(built("leasehold", "leasehold-cli").unwrap());
        command.args(["run", "x", "--ttl", "20s", "--", "sh", "-c", &script]);
        command.env("LEASEHOLD_STORE", watched.url(""));
        command.env("XDG_STATE_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
        command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().unwrap();
        until("it holds", || beat.exists()).await;
        Self { child, folder }
    }

    /// How long ago it was alive.
    fn silent(&self) -> Duration {
        std::fs::metadata(self.folder.path().join("beat")).unwrap().modified().unwrap().elapsed().unwrap()
    }
}

#[tokio::test]
async fn a_command_survives_a_clean_failover_and_is_dead_soon_after_one_that_lost_its_lease() {
    let Some(watched) = watched() else { return };
    let mut run = Run::start(&watched).await;
    until("both replicas have it", || watched.has(1, "lock:x") && watched.has(2, "lock:x")).await;
    let second = watched.fail_over(0).unwrap();
    watched.settled().unwrap();
    until("it lives", || run.silent() < Duration::from_millis(100)).await;
    assert!(run.child.try_wait().unwrap().is_none());
    // And one to a server that knows nothing of it.
    for replica in watched.replicas().unwrap() {
        watched.cut_off(replica).unwrap();
        watched.forget(replica, "lock:x").unwrap();
    }
    watched.servers[second].signal(Signal::STOP).unwrap();
    watched.master_after(second).unwrap();
    let clock = Clock::system();
    let start = clock.now();
    let silent = |run: &Run, start| clock.now().since(start).saturating_sub(run.silent());
    let code = tokio::time::timeout(PATIENCE, run.child.wait()).await.unwrap().unwrap();
    let lived = silent(&run, start);
    assert!(lived < TOLD, "the command lived for {lived:?}");
    assert!(!code.success());
    let mut told = String::new();
    run.child.stderr.take().unwrap().read_to_string(&mut told).await.unwrap();
    assert!(told.contains("LH003"), "{told}");
}

#[tokio::test]
async fn the_doctor_says_whether_another_could_take_over_and_whether_an_old_master_stops() {
    let Some(mut watched) = watched() else { return };
    let store = RedisStore::open(&watched.url("").parse().unwrap()).unwrap();
    let doctor = store.doctor().unwrap();
    let greeting = doctor.greet().await.unwrap();
    assert!(greeting.contains(&format!("primary at {}", watched.servers[0].address())), "{greeting}");
    let check = async |name: &str| {
        let checks = doctor.checkup().await;
        checks.into_iter().find(|check| check.name == name).unwrap()
    };
    let sentinels = check("sentinels").await;
    assert_eq!((sentinels.health, sentinels.code), (Health::Ok, None), "{sentinels:?}");
    assert!(
        sentinels.says.contains("3 of 3 answer") && sentinels.says.contains("2 replicas"),
        "{sentinels:?}"
    );
    let old = check("old_master").await;
    assert_eq!((old.health, old.code), (Health::Warning, Some(Code::FAILOVER)), "{old:?}");
    watched.say(0, &["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
    assert_eq!(check("old_master").await.health, Health::Ok);
    watched.sentinels[2].kill();
    let sentinels = check("sentinels").await;
    assert_eq!((sentinels.health, sentinels.code), (Health::Warning, Some(Code::FAILOVER)), "{sentinels:?}");
    assert!(sentinels.says.contains(&watched.sentinels[2].address().to_string()), "{sentinels:?}");
}

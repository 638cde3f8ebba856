//! A quorum of five real Redis: what holds when its servers die, stand still, forget, or are not who they seem.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::process::Stdio;
use std::time::Duration;

use leasehold::{Check, Clock, Code, Error, Health, LeaseState, Leasehold, Token};
use leasehold_harness::foreign::ours::built;
use leasehold_harness::servers::nodes::{Nodes, url};
use leasehold_harness::servers::redis::{Redis, ask};
use leasehold_harness::servers::{NoServer, Server};
use rustix::process::Signal;

const TTL: Duration = Duration::from_secs(2);
const RUN_TTL: Duration = Duration::from_secs(3);
/// Whatever is to happen has happened by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// So many nodes; `None` where there is no server, which is said.
fn nodes(count: usize) -> Option<Nodes> {
    match Nodes::start(count, &Redis::default()) {
        Ok(nodes) => Some(nodes),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A client that does not mind that they were just started.
async fn client(nodes: &Nodes) -> Leasehold {
    connect(&nodes.url("?restart_delay=0s")).await
}

async fn connect(url: &str) -> Leasehold {
    Leasehold::builder().timeout(Duration::from_secs(1)).connect(url).await.unwrap()
}

async fn token(client: &Leasehold, name: &str) -> Token {
    let lease = client.lock(name).ttl(TTL).acquire_within(PATIENCE).await.unwrap();
    let token = lease.token();
    lease.release().await.unwrap();
    token
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

#[tokio::test]
async fn two_of_five_may_die_or_stand_still() {
    let Some(mut nodes) = nodes(5) else { return };
    let client = client(&nodes).await;
    let mut last = token(&client, "x").await;
    let mut rises = async |what: &str| {
        let token = token(&client, "x").await;
        assert!(token > last, "{what}: {token:?} after {last:?}");
        last = token;
    };
    nodes.servers[4].signal(Signal::STOP).unwrap();
    for _ in 0..20 {
        rises("one stands still").await;
    }
    nodes.servers[0].kill();
    rises("and one is dead").await;
    nodes.servers[4].kill();
    rises("two are dead").await;
    nodes.servers[0].go_on().unwrap();
    nodes.servers[4].go_on().unwrap();
    rises("they are there again").await;
}

#[tokio::test]
async fn one_that_stands_still_holds_nobody_up() {
    let Some(nodes) = nodes(5) else { return };
    // So long that whoever waited for it would be seen, however loaded the machine is.
    let client = connect(&nodes.url("?restart_delay=0s&node_timeout=10s")).await;
    token(&client, "x").await;
    nodes.servers[2].signal(Signal::STOP).unwrap();
    let clock = Clock::system();
    let start = clock.now();
    let lease = client.lock("x").ttl(Duration::from_secs(300)).acquire_within(PATIENCE).await.unwrap();
    client.inspect("x").await.unwrap();
    lease.release().await.unwrap();
    assert!(clock.now().since(start) < Duration::from_secs(10), "it was waited for");
}

#[tokio::test]
async fn three_dead_ones_are_named_within_the_deadline() {
    let Some(mut nodes) = nodes(5) else { return };
    let client = client(&nodes).await;
    token(&client, "x").await;
    nodes.servers[..3].iter_mut().for_each(Server::kill);
    let clock = Clock::system();
    let start = clock.now();
    let error = client.lock("x").ttl(TTL).acquire_within(PATIENCE).await.unwrap_err();
    assert!(clock.now().since(start) < PATIENCE, "within the deadline: {error}");
    assert_eq!(error.code(), Code::QUORUM, "{error}");
    let told = error.to_string();
    assert!(told.contains("2 of 5 nodes answered, 3 are needed"), "{told}");
    for server in &nodes.servers {
        assert!(told.contains(&server.address().to_string()), "{told}");
    }
    // What the others had granted is given back.
    until("nothing is left", || nodes.having("lock:x") == 0).await;
}

#[tokio::test]
async fn a_node_that_may_have_forgotten_has_no_say() {
    let Some(mut nodes) = nodes(3) else { return };
    let url = nodes.url("?longest_ttl=3s");
    let one = Leasehold::builder().timeout(Duration::from_millis(200)).connect(&url).await.unwrap();
    // They were just started, and may have forgotten what others hold. On a busy machine some may be silent, too.
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    loop {
        let error = one.lock("x").ttl(TTL).attempt().await.unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{error}");
        if error.to_string().contains("started a moment ago") {
            break;
        }
        assert!(clock.now() < end, "{error}");
    }
    let lease = one.lock("x").ttl(TTL).or_wait().await;
    // Two restarts in a row, without data: a majority of nodes knows nothing any more of who holds.
    for node in 0..2 {
        nodes.servers[node].go_on().unwrap();
    }
    let two = connect(&url).await;
    loop {
        match two.lock("x").ttl(TTL).attempt().await {
            Ok(_) => {
                assert_ne!(lease.state(), LeaseState::Held, "two hold it");
                break;
            }
            Err(Error::Busy(_)) => {}
            Err(error) => assert!(matches!(error, Error::Store(_)), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A lock that is asked for again while nodes have no say yet.
trait OrWait {
    async fn or_wait(self) -> leasehold::Lease;
}

impl OrWait for leasehold::Lock {
    async fn or_wait(self) -> leasehold::Lease {
        let clock = Clock::system();
        let end = clock.now().after(PATIENCE);
        loop {
            match self.clone().attempt().await {
                Ok(lease) => return lease,
                Err(error) => assert!(clock.now() < end, "in vain: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_server_under_two_names_has_one_vote() {
    let Some(nodes) = nodes(2) else { return };
    let addresses = [
        nodes.servers[0].address().to_string(),
        format!("localhost:{}", nodes.servers[0].address().port()),
        nodes.servers[1].address().to_string(),
    ];
    // Two are a majority of three; one under two names and none besides are not.
    let mut nodes = nodes;
    nodes.servers[1].kill();
    let client = connect(&url(addresses.into_iter(), "?restart_delay=0s")).await;
    let error = client.lock("x").ttl(TTL).attempt().await.unwrap_err();
    assert_eq!(error.code(), Code::QUORUM, "{error}");
    assert!(error.to_string().contains("this server is the very one"), "{error}");
}

#[tokio::test]
async fn a_replica_has_no_say() {
    let Some(mut nodes) = nodes(3) else { return };
    let port = nodes.servers[0].address().port().to_string();
    assert!(ask(&nodes.servers[1], &["REPLICAOF", "127.0.0.1", &port]).unwrap().starts_with("+OK"));
    let client = client(&nodes).await;
    token(&client, "x").await;
    nodes.servers[2].kill();
    let error = client.lock("x").ttl(TTL).acquire_within(PATIENCE).await.unwrap_err();
    assert_eq!(error.code(), Code::QUORUM, "{error}");
    assert!(error.to_string().contains("a replica of 127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_command_is_dead_in_time_when_three_vanish() {
    let Some(mut nodes) = nodes(5) else { return };
    let folder = tempfile::tempdir().unwrap();
    let beat = folder.path().join("beat");
    let script = format!("while :; do date >> {}; sleep 0.02; done", beat.display());
    let mut command = tokio::process::Command::new(built("leasehold", "leasehold-cli").unwrap());
    command.args(["run", "x", "--ttl", "3s", "--", "sh", "-c", &script]);
    command.env("LEASEHOLD_STORE", nodes.url("?restart_delay=0s"));
    command.env("XDG_STATE_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
    command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let run = command.spawn().unwrap();
    until("it holds", || beat.exists() && nodes.having("lock:x") == 5).await;
    let clock = Clock::system();
    let start = clock.now();
    nodes.servers[..2].iter_mut().for_each(Server::kill);
    nodes.servers[2].signal(Signal::STOP).unwrap();
    let output = run.wait_with_output().await.unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("LH0031"), "{told}");
    // What it had renewed last has run out on every node by then, and others may be in.
    let last = std::fs::metadata(&beat).unwrap().modified().unwrap().elapsed().unwrap();
    let lived = clock.now().since(start).saturating_sub(last);
    assert!(lived < RUN_TTL, "the command lived for {lived:?}");
}

/// What the check of the lists of nodes says to a client of this URL.
async fn members(url: &str) -> Check {
    let checks = connect(url).await.checkup(TTL).await.unwrap();
    checks.into_iter().find(|check| check.name == "members").unwrap()
}

#[tokio::test]
async fn a_client_with_a_list_that_was_replaced_is_refused() {
    let Some(nodes) = nodes(5) else { return };
    let addresses: Vec<String> = nodes.servers.iter().map(|server| server.address().to_string()).collect();
    let of = |count: usize, more: &str| url(addresses[..count].iter().cloned(), more);
    let three = of(3, "?restart_delay=0s");
    let old = connect(&three).await;
    token(&old, "x").await;
    assert_eq!(members(&three).await.health, Health::Ok);
    // The list was raised together with its epoch: whoever connects with the old one reaches no majority.
    let five = of(5, "?restart_delay=0s&epoch=2");
    let last = token(&connect(&five).await, "x").await;
    let error = connect(&three).await.lock("x").ttl(TTL).attempt().await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains("by epoch 2 they are") && told.contains("this client has epoch 0"), "{told}");
    assert!(addresses.iter().all(|address| told.contains(address)), "{told}");
    assert!(error.help().unwrap().contains("epoch=2"), "{error:?}");
    // One that was connected goes on until its connections end, which whoever changes a list sees to.
    for server in &nodes.servers[..3] {
        drop(ask(server, &["CLIENT", "KILL", "TYPE", "normal"]));
    }
    let refused = async |client: &Leasehold| match client.lock("x").ttl(TTL).attempt().await {
        Ok(lease) => {
            lease.release().await.unwrap();
            false
        }
        Err(error) => error.to_string().contains("by epoch 2 they are"),
    };
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    while !refused(&old).await {
        assert!(clock.now() < end, "it goes on with the old list");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The others are not held up, in whatever order they name the nodes, nor by one node that says otherwise.
    let mut turned = addresses.clone();
    turned.reverse();
    let turned = url(turned.into_iter(), "?restart_delay=0s&epoch=2");
    assert!(ask(&nodes.servers[0], &["HSET", "leasehold:quorum:lock:", "other:1", "9 1"]).is_ok());
    assert!(token(&connect(&turned).await, "x").await > last);
    assert_eq!(members(&turned).await.health, Health::Ok);
}

#[tokio::test]
async fn clients_that_name_other_nodes_are_warned_of_and_not_stopped() {
    let Some(nodes) = nodes(5) else { return };
    let addresses: Vec<String> = nodes.servers.iter().map(|server| server.address().to_string()).collect();
    let of = |some: &[usize]| url(some.iter().map(|at| addresses[*at].clone()), "?restart_delay=0s");
    let (one, other) = (of(&[0, 1, 2]), of(&[2, 3, 4]));
    token(&connect(&one).await, "x").await;
    token(&connect(&other).await, "x").await;
    for url in [&one, &other] {
        let check = members(url).await;
        assert_eq!(check.health, Health::Warning, "{check:?}");
        assert!(check.says.contains(&addresses[0]) && check.says.contains(&addresses[4]), "{check:?}");
        assert!(check.fix.is_some_and(|fix| fix.contains("epoch=")));
    }
    // Foreign clients of the same nodes say nothing, and nobody asks them.
    assert!(ask(&nodes.servers[2], &["SET", "lock:foreign", "x", "NX", "PX", "1000"]).is_ok());
}

#[tokio::test]
async fn answers_that_come_when_most_of_the_ttl_is_over_are_no_lease() {
    let Some(nodes) = nodes(5) else { return };
    let client = client(&nodes).await;
    token(&client, "x").await;
    for server in &nodes.servers {
        assert!(ask(server, &["CLIENT", "PAUSE", "4000", "ALL"]).is_ok());
    }
    let error = client.lock("x").ttl(TTL).attempt().await.unwrap_err();
    assert!(error.to_string().contains("0 of 5 nodes answered"), "{error}");
    // What was executed late after all is given back, and does not stay for a ttl of whoever asks next.
    client.lock("x").ttl(TTL).or_wait().await.release().await.unwrap();
    until("nothing is left", || nodes.having("lock:x") == 0).await;
}

#[tokio::test]
async fn who_waited_for_long_has_the_whole_ttl() {
    let Some(nodes) = nodes(3) else { return };
    let (one, two) = (client(&nodes).await, client(&nodes).await);
    let held = one.lock("x").ttl(TTL).acquire().await.unwrap();
    let waits = tokio::spawn(async move { two.lock("x").ttl(TTL).acquire_within(PATIENCE).await });
    tokio::time::sleep(TTL * 2).await;
    held.release().await.unwrap();
    let lease = waits.await.unwrap().unwrap();
    // It counts from the proposal that won, not from the first of many; a busy machine may take a part of it.
    assert!(lease.remaining() > TTL / 2, "{:?}", lease.remaining());
    tokio::time::sleep(TTL * 2).await;
    lease.check().expect("it is renewed");
}

#[tokio::test]
async fn nodes_that_forget_one_after_the_other_lose_nothing() {
    let Some(mut nodes) = nodes(3) else { return };
    let (one, two) = (client(&nodes).await, client(&nodes).await);
    let lease = one.lock("x").ttl(TTL).acquire().await.unwrap();
    // What a node has may be of one who tried, and is gone at once: it counts once it is the holder's again.
    let on = |nodes: &Nodes, node: usize| {
        let told = ask(&nodes.servers[node], &["GET", "lock:x"]).unwrap_or_default();
        // It starts with the id of the claim; what it is granted under differs from node to node.
        told.lines().nth(1).and_then(|value| value.get(..16)).map(str::to_owned)
    };
    until("each has it", || nodes.having("lock:x") == 3).await;
    let value = on(&nodes, 0);
    let each_has_it = |nodes: &Nodes| (0..3).all(|node| on(nodes, node) == value);
    for node in [2, 1, 0, 2] {
        until("each has it", || each_has_it(&nodes)).await;
        nodes.servers[node].go_on().unwrap();
        match two.lock("x").ttl(TTL).try_acquire().await {
            Ok(None) | Err(Error::Store(_)) => {}
            other => panic!("it is held: {other:?}"),
        }
    }
    until("each has it", || each_has_it(&nodes)).await;
    lease.check().expect("it is held all the time");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn what_is_no_lock_in_its_place_is_told_and_left_alone() {
    let Some(nodes) = nodes(5) else { return };
    let client = client(&nodes).await;
    for count in [3, 5] {
        for server in &nodes.servers[..count] {
            assert!(ask(server, &["HSET", "lock:data", "field", "value"]).is_ok());
        }
        let error = client.lock("data").ttl(TTL).acquire_within(PATIENCE).await.unwrap_err();
        assert!(error.to_string().contains("the key lock:data is a hash"), "{error}");
    }
    for server in &nodes.servers {
        assert!(ask(server, &["HGET", "lock:data", "field"]).unwrap().contains("value"));
    }
}

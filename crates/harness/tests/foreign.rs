//! The tenth part of the proof `foreign`: clients of other people and ours share a key. And: the judge notices.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use leasehold_harness::foreign::clients::{DELETES, EXPIRES, FOREIGN, Foreign, NoClient};
use leasehold_harness::foreign::ground::Ground;
use leasehold_harness::foreign::{Arena, Contended, Contest};
use leasehold_harness::servers::NoServer;
use tokio::sync::Mutex;

const LASTING: Duration = Duration::from_secs(3);
/// On a machine with other work to do somebody may get too little of three seconds: that is no verdict, and no pass.
const TRIES: u32 = 5;
/// One contest at a time: two would starve each other. nextest, which runs each test in a process of its own, is told
/// the same in its configuration.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Where to contend; `None` where a server or a program is missing, which is said.
fn arena(ground: Ground) -> Option<Arena> {
    match Arena::open(ground) {
        Ok(arena) => Some(arena),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What came of it; `None` where it is missing, which is said.
fn there<T>(result: Result<T, NoClient>) -> Option<T> {
    match result {
        Ok(result) => Some(result),
        Err(NoClient::Missing(name)) => {
            eprintln!("skipped: there is no {name} here: `cargo xtask test servers` gets it");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// It contends with ours, and then holds the key alone.
async fn shares(name: &str) {
    shares_on(name, Ground::Redis).await;
}

/// The same on five servers that are a quorum.
async fn shares_quorum(name: &str) {
    shares_on(name, Ground::Quorum).await;
}

async fn shares_on(name: &str, ground: Ground) {
    let _alone = ALONE.lock().await;
    let foreign: &Foreign = FOREIGN.iter().find(|one| one.name == name).unwrap();
    let Some(arena) = arena(ground) else { return };
    println!("{}\n{}", arena.version().unwrap(), Contended::head());
    let contest = Contest::lasting(LASTING);
    for attempt in 1..=TRIES {
        let Some(contended) = there(arena.contend(foreign, contest).await) else { return };
        println!("{contended}");
        contended.judge().unwrap();
        let starved = contended.starved(contest.least());
        if starved.is_empty() {
            break;
        }
        assert!(attempt < TRIES, "{starved:?} had the lock fewer than {} times", contest.least());
    }
    there(arena.leaves_alone(foreign).await).unwrap();
}

#[tokio::test]
async fn redis_py_and_we_exclude_each_other() {
    shares("redis-py").await;
}

#[tokio::test]
async fn redis_py_under_asyncio_and_we_exclude_each_other() {
    shares("redis-py-asyncio").await;
}

#[tokio::test]
async fn python_redis_lock_and_we_exclude_each_other() {
    shares("python-redis-lock").await;
}

#[tokio::test]
async fn redlock_4_with_ioredis_and_we_exclude_each_other() {
    shares("redlock-4").await;
}

#[tokio::test]
async fn redlock_5_with_ioredis_and_we_exclude_each_other() {
    shares("redlock-5").await;
}

#[tokio::test]
async fn rslock_and_we_exclude_each_other() {
    shares("rslock").await;
}

#[tokio::test]
async fn redlock_4_on_five_servers_and_we_exclude_each_other() {
    shares_quorum("redlock-4").await;
}

#[tokio::test]
async fn redlock_5_on_five_servers_and_we_exclude_each_other() {
    shares_quorum("redlock-5").await;
}

#[tokio::test]
async fn rslock_on_five_servers_and_we_exclude_each_other() {
    shares_quorum("rslock").await;
}

#[tokio::test]
async fn the_five_lines_of_the_tutorials_and_we_exclude_each_other() {
    shares("five-lines").await;
}

#[tokio::test]
async fn kazoo_and_we_exclude_each_other() {
    shares_on("kazoo", Ground::ZooKeeper).await;
}

#[tokio::test]
async fn curator_and_we_exclude_each_other() {
    shares_on("curator", Ground::ZooKeeper).await;
}

#[tokio::test]
async fn the_recipe_of_zookeeper_client_and_we_exclude_each_other() {
    shares_on("zookeeper-client", Ground::ZooKeeper).await;
}

#[tokio::test]
async fn etcdctl_lock_and_we_exclude_each_other() {
    shares_on("etcdctl-lock", Ground::Etcd).await;
}

#[tokio::test]
async fn etcdctl_lock_on_a_newer_server_and_we_exclude_each_other() {
    shares_on("etcdctl-lock", Ground::NewerEtcd).await;
}

/// Without `leasehold run`, which would complain of its loss before the judge has read the journal.
async fn is_noticed(broken: &Foreign) {
    let _alone = ALONE.lock().await;
    let Some(arena) = arena(Ground::Redis) else { return };
    let contest = Contest { lasting: LASTING / 2, hold: Duration::from_millis(40), with_run: false };
    for attempt in 1..=TRIES {
        let Some(contended) = there(arena.contend(broken, contest).await) else { return };
        println!("{}\n{contended}\n{}", Contended::head(), contended.verdict);
        if !contended.verdict.overlaps.is_empty() {
            contended.judge().unwrap_err();
            return;
        }
        assert!(attempt < TRIES, "nobody noticed");
    }
}

#[tokio::test]
async fn lines_whose_lock_runs_out_in_the_middle_of_the_work_are_caught() {
    is_noticed(&EXPIRES).await;
}

#[tokio::test]
async fn lines_that_delete_what_is_not_theirs_are_caught() {
    is_noticed(&DELETES).await;
}

//! What the doctor tells of servers, and what a login keeps others from.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use leasehold_core::{Doctor as _, Health, LockName, Store as _};
use leasehold_harness::servers::zookeeper::{Ensemble, ZooKeeper, url};
use leasehold_harness::servers::{NoServer, Server};
use leasehold_zookeeper::ZooKeeperStore;

fn there<T>(started: Result<T, NoServer>) -> Option<T> {
    match started {
        Ok(server) => Some(server),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn start() -> Option<Server> {
    there(ZooKeeper::default().start())
}

fn open(url: &str) -> ZooKeeperStore {
    ZooKeeperStore::open(&url.parse().unwrap()).unwrap()
}

#[tokio::test]
async fn it_tells_what_it_found_and_leaves_nothing() {
    let Some(server) = start() else { return };
    let store = open(&url(&server));
    let greeting = store.greet().await.unwrap();
    assert!(greeting.starts_with("ZooKeeper 3."), "{greeting}");
    assert_eq!(store.ping().await.unwrap(), None);
    let checks = store.checkup().await;
    for name in ["servers", "version", "sessions", "cleartext"] {
        let check = checks.iter().find(|check| check.name == name).unwrap();
        assert_eq!(check.health, Health::Ok, "{check:?}");
    }
    // Twenty ticks are the most, two the least, unless a server is told otherwise.
    let sessions = checks.iter().find(|check| check.name == "sessions").unwrap();
    assert!(sessions.says.contains("1.0s to 10.0s"), "{sessions:?}");
    let name = LockName::parse("bare").unwrap();
    assert!(store.bare(&name).await.unwrap().is_some());
    assert!(store.list("", None).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_member_that_is_away_is_named_and_one_alone_in_the_url_is_not_enough() {
    let Some(mut three) = there(Ensemble::start(3, &ZooKeeper::default())) else { return };
    three.settled().unwrap();
    let servers = async |url: &str| {
        let checks = open(url).checkup().await;
        checks.into_iter().find(|check| check.name == "servers").unwrap()
    };
    let all = three.url("");
    assert_eq!(servers(&all).await.health, Health::Ok);
    assert!(servers(&url(&three.servers[0])).await.says.contains("one member"));
    let follower = three.followers().unwrap()[0];
    three.servers[follower].kill();
    let told = servers(&all).await;
    assert_eq!(told.health, Health::Warning);
    assert!(told.says.contains(&three.servers[follower].address().to_string()), "{told:?}");
}

#[tokio::test]
async fn without_the_login_what_was_made_with_one_cannot_be_touched() {
    let Some(server) = start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("login");
    std::fs::write(&file, "locks:hunter2\n").unwrap();
    let ours = open(&format!("{}?auth_file={}", url(&server), file.display()));
    let name = LockName::parse("a").unwrap();
    assert!(ours.bare(&name).await.unwrap().is_some());
    let error = open(&url(&server)).bare(&name).await.unwrap_err();
    assert!(error.to_string().contains("may not do that"), "{error}");
    assert!(error.help().unwrap().contains("auth_file="), "{error}");
    let cleartext = ours.checkup().await.into_iter().find(|check| check.name == "cleartext").unwrap();
    assert_eq!(cleartext.health, Health::Warning);
    assert!(!format!("{ours} {ours:?} {cleartext:?} {:?}", ours.greet().await).contains("hunter2"));
}

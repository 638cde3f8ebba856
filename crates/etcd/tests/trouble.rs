//! What goes wrong beside the contract: leases that end by another hand, compaction, a link that freezes, a cluster
//! that is full.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use leasehold_core::{
    Claim, ClaimId, Clock, Cursor, Doctor, Doubt, Health, Leave, LockName, Note, Owner, Release, Renew,
    Renewal, Share, State, Store, Tenure, Token, Turn,
};
use leasehold_etcd::EtcdStore;
use leasehold_harness::proxy::{Mode, Proxy};
use leasehold_harness::servers::etcd::{Etcd, ask, url};
use leasehold_harness::servers::{NoServer, Server};

/// What should happen has happened by then, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(etcd: Etcd) -> Option<Server> {
    match etcd.start() {
        Ok(server) => Some(server),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(url: &str) -> EtcdStore {
    EtcdStore::open(&url.parse().unwrap()).unwrap()
}

fn claim(name: &str) -> Claim {
    Claim {
        name: LockName::parse(name).unwrap(),
        id: ClaimId::random().unwrap(),
        owner: Owner::default(),
        share: Share::EXCLUSIVE,
        reshape: 0,
        turn: Turn::Any,
        ttl: Duration::from_secs(30),
        note: Note::NONE,
        anchored: false,
        aftermath: leasehold_core::Aftermath::NONE,
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    }
}

async fn granted(store: &EtcdStore, claim: &Claim) -> Token {
    match store.claim(claim).await.unwrap().state {
        State::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    }
}

async fn waits(store: &EtcdStore, claim: &Claim) -> Cursor {
    let standing = store.claim(claim).await.unwrap();
    assert!(matches!(standing.state, State::Waiting { .. }), "{standing:?}");
    standing.cursor
}

async fn renewed(store: &EtcdStore, claim: &Claim, token: Token) -> leasehold_core::Result<Renewal> {
    let tenure = Tenure { count: 1, token, note: Note::NONE };
    store.renew(&[Renew { claim: std::sync::Arc::new(claim.clone()), tenure }]).await.pop().unwrap()
}

async fn end(store: &EtcdStore, claim: &Claim) -> Release {
    store.release(&claim.name, claim.id, Leave::Open).await.unwrap()
}

async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, happens).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// All leases that there are, by their ids.
fn leases(server: &Server) -> Vec<String> {
    let told = ask(server, "/v3/lease/leases", "{}").unwrap();
    told.split("\"ID\":\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

/// All keys whose names start so.
fn keys(server: &Server, start: &str, end: &str) -> String {
    let body = format!(r#"{{"key":"{}","range_end":"{}"}}"#, base64(start), base64(end));
    ask(server, "/v3/kv/range", &body).unwrap()
}

fn base64(text: &str) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut all = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - three.len()));
        for sign in 0..4 {
            let at = usize::try_from((bits >> (18 - 6 * sign)) & 63).unwrap();
            all.push(if sign <= three.len() { char::from(SIGNS[at]) } else { '=' });
        }
    }
    all
}

#[tokio::test]
async fn a_lease_that_is_revoked_by_hand_is_doubted_at_once_and_lost() {
    let Some(server) = start(Etcd::default()) else { return };
    let store = open(&url(&server));
    let held = claim("job");
    let before = store.inspect(&held.name).await.unwrap().cursor;
    let token = granted(&store, &held).await;
    let waiting = claim("job");
    waits(&store, &waiting).await;
    // Whoever has heard of a change listens.
    soon("a change", store.changed(&held.name, &before)).await.unwrap();
    let cursor = store.inspect(&held.name).await.unwrap().cursor;
    let change = store.changed(&held.name, &cursor);
    let revoke = async {
        let stands = keys(&server, "lock/job/", "lock/job0");
        let created = format!("\"create_revision\":\"{token}\"");
        let key = stands.split("{\"key\"").find(|key| key.contains(&created)).unwrap();
        let lease = key.split("\"lease\":\"").nth(1).unwrap().split_once('"').unwrap().0.to_owned();
        ask(&server, "/v3/lease/revoke", &format!(r#"{{"ID":"{lease}"}}"#)).unwrap();
    };
    let (heard, ()) = soon("word of the end", async { tokio::join!(change, revoke) }).await;
    heard.unwrap();
    assert_eq!(soon("doubt", store.doubt()).await, Doubt::Cut);
    assert_eq!(renewed(&store, &held, token).await.unwrap(), Renewal::Lost);
    end(&store, &waiting).await;
}

#[tokio::test]
async fn a_key_that_is_deleted_by_hand_is_lost_although_its_lease_lives() {
    let Some(server) = start(Etcd::default()) else { return };
    let store = open(&url(&server));
    let held = claim("job");
    let token = granted(&store, &held).await;
    let range = format!(r#"{{"key":"{}","range_end":"{}"}}"#, base64("lock/job/"), base64("lock/job0"));
    ask(&server, "/v3/kv/deleterange", &range).unwrap();
    assert_eq!(renewed(&store, &held, token).await.unwrap(), Renewal::Lost);
    assert!(!matches!(store.claim(&held).await.unwrap().state, State::Granted(_)), "an id is granted once");
}

#[tokio::test]
async fn a_place_that_was_taken_away_is_not_granted() {
    let Some(server) = start(Etcd::default()) else { return };
    let store = open(&url(&server));
    let (held, waiting) = (claim("job"), claim("job"));
    granted(&store, &held).await;
    waits(&store, &waiting).await;
    let before = keys(&server, "lock/job/", "lock/job0").matches("\"lease\"").count();
    assert_eq!(before, 2);
    // Both keys go; the waiter must not think that its turn has come with a key that is gone.
    let range = format!(r#"{{"key":"{}","range_end":"{}"}}"#, base64("lock/job/"), base64("lock/job0"));
    ask(&server, "/v3/kv/deleterange", &range).unwrap();
    let other = claim("job");
    granted(&store, &other).await;
    waits(&store, &waiting).await;
    end(&store, &other).await;
    end(&store, &waiting).await;
}

#[tokio::test]
async fn a_turn_is_taken_by_a_step_that_writes() {
    let Some(server) = start(Etcd::default()) else { return };
    let store = open(&url(&server));
    let (held, waiting) = (claim("job"), claim("job"));
    granted(&store, &held).await;
    waits(&store, &waiting).await;
    end(&store, &held).await;
    let token = granted(&store, &waiting).await;
    // What only reads may be answered from the past.
    let stands = keys(&server, "lock/job/", "lock/job0");
    assert!(stands.contains(&format!("\"create_revision\":\"{token}\"")), "{stands}");
    assert!(stands.contains("\"version\":\"2\""), "{stands}");
    end(&store, &waiting).await;
}

#[tokio::test]
async fn a_claim_that_comes_after_its_release_is_never_granted() {
    let Some(server) = start(Etcd::default()) else { return };
    let (store, other) = (open(&url(&server)), open(&url(&server)));
    let late = claim("job");
    assert_eq!(end(&store, &late).await, Release::NotHeld);
    assert_eq!(other.claim(&late).await.unwrap().state, State::Spent);
    granted(&other, &claim("job")).await;
}

#[tokio::test]
async fn names_that_start_alike_are_locks_of_their_own() {
    let Some(server) = start(Etcd::default()) else { return };
    let store = open(&url(&server));
    for name in ["ab", "a", "a/b", "a:b", "a%2Fb"] {
        granted(&store, &Claim { turn: Turn::Now, ..claim(name) }).await;
    }
}

#[tokio::test]
async fn a_closure_keeps_out_whoever_knows_the_line_only() {
    let Some(server) = start(Etcd::default()) else { return };
    let store = open(&url(&server));
    let held = claim("job");
    granted(&store, &held).await;
    let leave = Leave::Closed { lasting: Duration::from_secs(30), note: Note::NONE };
    store.release(&held.name, held.id, leave).await.unwrap();
    // The mutexes of other clients wait for every key before theirs.
    assert!(keys(&server, "lock/job/", "lock/job0").contains(&base64("lock/job/+shut")));
    assert!(matches!(store.claim(&claim("job")).await.unwrap().state, State::Closed(_)));
}

#[tokio::test]
async fn what_is_given_up_leaves_no_key_and_no_lease() {
    let Some(server) = start(Etcd::default()) else { return };
    let store = open(&url(&server));
    let first = claim("job");
    granted(&store, &first).await;
    end(&store, &first).await;
    // That which remembers spent ids, and nothing else.
    let few = leases(&server).len();
    for round in 0..3 {
        let hour = Duration::from_secs(3600);
        let aftermath = leasehold_core::Aftermath { delay: hour, at_least: hour };
        let (held, waiting, tried) = (Claim { aftermath, ..claim("job") }, claim("job"), claim("job"));
        let token = granted(&store, &held).await;
        waits(&store, &waiting).await;
        waits(&store, &Claim { turn: Turn::Now, ..tried }).await;
        renewed(&store, &held, token).await.unwrap();
        assert_eq!(end(&store, &waiting).await, Release::Withdrawn);
        assert_eq!(end(&store, &held).await, Release::Released);
        assert!(leases(&server).len() <= few + 2, "round {round}: {:?}", leases(&server));
    }
    assert!(!keys(&server, "lock/", "lock/~").contains("kvs"));
}

#[tokio::test]
async fn a_wait_goes_on_when_the_link_freezes_and_the_past_is_compacted() {
    let Some(server) = start(Etcd::default()) else { return };
    let proxy = Proxy::start(server.address(), 1).unwrap();
    let (store, far) = (open(&url(&server)), open(&format!("etcd://{}?timeout=500ms", proxy.address())));
    let (held, waiting) = (claim("job"), claim("job"));
    let before = far.inspect(&held.name).await.unwrap().cursor;
    granted(&store, &held).await;
    waits(&far, &waiting).await;
    // Whoever has heard of a change listens.
    soon("a change", far.changed(&held.name, &before)).await.unwrap();
    proxy.set(Mode::Freeze);
    end(&store, &held).await;
    // What the watch missed is forgotten before it can ask for it.
    for round in 0..5 {
        let other = claim(&format!("other:{round}"));
        granted(&store, &other).await;
        end(&store, &other).await;
    }
    let told = ask(&server, "/v3/kv/range", r#"{"key":"YQ=="}"#).unwrap();
    let revision = told.split("\"revision\":\"").nth(1).unwrap().split_once('"').unwrap().0.to_owned();
    ask(&server, "/v3/kv/compaction", &format!(r#"{{"revision":"{revision}"}}"#)).unwrap();
    assert_eq!(soon("doubt", far.doubt()).await, Doubt::Cut);
    proxy.set(Mode::Pass);
    let clock = Clock::system();
    let limit = clock.now().after(PATIENCE);
    loop {
        assert!(clock.now() < limit, "its turn never came");
        match far.claim(&waiting).await.map(|standing| (standing.state, standing.cursor)) {
            Ok((State::Granted(_), _)) => break,
            Ok((State::Waiting { .. }, cursor)) => drop(far.changed(&waiting.name, &cursor).await),
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(error.outcome_unknown() || error.is_retryable(), "{error}"),
        }
    }
    end(&far, &waiting).await;
}

#[tokio::test]
async fn a_frozen_link_ends_each_call_in_time_with_an_unknown_outcome() {
    let Some(server) = start(Etcd::default()) else { return };
    let proxy = Proxy::start(server.address(), 1).unwrap();
    let far = open(&format!("etcd://{}?timeout=300ms", proxy.address()));
    let held = claim("job");
    let token = granted(&far, &held).await;
    proxy.set(Mode::Freeze);
    let error = soon("an answer", far.claim(&claim("other"))).await.unwrap_err();
    assert!(error.help().is_some(), "{error}");
    let error = soon("an answer", renewed(&far, &held, token)).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    proxy.set(Mode::Pass);
    let clock = Clock::system();
    let limit = clock.now().after(PATIENCE);
    while !matches!(renewed(&far, &held, token).await, Ok(Renewal::Kept { .. })) {
        assert!(clock.now() < limit, "it was never kept");
    }
    assert_eq!(end(&far, &held).await, Release::Released);
}

#[tokio::test]
async fn a_cluster_that_forgot_is_noticed_and_grants_no_lower_token() {
    let Some(mut server) = start(Etcd::default()) else { return };
    let (store, other) = (open(&url(&server)), open(&url(&server)));
    for _ in 0..5 {
        let held = claim("job");
        granted(&store, &held).await;
        end(&store, &held).await;
    }
    let held = claim("job");
    let token = granted(&store, &held).await;
    server.kill();
    std::fs::remove_dir_all(server.folder().join("data")).unwrap();
    server.go_on().unwrap();
    // Whoever has seen nothing yet has the first tokens of it.
    assert!(granted(&other, &claim("other")).await < token);
    soon("doubt", async { while store.doubt().await != Doubt::Replaced {} }).await;
    let lost = async {
        loop {
            if let Ok(renewed) = renewed(&store, &held, token).await {
                break renewed;
            }
        }
    };
    assert_eq!(soon("an answer", lost).await, Renewal::Lost);
    let next = claim("job");
    let refused = async {
        loop {
            match store.claim(&next).await {
                Err(error) if error.code() == leasehold_core::Code::FOREIGN => break error,
                Err(error) => assert!(error.is_retryable(), "{error}"),
                Ok(standing) => panic!("a token below {token}: {standing:?}"),
            }
        }
    };
    let error = soon("a refusal", refused).await;
    assert!(error.help().is_some(), "{error}");
    end(&store, &next).await;
    // It is told by whoever notices, calls and the watch, and not with every answer from there on.
    for _ in 0..20 {
        store.inspect(&next.name).await.unwrap();
    }
    let mut told = 0;
    let again = async {
        loop {
            told += i32::from(store.doubt().await == Doubt::Replaced);
        }
    };
    tokio::time::timeout(Duration::from_millis(500), again).await.unwrap_err();
    assert!(told <= 2, "{told} times");
}

#[tokio::test]
async fn a_cluster_without_space_says_so_and_takes_back_what_is_held() {
    let Some(server) = start(Etcd::default().word("--quota-backend-bytes=100000")) else { return };
    let store = open(&url(&server));
    let held = claim("job");
    let token = granted(&store, &held).await;
    let big = base64(&"x".repeat(50_000));
    let full = (0..100).any(|number| {
        let put = format!(r#"{{"key":"{}","value":"{big}"}}"#, base64(&format!("fill{number}")));
        let told = ask(&server, "/v3/kv/put", &put);
        !told.is_ok_and(|told| told.contains("revision"))
    });
    assert!(full, "it never filled");
    let error = store.claim(&claim("other")).await.unwrap_err();
    assert_eq!(error.code(), leasehold_core::Code::FULL, "{error}");
    assert!(!error.outcome_unknown() && error.help().is_some(), "{error}");
    assert!(matches!(renewed(&store, &held, token).await, Ok(Renewal::Kept { .. })));
    let checks = store.checkup().await;
    assert!(
        checks.iter().any(|check| check.name == "alarms" && check.health == Health::Failed),
        "{checks:?}"
    );
    assert_eq!(end(&store, &held).await, Release::Released);
}

#[tokio::test]
async fn the_doctor_tells_what_it_found_and_leaves_nothing() {
    let Some(server) = start(Etcd::default()) else { return };
    let store = open(&url(&server));
    let greeting = store.greet().await.unwrap();
    assert!(greeting.starts_with("etcd 3."), "{greeting}");
    assert_eq!(store.ping().await.unwrap(), None);
    let checks = store.checkup().await;
    for name in ["members", "leader", "version", "alarms", "leases", "cleartext"] {
        let check = checks.iter().find(|check| check.name == name).unwrap();
        assert!(check.health != Health::Failed, "{check:?}");
        assert_eq!(check.fix.is_some(), check.health != Health::Ok, "{check:?}");
    }
    let ttl = checks.iter().find(|check| check.name == "leases").unwrap();
    assert!(ttl.says.contains("1s was asked for and 2s got"), "{ttl:?}");
    let name = LockName::parse("bare").unwrap();
    assert!(store.bare(&name).await.unwrap().is_some());
    let held = claim("bare");
    granted(&store, &held).await;
    assert!(store.bare(&name).await.unwrap_err().to_string().contains("in use"));
    end(&store, &held).await;
    assert!(!keys(&server, "lock/", "lock/~").contains("kvs"));
}

//! What a server, an administrator or another program may do to locks, and what must come of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use leasehold_core::{
    Aftermath, Claim, ClaimId, Code, Leave, LockName, Mark, MarkKind, MarkOutcome, Note, Owner, Record,
    RecordId, RecordKind, Release, Renew, Renewal, Share, State, Store, Tenure, Token, Turn,
};
use leasehold_redis::RedisStore;
use rustix::process::Signal;

mod support;

use support::server::{Server, missing};
use support::ways::LEAST_RIGHTS;

/// The ttl of leases that no test outlives.
const LONG: Duration = Duration::from_secs(30);

/// Starts a server, or says why the test is skipped.
macro_rules! server {
    ($($option:literal),*) => {
        match missing() {
            None => Server::start(&[$($option),*]).unwrap(),
            Some(why) => return eprintln!("skipped: {why}"),
        }
    };
}

fn store(server: &Server, options: &str) -> RedisStore {
    RedisStore::open(&format!("{}{options}", server.url()).parse().unwrap()).unwrap()
}

fn name(text: &str) -> LockName {
    LockName::parse(text).unwrap()
}

fn claim(text: &str) -> Claim {
    Claim {
        name: name(text),
        id: ClaimId::random().unwrap(),
        owner: Owner { host: "web-1".to_owned(), program: "report.sh".to_owned(), ..Owner::default() },
        share: Share::EXCLUSIVE,
        reshape: 0,
        turn: Turn::Any,
        ttl: LONG,
        note: Note::NONE,
        anchored: false,
        aftermath: Aftermath::NONE,
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    }
}

fn shared(text: &str) -> Claim {
    Claim { share: Share::SHARED, ..claim(text) }
}

fn attempt(claim: Claim) -> Claim {
    Claim { turn: Turn::Now, ..claim }
}

async fn granted(store: &RedisStore, claim: &Claim) -> Token {
    match store.claim(claim).await.unwrap().state {
        State::Granted(grant) => grant.token,
        other => panic!("{} should be granted: {other:?}", claim.name),
    }
}

async fn waits(store: &RedisStore, claim: &Claim) {
    let state = store.claim(claim).await.unwrap().state;
    assert!(matches!(state, State::Waiting { .. }), "{}: {state:?}", claim.name);
}

fn renewal(claim: &Claim, token: Token) -> Renew {
    Renew { claim: std::sync::Arc::new(claim.clone()), tenure: Tenure { count: 1, token, note: Note::NONE } }
}

async fn renew(store: &RedisStore, claim: &Claim, token: Token) -> leasehold_core::Result<Renewal> {
    store.renew(&[renewal(claim, token)]).await.pop().unwrap()
}

async fn is_kept(store: &RedisStore, claim: &Claim, token: Token) {
    let kept = renew(store, claim, token).await.unwrap();
    assert!(matches!(kept, Renewal::Kept { .. }), "{}: {kept:?}", claim.name);
}

async fn is_lost(store: &RedisStore, claim: &Claim, token: Token) {
    assert_eq!(renew(store, claim, token).await.unwrap(), Renewal::Lost, "{}", claim.name);
}

async fn end(store: &RedisStore, claim: &Claim) -> Release {
    store.release(&claim.name, claim.id, Leave::Open).await.unwrap()
}

fn say<T: redis::FromRedisValue>(server: &Server, words: &[&str]) -> T {
    let (verb, rest) = words.split_first().unwrap();
    redis::cmd(verb).arg(rest).query(&mut server.connect()).unwrap()
}

#[tokio::test]
async fn the_whole_world_is_excluded_by_the_plain_key_and_excludes_us() {
    let server = server!();
    let store = store(&server, "");
    let ours = claim("report");
    granted(&store, &ours).await;
    // As redis-py, redlock and the tutorial do it.
    let set = ["SET", "lock:report", "a-secret-of-theirs", "NX", "PX", "10000"];
    assert_eq!(say::<Option<String>>(&server, &set), None);
    assert_eq!(end(&store, &ours).await, Release::Released);
    assert_eq!(say::<Option<String>>(&server, &set).as_deref(), Some("OK"));

    waits(&store, &attempt(claim("report"))).await;
    waits(&store, &claim("report")).await;
    waits(&store, &attempt(shared("report"))).await;
    let holders = store.inspect(&name("report")).await.unwrap().holders;
    assert_eq!((holders[0].owner.program.as_str(), holders[0].token), ("foreign", None));
    assert!(holders[0].left <= Duration::from_secs(11));
    assert!(
        !format!("{holders:?}").contains("a-secret-of-theirs"),
        "a value may be what its holder releases by"
    );
    assert_eq!(say::<String>(&server, &["GET", "lock:report"]), "a-secret-of-theirs");
    assert_eq!(say::<i64>(&server, &["DEL", "lock:report"]), 1);

    // Readers occupy it as well.
    let reader = shared("report");
    store.release(&name("report"), reader.id, Leave::Open).await.unwrap();
    let reader = Claim { turn: Turn::Now, ..shared("readers") };
    granted(&store, &reader).await;
    assert_eq!(say::<Option<String>>(&server, &["SET", "lock:readers", "x", "NX"]), None);
    assert_eq!(end(&store, &reader).await, Release::Released);
    assert_eq!(say::<i64>(&server, &["EXISTS", "lock:readers"]), 0);
}

#[tokio::test]
async fn a_foreign_key_without_an_end_is_told_and_never_changed() {
    let server = server!();
    let store = store(&server, "");
    let _: String = say(&server, &["SET", "lock:leak", "x"]);
    waits(&store, &attempt(claim("leak"))).await;
    waits(&store, &claim("leak")).await;
    waits(&store, &attempt(shared("leak"))).await;
    let holders = store.inspect(&name("leak")).await.unwrap().holders;
    assert!(holders[0].note.text().unwrap().contains("never ends by itself"), "{holders:?}");
    assert_eq!(say::<i64>(&server, &["PTTL", "lock:leak"]), -1);
    assert_eq!(say::<String>(&server, &["GET", "lock:leak"]), "x");
}

#[tokio::test]
async fn a_key_of_another_type_is_a_clear_error_and_left_alone() {
    let server = server!();
    let store = store(&server, "");
    let _: i64 = say(&server, &["HSET", "lock:redisson", "uuid:1", "1"]);
    for claim in [claim("redisson"), attempt(claim("redisson")), shared("redisson")] {
        let error = store.claim(&claim).await.unwrap_err();
        assert_eq!(error.code(), Code::FOREIGN);
        assert!(error.to_string().contains("Redisson") && error.help().is_some(), "{error}");
        assert_eq!(end(&store, &claim).await, Release::NotHeld);
        is_lost(&store, &claim, Token::new(1).unwrap()).await;
    }
    assert!(store.inspect(&name("redisson")).await.is_err());
    assert_eq!(say::<i64>(&server, &["HLEN", "lock:redisson"]), 1);
}

#[tokio::test]
async fn a_lease_that_is_gone_is_lost_at_the_next_renewal_and_tokens_rise() {
    let mut server = server!();
    let store = store(&server, "?timeout=300ms");
    let mut last = None;
    for trouble in ["FLUSHALL", "DEL", "restart", "SWAPDB"] {
        let (plain, reader) = (claim("plain"), shared("reader"));
        let tokens = [granted(&store, &plain).await, granted(&store, &reader).await];
        assert!(Some(tokens[0]) > last && tokens[1] > tokens[0], "{trouble}: {tokens:?} after {last:?}");
        last = Some(tokens[1]);
        match trouble {
            "DEL" => assert_eq!(say::<i64>(&server, &["DEL", "lock:plain", "lock:reader"]), 2),
            "restart" => server.restart(),
            "SWAPDB" => say(&server, &["SWAPDB", "0", "1"]),
            _ => say(&server, &[trouble]),
        }
        if trouble == "restart" {
            // The old connection is told that it is dead by the first who uses it.
            drop(store.inspect(&plain.name).await);
        }
        is_lost(&store, &plain, tokens[0]).await;
        is_lost(&store, &reader, tokens[1]).await;
        assert_eq!(end(&store, &plain).await, Release::NotHeld);
        end(&store, &reader).await;
        if trouble == "SWAPDB" {
            let _: () = say(&server, &["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn a_reader_whose_mark_was_taken_has_lost_though_others_read_on() {
    let server = server!();
    let store = store(&server, "");
    let (first, second) = (shared("marked"), shared("marked"));
    let tokens = [granted(&store, &first).await, granted(&store, &second).await];
    assert_eq!(say::<i64>(&server, &["DEL", "lock:marked"]), 1);
    assert_eq!(say::<String>(&server, &["SET", "lock:marked", "theirs", "NX"]), "OK");
    // What was lost is never put back, and holds nobody up for longer than it would have.
    waits(&store, &attempt(shared("marked"))).await;
    is_lost(&store, &first, tokens[0]).await;
    assert_eq!(say::<i64>(&server, &["DEL", "lock:marked"]), 1);
    waits(&store, &attempt(shared("marked"))).await;
    is_lost(&store, &second, tokens[1]).await;
    granted(&store, &attempt(claim("marked"))).await;
}

#[tokio::test]
async fn at_maxmemory_leases_are_renewed_and_given_back_and_none_is_granted() {
    let server = server!("--maxmemory-policy", "noeviction");
    let store = store(&server, "");
    let (plain, reader, upgradeable) =
        (claim("plain"), shared("reader"), Claim { share: Share::UPGRADEABLE, ..claim("reader") });
    let mut tokens = Vec::new();
    for claim in [&plain, &reader, &upgradeable] {
        tokens.push((claim, granted(&store, claim).await));
    }
    let _: () = say(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    for new in [attempt(claim("new")), claim("plain"), shared("reader")] {
        let error = store.claim(&new).await.unwrap_err();
        assert_eq!((error.code(), error.outcome_unknown()), (Code::FULL, false), "{error}");
    }
    for (claim, token) in &tokens {
        is_kept(&store, claim, *token).await;
        // A new tenure is renewed even though it cannot be written down.
        let mut next = renewal(claim, *token);
        next.tenure = Tenure { count: 2, token: token.after(1).unwrap(), note: Note::parse("next").unwrap() };
        assert!(matches!(store.renew(&[next]).await.pop().unwrap().unwrap(), Renewal::Kept { .. }));
    }
    for (claim, _) in &tokens {
        assert_eq!(end(&store, claim).await, Release::Released);
        assert_eq!(end(&store, claim).await, Release::NotHeld);
    }
    let _: () = say(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    granted(&store, &attempt(claim("plain"))).await;
    granted(&store, &attempt(claim("reader"))).await;
}

#[tokio::test]
async fn a_reader_that_was_renewed_at_maxmemory_outlasts_its_first_end() {
    let server = server!("--maxmemory-policy", "noeviction");
    let store = store(&server, "");
    let reader = Claim { ttl: Duration::from_millis(1500), ..shared("full") };
    let token = granted(&store, &reader).await;
    let _: () = say(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        is_kept(&store, &reader, token).await;
    }
    let _: () = say(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    waits(&store, &attempt(claim("full"))).await;
    assert_eq!(end(&store, &reader).await, Release::Released);
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_told_them_again() {
    let server = server!();
    let store = store(&server, "");
    for _ in 0..2 {
        let claim = claim("scripts");
        let token = granted(&store, &claim).await;
        let _: () = say(&server, &["SCRIPT", "FLUSH"]);
        is_kept(&store, &claim, token).await;
        let _: () = say(&server, &["SCRIPT", "FLUSH"]);
        assert_eq!(end(&store, &claim).await, Release::Released);
    }
}

#[tokio::test]
async fn a_killed_connection_loses_no_lease() {
    let server = server!();
    let store = store(&server, "");
    let claim = claim("killed");
    let token = granted(&store, &claim).await;
    let _: i64 = say(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    // Whether the first request after it was executed is not known; the next one is answered.
    if let Err(error) = renew(&store, &claim, token).await {
        assert!(error.is_retryable(), "{error}");
    }
    is_kept(&store, &claim, token).await;
    assert_eq!(end(&store, &claim).await, Release::Released);
}

#[tokio::test]
async fn a_killed_subscription_ends_the_waits_and_is_made_anew() {
    let server = server!();
    let (one, two) = (store(&server, ""), store(&server, ""));
    let (holder, waiter) = (claim("pushed"), claim("pushed"));
    granted(&one, &holder).await;
    let standing = two.claim(&waiter).await.unwrap();
    let _: i64 = say(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let ended = two.changed(&waiter.name, &standing.cursor);
    tokio::time::timeout(Duration::from_secs(5), ended).await.unwrap().unwrap();
    let standing = two.claim(&waiter).await.unwrap();
    assert!(matches!(standing.state, State::Waiting { .. }));
    let woken = two.changed(&waiter.name, &standing.cursor);
    let release = async { assert_eq!(end(&one, &holder).await, Release::Released) };
    let (woken, ()) =
        tokio::time::timeout(Duration::from_secs(5), async { tokio::join!(woken, release) }).await.unwrap();
    woken.unwrap();
    granted(&two, &waiter).await;
}

#[tokio::test]
async fn a_silent_server_is_an_error_within_the_deadline_and_answers_again_after_it() {
    let server = server!();
    let store = store(&server, "?timeout=200ms");
    let claim = claim("frozen");
    let token = granted(&store, &claim).await;
    server.signal(Signal::STOP);
    for _ in 0..3 {
        let error = renew(&store, &claim, token).await.unwrap_err();
        assert_eq!(error.code(), Code::UNREACHABLE, "{error}");
        assert!(error.is_retryable() && error.help().is_some() || error.outcome_unknown(), "{error}");
    }
    server.signal(Signal::CONT);
    is_kept(&store, &claim, token).await;
}

#[tokio::test]
async fn nobody_there_is_an_error_without_effect() {
    let server = server!();
    let url = server.url();
    drop(server);
    let store = RedisStore::open(&url.parse().unwrap()).unwrap();
    let error = store.claim(&claim("nobody")).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (Code::UNREACHABLE, false), "{error}");
    assert!(error.to_string().contains("redis+unix:") && error.help().is_some(), "{error}");
}

#[tokio::test]
async fn a_replica_is_refused_with_its_own_words() {
    let server = server!();
    let store = store(&server, "?timeout=500ms");
    let claim = claim("replica");
    let token = granted(&store, &claim).await;
    // Demoted while we hold: nothing there can be trusted any more.
    let _: () = say(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    for _ in 0..2 {
        let error = renew(&store, &claim, token).await.unwrap_err();
        assert!(error.to_string().contains("replica") || error.to_string().contains("no master"), "{error}");
        assert!(error.help().unwrap().contains("sentinel"), "{error}");
    }
    let _: () = say(&server, &["REPLICAOF", "NO", "ONE"]);
    is_kept(&store, &claim, token).await;
}

#[tokio::test]
async fn too_few_replicas_are_no_grant() {
    let server = server!();
    let store = store(&server, "?min_replicas=1&timeout=400ms");
    let claim = attempt(claim("alone"));
    let error = store.claim(&claim).await.unwrap_err();
    assert!(error.to_string().contains("fewer than 1 replicas"), "{error}");
    assert_eq!(say::<i64>(&server, &["EXISTS", "lock:alone"]), 0, "it was given back");
}

#[tokio::test]
async fn the_least_rights_suffice_and_fewer_are_a_clear_error() {
    let server = server!();
    let rights = LEAST_RIGHTS.strip_prefix("locks on >password ").unwrap();
    let _: () = say(&server, &["ACL", "SETUSER", "admin", "on", ">pw", "~*", "&*", "+@all"]);
    let admin =
        redis::Client::open(format!("unix://{}?user=admin&pass=pw", server.socket().display())).unwrap();
    let mut admin = admin.get_connection().unwrap();
    let mut allow = |rights: &str| {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("default");
        for right in rights.split_whitespace() {
            command.arg(right);
        }
        command.exec(&mut admin).unwrap();
    };
    allow("on nopass");
    allow(rights);
    let (one, two) = (store(&server, ""), store(&server, ""));
    let (holder, waiter, reader) = (claim("rights"), claim("rights"), shared("rights:read"));
    let tokens = [granted(&one, &holder).await, granted(&one, &reader).await];
    waits(&two, &waiter).await;
    is_kept(&one, &holder, tokens[0]).await;
    is_kept(&one, &reader, tokens[1]).await;
    one.inspect(&holder.name).await.unwrap();
    assert_eq!(one.list("rights", None).await.unwrap(), [name("rights"), name("rights:read")]);
    let closed = Leave::Closed { lasting: Duration::from_millis(300), note: Note::NONE };
    assert_eq!(one.release(&holder.name, holder.id, closed).await.unwrap(), Release::Released);
    assert_eq!(end(&two, &waiter).await, Release::Withdrawn);
    let ledger = one.ledger().unwrap();
    let mark = Mark {
        kind: MarkKind::Once,
        name: name("rights"),
        key: "today".to_owned(),
        by: "me".to_owned(),
        text: String::new(),
        lasting: LONG,
        age: Duration::ZERO,
    };
    assert_eq!(ledger.mark(&mark).await.unwrap(), MarkOutcome::Made);
    assert_eq!(ledger.marks(MarkKind::Once, &mark.name).await.unwrap().len(), 1);
    assert!(ledger.unmark(MarkKind::Once, &mark.name, "today").await.unwrap());
    let (name, by, text) = (mark.name.clone(), String::new(), String::new());
    let record = Record { kind: RecordKind::Run, name, by, text, age: Duration::ZERO };
    ledger.record(&record).await.unwrap();
    assert_eq!(ledger.records(None, RecordId(0), 10).await.unwrap().len(), 1);

    // While it holds, a right is taken away: no renewal, and a word that says why.
    allow("-evalsha -eval");
    for error in [
        renew(&one, &reader, tokens[1]).await.unwrap_err(),
        two.claim(&attempt(claim("x"))).await.unwrap_err(),
    ] {
        assert_eq!((error.code(), error.is_retryable()), (Code::DENIED, false), "{error}");
        assert!(error.help().unwrap().contains("ACL"), "{error}");
    }
    allow("resetpass >other");
    let refused = store(&server, "");
    let error = refused.claim(&attempt(claim("x"))).await.unwrap_err();
    assert_eq!(error.code(), Code::DENIED, "{error}");
    assert!(error.help().unwrap().contains("password"), "{error}");
}

/// Moves the server's clock, and waits until it has noticed: some look at their clock now and then only.
async fn step(server: &Server, seconds: i64) {
    let time = || say::<Vec<i64>>(server, &["TIME"])[0];
    let before = time();
    server.step(seconds);
    while (time() - before).abs() < 60 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_clock_that_steps_back_makes_no_lease_of_ours_longer_than_it_asked_for() {
    if let Some(why) = missing() {
        return eprintln!("skipped: {why}");
    }
    let server = match Server::with_clock(&[]) {
        Ok(server) => server,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let store = store(&server, "");
    let (plain, reader) = (claim("back"), shared("back:read"));
    let tokens = [granted(&store, &plain).await, granted(&store, &reader).await];
    let _: String = say(&server, &["SET", "lock:theirs", "x", "PX", "10000"]);
    step(&server, -3600).await;
    waits(&store, &attempt(claim("back"))).await;
    waits(&store, &attempt(claim("back:read"))).await;
    waits(&store, &claim("theirs")).await;
    // What nobody waits for is cut by whoever waits: the try took the short way, a waiter does not.
    waits(&store, &claim("back")).await;
    for key in ["lock:back", "lock:back:read"] {
        let left: i64 = say(&server, &["PTTL", key]);
        assert!((1..=30_000).contains(&left), "{key} stays for {left} ms");
    }
    let left: i64 = say(&server, &["PTTL", "lock:theirs"]);
    assert!(left > 3_000_000, "what is not ours is left alone: {left} ms");
    // Tokens rise all the same.
    end(&store, &plain).await;
    let waiter = claim("other");
    assert!(granted(&store, &waiter).await > tokens[1]);
    // Forwards: everything has run out, and the holder is told so.
    step(&server, 7200).await;
    is_lost(&store, &reader, tokens[1]).await;
}

#[tokio::test]
async fn ten_thousand_acquires_that_were_dropped_leave_nothing() {
    let server = server!();
    let store = store(&server, "");
    let mut dice = fastrand::Rng::with_seed(1);
    let holder = claim("dropped");
    granted(&store, &holder).await;
    let mut ids = Vec::new();
    for at in 0..10_000 {
        let name = ["dropped", "free"][at % 2];
        let claim = if dice.bool() { claim(name) } else { shared(name) };
        let dropped = tokio::time::timeout(Duration::from_micros(dice.u64(..300)), store.claim(&claim)).await;
        drop(dropped);
        ids.push(claim);
        // As the janitor of the engine does it.
        if ids.len() == 50 {
            for claim in ids.drain(..) {
                store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
            }
        }
    }
    assert_eq!(end(&store, &holder).await, Release::Released);
    for text in ["dropped", "free"] {
        let snapshot = store.inspect(&name(text)).await.unwrap();
        assert!(snapshot.holders.is_empty() && snapshot.waiters.is_empty(), "{snapshot:?}");
        granted(&store, &attempt(claim(text))).await;
    }
    let keys: Vec<String> = say(&server, &["KEYS", "*"]);
    let left: Vec<_> = keys.iter().filter(|key| !key.contains(":x:") && !key.contains("tokens")).collect();
    assert_eq!(left.len(), 2, "only the last two leases are left: {left:?}");
}

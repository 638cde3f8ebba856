//! Nodes that hang, die, and are replaced.

use leasehold_harness::servers::redis::{Redis, tls_url};

use crate::*;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);
/// No node counts as failed meanwhile, whatever it does.
const NEVER: Duration = Duration::from_secs(600);

/// Locks, one at each of the three nodes.
fn one_each(cluster: &Cluster) -> [String; 3] {
    let mut found = [None, None, None];
    for text in (0..).map(|at| format!("job:{at}")) {
        let (_, node, _) = place(cluster, &text);
        found[node].get_or_insert(text);
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.map(Option::unwrap)
}

#[tokio::test]
async fn a_node_that_hangs_holds_up_no_renewal_at_another() {
    let cluster = cluster!(Shape { node_timeout: NEVER, ..bare() });
    let store = store(&cluster, "");
    let mut batch = Vec::new();
    for text in one_each(&cluster) {
        let claim = Claim { ttl: Duration::from_secs(2), ..claim(&text) };
        let token = granted(&store, &claim).await;
        batch.push(renewal(&claim, token));
    }
    cluster.servers[1].signal(Signal::STOP).unwrap();
    // So long an engine waits for the answers to all.
    let answers = tokio::time::timeout(Duration::from_millis(500), store.renew(&batch)).await.unwrap();
    assert!(matches!(answers[0], Ok(Renewal::Kept { .. })), "{answers:?}");
    assert!(matches!(answers[2], Ok(Renewal::Kept { .. })), "{answers:?}");
    assert!(answers[1].as_ref().is_err_and(Error::outcome_unknown), "{answers:?}");
    cluster.servers[1].signal(Signal::CONT).unwrap();
    until("it answers again", async || renewed(&store, &batch[1]).await).await;
}

/// Whether this renewal is answered.
async fn renewed(store: &RedisStore, renew: &Renew) -> bool {
    store.renew(std::slice::from_ref(renew)).await.pop().unwrap().is_ok()
}

#[tokio::test]
async fn what_may_have_been_done_is_not_sent_again() {
    let cluster = cluster!(Shape { node_timeout: NEVER, ..bare() });
    let store = store(&cluster, "?timeout=400ms");
    let (_, node, _) = place(&cluster, "once");
    // From then on the node knows all scripts, and each is one call.
    let claim = claim("once");
    let first = crate::claim("once");
    granted(&store, &first).await;
    end(&store, &first).await;
    store.inspect(&first.name).await.unwrap();
    granted(&store, &claim).await;
    let calls = || -> u64 {
        let told = say(&cluster, node, &["INFO", "commandstats"]);
        let calls =
            told.lines().filter_map(|line| line.strip_prefix("cmdstat_eval")?.split(['=', ',']).nth(1));
        calls.map(|calls| calls.parse::<u64>().unwrap()).sum()
    };
    let before = calls();
    cluster.servers[node].signal(Signal::STOP).unwrap();
    let error = store.release(&claim.name, claim.id, Leave::Open).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error:?}");
    assert!(error.to_string().contains(&cluster.servers[node].address().to_string()), "{error}");
    cluster.servers[node].signal(Signal::CONT).unwrap();
    until("it has done what it was told", async || calls() > before).await;
    // Of two, the second would come behind the first, over a connection of its own at the latest.
    until("it answers again", async || store.inspect(&claim.name).await.is_ok()).await;
    assert_eq!(calls(), before + 2, "one release, and one look");
}

#[tokio::test]
async fn a_slot_that_nobody_has_is_told_by_its_number_and_used_again_when_somebody_has_it() {
    let mut cluster = cluster!(bare());
    let store = store(&cluster, "?timeout=700ms");
    let [first, second, _] = one_each(&cluster);
    let claim = claim(&first);
    granted(&store, &claim).await;
    let node = 1;
    cluster.servers[node].kill();
    // Those that are left need a while to agree that it is gone.
    let lasts = crate::claim(&first);
    let error = loop {
        match store.claim(&Claim { turn: Turn::Now, ..lasts.clone() }).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => break error,
        }
    };
    let told = format!("{error} {}", error.help().unwrap());
    assert!(told.contains("cluster is down") && told.contains("--cluster check"), "{told}");
    assert!(!error.outcome_unknown() && error.is_retryable(), "{error:?}");
    let error = store.claim(&crate::claim(&second)).await.unwrap_err();
    assert!(!error.outcome_unknown() && error.is_retryable(), "{error:?}");
    cluster.servers[node].go_on().unwrap();
    until("the cluster is up again", async || store.claim(&crate::claim(&second)).await.is_ok()).await;
}

#[tokio::test]
async fn a_replica_that_takes_over_is_a_doubt_and_renews_what_it_has() {
    let mut cluster = cluster!(Shape::default());
    let store = store(&cluster, "?min_replicas=1&timeout=500ms");
    let [_, text, _] = one_each(&cluster);
    let claim = Claim { ttl: Duration::from_secs(60), ..claim(&text) };
    let token = granted(&store, &claim).await;
    let replica = cluster.replicas_of(1).unwrap()[0];
    cluster.servers[1].kill();
    let renew = renewal(&claim, token);
    let lost = async {
        loop {
            if store.doubt().await == Doubt::Replaced {
                return;
            }
        }
    };
    let asked = async {
        loop {
            // Its copy is nobody else's, so it cannot be renewed with one; but it is asked, and not held for lost.
            match store.renew(std::slice::from_ref(&renew)).await.pop().unwrap() {
                Ok(Renewal::Lost) => panic!("it had a copy"),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::select! {
        () = lost => {}
        () = asked => {}
        () = tokio::time::sleep(SOON) => panic!("nobody doubts"),
    }
    assert_eq!(cluster.master_of(cluster.slot_of(&format!("lock:{text}")).unwrap()).unwrap(), replica);
    // The old one comes back as the copy of the new.
    cluster.servers[1].go_on().unwrap();
    until("it is renewed, and copied", async || {
        matches!(store.renew(std::slice::from_ref(&renew)).await.pop().unwrap(), Ok(Renewal::Kept { .. }))
    })
    .await;
    assert_eq!(end(&store, &claim).await, Release::Released);
}

#[tokio::test]
async fn a_failover_by_hand_costs_no_lease_and_ends_the_waits() {
    let cluster = cluster!(Shape::default());
    let (one, two) = (store(&cluster, ""), store(&cluster, ""));
    let [text, ..] = one_each(&cluster);
    let (holder, waiter) = (claim(&text), Claim { turn: Turn::Fifo, ..claim(&text) });
    let token = granted(&one, &holder).await;
    let standing = two.claim(&waiter).await.unwrap();
    let replica = cluster.replicas_of(0).unwrap()[0];
    cluster.fail_over(replica, None).unwrap();
    let ended = two.changed(&waiter.name, &standing.cursor);
    tokio::time::timeout(Duration::from_millis(700), ended).await.unwrap().unwrap();
    is_kept(&one, &holder, token).await;
    let standing = two.claim(&waiter).await.unwrap();
    end(&one, &holder).await;
    let told = two.changed(&waiter.name, &standing.cursor);
    tokio::time::timeout(Duration::from_millis(700), told).await.unwrap().unwrap();
    assert!(granted(&two, &waiter).await > token);
}

#[tokio::test]
async fn one_node_of_the_url_suffices_to_find_all_others() {
    let cluster = cluster!(Shape::default());
    let replica = cluster.replicas_of(0).unwrap()[0];
    let address = cluster.servers[replica].address();
    // The first is nobody: a port that was free a moment ago.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("redis+cluster://{nobody},{address}");
    let store = RedisStore::open(&url.parse().unwrap()).unwrap();
    for text in one_each(&cluster) {
        granted(&store, &claim(&text)).await;
    }
    assert_eq!(store.to_string(), url);
    let alone =
        RedisStore::open(&format!("redis+cluster://{nobody}?timeout=100ms").parse().unwrap()).unwrap();
    let error = alone.claim(&claim("x")).await.unwrap_err();
    assert!(!error.outcome_unknown() && error.to_string().contains(&nobody.to_string()), "{error}");
}

#[tokio::test]
async fn the_wrong_scheme_says_which_is_right() {
    let cluster = cluster!(bare());
    let [_, text, _] = one_each(&cluster);
    let one =
        RedisStore::open(&format!("redis://{}", cluster.servers[0].address()).parse().unwrap()).unwrap();
    let error = one.claim(&claim(&text)).await.unwrap_err();
    assert!(error.help().unwrap().contains("redis+cluster:"), "{error:?}");
    let Some(server) =
        support::server::missing().is_none().then(|| support::server::Server::start(&[]).unwrap())
    else {
        return;
    };
    let url = format!("redis+cluster://{}", server.running().address());
    let error = RedisStore::open(&url.parse().unwrap()).unwrap().claim(&claim("x")).await.unwrap_err();
    assert!(error.help().unwrap().contains("write redis:"), "{error:?}");
}

#[tokio::test]
async fn several_locks_are_one_step_in_one_slot_and_none_over_several() {
    let cluster = cluster!(bare());
    let store = store(&cluster, "");
    let claims = ["{orders}:1", "{orders}:2"].map(claim);
    let told = store.claim_all(&claims).await.unwrap();
    assert!(matches!(told, Together::All(_)), "{told:?}");
    for claim in &claims {
        assert_eq!(end(&store, claim).await, Release::Released);
    }
    let apart = one_each(&cluster).map(|text| claim(&text));
    let error = store.claim_all(&apart).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)) && error.help().is_some(), "{error:?}");
    for claim in &apart {
        granted(&store, claim).await;
    }
}

#[tokio::test]
async fn over_tls_a_node_is_found_by_the_name_that_it_announces() {
    if let Some(why) = support::server::missing() {
        return eprintln!("skipped: {why}");
    }
    // A cluster of one, since the nodes of a test trust each other by no authority.
    let mut redis = Redis { tls: true, ..Redis::default() }.clustered().line("tls-cluster yes");
    for line in ["cluster-announce-hostname localhost", "cluster-preferred-endpoint-type hostname"] {
        redis = redis.line(line);
    }
    let server = support::server::Server::like(redis).unwrap();
    ask(server.running(), &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).unwrap();
    // Its certificate says nothing of 127.0.0.1.
    let url = tls_url(server.running()).replace("rediss:", "rediss+cluster:");
    let (one, two) =
        (RedisStore::open(&url.parse().unwrap()).unwrap(), RedisStore::open(&url.parse().unwrap()).unwrap());
    let (holder, waiter) = (claim("tls"), claim("tls"));
    until("the cluster is up", async || one.claim(&holder).await.is_ok()).await;
    let standing = two.claim(&waiter).await.unwrap();
    end(&one, &holder).await;
    let told = two.changed(&waiter.name, &standing.cursor);
    tokio::time::timeout(Duration::from_millis(700), told).await.unwrap().unwrap();
    granted(&two, &waiter).await;
}

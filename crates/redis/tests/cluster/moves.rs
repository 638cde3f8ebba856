//! Slots that go from one node to another while something in them is held.

use crate::*;

#[tokio::test]
async fn locks_of_all_nodes_are_taken_renewed_and_given_back() {
    let cluster = cluster!(bare());
    let store = store(&cluster, "");
    let mut held = Vec::new();
    for text in
        (0..60).map(|at| format!("job:{at}")).chain(["a}b".to_owned(), "{x}y".to_owned(), "{}".to_owned()])
    {
        let claim = claim(&text);
        let token = granted(&store, &claim).await;
        held.push((claim, token));
    }
    let batch: Vec<Renew> = held.iter().map(|(claim, token)| renewal(claim, *token)).collect();
    for renewed in store.renew(&batch).await {
        assert!(matches!(renewed, Ok(Renewal::Kept { .. })), "{renewed:?}");
    }
    assert_eq!(store.list("", None).await.unwrap().len(), held.len());
    for (claim, _) in &held {
        assert_eq!(store.inspect(&claim.name).await.unwrap().holders.len(), 1, "{}", claim.name);
        let other = Claim { turn: Turn::Now, ..crate::claim(claim.name.as_str()) };
        assert!(matches!(store.claim(&other).await.unwrap().state, State::Waiting { .. }));
        assert_eq!(end(&store, claim).await, Release::Released);
    }
    assert_eq!(store.list("", None).await.unwrap(), []);
}

#[tokio::test]
async fn a_lease_is_kept_when_its_slot_has_gone_elsewhere() {
    let cluster = cluster!(bare());
    let store = store(&cluster, "");
    let claim = claim("moved");
    let token = granted(&store, &claim).await;
    let (slot, from, to) = place(&cluster, "moved");
    cluster.move_slot(slot, to).unwrap();
    assert!(say(&cluster, from, &["GET", "lock:moved"]).starts_with("-MOVED"));
    is_kept(&store, &claim, token).await;
    let next = crate::claim("moved");
    assert_eq!(end(&store, &claim).await, Release::Released);
    assert!(granted(&store, &next).await > token, "the counter went with its slot");
}

#[tokio::test]
async fn a_plain_lease_is_renewed_throughout_the_move_of_its_slot() {
    let cluster = cluster!(bare());
    let store = store(&cluster, "?timeout=300ms");
    let claim = claim("half");
    let token = granted(&store, &claim).await;
    let (slot, _, to) = place(&cluster, "half");
    let under_way = cluster.begin(slot, to).unwrap();
    is_kept(&store, &claim, token).await;
    let mut keys = under_way.keys().unwrap();
    keys.sort();
    assert!(keys.len() >= 3 && keys.iter().any(|key| key == "lock:half"), "{keys:?}");
    for key in &keys {
        under_way.key(key).unwrap();
        is_kept(&store, &claim, token).await;
    }
    // What is new, and what ends, needs all of its keys in one place.
    let error = store.claim(&crate::claim("half")).await.unwrap_err();
    assert!(!error.outcome_unknown() && error.is_retryable(), "{error:?}");
    let told = format!("{error} {}", error.help().unwrap());
    assert!(told.contains(&format!("slot {slot}")) && told.contains("--cluster fix"), "{told}");
    under_way.finish().unwrap();
    is_kept(&store, &claim, token).await;
    assert_eq!(end(&store, &claim).await, Release::Released);
}

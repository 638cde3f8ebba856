//! Keys of other programs: they keep us out, we keep them out, and neither changes what is the other's.

use leasehold_core::{Code, Leave, Release, Store, Token};

use crate::*;

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

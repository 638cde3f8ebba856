//! A server at its maxmemory: what is held is renewed and given back, and nothing is granted.

use std::time::Duration;

use leasehold_core::{Claim, Code, Note, Release, Renewal, Share, Store, Tenure};

use crate::*;

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

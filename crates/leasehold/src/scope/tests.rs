//! What a scope does with shares and permits, and what it remembers.

use leasehold_core::{Error, Note};

use super::*;

async fn take(scope: &Scope, name: &str, share: Share) -> Result<Lease> {
    scope.lock(name).sharing(Ok(share)).acquire().await
}

#[test]
fn who_holds_it_exclusively_has_it_shared_too_and_not_the_other_way_round() {
    smol::block_on(async {
        let client = Leasehold::memory();
        let me = client.scope("me");
        let two = Share::permits(2, 5).unwrap();
        let one = Share::permits(1, 5).unwrap();
        let fits = [
            (Share::EXCLUSIVE, Share::SHARED),
            (Share::EXCLUSIVE, Share::UPGRADEABLE),
            (Share::EXCLUSIVE, one),
            (Share::UPGRADEABLE, Share::SHARED),
            (Share::SHARED, Share::SHARED),
            (two, one),
            (two, two),
        ];
        for (held, wanted) in fits {
            let first = take(&me, "x", held).await.unwrap();
            let second = take(&me, "x", wanted).await.unwrap();
            assert_eq!(first.token(), second.token(), "{held} has {wanted}");
            first.release().await.unwrap();
            let other = client.lock("x").sharing(Ok(held)).attempt().await;
            assert_eq!(other.is_err(), held.excludes(held), "what is left holds {held}, not {wanted}");
            drop(other);
            second.release().await.unwrap();
        }
        let grows = [
            (Share::SHARED, Share::EXCLUSIVE, "upgradeable"),
            (Share::SHARED, Share::UPGRADEABLE, "upgradeable"),
            (Share::UPGRADEABLE, Share::EXCLUSIVE, "upgrade the lease"),
            (one, two, "in full"),
            (one, Share::EXCLUSIVE, "in full"),
        ];
        for (held, wanted, help) in grows {
            let first = take(&me, "y", held).await.unwrap();
            let error = take(&me, "y", wanted).await.unwrap_err();
            assert!(matches!(&error, Error::Config(error) if error.code == Code::GROW), "{held}: {error}");
            assert!(error.help().unwrap().contains(help), "{held} to {wanted}: {:?}", error.help());
            first.check().unwrap();
            first.release().await.unwrap();
        }
    });
}

#[test]
fn readers_of_one_scope_that_are_granted_at_once_hold_it_once() {
    smol::block_on(async {
        let client = Leasehold::memory();
        let me = client.scope("me");
        let lock = me.lock("x").sharing(Ok(Share::SHARED));
        let (one, other) = futures_util::future::join(lock.acquire(), lock.acquire()).await;
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.token(), other.token());
        one.release().await.unwrap();
        other.check().unwrap();
        other.release().await.unwrap();
        client.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_scope_forgets_what_nobody_holds_or_asks_for() {
    smol::block_on(async {
        let client = Leasehold::memory();
        let me = client.scope("me");
        for n in 0..10 {
            drop(me.lock(format!("x:{n}")).acquire().await.unwrap());
        }
        let blocker = client.lock("y").acquire().await.unwrap();
        assert!(me.lock("y").try_acquire().await.unwrap().is_none());
        blocker.release().await.unwrap();
        assert!(me.inner.places().is_empty());
    });
}

#[test]
fn what_shuts_for_longer_stands_and_kept_over_both() {
    let note = |text| Note::parse(text).unwrap();
    let shut = |seconds, text| {
        End::GiveBack(Leave::Closed { lasting: Duration::from_secs(seconds), note: note(text) })
    };
    let open = End::GiveBack(Leave::Open);
    assert_eq!(open.clone().and(shut(1, "a")), shut(1, "a"));
    assert_eq!(shut(2, "a").and(shut(1, "b")), shut(2, "a"));
    assert_eq!(shut(1, "a").and(shut(2, "b")), shut(2, "b"));
    assert_eq!(shut(1, "a").and(open), shut(1, "a"));
    assert_eq!(shut(1, "a").and(End::Keep), End::Keep);
}

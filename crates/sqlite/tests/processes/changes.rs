//! Between processes: leases that grow, go to another owner, and several in one step.

use std::time::Duration;

use leasehold_core::{Claim, Leave, Renewal, Share, State, Store, Together, Turn};

use crate::stage::{LONG, Player, acquire, claim, granted, name, open};
use crate::trouble::renewed;

/// In this time a wait has looked, and rests: what ends it then is no look of its own.
const LOOKS: Duration = Duration::from_millis(300);

fn upgradeable() -> Claim {
    Claim { share: Share::UPGRADEABLE, ..claim("a", Turn::Any) }
}

fn writer(reader: &Claim) -> Claim {
    Claim { share: Share::EXCLUSIVE, reshape: reader.reshape + 1, ..reader.clone() }
}

#[tokio::test]
async fn a_reader_of_another_process_that_ends_lets_an_upgrade_go() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    for ends_by in ["release", "death"] {
        let mut other = Player::start("read", &[path.to_str().unwrap()]);
        other.hear();
        let mine = upgradeable();
        granted(&store.claim(&mine).await.unwrap());
        let standing = store.claim(&writer(&mine)).await.unwrap();
        assert!(matches!(standing.state, State::Waiting { .. }), "{standing:?}");
        let mut wait = std::pin::pin!(store.changed(&mine.name, &standing.cursor));
        assert!(tokio::time::timeout(LOOKS, &mut wait).await.is_err(), "nothing has changed yet");
        if ends_by == "release" {
            other.tell("go");
        } else {
            other.kill();
        }
        tokio::time::timeout(Duration::from_secs(2), wait).await.expect(ends_by).unwrap();
        granted(&store.claim(&writer(&mine)).await.unwrap());
        store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
    }
}

/// Nobody lives behind it to whom a letter could be sent.
#[tokio::test]
async fn a_detached_lease_is_told_of_its_turn_to_grow() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path).detached();
    let mut other = Player::start("read", &[path.to_str().unwrap()]);
    other.hear();
    let mine = upgradeable();
    granted(&store.claim(&mine).await.unwrap());
    let standing = store.claim(&writer(&mine)).await.unwrap();
    let mut wait = std::pin::pin!(store.changed(&mine.name, &standing.cursor));
    assert!(tokio::time::timeout(LOOKS, &mut wait).await.is_err(), "nothing has changed yet");
    other.tell("go");
    tokio::time::timeout(Duration::from_secs(5), wait).await.expect("it is told").unwrap();
    granted(&store.claim(&writer(&mine)).await.unwrap());
}

#[tokio::test]
async fn a_reader_of_another_process_goes_when_a_wish_is_given_up_or_its_owner_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let reader = Claim { share: Share::SHARED, ..claim("a", Turn::Any) };
    granted(&store.claim(&reader).await.unwrap());
    for ends_by in ["giving up", "death"] {
        let mut other = Player::start("wish", &[path.to_str().unwrap()]);
        other.hear();
        let mine = Claim { share: Share::SHARED, ..claim("a", Turn::Fifo) };
        let standing = store.claim(&mine).await.unwrap();
        assert!(matches!(standing.state, State::Waiting { .. }), "a wish holds it back: {standing:?}");
        let mut wait = std::pin::pin!(store.changed(&mine.name, &standing.cursor));
        assert!(tokio::time::timeout(LOOKS, &mut wait).await.is_err(), "nothing has changed yet");
        if ends_by == "death" {
            other.kill();
        } else {
            other.tell("give up");
        }
        tokio::time::timeout(Duration::from_secs(2), wait).await.expect(ends_by).unwrap();
        granted(&store.claim(&mine).await.unwrap());
        store.release(&mine.name, mine.id, Leave::Open).await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_outlives_the_process_that_handed_it_over() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let mut other = Player::start("detach", &[path.to_str().unwrap()]);
    let id = u128::from_str_radix(&other.hear(), 16).unwrap();
    let old = leasehold_core::ClaimId::from_bytes(id.to_be_bytes());
    let heir = Claim { succeeds: Some(old), ..claim("a", Turn::Now) };
    let token = granted(&store.claim(&heir).await.unwrap()).token;
    other.ends_well();
    assert!(matches!(renewed(&store, &heir, token).await.unwrap(), Renewal::Kept { .. }));
    let busy = open(&path).claim(&claim("a", Turn::Now)).await.unwrap();
    assert!(matches!(busy.state, State::Waiting { .. }), "{busy:?}");
}

/// Two processes that want the same names in opposite order, and one that is killed while it does.
#[tokio::test]
async fn several_names_in_one_step_are_never_held_by_half() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("locks.db");
    let store = open(&path);
    let names = ["b", "c", "a"];
    let mut others = ["a b c", "c b a"].map(|order| Player::start("all", &[path.to_str().unwrap(), order]));
    others.iter_mut().for_each(|other| assert_eq!(other.hear(), "working"));
    let mut won = 0;
    let clock = leasehold_core::Clock::system();
    let until = clock.now().after(LONG);
    let mut killed = false;
    while won < 100 {
        assert!(clock.now() < until, "only {won} of 100 in {LONG:?}");
        let claims = names.map(|text| claim(text, Turn::Now));
        match store.claim_all(&claims).await.unwrap() {
            Together::All(standings) => {
                assert_eq!(standings.len(), 3);
                won += 1;
            }
            Together::None { .. } => tokio::task::yield_now().await,
        }
        for claim in &claims {
            store.release(&claim.name, claim.id, Leave::Open).await.unwrap();
        }
        if won == 50 && !killed {
            let [one, two] = others;
            one.kill();
            others = [two, Player::start("all", &[path.to_str().unwrap(), "b a c"])];
            killed = true;
        }
    }
    for other in others {
        other.kill();
    }
    for text in names {
        acquire(&store, &claim(text, Turn::Any)).await;
    }
    assert_eq!(store.list("", None).await.unwrap(), [name("a"), name("b"), name("c")]);
}

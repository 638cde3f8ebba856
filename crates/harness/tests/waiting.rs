//! Waiters who are told cost the server next to nothing, however many they are: what `cargo xtask prove waiting`
//! measures, in short.

use std::time::Duration;

use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::redis::Redis;
use leasehold_harness::waiting::{Manner, Plan, measure};

#[tokio::test]
async fn a_hand_off_between_clients_takes_two_commands_and_one_push() {
    let server = match Redis::default().start() {
        Ok(server) => server,
        Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
        Err(error) => panic!("{error}"),
    };
    for waiters in [1, 16] {
        let (hold, lasting) = (Duration::from_millis(1), Duration::from_secs(30));
        let plan = Plan { waiters, hold, hand_offs: 200, lasting };
        let told = measure(&server, Manner::Told, plan).await.unwrap();
        println!("{waiters} wait: {told}");
        let hand_offs = told.gaps.len() as f64;
        // At the start the server learns the scripts, and all come into the line; and who waits for long asks again, to
        // keep its place.
        let besides = 8.0 + waiters as f64 * (2.0 + told.lasted.as_secs_f64() / 0.5);
        // Of each three, one is to come into the line once more.
        assert!(told.sent * hand_offs <= 3.0 * hand_offs + besides, "{told}");
        assert!(told.pushed * hand_offs <= hand_offs + besides, "{told}");
        let least = told.turns.iter().min().unwrap();
        assert!(told.gaps.len() >= 200 && *least > 0, "{told}");
    }
}

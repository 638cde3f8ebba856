//! The tenth part of the great fight: many processes, one lock, killed and frozen holders.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use leasehold_conformance::check_history;
use leasehold_core::Clock;
use leasehold_harness::fight::{Fight, fight};
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::elected::{Elected, Maker};

/// In ttl.
const LASTING: u32 = 6;
/// No session of the servers here is longer.
const ENDED: Duration = Duration::from_secs(14);

#[tokio::test]
async fn two_hundred_processes_never_overlap_and_leave_nothing_behind() {
    let (ttl, calm) = (Duration::from_secs(1), Duration::from_millis(500));
    fought_out(None, 200, Duration::from_millis(2), ttl, calm).await;
}

#[tokio::test]
async fn processes_that_die_and_freeze_on_etcd_never_overlap_and_leave_nothing_behind() {
    on(Maker::Etcd).await;
}

#[tokio::test]
async fn processes_that_die_and_freeze_on_zookeeper_never_overlap_and_leave_nothing_behind() {
    on(Maker::ZooKeeper).await;
}

async fn on(maker: Maker) {
    let server = match Elected::start(maker, 1) {
        Ok(server) => server,
        Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
        Err(error) => panic!("{error}"),
    };
    // The shortest that a lease there can be.
    let ttl = Duration::from_secs(2);
    fought_out(Some(server.url()), 32, Duration::from_millis(20), ttl, ttl * 3).await;
    assert_eq!(server.claims().unwrap(), [""; 0], "somebody stands there for ever");
    // A session ends by itself, as long after its client as it was to live.
    let clock = Clock::system();
    let end = clock.now().after(ENDED);
    while !server.left().unwrap().is_empty() {
        assert!(clock.now() < end, "{:?} live on", server.left().unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn fought_out(store: Option<String>, processes: u32, hold: Duration, ttl: Duration, calm: Duration) {
    let mut tries = 0;
    loop {
        tries += 1;
        let folder = tempfile::tempdir().unwrap();
        let plan = Fight {
            store: store.clone(),
            contender: env!("CARGO_BIN_EXE_contender").into(),
            processes,
            lasting: ttl * LASTING,
            ttl,
            hold,
            rest: if store.is_some() { ttl / 5 } else { Duration::ZERO },
            fair: false,
            disturbed: true,
            calm,
            seed: tries,
        };
        let fought = fight(&plan, folder.path()).await.unwrap();
        let report = check_history(&fought.history);
        println!("{report}; killed {}, frozen {}", fought.kills, fought.freezes);
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        // Whoever was starved himself cannot say that too little happened.
        if fought.starved > ttl / 4 && tries < 3 {
            println!("the watcher missed its time by {:?}: once more", fought.starved);
            continue;
        }
        match fought.judge(&report, &plan) {
            Ok(()) => return,
            // On a machine with other work to do so many may not get far: that is no verdict, and no pass either.
            Err(error) if tries < 3 => println!("{error}: once more"),
            Err(error) => panic!("{error}"),
        }
    }
}

//! The tenth part of the great fight: 200 processes, one SQLite lock, killed and frozen holders.

use std::time::Duration;

use leasehold_conformance::check_history;
use leasehold_harness::fight::{Fight, fight};

const SECONDS: u64 = 6;
const TTL: Duration = Duration::from_secs(1);

#[tokio::test]
async fn two_hundred_processes_never_overlap_and_leave_nothing_behind() {
    let mut tries = 0;
    loop {
        tries += 1;
        let folder = tempfile::tempdir().unwrap();
        let plan = Fight {
            contender: env!("CARGO_BIN_EXE_contender").into(),
            processes: 200,
            lasting: Duration::from_secs(SECONDS),
            ttl: TTL,
            hold: Duration::from_millis(2),
            fair: false,
            disturbed: true,
            seed: tries,
        };
        let fought = fight(&plan, folder.path()).await.unwrap();
        let report = check_history(&fought.history);
        println!("{report}; killed {}, frozen {}", fought.kills, fought.freezes);
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        // Whoever was starved himself cannot say that too little happened.
        if fought.starved > TTL / 4 && tries < 3 {
            println!("the watcher missed its time by {:?}: once more", fought.starved);
            continue;
        }
        match fought.judge(&report, SECONDS) {
            Ok(()) => return,
            // On a machine with other work to do 200 processes may not get far: that is no verdict, and no pass either.
            Err(error) if tries < 3 => println!("{error}: once more"),
            Err(error) => panic!("{error}"),
        }
    }
}

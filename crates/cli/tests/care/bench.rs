//! `bench`: measures, says what load it makes, and leaves nothing.

use std::time::Duration;

use serde_json::Value;

use crate::stage::{Place, Running, code, stderr, stdout, until};
use crate::{keys, say, start, url};

#[test]
fn it_measures_beside_the_limit_and_leaves_nothing() {
    let Some(server) = start(&[]) else { return };
    let place = Place::bare();
    say(&server, "SET lock:theirs x");
    let bench = ["bench", "--clients", "4", "--for", "500ms", "--store"];
    let output = place.leasehold(bench.into_iter().chain([url(&server).as_str()])).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    let text = stdout(&output);
    assert!(
        text.contains("\n4 clients ") && text.contains("raw limit ") && text.contains("ratio 0."),
        "{text}"
    );
    assert!(stderr(&output).contains("up to 4 at once"), "the load is said: {output:?}");
    assert_eq!(keys(&server, "lock:*"), ["lock:theirs"]);
    for key in keys(&server, "lh:*").iter().take(20) {
        assert!(!say(&server, &format!("PTTL {key}")).starts_with(":-1"), "{key}");
    }
    let json = place.leasehold(bench.into_iter().chain([url(&server).as_str(), "--json"])).output().unwrap();
    let told: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(told["rows"].as_array().unwrap().len(), 2);
    for row in told["rows"].as_array().unwrap() {
        assert!(row["pairs"].as_u64() > Some(0) && row["raw"]["pairs"].as_u64() > Some(0), "{told}");
        assert!(row["of_raw"].as_f64() > Some(0.0), "{told}");
    }
}

#[test]
fn ctrl_c_ends_it_and_what_was_measured_is_printed() {
    let Some(server) = start(&[]) else { return };
    let place = Place::bare();
    let words = ["bench", "--clients", "8", "--for", "10m", "--store", &url(&server)];
    let mut running = Running::of(place.leasehold(words));
    until("it has taken locks", || !keys(&server, "lh:*").is_empty());
    running.signal("INT");
    until("it has ended", || !running.is_running());
    let output = running.output();
    assert_eq!(code(output.status), 130);
    assert!(stdout(&output).contains("interrupted"), "{output:?}");
    assert_eq!(keys(&server, "lock:*"), [""; 0]);
}

#[test]
fn a_store_without_cheaper_means_is_measured_alone_and_bad_numbers_are_refused() {
    let place = Place::bare();
    let output =
        place.leasehold(["bench", "--store", "memory:", "--for", "200ms", "--json"]).output().unwrap();
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(told["rows"][1]["raw"].is_null() && told["rows"][1]["pairs"].as_u64() > Some(0), "{told}");
    for bad in [["--clients", "0"], ["--clients", "x"], ["--for", "0"], ["--for", "11m"]] {
        let output = place.leasehold(["bench"].into_iter().chain(bad)).output().unwrap();
        assert_eq!((code(output.status), output.stdout.len()), (64, 0), "{bad:?}: {output:?}");
    }
    let words = ["bench", "--for", "1s", "--store", "redis://127.0.0.1:1"];
    let (output, took) = crate::stage::timed(|| place.leasehold(words).output().unwrap());
    assert_eq!(code(output.status), 69, "{output:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

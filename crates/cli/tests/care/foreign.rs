//! Locks of other clients, as people look at them.

use crate::stage::{Place, code, stderr, stdout};
use crate::{say, start, url};

#[test]
fn a_lock_that_never_ends_is_shown_as_one() {
    let Some(server) = start(&[]) else { return };
    let place = Place::bare();
    say(&server, "SET lock:leak their-secret-value");
    say(&server, "SET lock:live their-secret-value EX 600");
    let ask = |words: &[&str]| {
        let store = url(&server);
        place.leasehold(words.iter().copied().chain(["--store", &store])).output().unwrap()
    };
    let output = ask(&["status", "leak"]);
    let text = stdout(&output);
    assert_eq!(code(output.status), 0, "{text}");
    assert!(
        text.contains("without an end") && !text.contains(" left") && !text.contains("their-secret-value"),
        "{text}"
    );
    let leak: serde_json::Value = serde_json::from_str(&stdout(&ask(&["status", "leak", "--json"]))).unwrap();
    let live: serde_json::Value = serde_json::from_str(&stdout(&ask(&["status", "live", "--json"]))).unwrap();
    assert_eq!((&leak["state"], &live["state"]), (&"held".into(), &"held".into()));
    for key in ["expires_at", "left_ms", "ttl_ms", "acquired_at", "renewed_at", "pid"] {
        assert!(leak["holders"][0][key].is_null(), "{key}: {leak}");
    }
    assert!(live["holders"][0]["left_ms"].as_u64().unwrap() <= 600_000, "{live}");
    assert!(live["holders"][0]["expires_at"].is_string(), "{live}");
    let text = stdout(&ask(&["list"]));
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("leak").contains(" never ") && row("leak").contains("another client"), "{text}");
    assert!(row("live").contains(" 9:") || row("live").contains(" 10:00 "), "{text}");
}

#[test]
fn what_another_program_keeps_under_one_name_hides_no_other() {
    let Some(server) = start(&[]) else { return };
    let place = Place::bare();
    say(&server, "HSET lock:redisson uuid 1");
    say(&server, "SET lock:stock x EX 600");
    let output = place.leasehold(["list", "--store", &url(&server)]).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(stdout(&output).contains("\nstock "), "{output:?}");
    assert!(stderr(&output).contains("Redisson"), "{output:?}");
}

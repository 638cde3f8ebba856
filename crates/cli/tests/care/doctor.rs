//! `doctor`: what it finds on servers that are as they should be, and on those that are not.

use std::time::Duration;

use leasehold_harness::servers::Server;
use serde_json::Value;

use crate::stage::{Place, code, stderr, stdout, until};
use crate::{keys, say, start, url};

/// A server to which nobody could object.
const SOUND: &[&str] = &["appendonly yes", "appendfsync always"];

struct Told {
    code: i32,
    all: Value,
}

impl Told {
    fn by(place: &Place, url: &str) -> Self {
        Self::within(place, url, "5s")
    }

    fn within(place: &Place, url: &str, timeout: &str) -> Self {
        let words = ["doctor", "--json", "--timeout", timeout, "--store", url];
        let output = place.leasehold(words).output().unwrap();
        assert_eq!(stderr(&output), "", "what was found is data");
        let all: Value = serde_json::from_str(&stdout(&output)).unwrap();
        for check in all["checks"].as_array().unwrap() {
            let keys: Vec<_> = check.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["code", "fix", "name", "says", "verdict"]);
            assert_eq!(check["fix"].is_null(), check["verdict"] == "ok", "{check}");
        }
        Self { code: code(output.status), all }
    }

    fn check(&self, name: &str) -> &Value {
        let mut named = self.all["checks"].as_array().unwrap().iter().filter(|check| check["name"] == name);
        let check = named.next().unwrap_or_else(|| panic!("no {name}: {}", self.all));
        assert!(named.next().is_none(), "{name} twice");
        check
    }

    /// The verdict of a check, and its code.
    fn is(&self, name: &str, verdict: &str, code: Option<&str>) -> &Value {
        let check = self.check(name);
        assert_eq!((check["verdict"].as_str().unwrap(), check["code"].as_str()), (verdict, code), "{check}");
        check
    }

    fn says(&self, name: &str) -> &str {
        self.check(name)["says"].as_str().unwrap()
    }
}

#[test]
fn a_sound_server_is_found_sound_and_nothing_stays_behind() {
    let Some(server) = start(SOUND) else { return };
    let place = Place::bare();
    let told = Told::by(&place, &url(&server));
    assert_eq!(told.code, 0);
    assert_eq!([&told.all["failed"], &told.all["warnings"], &told.all["unknown"]], [0, 0, 0], "{}", told.all);
    let names = told.all["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap());
    let expected = "reachable round_trip ttl clock trial rights eviction persistence failover cleartext events \
                    foreign_keys names scope";
    assert_eq!(names.collect::<Vec<_>>().join(" "), expected);
    assert!(told.says("reachable").contains("primary"), "{}", told.all);
    assert!(told.says("events").starts_with("off"), "{}", told.all);
    assert_eq!(keys(&server, "lock:*"), [""; 0]);
    // The tombstone of the lock that was tried out ends by itself.
    for key in keys(&server, "lh:*") {
        assert!(!say(&server, &format!("PTTL {key}")).starts_with(":-1"), "{key}");
    }

    let output = place.leasehold(["doctor", "--store", &url(&server)]).output().unwrap();
    let text = stdout(&output);
    assert!(text.starts_with("store      redis+unix://") && text.contains(" (from --store)\n"), "{text}");
    assert!(text.contains("\nok    round trip           p50 "), "{text}");
    assert!(text.ends_with("all 14 checks are ok\n"), "{text}");
    let quiet = place.leasehold(["doctor", "-q", "--store", &url(&server)]).output().unwrap();
    assert_eq!((code(quiet.status), quiet.stdout.len(), quiet.stderr.len()), (0, 0, 0));
}

#[test]
fn a_server_that_may_drop_a_lock_fails() {
    let Some(server) = start(SOUND) else { return };
    let place = Place::bare();
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl", "volatile-lfu"] {
        say(&server, &format!("CONFIG SET maxmemory-policy {policy}"));
        let told = Told::by(&place, &url(&server));
        assert_eq!(told.code, 1, "{policy}");
        assert!(told.is("eviction", "failed", Some("LH0203"))["says"].as_str().unwrap().contains(policy));
        assert_eq!(told.all["failed"], 1);
    }
    let text = stdout(&place.leasehold(["doctor", "--store", &url(&server)]).output().unwrap());
    assert!(text.contains("\nFAIL  eviction LH0203      maxmemory-policy is volatile-lfu: "), "{text}");
    assert!(text.contains("\n        fix   CONFIG SET maxmemory-policy noeviction"), "{text}");
    assert!(text.ends_with("1 of 14 checks need a look, 1 must be fixed\n"), "{text}");
}

#[test]
fn what_a_crash_would_lose_is_said() {
    let Some(server) = start(&[]) else { return };
    let place = Place::bare();
    let told = Told::by(&place, &url(&server));
    assert_eq!(told.code, 0, "a warning is no failure");
    assert!(
        told.is("persistence", "warning", Some("LH0204"))["says"].as_str().unwrap().starts_with("nothing")
    );
    say(&server, "CONFIG SET appendonly yes");
    for (fsync, verdict, word) in
        [("everysec", "ok", "last second"), ("no", "warning", "system"), ("always", "ok", "nothing")]
    {
        say(&server, &format!("CONFIG SET appendfsync {fsync}"));
        let told = Told::by(&place, &url(&server));
        assert_eq!(told.check("persistence")["verdict"], verdict);
        assert!(told.says("persistence").contains(word), "{fsync}: {}", told.says("persistence"));
    }
}

#[test]
fn a_missing_right_is_named_and_the_line_that_is_printed_gives_it() {
    let Some(server) = start(SOUND) else { return };
    let place = Place::bare();
    let password = place.write("password", "hunter2-is-secret");
    let tcp =
        format!("redis://locks@127.0.0.1:{}?password_file={}", server.address().port(), password.display());
    say(
        &server,
        "ACL SETUSER locks on >hunter2-is-secret resetkeys ~lock:* resetchannels -@all +@read +ping",
    );
    let told = Told::by(&place, &tcp);
    assert_eq!(told.code, 1);
    let rights = told.is("rights", "failed", Some("LH0201"));
    assert!(rights["says"].as_str().unwrap().contains("EVAL"), "{rights}");
    let line = rights["fix"].as_str().unwrap().to_owned();
    assert!(line.starts_with("ACL SETUSER locks ") && !told.all.to_string().contains("hunter2"), "{line}");
    assert_eq!(told.is("trial", "failed", Some("LH0103"))["verdict"], "failed");

    say(&server, &line);
    let told = Told::by(&place, &tcp);
    assert_eq!((told.code, &told.all["failed"]), (0, &0.into()), "{}", told.all);
    told.is("rights", "ok", None);
    told.is("eviction", "ok", None);
    assert!(told.says("events").starts_with("not allowed"), "{}", told.all);
    assert!(told.says("persistence").contains("not told"), "{}", told.all);
    assert!(told.says("reachable").contains("as user \"locks\""), "{}", told.all);

    for (taken, named) in [
        ("-publish", "PUBLISH"),
        ("-zadd", "ZADD"),
        ("-hdel", "HDEL"),
        ("-zrem", "ZREM"),
        ("-ping", "PING"),
        ("-time", "TIME"),
        ("-del -hset", "DEL"),
        ("-scan", "SCAN"),
        ("-evalsha", "EVAL"),
        ("resetkeys ~lock:* ~lh:{lock:*", "~leasehold:*"),
        ("resetkeys ~leasehold:* ~lock:*", "~lh:{lock:*"),
        ("resetkeys ~leasehold:* ~lh:{lock:*", "~lock:*"),
        ("resetchannels", "lh:wake:*"),
    ] {
        say(&server, &line);
        say(&server, &format!("ACL SETUSER locks {taken}"));
        let told = Told::by(&place, &tcp);
        let rights = told.is("rights", "failed", Some("LH0201"));
        assert!(rights["says"].as_str().unwrap().contains(named), "{taken}: {rights}");
        assert_eq!(told.code, 1, "{taken}");
    }
    // What a user may not ask is not known, and nothing is wrong with that.
    say(&server, &line);
    say(&server, "ACL SETUSER locks -info -role");
    let told = Told::by(&place, &tcp);
    assert_eq!(told.code, 0);
    for name in ["eviction", "persistence", "failover"] {
        assert!(told.is(name, "unknown", None)["says"].as_str().unwrap().starts_with("not told"));
    }
    assert!(told.is("rights", "ok", None)["says"].as_str().unwrap().contains("not INFO and ROLE"));
    // No probe stays behind; the lock of a user who may take one and not give it back ends by itself.
    for key in keys(&server, "l[oh]*:*leasehold-doctor*") {
        assert!(!say(&server, &format!("PTTL {key}")).starts_with(":-1"), "{key}");
    }
}

#[test]
fn a_store_that_cannot_be_asked_says_so_and_ends_with_the_code_for_it() {
    let Some(mut server) = start(&["requirepass hunter2-is-secret"]) else { return };
    let place = Place::bare();
    let port = server.address().port();
    let told = Told::by(&place, &format!("redis://:hunter2-is-wrong@127.0.0.1:{port}"));
    assert_eq!(told.code, 77);
    told.is("reachable", "failed", Some("LH0103"));
    assert!(!told.all.to_string().contains("hunter2"), "{}", told.all);
    let right = format!("redis://:hunter2-is-secret@127.0.0.1:{port}");
    let told = Told::by(&place, &right);
    assert_eq!(told.code, 0);
    assert!(!told.all.to_string().contains("hunter2"), "{}", told.all);
    told.is("cleartext", "ok", None);
    server.kill();
    let told = Told::by(&place, &right);
    assert_eq!((told.code, told.all["checks"].as_array().unwrap().len()), (69, 1));
    told.is("reachable", "failed", Some("LH0101"));
    let output = place.leasehold(["doctor", "--store", &right]).output().unwrap();
    assert!(stdout(&output).contains("\nFAIL  reachable LH0101     "), "{output:?}");
    assert!(!stdout(&output).contains("hunter2"));
    let output = place.leasehold(["doctor", "--store", "redis://a,b"]).output().unwrap();
    assert_eq!((code(output.status), output.stdout.len()), (78, 0));
}

#[test]
fn locks_of_others_and_names_that_differ_by_case_are_told() {
    let Some(server) = start(SOUND) else { return };
    let place = Place::bare();
    for (key, more) in [("lock:Report", "EX 600"), ("lock:stock", "EX 600")] {
        say(&server, &format!("SET {key} their-secret-value NX {more}"));
    }
    let told = Told::by(&place, &url(&server));
    let says = told.is("foreign_keys", "ok", None)["says"].as_str().unwrap().to_owned();
    assert!(
        says.contains("2 of 2") && says.contains("lock:stock (string, ") && !says.contains("their"),
        "{says}"
    );
    say(&server, "SET lock:leak their-secret-value");
    say(&server, "HSET lock:redisson uuid 1");
    say(&server, "SET lock:report leasehold:occupied EX 600");
    let told = Told::by(&place, &url(&server));
    let leaked = told.is("foreign_keys", "warning", Some("LH0206"));
    let says = leaked["says"].as_str().unwrap();
    assert!(says.contains("4 of 5") && says.contains("2 without an end"), "{says}");
    assert!(
        says.contains("lock:leak (string, no ttl)") && says.contains("lock:redisson (hash, no ttl)"),
        "{says}"
    );
    assert!(leaked["fix"].as_str().unwrap().contains("redis-cli DEL lock:"), "{leaked}");
    say(&server, "SET lock:report theirs EX 600");
    let told = Told::by(&place, &url(&server));
    let names = told.is("names", "warning", Some("LH0208"));
    assert!(names["says"].as_str().unwrap().starts_with("Report and report differ"), "{names}");
    assert_eq!(told.code, 0);
    assert_eq!(say(&server, "GET lock:leak").lines().last(), Some("their-secret-value"));
}

/// How many replicas the primary has online.
fn online(server: &Server) -> usize {
    say(server, "INFO replication").matches("state=online").count()
}

#[test]
fn a_replica_is_refused_and_its_primary_may_fail_over() {
    let Some(primary) = start(SOUND) else { return };
    let at = format!("replicaof 127.0.0.1 {}", primary.address().port());
    let Some(replica) = start(&[&at, "repl-diskless-sync-delay 0"]) else { return };
    until("the replica is online", || online(&primary) == 1);
    let place = Place::bare();
    let told = Told::by(&place, &url(&replica));
    assert_eq!(told.code, 69);
    assert!(
        told.is("reachable", "failed", Some("LH0101"))["says"].as_str().unwrap().contains("a replica of")
    );
    let told = Told::by(&place, &url(&primary));
    assert_eq!(told.code, 0);
    assert!(told.is("failover", "warning", Some("LH0207"))["says"].as_str().unwrap().contains("1 replica,"));
    let told = Told::by(&place, &format!("{}?min_replicas=1", url(&primary)));
    told.is("failover", "ok", None);
    let told = Told::within(&place, &format!("{}?min_replicas=2&timeout=1s", url(&primary)), "2s");
    assert_eq!(told.code, 1);
    told.is("failover", "failed", Some("LH0207"));
    told.is("trial", "failed", Some("LH0101"));
}

#[test]
fn events_are_tried_out() {
    let Some(server) = start(&["notify-keyspace-events Kgx"]) else { return };
    let told = Told::by(&Place::bare(), &url(&server));
    assert!(told.is("events", "ok", None)["says"].as_str().unwrap().starts_with("on"), "{}", told.all);
}

#[test]
fn a_file_is_checked_too_and_a_ttl_by_the_rules_of_its_lock() {
    let place = Place::new();
    let told = Told::by(&place, &place.url());
    assert_eq!((told.code, &told.all["failed"]), (0, &0.into()));
    told.is("room", "ok", None);
    assert!(told.says("scope").starts_with("host"), "{}", told.all);
    let config = place.write("config.toml", "[[lock]]\nmatch = \"quick:*\"\nttl = \"2s\"\n");
    let words = ["doctor", "quick:1", "--json", "--config", config.to_str().unwrap()];
    let told: Value = serde_json::from_str(&stdout(&place.leasehold(words).output().unwrap())).unwrap();
    let ttl = told["checks"].as_array().unwrap().iter().find(|check| check["name"] == "ttl").unwrap();
    assert_eq!((&ttl["verdict"], &ttl["code"]), (&"warning".into(), &"LH0205".into()), "{ttl}");
}

#[test]
fn a_frozen_server_is_no_reason_to_hang() {
    let Some(server) = start(&[]) else { return };
    let place = Place::bare();
    say(&server, "CLIENT PAUSE 20000 ALL");
    let (told, took) = crate::stage::timed(|| Told::by(&place, &format!("{}?timeout=200ms", url(&server))));
    assert_eq!(told.code, 69);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

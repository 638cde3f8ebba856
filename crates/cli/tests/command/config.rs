//! The configuration file, seen from outside: what wins, what is refused, what is shown.

use std::os::unix::fs::PermissionsExt;

use crate::stage::{Place, code, stderr, stdout};

#[test]
fn flags_go_before_rules_and_rules_before_defaults() {
    let place = Place::new();
    place.write(
        ".config/leasehold/config.toml",
        "[run]\nttl = '40s'\nbusy = 'fail'\n[[lock]]\nmatch = 'pay:*'\nttl = '50s'\n",
    );
    let ttl = |words: &[&str]| {
        let words = ["run"].iter().chain(words).chain(&["--", "sh", "-c", "echo $LEASE_TTL_MS"]).copied();
        let output = place.leasehold(words).output().unwrap();
        assert_eq!(code(output.status), 0, "{output:?}");
        stdout(&output).trim().to_owned()
    };
    assert_eq!(ttl(&["demo"]), "40000");
    assert_eq!(ttl(&["pay:1"]), "50000");
    assert_eq!(ttl(&["pay:1", "--ttl", "60s"]), "60000");
    let output = place.leasehold(["config", "show", "pay:1", "--origin"]).output().unwrap();
    let text = stdout(&output);
    let line = |key: &str| {
        text.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key}: {text}"))
    };
    assert!(line("ttl").contains("50s") && line("ttl").ends_with("[[lock]] \"pay:*\" ttl"), "{text}");
    assert!(line("busy").contains("fail") && line("busy").ends_with("config.toml [run] busy"), "{text}");
    assert!(line("store ").ends_with("environment LEASEHOLD_STORE"), "{text}");
    assert!(line("timeout").ends_with("default"), "{text}");
}

#[test]
fn a_store_can_be_named_and_chosen_by_rule() {
    let place = Place::bare();
    let money = place.path("money.db");
    let text = format!(
        "store = 'main'\nnamespace = 'prod'\n[stores.main]\nurl = 'sqlite:{}'\n[stores.money]\nurl = 'sqlite:{}'\n\
         [[lock]]\nmatch = 'pay:*'\nstore = 'money'\n",
        place.path("main.db").display(),
        money.display()
    );
    let file = place.write("some.toml", &text);
    let run = |name: &str| {
        let mut command = place.leasehold(["run", name, "--config", file.to_str().unwrap(), "--", "true"]);
        code(command.env_remove("LEASEHOLD_STORE").output().unwrap().status)
    };
    assert_eq!(run("demo"), 0);
    assert!(place.path("main.db").exists() && !money.exists());
    assert_eq!(run("pay:1"), 0);
    assert!(money.exists());
}

#[test]
fn a_file_in_doubt_stops_everything() {
    let place = Place::bare();
    for (text, mode, exit, part) in [
        ("[run]\nttl = 30\n", 0o600, 78, "30 what? write 30s, 30m or 30h"),
        ("[run]\nttll = '30s'\n", 0o600, 78, "`ttl`"),
        ("[[lock]]\nttl = '30s'\n", 0o600, 78, "match"),
        ("not toml at all", 0o600, 78, "line 1"),
        ("[run]\nttl = '10ms'\n", 0o600, 78, "at least 1s"),
        ("[stores.a]\nurl = 'redis://u:hunter2@h'\n", 0o644, 78, "error[LH0081]"),
        ("[stores.a]\nurl = 'sqlite:relative.db'\n", 0o600, 78, "relative"),
    ] {
        let path = place.write(".config/leasehold/config.toml", text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = place.leasehold(["run", "demo", "--", "touch", "ran"]).output().unwrap();
        assert_eq!(code(output.status), exit, "{text}: {output:?}");
        assert!(stderr(&output).contains(part), "{text}: {output:?}");
        assert!(!stderr(&output).contains("hunter2"), "{output:?}");
    }
    // A folder in the place of the file can be opened and not read, also by root.
    std::fs::remove_file(place.path(".config/leasehold/config.toml")).unwrap();
    std::fs::create_dir(place.path(".config/leasehold/config.toml")).unwrap();
    let output = place.leasehold(["run", "demo", "--", "touch", "ran"]).output().unwrap();
    assert_eq!(code(output.status), 78, "{output:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn a_namespace_keeps_names_apart() {
    let place = Place::new();
    let _holder = place.start(&["--namespace", "prod"], "sleep 60");
    assert!(place.is_free("demo"));
    assert!(!place.is_free("prod:demo"));
    let output = place.leasehold(["list", "--json", "--namespace", "prod"]).output().unwrap();
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["name"], "demo");
}

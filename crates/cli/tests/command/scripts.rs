//! The leases of scripts: acquired by one process, renewed, checked and given back by others.

use std::process::Stdio;
use std::time::Duration;

use crate::stage::{Place, Running, code, is_renewed, stderr, stdout, timed, until};
use crate::store::{AGES_ARE_TOLD_TO, TELLS_WHAT_IS_LEFT};

/// What a lease has if nothing else is said.
const TTL: Duration = Duration::from_secs(30);

/// The token that `acquire` printed.
fn token(place: &Place, words: &[&str]) -> String {
    let output = place.leasehold(words).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = stdout(&output);
    let token = text.strip_suffix('\n').unwrap();
    assert!(!token.is_empty() && token.bytes().all(|b| b.is_ascii_digit()), "{text:?}");
    token.to_owned()
}

/// A command of a script that holds `demo` under this token.
fn held(place: &Place, words: &[&str], token: &str) -> i32 {
    let mut command = place.leasehold(words);
    let output = command.env("LEASE_NAME", "demo").env("LEASE_TOKEN", token).output().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    if code(output.status) == 79 {
        assert!(stderr(&output).starts_with("error[LH0031]: lost demo (token "), "{output:?}");
    }
    code(output.status)
}

#[test]
fn the_two_lines_of_the_help_hold_from_acquire_to_release() {
    let place = Place::new();
    let help = stdout(&place.leasehold(["acquire", "--help"]).output().unwrap());
    for line in ["--print sh) || exit\n", "  eval \"$vars\"\n", "  trap 'leasehold release' EXIT\n"] {
        assert!(help.contains(line), "{line:?} is missing in {help}");
    }
    assert!(help.contains("Nobody renews a lease that is taken this way"), "{help}");
    let script = "
        vars=$(\"$LH\" acquire import --ttl 5m --wait 30s --print sh) || exit
        eval \"$vars\"
        trap '\"$LH\" release' EXIT
        \"$LH\" status import --json > held
        \"$LH\" check && \"$LH\" renew && \"$LH\" check --left 4m && echo \"$LEASE_NAME $LEASE_TOKEN $LEASE_HOLDER\"";
    let output = place.shell(script).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let status: serde_json::Value = serde_json::from_str(&place.read("held")).unwrap();
    let holder = &status["holders"][0];
    let expected = format!("import {} {}\n", status["token"], holder["id"].as_str().unwrap());
    assert_eq!(stdout(&output), expected);
    assert_eq!(holder["command"], "sh", "others see the script, not a process that is gone: {holder}");
    assert!(place.is_free("import"), "the trap gave it back");
}

#[test]
fn a_failed_acquire_prints_nothing_and_the_script_ends() {
    let place = Place::new();
    let _holder = place.start(&["--note", "job #5512"], "sleep 60");
    let script = "vars=$(\"$LH\" try demo --print sh) || exit; eval \"$vars\"; touch ran";
    let output = place.shell(script).output().unwrap();
    assert_eq!((code(output.status), output.stdout.len()), (75, 0), "{output:?}");
    let text = stderr(&output);
    for part in
        ["error[LH0011]: demo is held by ", "job #5512", "leasehold status demo", "--wait 10m   waits"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!place.path("ran").exists());
    let (output, took) = timed(|| place.leasehold(["acquire", "demo", "--wait", "300ms"]).output().unwrap());
    assert_eq!((code(output.status), output.stdout.len()), (75, 0), "{output:?}");
    assert!(stderr(&output).starts_with("error[LH0012]: still busy after 300ms: demo\n"), "{output:?}");
    assert!(took >= Duration::from_millis(300), "{took:?}");
    let output = place.leasehold(["acquire", "demo", "--no-wait"]).output().unwrap();
    assert_eq!(code(output.status), 75, "{output:?}");
}

#[test]
fn a_store_that_is_not_there_is_told_in_time() {
    let place = Place::bare();
    let store = place.store.absent_url();
    for words in [&["acquire", "demo"][..], &["try", "demo"], &["check"], &["renew"], &["release"]] {
        let mut command = place.leasehold(words);
        command.args(["--timeout", "1s"]).env("LEASEHOLD_STORE", &store);
        command.env("LEASE_NAME", "demo").env("LEASE_TOKEN", "7");
        let (output, took) = timed(|| command.output().unwrap());
        assert_eq!((code(output.status), output.stdout.len()), (69, 0), "{words:?}: {output:?}");
        assert!(stderr(&output).starts_with("error[LH0101]: "), "{words:?}: {output:?}");
        assert!(took < Duration::from_secs(5), "{words:?}: {took:?}");
    }
}

#[test]
fn the_token_is_enough_and_an_old_one_is_not() {
    let place = Place::new();
    let first = token(&place, &["acquire", "demo", "--note", "by hand"]);
    assert_eq!(place.status("demo")["token"].to_string(), first, "it outlives the process that took it");
    assert_eq!(place.status("demo")["holders"][0]["note"], "by hand");
    for (words, renews) in [("check", false), ("renew", true), ("check", false)] {
        if !TELLS_WHAT_IS_LEFT {
            assert_eq!(held(&place, &[words], &first), 0, "{words}");
            continue;
        }
        let before = place.ends("demo");
        until("some of it is gone", || place.left("demo") < TTL - Duration::from_millis(300));
        assert_eq!(held(&place, &[words], &first), 0, "{words}");
        assert_eq!(is_renewed(before, place.ends("demo")), renews, "{words}");
    }
    assert_eq!(held(&place, &["release"], &first), 0);
    assert!(place.is_free("demo"));
    for words in ["check", "renew", "release"] {
        assert_eq!(held(&place, &[words], &first), 79, "{words}");
    }
    let second = token(&place, &["try", "demo"]);
    assert!(second.parse::<u64>().unwrap() > first.parse().unwrap());
    for words in ["check", "renew", "release"] {
        assert_eq!(held(&place, &[words], &first), 79, "{words} with the token of the one before");
    }
    assert_eq!(held(&place, &["check"], &second), 0, "nothing was done to the newer one");
    let mut other = place.leasehold(["release", "other"]);
    let output = other.env("LEASE_NAME", "demo").env("LEASE_TOKEN", &second).output().unwrap();
    assert_eq!(code(output.status), 64, "a token is of one lock: {output:?}");
}

#[test]
fn nobody_renews_it_and_check_says_so() {
    let place = Place::new();
    let (took, token) = {
        let (token, _) = timed(|| token(&place, &["acquire", "demo", "--ttl", "1s"]));
        let ((), took) = timed(|| until("it ran out", || held(&place, &["check"], &token) == 79));
        (took, token)
    };
    // Each look is a process, and the machine may be busy.
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(held(&place, &["renew"], &token), 79);
    assert!(place.is_free("demo"));
}

#[test]
fn check_renews_if_less_is_left() {
    let place = Place::new();
    let token = token(&place, &["acquire", "demo", "--ttl", "1m"]);
    if !TELLS_WHAT_IS_LEFT {
        assert_eq!(held(&place, &["check", "--left", "30s"], &token), 0);
        assert_eq!(held(&place, &["check", "--left", "2m"], &token), 78, "a minute never has two left");
        return;
    }
    let before = place.ends("demo");
    until("some of it is gone", || place.left("demo") + 2 * AGES_ARE_TOLD_TO < Duration::from_millis(59_300));
    assert_eq!(held(&place, &["check", "--left", "30s"], &token), 0);
    // What is told in whole seconds may seem to end a second later the next time.
    let before = before.map(|before| before + jiff::SignedDuration::try_from(AGES_ARE_TOLD_TO).unwrap());
    assert!(!is_renewed(before, place.ends("demo")), "enough was left");
    assert_eq!(held(&place, &["check", "--left", "59300ms"], &token), 0);
    assert!(is_renewed(before, place.ends("demo")));
    assert_eq!(held(&place, &["check", "--left", "2m"], &token), 78, "a minute never has two left");
}

#[test]
fn what_is_printed_for_a_shell_evaluates_nothing() {
    let place = Place::new();
    let names = [
        "it's",
        "'; touch ran; '",
        "$(touch ran)",
        "`touch ran`",
        "a b  c",
        "=ls",
        "~",
        "\\",
        "\"; touch ran #",
        "!!",
        "*",
        "é'\u{2028}x",
        "-n",
    ];
    for name in names {
        let output = place
            .leasehold([
                "acquire",
                "--raw-name",
                "--print",
                "sh",
                "--note",
                "'$(touch ran)`touch ran`",
                "--",
                name,
            ])
            .output()
            .unwrap();
        assert_eq!(code(output.status), 0, "{name}: {output:?}");
        let script = "set -eu; eval \"$VARS\"; printf %s \"$LEASE_NAME\"; \"$LH\" release";
        let vars = stdout(&output);
        let done = place.shell(script).env("VARS", vars.trim_end_matches('\n')).output().unwrap();
        assert_eq!((code(done.status), stdout(&done).as_str()), (0, name), "{done:?}");
        assert!(done.stderr.is_empty() && !place.path("ran").exists(), "{name}: {done:?}");
    }
}

#[test]
fn json_says_what_was_taken() {
    let place = Place::new();
    let output = place.leasehold(["acquire", "demo", "--json", "--ttl", "1m"]).output().unwrap();
    let taken: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys: Vec<_> = taken.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["holder", "left_ms", "name", "token", "ttl_ms", "v"]);
    assert_eq!((&taken["name"], &taken["ttl_ms"]), (&"demo".into(), &60_000.into()));
    let mut check = place.leasehold(["check", "--json"]);
    check.env("LEASE_NAME", "demo").env("LEASE_TOKEN", taken["token"].to_string());
    let checked: serde_json::Value = serde_json::from_slice(&check.output().unwrap().stdout).unwrap();
    assert_eq!(checked["token"], taken["token"]);
    assert!(checked["left_ms"].as_u64() > Some(30_000), "{checked}");
}

#[test]
fn what_was_waited_for_lasts_its_ttl_too() {
    let place = Place::new();
    let holder = place.start(&[], "while [ ! -e done ]; do sleep 0.02; done");
    let waiter = Running::of(place.leasehold(["acquire", "demo", "--ttl", "1m"]));
    until("it stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    place.write("done", "");
    drop(holder.output());
    let output = waiter.output();
    assert_eq!(code(output.status), 0, "{output:?}");
    let left = place.status("demo")["holders"][0]["left_ms"].as_u64();
    assert!(left > Some(40_000), "{left:?}: not the short grant of one who has waited");
}

#[test]
fn a_signal_ends_the_wait_and_leaves_no_place() {
    let place = Place::new();
    let _holder = place.start(&[], "sleep 60");
    let waiter = Running::of(place.leasehold(["acquire", "demo"]));
    let waiting = || place.status("demo")["waiters"].as_array().unwrap().len();
    until("it stands in line", || waiting() == 1);
    waiter.signal("TERM");
    let output = waiter.output();
    assert_eq!((code(output.status), output.stdout.len()), (143, 0), "{output:?}");
    assert_eq!(waiting(), 0);
}

#[test]
fn a_token_that_nobody_reads_is_given_back() {
    let place = Place::new();
    let mut command = place.leasehold(["acquire", "demo"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(Stdio::from(writer)).output().unwrap();
    assert_eq!(code(output.status), 125, "{output:?}");
    assert!(place.is_free("demo"), "{output:?}");
}

/// The background renewers of a process.
fn keepers(pid: u32) -> Vec<std::path::PathBuf> {
    let wanted = format!("keeper\0--pid\0{pid}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
    let line = |process: &std::path::PathBuf| std::fs::read(process.join("cmdline")).unwrap_or_default();
    processes.filter(|process| String::from_utf8_lossy(&line(process)).contains(&wanted)).collect()
}

#[test]
fn while_pid_renews_until_that_process_ends() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let place = Place::new();
    let mut sleep = std::process::Command::new("sleep");
    sleep.arg("60");
    let script = Running::of(sleep);
    let pid = script.pid();
    let printed = token(&place, &["acquire", "demo", "--ttl", "3s", "--while-pid", &pid.to_string()]);
    assert_eq!(place.status("demo")["holders"][0]["pid"], pid);
    assert_eq!(place.status("demo")["holders"][0]["command"], "sleep");
    // Longer than its ttl.
    (0..4).for_each(|_| place.until_renewed("demo"));
    assert_eq!(held(&place, &["check"], &printed), 0);
    let renewers = keepers(pid);
    assert_eq!(renewers.len(), 1);
    // Whoever may look at processes must not be able to release it.
    let hex = place.store.id();
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let id: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
    for file in ["cmdline", "environ"] {
        let bytes = std::fs::read(renewers[0].join(file)).unwrap();
        assert!(!bytes.windows(id.len()).any(|window| window == id), "{file}");
        assert!(!String::from_utf8_lossy(&bytes).contains(&hex), "{file}");
    }
    for fd in ["0", "1", "2"] {
        let target = std::fs::read_link(renewers[0].join("fd").join(fd)).unwrap();
        assert_eq!(target.to_str(), Some("/dev/null"), "{fd}");
    }
    drop(script);
    let ((), took) = timed(|| until("it is given back", || place.is_free("demo")));
    assert!(took < Duration::from_millis(2500), "{took:?}: not only when it ran out");
    until("the renewer ends", || keepers(pid).is_empty());
}

#[test]
fn while_pid_of_the_script_itself_ends_with_release_too() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let place = Place::new();
    let script = "
        vars=$(\"$LH\" acquire demo --ttl 2s --print sh --while-pid $$) || exit
        eval \"$vars\"
        while [ ! -e done ]; do \"$LH\" check || exit; sleep 0.02; done
        \"$LH\" release; touch released; while [ ! -e end ]; do sleep 0.02; done";
    let running = Running::of(place.shell(script));
    until("it is held", || !place.is_free("demo"));
    // Longer than its ttl.
    (0..5).for_each(|_| place.until_renewed("demo"));
    place.write("done", "");
    until("it is released", || place.path("released").exists());
    assert!(place.is_free("demo"));
    until("the renewer ends", || keepers(running.pid()).is_empty());
    place.write("end", "");
    let output = running.output();
    assert_eq!(code(output.status), 0, "{output:?}");
}

#[test]
fn a_number_that_is_used_again_does_not_count() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ticket = runtime.block_on(async {
        let client = leasehold::Leasehold::builder().detached().connect(&place.url()).await.unwrap();
        let lease = client.lock("demo").ttl(Duration::from_secs(60)).attempt().await.unwrap();
        let ticket = lease.ticket().await.unwrap();
        lease.keep();
        client.close().await.unwrap();
        ticket
    });
    assert!(!place.is_free("demo"));
    // This very process, but as if the number had been another's before.
    let pid = std::process::id().to_string();
    let mut keeper = place.leasehold(["keeper", "--pid", &pid, "--started", "1", "demo"]);
    let mut keeper = Running::of({
        keeper.stdin(Stdio::piped());
        keeper
    });
    keeper.type_in_all(&ticket.to_bytes());
    let ((), took) = timed(|| until("it ends", || !keeper.is_running()));
    let output = keeper.output();
    assert_eq!((code(output.status), stdout(&output).as_str()), (0, "ready"), "{output:?}");
    assert!(place.is_free("demo"));
    assert!(took < Duration::from_secs(10), "{took:?}");
    let mut sleep = std::process::Command::new("sleep");
    let dead = {
        let running = Running::of({
            sleep.arg("60");
            sleep
        });
        running.pid()
    };
    let output = place.leasehold(["acquire", "demo", "--while-pid", &dead.to_string()]).output().unwrap();
    assert_eq!((code(output.status), output.stdout.len()), (64, 0), "{output:?}");
    assert!(stderr(&output).contains("there is no such process"), "{output:?}");
    assert!(place.is_free("demo"));
}

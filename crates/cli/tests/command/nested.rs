//! Check 17: a `run` inside a `run` of the same name goes on under its lease, and nobody else does.

use std::time::Duration;

use crate::stage::{Place, code, stderr, stdout, timed, until};

#[test]
fn check_17_the_inner_run_goes_on_under_the_same_token() {
    let place = Place::new();
    let inner = "\"$LH\" run demo -w forever -- sh -c 'echo $LEASE_NAME $LEASE_TOKEN; \"$LH\" check; exit 9'";
    let script = "\"$LH\" run demo -- sh -c 'echo $LEASE_TOKEN; eval \"$INNER\"'";
    let (output, took) = timed(|| place.shell(script).env("INNER", inner).output().unwrap());
    assert_eq!(code(output.status), 9, "the end of the command is passed on: {output:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let text = stdout(&output);
    let (outer, within) = text.split_once('\n').unwrap();
    assert_eq!(within, format!("demo {outer}\n"));
    assert!(output.stderr.is_empty(), "{output:?}");
    assert!(place.is_free("demo"));
}

#[test]
fn check_17_also_through_runs_of_other_names_and_v_says_so() {
    let place = Place::new();
    let script = "
        \"$LH\" run demo -- sh -c 'echo $LEASE_TOKEN
            \"$LH\" run other -- sh -c \"\\\"\\$LH\\\" run demo -v -w forever -- sh -c \\\"echo \\\\\\$LEASE_TOKEN\\\"
                \\\"\\$LH\\\" check && echo \\$LEASE_NAME\"'";
    let output = place.shell(script).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), (lines[1], "other"), "{output:?}");
    assert!(stderr(&output).contains("demo is held by a run around this one ("), "{output:?}");
}

#[test]
fn check_17_a_leaked_chain_in_another_session_lets_nobody_in() {
    let place = Place::new();
    let holder = place.start(&[], "env > env; touch told; while [ ! -e done ]; do sleep 0.02; done");
    until("it has told its environment", || place.path("told").exists());
    let leaked: Vec<(String, String)> = place
        .read("env")
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| name.starts_with("LEASE_"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for name in ["LEASE_CHAIN", "LEASE_SOCK", "LEASE_TOKEN"] {
        assert!(leaked.iter().any(|(leaked, _)| leaked == name), "{name}: {leaked:?}");
    }
    let mut command = place.leasehold(["run", "demo", "--busy", "fail", "--", "touch", "ran"]);
    let output = command.envs(leaked.clone()).output().unwrap();
    assert_eq!(code(output.status), 75, "{output:?}");
    assert!(stderr(&output).starts_with("error[LH0011]: demo is held by "), "{output:?}");
    // Nor does it stand in the way where nobody holds.
    place.write("done", "");
    drop(holder.output());
    let mut command = place.leasehold(["run", "demo", "--", "sh", "-c", "echo $LEASE_TOKEN"]);
    let output = command.envs(leaked.clone()).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    let old = &leaked.iter().find(|(name, _)| name == "LEASE_TOKEN").unwrap().1;
    let token = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(token(&stdout(&output)) > token(old), "a lease of its own: {output:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn what_cannot_be_shared_is_refused_and_not_waited_for() {
    let place = Place::new();
    for (inner, why) in [
        ("run demo --nested fail -w forever -- touch ran", "--nested fail"),
        ("acquire demo --wait forever", "would have to end before"),
        ("try demo", "would have to end before"),
    ] {
        let script = format!("\"$LH\" run demo -- \"$LH\" {inner}");
        let (output, took) = timed(|| place.shell(&script).output().unwrap());
        assert_eq!((code(output.status), output.stdout.len()), (75, 0), "{inner}: {output:?}");
        let text = stderr(&output);
        assert!(text.starts_with("error[LH0042]: demo is held by a run around this one: "), "{text}");
        assert!(text.contains(why), "{text}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn another_store_or_namespace_is_another_lock() {
    let place = Place::new();
    let other = place.store.other_url();
    for flags in [format!("-s {other}"), "--namespace other".to_owned()] {
        let script = format!(
            "\"$LH\" run demo -- sh -c 'echo $LEASE_TOKEN; \"$LH\" run demo -q {flags} -- sh -c \"echo \\$LEASE_TOKEN\"'"
        );
        let output = place.shell(&script).output().unwrap();
        assert_eq!(code(output.status), 0, "{output:?}");
        let text = stdout(&output);
        let (outer, inner) = text.trim_end().split_once('\n').unwrap();
        assert_ne!(outer, inner, "{flags}");
    }
    // The same store in other words is the same store.
    let same = place.store.same_url();
    let script = format!(
        "\"$LH\" run demo -- sh -c 'echo $LEASE_TOKEN; \"$LH\" run demo -s \"{same}\" -- sh -c \"echo \\$LEASE_TOKEN\"'"
    );
    let text = stdout(&place.shell(&script).output().unwrap());
    let (outer, inner) = text.trim_end().split_once('\n').unwrap();
    assert_eq!(outer, inner);
}

#[test]
fn a_command_that_is_not_there_is_told_as_ever() {
    let place = Place::new();
    let output = place.shell("\"$LH\" run demo -- \"$LH\" run demo -- ./nothing").output().unwrap();
    assert_eq!(code(output.status), 127, "{output:?}");
    assert!(stderr(&output).starts_with("error[LH0041]: ./nothing: not found"), "{output:?}");
}

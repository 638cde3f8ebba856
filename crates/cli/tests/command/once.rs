//! `--once`: a period or a text is done once, by whoever comes first, and only if it went well.

use crate::stage::{Place, Running, code, stderr, stdout, until};

/// Runs a shell line once in a period, and says how that ended.
fn once(place: &Place, flags: &[&str], shell: &str) -> i32 {
    let words = ["run", "demo"].iter().chain(flags).copied().chain(["--", "sh", "-c", shell]);
    let output = place.leasehold(words).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    code(output.status)
}

#[test]
fn check_19_one_host_of_five_runs_it_and_the_others_end_well_in_silence() {
    let place = Place::new();
    for period in ["daily", "monthly", "order-10017"] {
        let script = format!("echo {period} >> ran");
        let all: Vec<Running> = (0..5)
            .map(|_| {
                let words = ["run", period, "--once", period, "--wait", "30s", "--", "sh", "-c", &script];
                Running::of(place.leasehold(words))
            })
            .collect();
        for one in all {
            let output = one.output();
            assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
        }
    }
    assert_eq!(place.read("ran").lines().collect::<Vec<_>>(), ["daily", "monthly", "order-10017"]);
}

#[test]
fn done_is_good_whatever_busy_says_and_is_told_to_who_asks() {
    let place = Place::new();
    assert_eq!(once(&place, &["--once", "daily"], "echo ran >> ran"), 0);
    for flags in [&["--busy", "fail"][..], &["--busy", "skip"], &["--wait", "1s"], &[]] {
        let flags: Vec<&str> = flags.iter().chain(&["--once", "daily"]).copied().collect();
        assert_eq!(once(&place, &flags, "echo ran >> ran"), 0);
    }
    assert_eq!(place.read("ran"), "ran\n");
    let output = place.leasehold(["run", "demo", "--once", "daily", "-v", "--", "true"]).output().unwrap();
    let text = stderr(&output);
    assert!(text.contains("skipped, demo is done for 2"), "{text}");
    assert!(text.contains("leasehold forget demo --once daily"), "{text}");
    // Another period, and another name, are other things.
    assert_eq!(once(&place, &["--once", "monthly"], "echo ran >> ran"), 0);
    assert_eq!(place.read("ran"), "ran\nran\n");
}

#[test]
fn whoever_waited_looks_again_under_the_lock() {
    let place = Place::new();
    let holder = place.start(&["--once", "k"], "until [ -e done ]; do sleep 0.02; done; echo first >> ran");
    let words = ["run", "demo", "--once", "k", "-w30s", "--", "sh", "-c", "echo second >> ran"];
    let waiter = Running::of(place.leasehold(words));
    until("the waiter stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    let output = waiter.output();
    assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
    assert_eq!(place.read("ran"), "first\n");
    assert!(place.is_free("demo"), "it was given back");
}

#[test]
fn check_20_a_command_that_failed_is_not_done_and_the_next_host_runs_it() {
    let place = Place::new();
    assert_eq!(once(&place, &["--once", "daily"], "echo one >> ran; exit 3"), 3);
    assert_eq!(once(&place, &["--once", "daily", "--on-fail", "release"], "echo two >> ran; exit 4"), 4);
    assert_eq!(once(&place, &["--once", "daily"], "echo three >> ran"), 0);
    assert_eq!(once(&place, &["--once", "daily"], "echo four >> ran"), 0);
    assert_eq!(place.read("ran"), "one\ntwo\nthree\n");
    let output = place.leasehold(["run", "demo", "--once", "k", "--", "/nonexistent"]).output().unwrap();
    assert_eq!(code(output.status), 127);
    assert_eq!(once(&place, &["--once", "k"], "echo five >> ran"), 0);
    assert!(place.read("ran").ends_with("five\n"));
}

#[test]
fn what_counts_from_its_start_is_done_even_if_it_fails() {
    let place = Place::new();
    let start = ["--once", "k", "--once-after", "start"];
    // What was never started does not count.
    let words = ["run", "demo"].iter().chain(&start).chain(&["--", "/nonexistent"]).copied();
    assert_eq!(code(place.leasehold(words).output().unwrap().status), 127);
    assert_eq!(once(&place, &start, "echo one >> ran; exit 3"), 3);
    assert_eq!(once(&place, &start, "echo two >> ran"), 0);
    // Unless whoever fails lets others try.
    let flags = ["--once", "other", "--once-after", "start", "--on-fail", "release"];
    assert_eq!(once(&place, &flags, "echo three >> ran; exit 3"), 3);
    assert_eq!(once(&place, &flags, "echo four >> ran"), 0);
    assert_eq!(place.read("ran"), "one\nthree\nfour\n");
}

#[test]
fn a_mark_is_forgotten_on_demand_and_in_time() {
    let place = Place::new();
    assert_eq!(once(&place, &["--once", "daily"], "echo ran >> ran"), 0);
    let output = place.leasehold(["forget", "demo", "--once", "daily"]).output().unwrap();
    assert!(stdout(&output).starts_with("forgot that demo was done for 2"), "{output:?}");
    assert_eq!(once(&place, &["--once", "daily"], "echo ran >> ran"), 0);
    assert_eq!(place.read("ran"), "ran\nran\n");
    // By the slot itself, as status shows it.
    let slot = place.status("demo")["once"]["slot"].as_str().unwrap().to_owned();
    let output = place.leasehold(["forget", "demo", "--once", &slot]).output().unwrap();
    assert!(stdout(&output).starts_with("forgot"), "{output:?}");
    let output = place.leasehold(["forget", "demo", "--once", &slot]).output().unwrap();
    assert!(stdout(&output).contains("nothing to forget") && output.status.success(), "{output:?}");
    let output = place.leasehold(["forget", "demo"]).output().unwrap();
    assert_eq!(code(output.status), 64, "{output:?}");

    let short = ["--once", "k", "--once-keep", "200ms"];
    assert_eq!(once(&place, &short, "echo kept > kept"), 0);
    until("the mark has run out", || {
        once(&place, &short, "echo again > kept");
        place.read("kept") == "again\n"
    });
}

#[test]
fn rules_have_periods_and_status_knows_them() {
    let place = Place::new();
    let rules = "[[lock]]\nmatch = 'demo'\nonce = 'daily'\ntz = 'Asia/Tokyo'\n";
    place.write(".config/leasehold/config.toml", rules);
    let status = place.status("demo");
    assert_eq!((&status["once"]["period"], &status["once"]["done"]), (&"daily".into(), &false.into()));
    for _ in 0..2 {
        assert_eq!(once(&place, &[], "echo ran >> ran"), 0);
    }
    assert_eq!(place.read("ran"), "ran\n");
    let status = place.status("demo");
    assert_eq!(status["once"]["done"], true);
    assert_eq!(status["last_ok"]["exit_code"], 0);
    assert_eq!(status["skips_since_ok"], 1);
    let text = stdout(&place.leasehold(["status", "demo"]).output().unwrap());
    for part in ["once     daily: 2", " ago by ", "recent   ok ", "last ok  ended ", "skipped once since"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    place.write(".config/leasehold/config.toml", "[run]\nonce = 'dayly'\n");
    let output = place.leasehold(["run", "demo", "--", "touch", "wrong"]).output().unwrap();
    assert_eq!(code(output.status), 78, "{output:?}");
    assert!(!place.path("wrong").exists());
}

#[test]
fn the_library_and_the_command_keep_each_other_from_doing_it_twice() {
    use leasehold::{Leasehold, OnceOutcome, OnceRun};
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let client = runtime.block_on(Leasehold::connect(&place.url())).unwrap();
    let work = async |run: &OnceRun| {
        run.remember_text("seventeen pages")?;
        Ok::<_, leasehold::Error>(())
    };
    // The command first, then the library.
    assert_eq!(once(&place, &["--once", "monthly"], "echo ran >> ran"), 0);
    let outcome = runtime.block_on(client.once_per("monthly", "demo").run(work)).unwrap();
    assert!(matches!(outcome, OnceOutcome::AlreadyDone { remembered: None, .. }), "{outcome:?}");
    // The library first, then the command.
    let outcome = runtime.block_on(client.once_per("weekly", "demo").tz("Asia/Tokyo").run(work)).unwrap();
    assert!(matches!(outcome, OnceOutcome::Ran(Ok(()))), "{outcome:?}");
    assert_eq!(once(&place, &["--once", "weekly", "--tz", "Asia/Tokyo"], "echo ran >> ran"), 0);
    let status = place.status("demo");
    assert_eq!((&status["once"]["period"], &status["once"]["done"]), (&"weekly".into(), &true.into()));
    // A key without a period is a lock's name, which is done.
    let outcome = runtime.block_on(client.once("order:10017").run(work)).unwrap();
    assert!(matches!(outcome, OnceOutcome::Ran(Ok(()))), "{outcome:?}");
    let words = ["run", "order:10017", "--once", "done", "--", "sh", "-c", "echo ran >> ran"];
    assert_eq!(code(place.leasehold(words).output().unwrap().status), 0);
    assert_eq!(place.read("ran"), "ran\n");
    assert_eq!(place.status("order:10017")["once"]["done"], true);
    let output = place.leasehold(["forget", "order:10017", "--once", "done"]).output().unwrap();
    assert!(stdout(&output).starts_with("forgot"), "{output:?}");
    let outcome = runtime.block_on(client.once("order:10017").run(work)).unwrap();
    assert!(matches!(outcome, OnceOutcome::Ran(Ok(()))), "{outcome:?}");
    runtime.block_on(client.close()).unwrap();
}

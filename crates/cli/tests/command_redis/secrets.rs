//! A password of the store is seen by nobody: not in arguments, not in what is said, written or kept.

use std::path::Path;

use leasehold_harness::servers::redis::Redis;

use crate::guard::guard_of;
use crate::points::{Cleared, inhabitants};
use crate::stage::{Place, Running, code, has, stdout, until};
use crate::store::Store;
use crate::terminal::on_a_terminal;

const SECRET: &str = "hunter2-and-no-other-word";

fn place() -> Place {
    let mut place = Place::bare();
    place.store = Store::like(Redis::default().line(format!("user locks on >{SECRET} ~* &* +@all")));
    place
}

fn url(place: &Place) -> String {
    format!("redis://locks:{SECRET}@{}", place.store.server().address())
}

/// What everybody may read of a process.
fn arguments(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn tell_nothing(place: &Place) {
    let pids = inhabitants(place);
    assert!(!pids.is_empty());
    for pid in pids {
        let arguments = arguments(pid);
        assert!(!arguments.contains(SECRET), "{arguments:?}");
    }
}

#[test]
fn a_password_is_never_shown() {
    let place = place();
    let _cleared = Cleared(&place);
    let script = "env | grep ^LEASE_ > facts; echo up > up; until [ -e done ]; do sleep 0.02; done";
    let words = ["run", "demo", "-vv", "--once", "k", "--report", "report.json", "--", "sh", "-c", script];
    let mut run = place.leasehold(words);
    run.env("LEASEHOLD_STORE", url(&place));
    let running = Running::of(run);
    until("the command has started", || place.read("up") == "up\n");
    assert!(guard_of(&running).is_some());
    tell_nothing(&place);
    let ask = |words: &[&str], exit: i32| {
        let mut command = place.leasehold(words);
        let output = command.env("LEASEHOLD_STORE", url(&place)).output().unwrap();
        assert_eq!(code(output.status), exit, "{words:?}: {output:?}");
        assert!(!format!("{output:?}").contains(SECRET), "{words:?}: {output:?}");
        stdout(&output)
    };
    for words in [
        &["status", "demo"][..],
        &["status", "demo", "--json", "-vv"],
        &["list", "-v"],
        &["list", "--json"],
        &["config", "show", "--origin"],
        &["config", "show", "demo"],
        &["run", "demo", "--dry-run", "--", "true"],
        &["run", "demo", "--dry-run", "--json", "--", "true"],
        &["run", "demo", "-vv", "--", "true"],
        &[],
    ] {
        assert!(!ask(words, 0).contains("locks:hunter"), "{words:?}");
    }
    ask(&["run", "demo", "--busy", "fail", "-vv", "--json", "--", "true"], 75);
    ask(&["try", "demo", "-v"], 75);
    ask(&["break", "demo", "--token", "1", "--yes"], 75);
    place.write("done", "");
    let output = running.output();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(!format!("{output:?}").contains(SECRET), "{output:?}");
    for file in ["facts", "report.json"] {
        let text = place.read(file);
        assert!(!text.is_empty() && !text.contains(SECRET), "{file}: {text}");
    }
    // What is kept of it in the store is read by all who use it.
    let kept = place.store.ask(&["EVAL", KEPT, "0"]);
    assert!(kept.len() > 20 && !kept.contains("hunter2"), "{kept}");
    let log = place.store.server().log();
    assert!(!log.contains(SECRET), "{log}");
}

/// All keys, and what is in them as one text.
const KEPT: &str = "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
    all[#all + 1] = key local kind = redis.call('TYPE', key)['ok'] \
    if kind == 'string' then all[#all + 1] = redis.call('GET', key) end \
    if kind == 'hash' then for _, part in ipairs(redis.call('HGETALL', key)) do all[#all + 1] = part end end \
    end return table.concat(all, ' ')";

/// Who gives it as an argument shows it himself; but nobody else does.
#[test]
fn what_was_given_as_an_argument_is_not_passed_on_as_one() {
    let place = place();
    let _cleared = Cleared(&place);
    let url = url(&place);
    let holder = place.start(&["-s", &url], "until [ -e done ]; do sleep 0.02; done");
    let shows =
        || inhabitants(&place).into_iter().filter(|pid| arguments(*pid).contains(SECRET)).collect::<Vec<_>>();
    assert_eq!(shows(), [holder.pid()]);
    let mut sleep = std::process::Command::new("sleep");
    sleep.arg("60");
    let script = Running::of(sleep);
    let pid = script.pid().to_string();
    let output = place.leasehold(["acquire", "other", "-s", &url, "--while-pid", &pid]).output().unwrap();
    assert_eq!(code(output.status), 0, "{output:?}");
    assert!(inhabitants(&place).iter().any(|pid| arguments(*pid).contains("keeper")));
    assert_eq!(shows(), [holder.pid()], "the renewer shows it");
    if has("script") {
        // At a terminal somebody stands in line for who waits.
        let line = format!("exec {} run demo -w60s -s \"$URL\" -- true", crate::stage::BINARY);
        let mut waiter = on_a_terminal(&place, &format!("URL='{url}'; {line}"));
        until("it stands in line", || {
            inhabitants(&place).iter().any(|pid| {
                let comm = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
                comm.is_ok_and(|comm| comm == "leasehold-queue\n")
            })
        });
        for pid in inhabitants(&place) {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let gave_it = arguments(pid).contains("-s\0") || arguments(pid).contains("URL=");
            assert!(gave_it || !arguments(pid).contains(SECRET), "{comm}: {:?}", arguments(pid));
        }
        place.write("done", "");
        until("its turn came", || !waiter.is_running());
        assert!(!place.read("typescript").lines().skip(1).any(|line| line.contains(SECRET)));
    }
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
}

#[test]
fn a_password_in_a_file_is_in_no_environment_either() {
    let place = place();
    let _cleared = Cleared(&place);
    let file = place.write("password", &format!("{SECRET}\n"));
    let address = place.store.server().address();
    place.write(
        ".config/leasehold/config.toml",
        &format!(
            "store = 'main'\n[stores.main]\nurl = 'redis://locks@{address}?password_file={}'\n",
            file.display()
        ),
    );
    let script = "echo up > up; until [ -e done ]; do sleep 0.02; done";
    let mut run = place.leasehold(["run", "demo", "--", "sh", "-c", script]);
    run.env_remove("LEASEHOLD_STORE");
    let running = Running::of(run);
    until("the command has started", || place.read("up") == "up\n");
    tell_nothing(&place);
    for pid in inhabitants(&place) {
        let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains(SECRET), "{}", arguments(pid));
    }
    place.write("done", "");
    assert_eq!(code(running.output().status), 0);
}

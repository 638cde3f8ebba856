//! `LEASE_SOCK`: what a command may ask of the `run` around it, and what it cannot do to it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::stage::{Place, Running, code, has, is_renewed, signal, stderr, stdout, timed, until};

/// A running command, and the socket that it was told of.
fn start(place: &Place, flags: &[&str], script: &str) -> (Running, PathBuf) {
    let running = place.start(flags, &format!("echo $LEASE_SOCK > sock; {script}"));
    until("it has told its socket", || place.read("sock").ends_with('\n'));
    let path = PathBuf::from(place.read("sock").trim_end());
    assert_eq!(path.parent(), Some(place.path("leasehold").as_path()), "{path:?}");
    (running, path)
}

/// Sends bytes as they are, and reads whatever comes.
fn send(path: &PathBuf, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    // It may hang up in the middle.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn body(answer: &str) -> serde_json::Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn the_lease_is_one_line_of_json() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let (holder, path) = start(&place, &["--ttl", "1m"], "while [ ! -e done ]; do sleep 0.02; done");
    let answer = send(&path, b"GET /lease HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("}\n"), "{answer}");
    let (status, lease) = (place.status("demo"), body(&answer));
    assert_eq!(lease["token"], status["token"]);
    assert_eq!(lease["holder"], status["holders"][0]["id"]);
    assert_eq!((&lease["name"], &lease["state"]), (&"demo".into(), &"held".into()));
    assert!((30_000..=60_000).contains(&lease["left_ms"].as_u64().unwrap()), "{lease}");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    if has("curl") {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sf", "--unix-socket", path.to_str().unwrap(), "http://x/lease"]);
        place.settle(&mut curl);
        let output = curl.output().unwrap();
        assert_eq!(code(output.status), 0, "{output:?}");
        assert_eq!(stdout(&output).lines().count(), 1, "{output:?}");
    }
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
    assert!(!path.exists(), "it goes with the run");
}

#[test]
fn check_asks_the_run_and_not_the_store() {
    let place = Place::new();
    let script = "while [ ! -e go ]; do sleep 0.02; done; \"$LH\" check --json > checked; echo $? > code";
    let (holder, _) = start(&place, &["--ttl", "1m"], script);
    let blocked = place.store.block();
    place.write("go", "");
    let ((), took) = timed(|| until("it has checked", || place.read("code").ends_with('\n')));
    assert_eq!(place.read("code"), "0\n");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let checked: serde_json::Value = serde_json::from_str(&place.read("checked")).unwrap();
    assert_eq!(checked["name"], "demo");
    drop(blocked);
    assert_eq!(code(holder.output().status), 0);
}

#[test]
fn check_has_the_run_renew_if_less_is_left() {
    let place = Place::new();
    let script = "
        while [ ! -e go ]; do sleep 0.02; done
        \"$LH\" check --left 59300ms; echo $? > code; \"$LH\" check --left 2m 2> said; echo $? > code2
        while [ ! -e done ]; do sleep 0.02; done";
    let (holder, _) = start(&place, &["--ttl", "1m"], script);
    until("some of it is gone", || place.status("demo")["holders"][0]["left_ms"].as_u64() < Some(59_300));
    let before = place.ends("demo");
    place.write("go", "");
    until("it has checked", || place.read("code2").ends_with('\n'));
    assert_eq!((place.read("code").as_str(), place.read("code2").as_str()), ("0\n", "78\n"));
    assert!(place.read("said").contains("cannot be ensured"), "{}", place.read("said"));
    // The first renewal by itself comes after 20 s.
    assert!(is_renewed(before, place.ends("demo")));
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
}

#[test]
fn check_says_no_once_it_is_lost() {
    let place = Place::new();
    let script = "trap '\"$LH\" check 2> said; echo $? > code; exit 0' TERM; while :; do sleep 0.02; done";
    let (holder, _) = start(&place, &["--ttl", "3s"], script);
    place.store.take_away();
    assert_eq!(code(holder.output().status), 79);
    assert_eq!(place.read("code"), "79\n");
    assert!(place.read("said").starts_with("error[LH0031]: lost demo (token "), "{}", place.read("said"));
}

#[test]
fn a_socket_of_another_lease_and_a_dead_one_are_not_believed() {
    let place = Place::new();
    let (holder, path) = start(&place, &[], "while [ ! -e done ]; do sleep 0.02; done");
    let output = place.leasehold(["acquire", "other"]).output().unwrap();
    let token = stdout(&output);
    let check = |token: &str| {
        let mut check = place.leasehold(["check"]);
        check.env("LEASE_NAME", "other").env("LEASE_TOKEN", token).env("LEASE_SOCK", &path);
        code(check.output().unwrap().status)
    };
    assert_eq!((check(token.trim()), check("7")), (0, 79), "the store was asked");
    place.write("done", "");
    drop(holder.output());
    assert_eq!((check(token.trim()), check("7")), (0, 79), "the store was asked");
}

#[test]
fn nothing_that_is_sent_disturbs_it() {
    let place = Place::new();
    let (mut holder, path) = start(&place, &["--ttl", "3s"], "while [ ! -e done ]; do sleep 0.02; done");
    // More than are served at once, and each says nothing.
    let silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let long = [b"GET /lease HTTP/1.1\r\n".to_vec(), vec![b'x'; 64 << 10]].concat();
    for (bytes, status) in [
        (&b"\x00\xff\r\n\r\n"[..], "400"),
        (b"GET /lease\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"DELETE /lease HTTP/1.1\r\n\r\n", "404"),
        (b"POST /renew HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", "400"),
        (b"POST /renew HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "400"),
        (b"POST /renew HTTP/1.1\r\nContent-Length: 1\r\n\r\n{", "400"),
        (b"POST /holds HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "200"),
    ] {
        let answer = send(&path, bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes:?}: {answer}");
        assert_ne!(body(&answer)["yes"], true);
    }
    let ((), took) = timed(|| drop(send(&path, &long)));
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop(silent);
    assert_eq!(body(&send(&path, b"GET /lease HTTP/1.1\r\n\r\n"))["state"], "held");
    assert!(holder.is_running());
    place.write("done", "");
    let output = holder.output();
    assert_eq!((code(output.status), output.stderr.len()), (0, 0), "{output:?}");
}

#[test]
fn what_a_killed_run_leaves_behind_is_tidied_up() {
    let place = Place::new();
    let (holder, path) = start(&place, &[], "exec sleep 5");
    let (pid, command) = (holder.pid(), place.read("sock"));
    signal(pid, "KILL");
    drop(holder);
    assert!(!command.is_empty() && path.exists());
    let output = place.leasehold(["run", "other", "--", "true"]).output().unwrap();
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    assert!(!path.exists());
}

#[test]
fn without_a_place_for_it_the_command_runs_all_the_same() {
    let place = Place::new();
    // A folder that others could write to is none to trust.
    let folder = place.path("leasehold");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = place.leasehold(["run", "demo", "-v", "--", "sh", "-c", "echo \"<$LEASE_SOCK>\""]);
    let output = command.env("LEASE_SOCK", "/of/an/outer/run").output().unwrap();
    assert_eq!((code(output.status), stdout(&output).as_str()), (0, "<>\n"), "{output:?}");
    assert!(stderr(&output).contains("no LEASE_SOCK for the command"), "{output:?}");
}

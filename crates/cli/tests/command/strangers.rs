//! `LEASE_SOCK` and other users: they are refused, and not believed. Skipped, and said so, where this user cannot become
//! another.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;

use crate::stage::{Place, code, until};

const QUESTION: &[u8] = b"GET /lease HTTP/1.1\r\n\r\n";

fn is_root() -> bool {
    if !geteuid().is_root() {
        eprintln!("skipped: only root may become another user");
    }
    geteuid().is_root()
}

/// Does this as a user who is nobody. Linux keeps users by thread, so the rest of this process stays who it is.
fn as_a_stranger<T: Send>(deed: impl FnOnce() -> T + Send) -> T {
    let nobody = Uid::from_raw(65534);
    let work = || {
        set_thread_res_uid(nobody, nobody, nobody).unwrap();
        deed()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn another_user_reaches_no_socket_and_gets_no_answer_from_one() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let holder = place.start(&[], "echo $LEASE_SOCK > sock; until [ -e done ]; do sleep 0.02; done");
    until("it has told its socket", || place.read("sock").ends_with('\n'));
    let path = place.path(place.read("sock").trim_end());
    let ask = || {
        let mut stream = UnixStream::connect(&path)?;
        // It may have hung up before.
        let _ = stream.write_all(QUESTION);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Ok::<_, std::io::Error>(answer)
    };
    open_to_all(&place.path(""));
    let refused = as_a_stranger(ask).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "the folder is of its owner alone");
    // Somebody opened both: who asks is still looked at.
    open_to_all(path.parent().unwrap());
    open_to_all(&path);
    assert_eq!(as_a_stranger(ask).unwrap(), b"", "a stranger was answered");
    assert!(ask().unwrap().starts_with(b"HTTP/1.1 200 OK\r\n"));
    place.write("done", "");
    assert_eq!(code(holder.output().status), 0);
}

#[test]
fn another_user_who_answers_is_not_believed() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let folder = place.path("theirs");
    std::fs::create_dir(&folder).unwrap();
    open_to_all(&place.path(""));
    open_to_all(&folder);
    let check = |path: &Path| {
        let mut check = place.leasehold(["check"]);
        check.env("LEASE_NAME", "demo").env("LEASE_TOKEN", "7").env("LEASE_SOCK", path);
        code(check.output().unwrap().status)
    };
    let body = r#"{"v":1,"name":"demo","token":7,"state":"held","left_ms":60000,"problem":null}"#;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let bind = |name: &str| {
        let path = folder.join(name);
        (UnixListener::bind(&path).unwrap(), path)
    };
    for (by, (listener, path), believed) in [
        // The answer is good: it is the one who gives it.
        ("us", bind("ours"), 0),
        ("a stranger", as_a_stranger(|| bind("stranger")), 79),
    ] {
        let served = std::thread::spawn({
            let answer = answer.clone();
            move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 1024];
                // Nothing is asked of a stranger.
                if stream.read(&mut question).is_ok_and(|read| read > 0) {
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        assert_eq!(check(&path), believed, "answered by {by}");
        served.join().unwrap();
    }
}

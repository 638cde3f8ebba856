//! The networks that tests are given: what is cut is cut, in one direction or in both, and nothing is left of them.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::Clock;
use leasehold_harness::servers::NoServer;
use leasehold_harness::servers::net::{Host, Net};
use leasehold_harness::servers::redis::{Redis, ask};

/// What passes, passes within this; what does not, is waited for as long.
const SOON: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

fn net(hosts: usize) -> Option<Net> {
    match Net::start(hosts) {
        Ok(net) => Some(net),
        Err(NoServer::Missing(tool)) => {
            eprintln!("skipped: there is no {tool} here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether a server says, to somebody on this host, how it has counted.
fn counts(host: &Host, to: SocketAddr) -> bool {
    let host = host.clone();
    let asked = std::thread::spawn(move || {
        host.enter().unwrap();
        let mut stream = TcpStream::connect_timeout(&to, SOON)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(b"INCR counted\r\n")?;
        stream.read_exact(&mut [0; 2])
    });
    asked.join().unwrap().is_ok()
}

#[test]
fn what_is_cut_is_cut_and_heals() {
    let Some(net) = net(3) else { return };
    let server = Redis::default().on(&net.hosts[0]).start().unwrap();
    let to = server.address();
    assert!(TcpStream::connect_timeout(&to, SOON / 10).is_err(), "it is apart from this machine");
    let counted = || ask(&server, &["GET", "counted"]).unwrap();
    assert!(counts(&net.hosts[1], to) && counts(&net.hosts[2], to));
    net.cut(&[0], &[1]).unwrap();
    assert!(!counts(&net.hosts[1], to) && counts(&net.hosts[2], to));
    net.heal().unwrap();
    assert!(counts(&net.hosts[1], to));
    assert_eq!(counted(), "$1\r\n4\r\n");
    net.cut(&[0], &net.but(&[0])).unwrap();
    assert!(!counts(&net.hosts[1], to) && !counts(&net.hosts[2], to));
    net.heal().unwrap();
    assert!(counts(&net.hosts[1], to));
}

#[test]
fn a_way_that_is_cut_in_one_direction_loses_replies_and_no_requests() {
    let Some(net) = net(2) else { return };
    let server = Redis::default().on(&net.hosts[0]).start().unwrap();
    let mut stream = {
        let (host, to) = (net.hosts[1].clone(), server.address());
        let connects = std::thread::spawn(move || {
            host.enter().unwrap();
            TcpStream::connect_timeout(&to, SOON).unwrap()
        });
        connects.join().unwrap()
    };
    stream.set_read_timeout(Some(SOON)).unwrap();
    net.cut_from(&[0], &[1]).unwrap();
    stream.write_all(b"SET a b\r\n").unwrap();
    assert!(stream.read(&mut [0; 16]).is_err(), "the reply is lost");
    assert_eq!(ask(&server, &["GET", "a"]).unwrap(), "$1\r\nb\r\n", "the request was heard");
    net.heal().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n", "it was sent again");
}

#[test]
fn nothing_is_left_when_the_test_is_killed() {
    // The test itself, started again: it makes a network with a server, and waits there.
    const ALONE: &str = "LEASEHOLD_TEST_MAKES_A_NETWORK";
    if std::env::var_os(ALONE).is_some() {
        let Some(net) = net(1) else { return };
        let server = Redis::default().on(&net.hosts[0]).start().unwrap();
        println!("\npid {:?}", server.pid().unwrap().as_raw_nonzero());
        std::thread::sleep(PATIENCE);
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "nothing_is_left_when_the_test_is_killed", "--nocapture"]);
    let mut test = command.env(ALONE, "1").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("pid ")?.to_owned()));
    test.kill().unwrap();
    test.wait().unwrap();
    let Some(pid) = pid else { return eprintln!("skipped: there is no network to be made here") };
    let process = Path::new("/proc").join(pid);
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    // A zombie has no files any more; whoever is to bury it may be slow.
    while std::fs::read_dir(process.join("fd")).is_ok_and(|mut files| files.next().is_some()) {
        assert!(clock.now() < end, "the server lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

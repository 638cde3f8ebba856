//! A process that does with locks what it is told on stdin; see `leasehold_harness::puppet`.

use std::io::{BufRead, Write};
use std::pin::pin;
use std::process::Stdio;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::{Clock, Error, Lease, Leasehold};
use leasehold_harness::puppet::{Answer, Trouble};

fn main() -> Result<(), Trouble> {
    let store = std::env::args().nth(1).ok_or("usage: puppet STORE")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(Leasehold::connect(&store))?;
    let mut lease: Option<Lease> = None;
    say("ready", &[]);
    for order in std::io::stdin().lock().lines() {
        let order = order?;
        let words: Vec<&str> = order.split(' ').collect();
        runtime.block_on(obey(&client, &words, &mut lease))?;
    }
    Ok(())
}

async fn obey(client: &Leasehold, words: &[&str], lease: &mut Option<Lease>) -> Result<(), Trouble> {
    match words {
        ["acquire" | "try" | "anchor", name, ttl, rest @ ..] => {
            let lock = client.lock(name).ttl(Duration::from_millis(ttl.parse()?));
            let lock = if rest.contains(&"fair") { lock.fair() } else { lock };
            let lock = if words[0] == "anchor" { lock.anchored() } else { lock };
            let least = rest.iter().find_map(|word| word.strip_prefix("at-least="));
            let lock = match least {
                Some(ms) => lock.at_least(Duration::from_millis(ms.parse()?)),
                None => lock,
            };
            let got = if words[0] == "try" { lock.attempt().await } else { lock.acquire().await };
            match got {
                Ok(got) => {
                    say("granted", &[("token", got.token().to_string()), ("left", millis(&got))]);
                    *lease = Some(got);
                }
                Err(Error::Busy(_)) => say("busy", &[]),
                Err(error) => say("failed", &[("code", error.code().to_string())]),
            }
        }
        ["release"] => {
            // The moment before it is asked for: who waits may be awake before the answer is here.
            let before = Clock::system().now();
            match lease.take().ok_or("nothing is held")?.release().await {
                Ok(()) => say_at("released", before, &[]),
                Err(error) => say("failed", &[("code", error.code().to_string())]),
            }
        }
        ["check"] => check(lease.as_ref().ok_or("nothing is held")?),
        ["block", ms] => {
            // The only thread of this program does nothing else.
            std::thread::sleep(Duration::from_millis(ms.parse()?));
            check(lease.as_ref().ok_or("nothing is held")?);
        }
        ["leave-child", seconds] => {
            let life = client.life().await?.ok_or("this store has no life to share")?;
            rustix::io::fcntl_setfd(&life, rustix::io::FdFlags::empty())?;
            let child = std::process::Command::new("sleep").arg(seconds).stdout(Stdio::null()).spawn()?;
            say("started", &[("pid", child.id().to_string())]);
        }
        ["fork-check"] => fork_check(client, lease)?,
        ["close"] => {
            client.clone().close().await?;
            say("closed", &[]);
        }
        _ => return Err(format!("unknown order {words:?}").into()),
    }
    Ok(())
}

fn check(lease: &Lease) {
    match lease.check() {
        Ok(token) => say("held", &[("token", token.to_string()), ("left", millis(lease))]),
        Err(lost) => say("lost", &[("reason", format!("{:?}", lost.reason))]),
    }
}

/// What a forked child has of its parent's lease and client, said by the child; then the parent's own.
fn fork_check(client: &Leasehold, lease: &mut Option<Lease>) -> Result<(), Trouble> {
    let child = fork();
    if child == 0 {
        check(lease.as_ref().ok_or("nothing is held")?);
        // Refused at once, or never: the thread that would answer is the parent's.
        let lock = client.lock("another");
        let code = match pin!(lock.try_acquire()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(error)) => error.code().to_string(),
            other => format!("{other:?}").replace(' ', "_"),
        };
        say("client", &[("code", code)]);
        drop(lease.take());
        std::process::exit(0);
    }
    let child = rustix::process::Pid::from_raw(child).ok_or("no child")?;
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())?;
    check(lease.as_ref().ok_or("nothing is held")?);
    Ok(())
}

#[expect(unsafe_code, reason = "a real fork is what is tested, and the standard library has none")]
fn fork() -> i32 {
    unsafe extern "C" {
        fn fork() -> i32;
    }
    // SAFETY: the child uses no lock that another thread may hold: it reads atomics, prints, and exits.
    unsafe { fork() }
}

fn millis(lease: &Lease) -> String {
    lease.remaining().as_millis().to_string()
}

fn say(word: &str, facts: &[(&str, String)]) {
    say_at(word, Clock::system().now(), facts);
}

fn say_at(word: &str, at: leasehold::BootTime, facts: &[(&str, String)]) {
    let line = Answer::line(word, at, facts);
    // Whoever listened may have gone; then there is nobody to tell.
    drop(writeln!(std::io::stdout().lock(), "{line}"));
}

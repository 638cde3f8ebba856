//! Where a server keeps the lease, `run` and guard killed at the same moment leave a command that nobody can stop: what
//! is promised then is the ttl, and a token that tells the two apart.

use crate::guard::{guard_of, living};
use crate::points::{Cleared, inhabitants};
use crate::stage::{Place, Running, code, signal, stdout, until};
use crate::store::AGES_ARE_TOLD_TO;

#[test]
fn check_08_with_run_and_guard_killed_nobody_enters_before_the_ttl_and_then_under_a_higher_token() {
    let place = Place::new();
    let _cleared = Cleared(&place);
    let running = place.start(&["--ttl", "3s"], "echo $$ > pid; exec sleep 600");
    until("it is there", || place.read("pid").ends_with('\n'));
    let command: u32 = place.read("pid").trim().parse().unwrap();
    let guard = guard_of(&running).expect("it has a guard");
    let words = ["run", "demo", "-w30s", "--", "sh", "-c", "date +%s%3N; echo $LEASE_TOKEN"];
    let waiter = Running::of(place.leasehold(words));
    until("it stands in line", || place.status("demo")["waiters"].as_array().unwrap().len() == 1);
    // At once: neither may find out what became of the other.
    signal(running.pid(), "STOP");
    signal(guard, "KILL");
    signal(running.pid(), "KILL");
    let token = place.status("demo")["token"].as_u64().unwrap();
    let ends = place.ends("demo").unwrap();
    let output = waiter.output();
    assert_eq!(code(output.status), 0, "{output:?}");
    let text = stdout(&output);
    let (entered, next) = text.trim().split_once('\n').unwrap();
    let entered: i64 = entered.parse().unwrap();
    // Both are told in whole milliseconds, or what is left of a lease in what its store counts in.
    let grain = i64::try_from(AGES_ARE_TOLD_TO.as_millis()).unwrap();
    assert!(entered + 2 + grain >= ends.as_millisecond(), "in at {entered}, the lease ended at {ends}");
    assert!(next.parse::<u64>().unwrap() > token, "{next} after {token}");
    assert_eq!(living(&[command]), [command], "nobody is left who could have stopped it");
    assert!(inhabitants(&place).contains(&command));
}

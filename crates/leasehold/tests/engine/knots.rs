//! Waits that tie themselves into a knot: an answer where it is certain, a report where it is not, and never a
//! failure of what is only unusual.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Log, TTL, ms, until};
use leasehold::{Error, Event, Leasehold, Lock, Result, Stuck};

fn client() -> (Arc<Log>, Leasehold) {
    let log = Arc::new(Log::default());
    (log.clone(), Leasehold::builder().observer(log).memory())
}

/// Long enough for what is told after a second, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, Box::pin(what)).await.unwrap_or_else(|_| panic!("it hangs"))
}

fn is_you<T: std::fmt::Debug>(answer: Result<T>) -> bool {
    matches!(answer, Err(Error::Busy(busy)) if busy.holder.as_ref().is_some_and(|holder| holder.is_you))
}

#[tokio::test]
async fn an_acquire_inside_a_run_of_the_same_name_says_that_it_is_you() {
    let (_, client) = client();
    let lock = client.lock("x");
    in_time(lock.run(async |_| {
        assert!(is_you(lock.acquire().await), "without end");
        assert!(is_you(lock.acquire_within(PATIENCE).await), "and with");
        assert!(is_you(lock.attempt().await));
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(is_you(lock.run(async |_| ()).await), "a run in it, too");
        assert!(is_you(client.scope("other").lock("x").acquire().await), "and a scope that does not hold it");
        let error = lock.acquire().await.unwrap_err();
        assert!(error.to_string().contains("you (this process"), "{error}");
        assert!(error.help().unwrap().contains("scope"));
        // Deeper inside, and in a join.
        let join = async |_: &leasehold::Lease| tokio::join!(lock.acquire(), async {}).0;
        let deep = Box::pin(client.lock("y").run(join)).await.unwrap();
        assert!(is_you(deep));
    }))
    .await
    .unwrap();
    lock.try_acquire().await.unwrap().expect("nothing is left").release().await.unwrap();
}

#[tokio::test]
async fn what_is_done_once_and_a_term_are_runs_too() {
    let (_, client) = client();
    let once = client.once("x");
    let done = in_time(once.run(async |_| Ok::<_, Error>(is_you(client.lock("x").acquire().await)))).await;
    assert!(matches!(done.unwrap(), leasehold::OnceOutcome::Ran(Ok(true))));
    let election = client.election("y");
    let led = election.lead(async |_| std::ops::ControlFlow::Break(is_you(client.lock("y").acquire().await)));
    assert!(in_time(led).await.unwrap());
}

#[tokio::test]
async fn another_name_another_client_and_another_task_are_not_inside_a_run() {
    let (_, client) = client();
    let (_, stranger) = self::client();
    let lock = client.lock("x");
    let other = in_time(lock.run(async |_| {
        client.lock("y").acquire().await.unwrap().release().await.unwrap();
        stranger.lock("x").acquire().await.unwrap().release().await.unwrap();
        // Spawned inside, but not part of the work: it waits, and gets it.
        let lock = lock.clone();
        vec![tokio::spawn(async move { lock.acquire().await.map(|lease| lease.token()) })]
    }))
    .await
    .unwrap();
    for other in other {
        in_time(other).await.unwrap().expect("its turn came");
    }
}

#[tokio::test]
async fn tasks_that_a_run_only_drives_wait_as_ever() {
    // The work polls an executor with a task of its own, which has nothing to do with the run.
    let (_, client) = client();
    let executor = Arc::new(smol::Executor::new());
    let waits = {
        let lock = client.lock("x");
        executor.spawn(async move { lock.acquire().await.map(|lease| lease.token()) })
    };
    let drives = executor.clone();
    let lock = client.lock("x");
    let in_run = lock.run(async |_| {
        drives.run(smol::Timer::after(ms(50))).await;
    });
    in_time(in_run).await.unwrap();
    in_time(executor.run(waits)).await.expect("it was not told busy");
}

#[tokio::test]
async fn a_run_of_which_the_lease_is_gone_keeps_nobody_out() {
    let (_, client) = client();
    let lock = client.lock("x");
    let got = in_time(lock.run(async |lease| {
        client.break_lease("x", lease.token()).await.unwrap();
        lock.attempt().await.map(|lease| lease.token())
    }))
    .await;
    // Either the store gave it, or the loss was heard of first; but nobody was told that it is himself.
    assert!(matches!(got, Ok(Ok(_)) | Err(Error::Lost(_))), "{got:?}");
}

#[tokio::test]
async fn a_task_that_waits_for_its_own_lease_is_told_of_and_goes_on_waiting() {
    let (log, client) = client();
    let lock = client.lock("x").ttl(TTL);
    let told = |event: &Event| matches!(event, Event::WaitsForItself { name, .. } if name.as_str() == "x");
    let lease = lock.acquire().await.unwrap();
    let mut waits = std::pin::pin!(lock.acquire());
    tokio::select! {
        _ = &mut waits => panic!("it is held"),
        () = until("it is told", async || log.count(told) > 0) => {}
    }
    tokio::select! {
        _ = &mut waits => panic!("a wait is never ended by a suspicion"),
        () = tokio::time::sleep(ms(2500)) => {}
    }
    assert_eq!(log.count(told), 1, "told once");
    lease.release().await.unwrap();
    in_time(waits).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_wait_inside_a_run_with_a_waker_of_its_own_is_told_of() {
    let (log, client) = client();
    let lock = client.lock("x");
    let told = |event: &Event| matches!(event, Event::WaitsForItself { .. });
    in_time(lock.run(async |_| {
        let mut waits = futures_unordered(vec![lock.clone()]);
        tokio::select! {
            _ = &mut waits => panic!("it is held"),
            () = until("it is told", async || log.count(told) > 0) => {}
        }
    }))
    .await
    .unwrap();
}

/// Polls each with a waker of its own, as `FuturesUnordered` does.
fn futures_unordered(locks: Vec<Lock>) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
    use futures_util::StreamExt;
    let waits = locks.into_iter().map(|lock| async move { lock.acquire().await.map(drop) });
    let mut waits: futures_util::stream::FuturesUnordered<_> = waits.collect();
    Box::pin(async move { while waits.next().await.is_some() {} })
}

#[tokio::test]
async fn what_is_only_unusual_never_fails() {
    let (log, client) = client();
    let lock = client.lock("x").ttl(TTL);
    // Each lease is taken here and moved to another task, which gives it back much later than a ttl.
    let mut tasks = Vec::new();
    for round in 0..2 {
        let lease = in_time(lock.acquire()).await.unwrap();
        tasks.push(tokio::spawn(async move {
            tokio::time::sleep(TTL * 2 * (1 - round)).await;
            lease.release().await
        }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    // Two acquirers in one task.
    let turn = async |work: Duration| {
        let lease = lock.acquire().await.unwrap();
        tokio::time::sleep(work).await;
        lease.release().await
    };
    let (one, other) = in_time(async { tokio::join!(turn(TTL * 2), turn(ms(1))) }).await;
    one.and(other).unwrap();
    assert_eq!(log.count(|event| matches!(event, Event::Deadlock { .. })), 0);
}

fn circles(log: &Log) -> Vec<Vec<Stuck>> {
    let events = log.events();
    let circle = |event: &Event| match event {
        Event::Deadlock { circle } => Some(circle.clone()),
        _ => None,
    };
    events.iter().filter_map(circle).collect()
}

#[tokio::test]
async fn scopes_that_wait_for_each_other_are_reported_once() {
    for number in [2, 3] {
        let (log, client) = client();
        let scopes: Vec<_> = (0..number).map(|n| client.scope(format!("s{n}"))).collect();
        let mut held = Vec::new();
        for (n, scope) in scopes.iter().enumerate() {
            held.push(scope.lock(format!("l{n}")).acquire().await.unwrap());
        }
        let tasks: Vec<_> = scopes
            .iter()
            .enumerate()
            .map(|(n, scope)| {
                let lock = scope.lock(format!("l{}", (n + 1) % number));
                tokio::spawn(async move { lock.acquire().await.map(drop) })
            })
            .collect();
        until("it is reported", async || !circles(&log).is_empty()).await;
        tokio::time::sleep(ms(2500)).await;
        let circles = circles(&log);
        assert_eq!(circles.len(), 1, "once: {circles:?}");
        let mut circle = circles[0].clone();
        assert_eq!(circle.len(), number);
        for (n, stuck) in circle.iter().enumerate() {
            assert_eq!(
                stuck.waits_for,
                circle[(n + 1) % number].holds,
                "each waits for the next: {circle:?}"
            );
        }
        circle.sort_by(|a, b| a.who.cmp(&b.who));
        assert_eq!(circle[0].to_string(), "scope s0 holds l0 and waits for l1");
        // Whoever gives up frees the others.
        drop(held);
        for task in tasks {
            in_time(task).await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn runs_inside_runs_in_opposite_orders_are_reported() {
    let (log, client) = client();
    let (x, y) = (client.lock("x"), client.lock("y"));
    let nested = async |outer: Lock, inner: Lock, met: Arc<tokio::sync::Barrier>| {
        outer
            .run(async |_| {
                met.wait().await;
                inner.acquire_within(Duration::from_secs(4)).await.map(drop)
            })
            .await
            .unwrap()
    };
    let met = Arc::new(tokio::sync::Barrier::new(2));
    let one = tokio::spawn(nested(x.clone(), y.clone(), met.clone()));
    let other = tokio::spawn(nested(y, x, met));
    until("it is reported", async || !circles(&log).is_empty()).await;
    let circle = circles(&log).remove(0);
    assert!(circle.iter().any(|stuck| stuck.to_string() == "run of x holds x and waits for y"), "{circle:?}");
    // Bounded waits end by themselves.
    let answers = [in_time(one).await.unwrap(), in_time(other).await.unwrap()];
    assert!(answers.iter().any(|answer| matches!(answer, Err(Error::TimedOut { .. }))), "{answers:?}");
}

#[tokio::test]
async fn a_chain_that_ends_is_no_circle() {
    let (log, client) = client();
    let (one, two) = (client.scope("one"), client.scope("two"));
    let x = one.lock("x").acquire().await.unwrap();
    let y = two.lock("y").acquire().await.unwrap();
    let lock = two.lock("x");
    let waits = tokio::spawn(async move { lock.acquire().await.map(drop) });
    tokio::time::sleep(ms(2200)).await;
    assert!(circles(&log).is_empty());
    drop((x, y));
    in_time(waits).await.unwrap().unwrap();
}

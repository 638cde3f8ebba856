//! Lines 5 and 6: waits have no gap, and end by themselves when what is in the way may have run out.

use std::time::Duration;

use leasehold_core::{Claim, Leave, PLACE_LIFE, Share, State};

use crate::asking::Asking;
use crate::bench::{Bench, name};
use crate::{Check, Failure, ensure};

super::cases! {
    c05_a_release_before_the_wait_ends_it [Line],
    c05_a_release_during_the_wait_ends_it [Line],
    c05_a_withdrawal_ahead_ends_the_wait [Shares, Line],
    c05_each_departure_from_a_crowd_may_end_the_wait [Shares, Line],
    c05_a_try_may_wait_for_a_change [],
    c05_a_holder_hears_that_its_claim_is_gone [],
    c05_a_waiter_hears_that_its_claim_is_gone [Line],
    c05_who_looks_hears_of_a_change [],
    c05_a_look_at_a_name_that_was_forgotten_is_out_of_date [Movable],
    c05_a_dropped_wait_misses_nothing [Line],
    c05_a_line_moves_without_any_time_passing [Line, Push],
    c05_nobody_is_woken_for_nothing [Line, Push],
    c06_a_wait_ends_when_the_lease_ahead_runs_out [Line, PerClaim],
    c06_a_try_hears_that_the_lease_ran_out [PerClaim],
    c06_a_wait_ends_when_the_place_ahead_lapses [Shares, Line, PerClaim],
    c06_a_holder_hears_that_its_lease_ran_out [PerClaim],
    c06_who_looks_hears_of_an_expiry [PerClaim],
    c06_a_wait_ends_when_the_own_place_lapses [Line, PerClaim],
}

async fn c05_a_release_before_the_wait_ends_it(bench: &Bench) -> Check {
    let name = name("gap")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    let cursor = bench.two.waits(&waiter).await?;
    bench.one.give_back(&holder).await?;
    bench.soon("a wait on what had changed before", bench.two.changed(&name, &cursor)).await??;
    bench.two.granted(&waiter).await?;
    Ok(())
}

async fn c05_a_release_during_the_wait_ends_it(bench: &Bench) -> Check {
    let name = name("wake")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    let cursor = bench.two.waits(&waiter).await?;
    wakes(bench, &waiter, &cursor, async { bench.one.give_back(&holder).await }).await?;
    bench.two.granted(&waiter).await?;
    Ok(())
}

/// Waits on the second client, lets `happens` happen while it waits, and demands that the wait then ends.
pub(super) async fn wakes(
    bench: &Bench,
    waiter: &Claim,
    cursor: &leasehold_core::Cursor,
    happens: impl Future<Output = Check>,
) -> Check {
    let waits = async { Ok::<_, Failure>(bench.two.changed(&waiter.name, cursor).await?) };
    let happens = async {
        // The wait is polled first; these let a store's own tasks get going too.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        happens.await
    };
    let (woken, happened) =
        bench.soon("the end of a wait", async { tokio::join!(biased; waits, happens) }).await?;
    woken.and(happened)
}

async fn c05_a_withdrawal_ahead_ends_the_wait(bench: &Bench) -> Check {
    let name = name("wake")?;
    let reader = || Claim { share: Share::SHARED, ..bench.fifo(&name) };
    let (first, writer, second) = (reader(), bench.fifo(&name), reader());
    bench.one.granted(&first).await?;
    bench.one.waits(&writer).await?;
    let cursor = bench.two.waits(&second).await?;
    let withdraws = async { bench.one.end(&writer).await.map(drop) };
    wakes(bench, &second, &cursor, withdraws).await?;
    bench.two.granted(&second).await?;
    Ok(())
}

async fn c05_each_departure_from_a_crowd_may_end_the_wait(bench: &Bench) -> Check {
    for leaves in 0..3 {
        let name = name(&format!("crowd:{leaves}"))?;
        let take = |take| Ok::<_, Failure>(Claim { share: Share::permits(take, 3)?, ..bench.fifo(&name) });
        let crowd = [take(1)?, take(1)?, take(1)?];
        for claim in &crowd {
            bench.one.granted(claim).await?;
        }
        let waiter = take(1)?;
        let cursor = bench.two.waits(&waiter).await?;
        wakes(bench, &waiter, &cursor, async { bench.one.give_back(&crowd[leaves]).await }).await?;
        bench.two.granted(&waiter).await?;
    }
    Ok(())
}

async fn c05_a_try_may_wait_for_a_change(bench: &Bench) -> Check {
    let name = name("try")?;
    let (holder, attempt) = (bench.claim(&name), bench.attempt(&name));
    bench.one.granted(&holder).await?;
    let cursor = bench.two.waits(&attempt).await?;
    wakes(bench, &attempt, &cursor, async { bench.one.give_back(&holder).await }).await?;
    Asking::new(bench, &bench.two, attempt).gets().await.map(drop)
}

async fn c05_a_holder_hears_that_its_claim_is_gone(bench: &Bench) -> Check {
    let claim = bench.claim(&name("hold")?);
    let cursor = bench.two.claim(&claim).await?.cursor;
    wakes(bench, &claim, &cursor, async { bench.one.give_back(&claim).await }).await?;
    // And when it was gone before.
    bench.soon("a wait on a claim that is gone", bench.two.changed(&claim.name, &cursor)).await??;
    Ok(())
}

async fn c05_a_waiter_hears_that_its_claim_is_gone(bench: &Bench) -> Check {
    let name = name("wait")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    let cursor = bench.two.waits(&waiter).await?;
    let withdraws = async { bench.one.end(&waiter).await.map(drop) };
    wakes(bench, &waiter, &cursor, withdraws).await?;
    bench.two.spent(&waiter).await
}

async fn c05_who_looks_hears_of_a_change(bench: &Bench) -> Check {
    let name = name("look")?;
    let claim = bench.claim(&name);
    let empty = bench.two.is_deserted(&name).await?.cursor;
    wakes(bench, &claim, &empty, async { bench.one.granted(&claim).await.map(drop) }).await?;
    let held = bench.two.inspect(&name).await?.cursor;
    wakes(bench, &claim, &held, async { bench.one.give_back(&claim).await }).await?;
    for old in [empty.clone(), held] {
        let wait = bench.two.changed(&name, &old);
        // Empty as it is again, the first may rightly be waited on for ever. Of a store made of several sometimes one is
        // heard, sometimes another, so that two looks at the same are not equal.
        let now = if bench.offer.of_several { empty.clone() } else { bench.two.inspect(&name).await?.cursor };
        if old != now {
            bench.soon("a wait on an old look", wait).await??;
        }
    }
    Ok(())
}

/// Versions of lines that are dropped when they are empty and made anew must not meet: a wait on an old one would
/// never end.
async fn c05_a_look_at_a_name_that_was_forgotten_is_out_of_date(bench: &Bench) -> Check {
    let name = name("forgotten")?;
    for steps in 0..6 {
        let claim = bench.claim(&name);
        bench.one.granted(&claim).await?;
        let held = bench.two.inspect(&name).await?.cursor;
        bench.one.give_back(&claim).await?;
        bench.pass(Duration::from_secs(3600)).await;
        for _ in 0..steps {
            bench.one.end(&bench.claim(&name)).await?;
            bench.pass(Duration::from_secs(3600)).await;
        }
        bench.soon("a wait on an old look", bench.two.changed(&name, &held)).await??;
    }
    Ok(())
}

async fn c05_a_dropped_wait_misses_nothing(bench: &Bench) -> Check {
    let name = name("dropped")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    let cursor = bench.two.waits(&waiter).await?;
    for polls in 0..4 {
        let given_up = crate::polls::drop_after(polls, bench.two.changed(&name, &cursor)).await;
        if let Some(early) = given_up {
            early?;
        }
    }
    bench.one.give_back(&holder).await?;
    bench.soon("a wait after dropped ones", bench.two.changed(&name, &cursor)).await??;
    bench.two.granted(&waiter).await?;
    Ok(())
}

/// Claims and waits until granted, and says how often it claimed.
async fn acquires(bench: &Bench, claim: &Claim) -> Check<u32> {
    for asked in 1..1000 {
        let standing = bench.two.claim(claim).await?;
        match standing.state {
            State::Granted(_) => return Ok(asked),
            State::Waiting { .. } => bench.two.changed(&claim.name, &standing.cursor).await?,
            other => return Err(Failure::new(format!("it should be granted or wait: {other:?}"))),
        }
    }
    Err(Failure::new("not granted after asking a thousand times"))
}

async fn c05_a_line_moves_without_any_time_passing(bench: &Bench) -> Check {
    let name = name("line")?;
    let tenure = async |claim: Claim| {
        acquires(bench, &claim).await?;
        bench.one.give_back(&claim).await
    };
    let line = futures_util::future::join_all((0..12).map(|_| tenure(bench.fifo(&name))));
    bench.soon("the turn of everybody in a line", line).await?.into_iter().collect()
}

/// A waiter asks "is it my turn?", not "did anything move?": with the latter, everybody in a line of n is woken
/// n times, which is how queues on top of stores come to cost more the longer they are.
async fn c05_nobody_is_woken_for_nothing(bench: &Bench) -> Check {
    const WAITERS: u32 = 16;
    let name = name("line")?;
    let holder = bench.fifo(&name);
    bench.one.granted(&holder).await?;
    let line: Vec<Claim> = (0..WAITERS).map(|_| bench.fifo(&name)).collect();
    for claim in &line {
        bench.two.waits(claim).await?;
    }
    let tenure = async |claim: &Claim| {
        let asked = acquires(bench, claim).await?;
        bench.one.give_back(claim).await?;
        Ok::<_, Failure>(asked)
    };
    let line = futures_util::future::join_all(line.iter().map(tenure));
    let starts = async { bench.one.give_back(&holder).await };
    let (asked, started) = bench.soon("the turn of everybody", async { tokio::join!(line, starts) }).await?;
    started?;
    let asked: u32 = asked.into_iter().sum::<Check<u32>>()?;
    // Two for each, and as much again for a store that wakes too early now and then.
    ensure!(asked <= 4 * WAITERS, "{WAITERS} waiters asked {asked} times: they are woken for nothing");
    Ok(())
}

/// Waits while time passes in small steps, until the wait ends; fails beyond the limit of what it may take.
pub(super) async fn ends_within(
    bench: &Bench,
    what: &str,
    expected: Duration,
    waits: impl Future<Output = leasehold_core::Result<()>>,
) -> Check {
    let mut waits = std::pin::pin!(waits);
    let limit = bench.limit(expected);
    // The wait must be told of the last step too, so the passing of time does not end the race by itself.
    let passes = async {
        while bench.clock().now() < limit {
            bench.step(expected).await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        std::future::pending::<()>().await;
    };
    bench
        .soon(what, async {
            tokio::select! { ended = &mut waits => ended, () = passes => Ok(()) }
        })
        .await??;
    Ok(())
}

async fn c06_a_wait_ends_when_the_lease_ahead_runs_out(bench: &Bench) -> Check {
    let name = name("expiry")?;
    // Within the life of the waiter's own place, so that it is the lease which ends the wait.
    let ttl = bench.short().min(PLACE_LIFE * 3 / 4).max(*bench.offer.capabilities.ttl.start());
    let holder = Claim { ttl, ..bench.claim(&name) };
    let waiter = bench.fifo(&name);
    bench.one.granted(&holder).await?;
    let cursor = bench.two.waits(&waiter).await?;
    ends_within(bench, "the end of a wait behind a dead holder", ttl, bench.two.changed(&name, &cursor))
        .await?;
    acquires_within(bench, &waiter, ttl).await
}

/// The wait may end a little early, but the turn must come.
async fn acquires_within(bench: &Bench, waiter: &Claim, expected: Duration) -> Check {
    let asking = Asking::new(bench, &bench.two, waiter.clone());
    bench.in_time("a turn", expected, || asking.granted()).await.map(drop)
}

async fn c06_a_try_hears_that_the_lease_ran_out(bench: &Bench) -> Check {
    let name = name("expiry")?;
    let ttl = bench.short();
    let attempt = bench.attempt(&name);
    bench.one.granted(&Claim { ttl, ..bench.claim(&name) }).await?;
    let cursor = bench.two.waits(&attempt).await?;
    ends_within(bench, "the end of a wait for an expiry", ttl, bench.two.changed(&name, &cursor)).await?;
    acquires_within(bench, &attempt, ttl).await
}

async fn c06_a_wait_ends_when_the_place_ahead_lapses(bench: &Bench) -> Check {
    let name = name("places")?;
    let reader = || Claim { share: Share::SHARED, ..bench.fifo(&name) };
    let (first, writer, second) = (reader(), bench.fifo(&name), reader());
    bench.one.granted(&first).await?;
    bench.one.waits(&writer).await?;
    bench.pass(PLACE_LIFE / 2).await;
    let cursor = bench.two.waits(&second).await?;
    let wait = bench.two.changed(&name, &cursor);
    ends_within(bench, "the end of a wait behind a dead waiter", PLACE_LIFE, wait).await?;
    acquires_within(bench, &second, PLACE_LIFE).await
}

async fn c06_a_holder_hears_that_its_lease_ran_out(bench: &Bench) -> Check {
    let ttl = bench.short();
    let claim = Claim { ttl, ..bench.claim(&name("expiry")?) };
    let cursor = bench.two.claim(&claim).await?.cursor;
    let wait = bench.two.changed(&claim.name, &cursor);
    ends_within(bench, "the end of a holder's wait", ttl, wait).await
}

async fn c06_who_looks_hears_of_an_expiry(bench: &Bench) -> Check {
    let ttl = bench.short();
    let claim = Claim { ttl, ..bench.claim(&name("expiry")?) };
    bench.one.granted(&claim).await?;
    let cursor = bench.two.inspect(&claim.name).await?.cursor;
    let wait = bench.two.changed(&claim.name, &cursor);
    ends_within(bench, "the end of a watcher's wait", ttl, wait).await?;
    // After that it rests: who looks again and waits again does not run in circles.
    let gone = || async { Ok(bench.two.inspect(&claim.name).await?.holders.is_empty().then_some(())) };
    bench.in_time("the end of a lease", ttl, gone).await?;
    let mut looks = 0;
    let circles = async {
        while looks < 100 {
            let cursor = bench.two.inspect(&claim.name).await?.cursor;
            bench.two.changed(&claim.name, &cursor).await?;
            looks += 1;
        }
        Ok::<_, Failure>(())
    };
    let rests = tokio::time::timeout(Duration::from_millis(300), circles).await;
    ensure!(rests.is_err(), "who waits on a name that rests is woken again and again");
    Ok(())
}

async fn c06_a_wait_ends_when_the_own_place_lapses(bench: &Bench) -> Check {
    let name = name("own")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    let cursor = bench.two.waits(&waiter).await?;
    let wait = bench.two.changed(&name, &cursor);
    ends_within(bench, "the end of a wait whose place lapsed", PLACE_LIFE, wait).await?;
    bench.one.release(&name, holder.id, Leave::Open).await?;
    Ok(())
}

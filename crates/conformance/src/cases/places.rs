//! Line 9: a dead or frozen waiter costs the others at most 2 s, whatever the ttl.

use std::time::Duration;

use leasehold_core::{Claim, PLACE_LIFE, SHORT_GRANT, State};

use crate::bench::{Bench, name};
use crate::{Check, ensure};

super::cases! {
    c09_an_unrefreshed_place_lapses [Line, PerClaim],
    c09_a_refreshed_place_stays [Line, PerClaim],
    c09_a_dead_waiter_costs_two_seconds [Line, PerClaim],
    c09_many_dead_waiters_cost_no_more_than_one [Line, PerClaim],
    c09_a_grant_to_who_waited_is_short [Line, PerClaim],
    c09_a_waiter_that_died_with_its_grant_costs_its_short_ttl [Line, PerClaim],
    c09_a_short_grant_is_long_once_it_is_renewed [Line, PerClaim],
    c09_a_short_ttl_is_not_lengthened_by_a_wait [Line, PerClaim],
    c09_the_line_keeps_its_order_when_places_lapse [Line, PerClaim],
    c09_a_grant_without_a_wait_is_whole [],
}

async fn c09_an_unrefreshed_place_lapses(bench: &Bench) -> Check {
    let name = name("places")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    let asked = bench.clock().now();
    bench.one.waits(&waiter).await?;
    let gone = || async {
        let gone = bench.two.inspect(&name).await?.waiters.is_empty();
        Ok(gone.then(|| bench.since(asked)))
    };
    let after = bench.in_time("the lapse of a place", PLACE_LIFE, gone).await?;
    ensure!(after >= PLACE_LIFE, "a place lives {PLACE_LIFE:?}, this one lapsed after {after:?}");
    Ok(())
}

async fn c09_a_refreshed_place_stays(bench: &Bench) -> Check {
    let name = name("places")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    let late = bench.fifo(&name);
    bench.one.waits(&waiter).await?;
    bench.pass_asking(3 * PLACE_LIFE, &bench.one, &[&waiter, &late]).await?;
    let waiters = bench.two.inspect(&name).await?.waiters;
    let order: Vec<_> = waiters.iter().map(|entry| entry.id).collect();
    ensure!(order == [waiter.id, late.id], "whoever asks keeps its place: {waiters:?}");
    bench.one.give_back(&holder).await?;
    bench.one.granted(&waiter).await?;
    Ok(())
}

/// The next in line gets its turn although those before it died: in the life of a place, not in their ttl.
async fn turn_comes(bench: &Bench, next: &Claim, expected: Duration) -> Check {
    let turn = || async {
        let state = bench.two.claim(next).await?.state;
        Ok(matches!(state, State::Granted(_)).then_some(()))
    };
    bench.in_time("the turn of the first waiter that is alive", expected, turn).await
}

async fn c09_a_dead_waiter_costs_two_seconds(bench: &Bench) -> Check {
    let name = name("places")?;
    let (holder, dead, next) = (bench.claim(&name), bench.fifo(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&dead).await?;
    bench.two.waits(&next).await?;
    bench.one.give_back(&holder).await?;
    turn_comes(bench, &next, PLACE_LIFE).await
}

async fn c09_many_dead_waiters_cost_no_more_than_one(bench: &Bench) -> Check {
    let name = name("places")?;
    let (holder, next) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    for _ in 0..10 {
        bench.one.waits(&bench.fifo(&name)).await?;
    }
    bench.two.waits(&next).await?;
    bench.one.give_back(&holder).await?;
    turn_comes(bench, &next, PLACE_LIFE).await
}

/// A waiter that has just got its turn.
async fn served(bench: &Bench, ttl: Duration) -> Check<(Claim, leasehold_core::Grant)> {
    let name = name("served")?;
    let (holder, waiter) = (bench.claim(&name), Claim { ttl, ..bench.fifo(&name) });
    bench.one.granted(&holder).await?;
    bench.one.waits(&waiter).await?;
    bench.one.give_back(&holder).await?;
    let grant = bench.one.granted(&waiter).await?;
    Ok((waiter, grant))
}

async fn c09_a_grant_to_who_waited_is_short(bench: &Bench) -> Check {
    let (waiter, grant) = served(bench, bench.long()).await?;
    ensure!(grant.ttl <= SHORT_GRANT, "a grant to {} that waited is short: {grant:?}", waiter.name);
    Ok(())
}

async fn c09_a_waiter_that_died_with_its_grant_costs_its_short_ttl(bench: &Bench) -> Check {
    let (waiter, _) = served(bench, bench.long()).await?;
    turn_comes(bench, &bench.fifo(&waiter.name), SHORT_GRANT).await
}

async fn c09_a_short_grant_is_long_once_it_is_renewed(bench: &Bench) -> Check {
    let (waiter, grant) = served(bench, bench.long()).await?;
    bench.pass(SHORT_GRANT / 3).await;
    let ttl = bench.one.kept(&waiter, grant.token).await?;
    ensure!(ttl > SHORT_GRANT, "a renewal gives what was asked for: {ttl:?}");
    bench.pass(2 * SHORT_GRANT).await;
    bench.two.waits(&bench.attempt(&waiter.name)).await?;
    bench.one.give_back(&waiter).await
}

async fn c09_a_short_ttl_is_not_lengthened_by_a_wait(bench: &Bench) -> Check {
    let short = (SHORT_GRANT / 2).max(*bench.offer.capabilities.ttl.start());
    let (waiter, grant) = served(bench, short).await?;
    ensure!(grant.ttl <= short, "{} asked for {short:?} and got {grant:?}", waiter.name);
    Ok(())
}

async fn c09_the_line_keeps_its_order_when_places_lapse(bench: &Bench) -> Check {
    let name = name("places")?;
    let holder = bench.claim(&name);
    bench.one.granted(&holder).await?;
    let line: Vec<Claim> = (0..6).map(|_| bench.fifo(&name)).collect();
    for claim in &line {
        bench.one.waits(claim).await?;
    }
    // Every second one dies.
    let alive = [&line[1], &line[3], &line[5]];
    bench.pass_asking(PLACE_LIFE + PLACE_LIFE / 4, &bench.two, &alive).await?;
    let waiters = bench.one.inspect(&name).await?.waiters;
    let order: Vec<_> = waiters.iter().map(|entry| entry.id).collect();
    ensure!(order == alive.map(|claim| claim.id), "the others keep their order: {waiters:?}");
    let mut before = &holder;
    for claim in alive {
        bench.one.give_back(before).await?;
        bench.two.granted(claim).await?;
        before = claim;
    }
    Ok(())
}

async fn c09_a_grant_without_a_wait_is_whole(bench: &Bench) -> Check {
    for claim in [bench.attempt(&name("now")?), bench.claim(&name("any")?)] {
        let grant = bench.one.granted(&claim).await?;
        ensure!(grant.ttl > claim.ttl / 2, "nobody waited, so it is not short: {grant:?}");
    }
    Ok(())
}

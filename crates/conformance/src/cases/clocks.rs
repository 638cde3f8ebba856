//! Line 10: expiry is judged by the store's clock alone.

use leasehold_core::{Claim, State};

use crate::bench::{Bench, name};
use crate::{Check, ensure};

super::cases! {
    c10_a_step_of_the_wall_clock_ends_no_lease [Stepping, PerClaim],
    c10_a_step_of_the_wall_clock_prolongs_no_lease [Stepping, PerClaim],
    c10_two_clients_see_the_same_time_left [PerClaim],
    c10_the_clock_of_the_store_goes_on [],
}

const YEAR_MICROS: i64 = 366 * 24 * 3600 * 1_000_000;

async fn c10_a_step_of_the_wall_clock_ends_no_lease(bench: &Bench) -> Check {
    let claim = bench.claim(&name("wall")?);
    let token = bench.one.granted(&claim).await?.token;
    bench.clock().step_wall(YEAR_MICROS);
    bench.two.waits(&bench.attempt(&claim.name)).await?;
    bench.one.kept(&claim, token).await?;
    bench.clock().step_wall(-2 * YEAR_MICROS);
    bench.two.waits(&bench.attempt(&claim.name)).await?;
    bench.one.give_back(&claim).await
}

async fn c10_a_step_of_the_wall_clock_prolongs_no_lease(bench: &Bench) -> Check {
    let claim = bench.claim(&name("wall")?);
    bench.one.granted(&claim).await?;
    bench.clock().step_wall(-YEAR_MICROS);
    bench.pass(claim.ttl + claim.ttl / 10).await;
    bench.two.granted(&bench.attempt(&claim.name)).await?;
    Ok(())
}

async fn c10_two_clients_see_the_same_time_left(bench: &Bench) -> Check {
    let claim = bench.claim(&name("left")?);
    let begun = bench.clock().now();
    bench.one.granted(&claim).await?;
    for _ in 0..3 {
        let asked = bench.clock().now();
        let (one, two) = (bench.one.inspect(&claim.name).await?, bench.two.inspect(&claim.name).await?);
        let took = bench.since(asked);
        let (Some(one), Some(two)) = (one.holders.first(), two.holders.first()) else {
            return Err(crate::Failure::new("a lease is not shown to both"));
        };
        // Whole milliseconds, and the time between the two looks.
        let apart = one.left.abs_diff(two.left);
        let most = took + std::time::Duration::from_millis(2);
        let same = apart <= most || bench.offer.of_several;
        ensure!(same, "one sees {:?} left, the other {:?}", one.left, two.left);
        for seen in [one, two] {
            ensure!(seen.left <= claim.ttl, "more is left than was asked for: {seen:?}");
            let least = claim.ttl.saturating_sub(bench.since(begun) + std::time::Duration::from_millis(2));
            ensure!(seen.left >= least, "less is left than {least:?}: {seen:?}");
        }
        bench.pass(std::time::Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn c10_the_clock_of_the_store_goes_on(bench: &Bench) -> Check {
    let name = name("clock")?;
    let mut last = None;
    for round in 0..6 {
        let client = if round % 2 == 0 { &bench.one } else { &bench.two };
        let attempt = Claim { ttl: bench.long(), ..bench.attempt(&name) };
        let standing = client.claim(&attempt).await?;
        ensure!(standing.server_time >= last, "{:?} after {last:?}", standing.server_time);
        last = standing.server_time;
        if matches!(standing.state, State::Granted(_)) {
            client.give_back(&attempt).await?;
        }
        bench.pass(std::time::Duration::from_millis(5)).await;
    }
    Ok(())
}

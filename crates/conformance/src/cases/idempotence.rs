//! Line 1: idempotent in the id.

use std::time::Duration;

use leasehold_core::{Claim, Release, SHORT_GRANT};

use crate::bench::{Bench, name};
use crate::{Check, ensure};

super::cases! {
    c01_a_claim_asked_again_repeats_its_grant [],
    c01_a_claim_asked_again_by_another_client_is_the_same_claim [],
    c01_a_repeat_prolongs_nothing [PerClaim],
    c01_a_repeated_run_is_the_same_run [Counter],
    c01_a_waiter_asked_again_keeps_its_place [Line],
    c01_a_waiter_whose_place_is_gone_takes_a_new_one_at_the_end [Line, PerClaim],
    c01_a_released_id_is_spent [],
    c01_a_withdrawn_id_is_spent [Line],
    c01_an_expired_id_is_spent [PerClaim],
    c01_an_id_whose_short_grant_ran_out_is_spent [Line, PerClaim],
}

async fn c01_a_claim_asked_again_repeats_its_grant(bench: &Bench) -> Check {
    let claim = bench.claim(&name("again")?);
    let first = bench.one.granted(&claim).await?;
    for _ in 0..3 {
        let again = bench.one.granted(&claim).await?;
        ensure!(again.token == first.token, "a repeat got another token: {again:?} after {first:?}");
        ensure!(again.ttl <= first.ttl, "a repeat must say what is left: {again:?} after {first:?}");
    }
    bench.one.give_back(&claim).await?;
    bench.one.is_deserted(&claim.name).await?;
    Ok(())
}

async fn c01_a_claim_asked_again_by_another_client_is_the_same_claim(bench: &Bench) -> Check {
    let claim = bench.claim(&name("again")?);
    let first = bench.one.granted(&claim).await?;
    let again = bench.two.granted(&claim).await?;
    let raised = bench.offer.of_several && again.token > first.token;
    ensure!(
        raised || again.token == first.token,
        "two claims with one id are one claim: {first:?}, {again:?}"
    );
    let holders = bench.one.inspect(&claim.name).await?.holders;
    ensure!(holders.len() == 1, "one claim is one holder: {holders:?}");
    bench.two.give_back(&claim).await
}

async fn c01_a_repeat_prolongs_nothing(bench: &Bench) -> Check {
    let ttl = bench.short();
    let claim = Claim { ttl, ..bench.claim(&name("repeat")?) };
    let asked = bench.clock().now();
    let first = bench.one.granted(&claim).await?;
    // A repeat at each tenth of the ttl, until the store says that it is over.
    let spent = || async {
        let before = bench.clock().now();
        let state = bench.one.claim(&claim).await?.state;
        let leasehold_core::State::Granted(again) = state else { return Ok(Some(bench.since(asked))) };
        let end = bench.since(asked).saturating_sub(bench.since(before)) + again.ttl;
        ensure!(again.token == first.token, "a repeat got another token: {again:?} after {first:?}");
        // What a repeat promises, counted from when it was asked, may not go beyond the first promise, but for
        // the way there and back of the first request.
        let latest = first.ttl + if bench.offer.of_several { ttl / 5 } else { ttl / 10 };
        ensure!(
            end <= latest,
            "a repeat prolonged the lease: it ends after {end:?} instead of {:?}",
            first.ttl
        );
        Ok(None)
    };
    bench.in_time("the end of a lease that is asked for again and again", ttl, spent).await?;
    Ok(())
}

async fn c01_a_repeated_run_is_the_same_run(bench: &Bench) -> Check {
    let claim = Claim { tokens: 5, ..bench.claim(&name("run")?) };
    let first = bench.one.granted(&claim).await?;
    let again = bench.one.granted(&claim).await?;
    ensure!(
        (again.token, again.tokens) == (first.token, first.tokens),
        "a repeat is the same run of tokens: {again:?} after {first:?}"
    );
    Ok(())
}

async fn c01_a_waiter_asked_again_keeps_its_place(bench: &Bench) -> Check {
    let name = name("line")?;
    let (holder, early, late) = (bench.claim(&name), bench.fifo(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&early).await?;
    bench.two.waits(&late).await?;
    for _ in 0..3 {
        bench.one.waits(&early).await?;
    }
    let waiters = bench.one.inspect(&name).await?.waiters;
    let order: Vec<_> = waiters.iter().map(|entry| entry.id).collect();
    ensure!(order == [early.id, late.id], "asking again must keep the place: {waiters:?}");
    bench.one.give_back(&holder).await?;
    bench.two.waits(&late).await?;
    bench.one.granted(&early).await?;
    Ok(())
}

async fn c01_a_waiter_whose_place_is_gone_takes_a_new_one_at_the_end(bench: &Bench) -> Check {
    let name = name("line")?;
    let (holder, early, late) = (bench.claim(&name), bench.fifo(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&early).await?;
    bench.one.waits(&late).await?;
    // Only the late one goes on asking.
    bench.pass_asking(Duration::from_secs(3), &bench.two, &[&late]).await?;
    bench.one.waits(&early).await?;
    let waiters = bench.one.inspect(&name).await?.waiters;
    let order: Vec<_> = waiters.iter().map(|entry| entry.id).collect();
    ensure!(order == [late.id, early.id], "a place that lapsed is taken anew at the end: {waiters:?}");
    bench.one.give_back(&holder).await?;
    bench.one.waits(&early).await?;
    bench.one.granted(&late).await?;
    Ok(())
}

async fn c01_a_released_id_is_spent(bench: &Bench) -> Check {
    let claim = bench.claim(&name("spent")?);
    bench.one.granted(&claim).await?;
    bench.one.give_back(&claim).await?;
    bench.one.spent(&claim).await?;
    bench.two.spent(&claim).await?;
    let ended = bench.one.end(&claim).await?;
    ensure!(ended == Release::NotHeld, "releasing twice is releasing once: {ended:?}");
    bench.one.is_deserted(&claim.name).await?;
    Ok(())
}

async fn c01_a_withdrawn_id_is_spent(bench: &Bench) -> Check {
    let name = name("spent")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&waiter).await?;
    let ended = bench.one.end(&waiter).await?;
    ensure!(ended == Release::Withdrawn, "a place is withdrawn, not released: {ended:?}");
    bench.two.spent(&waiter).await?;
    bench.one.give_back(&holder).await?;
    bench.one.spent(&waiter).await
}

async fn c01_an_expired_id_is_spent(bench: &Bench) -> Check {
    let ttl = bench.short();
    let claim = Claim { ttl, ..bench.claim(&name("spent")?) };
    bench.one.granted(&claim).await?;
    let gone = || async { Ok(bench.one.inspect(&claim.name).await?.holders.is_empty().then_some(())) };
    bench.in_time("the end of a lease that nobody renews", ttl, gone).await?;
    bench.one.spent(&claim).await?;
    // Nor when somebody else had it meanwhile.
    let other = bench.claim(&claim.name);
    bench.two.granted(&other).await?;
    bench.one.spent(&claim).await?;
    bench.two.give_back(&other).await?;
    bench.one.spent(&claim).await
}

async fn c01_an_id_whose_short_grant_ran_out_is_spent(bench: &Bench) -> Check {
    let name = name("spent")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&waiter).await?;
    bench.one.give_back(&holder).await?;
    bench.one.granted(&waiter).await?;
    let gone = || async { Ok(bench.two.inspect(&name).await?.holders.is_empty().then_some(())) };
    bench.in_time("the end of a grant that its waiter did not renew", SHORT_GRANT, gone).await?;
    bench.two.spent(&waiter).await
}

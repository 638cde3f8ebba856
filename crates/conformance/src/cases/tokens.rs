//! Line 4: tokens of a name rise strictly with each grant.

use leasehold_core::{Claim, Share, State, Token};

use crate::asking::Asking;
use crate::bench::{Bench, name};
use crate::{Check, Failure, ensure};

super::cases! {
    c04_tokens_rise_across_releases [],
    c04_tokens_rise_across_expiry [PerClaim],
    c04_tokens_rise_across_an_emptied_line [Line],
    c04_tokens_rise_among_holders_together [Shares],
    c04_tokens_rise_although_the_wall_clock_steps_back [Counter, Stepping],
    c04_tokens_are_above_what_the_client_has_seen [Counter],
    c04_a_client_gone_mad_does_not_use_up_the_scale [Counter],
    c04_the_token_after_a_run_is_above_all_of_it [Counter],
    c04_a_proposal_is_granted_only_above_the_counter [Counter],
    c04_a_holder_may_raise_its_proposal [Counter],
    c04_a_proposal_far_ahead_of_the_clock_is_refused [Counter],
}

fn rises(last: Token, next: Token) -> Check<Token> {
    ensure!(next > last, "tokens must rise: {next:?} after {last:?}");
    Ok(next)
}

async fn c04_tokens_rise_across_releases(bench: &Bench) -> Check {
    let name = name("tokens")?;
    let mut last = None;
    for round in 0..20 {
        let claim = bench.attempt(&name);
        let client = if round % 2 == 0 { &bench.one } else { &bench.two };
        let token = client.granted(&claim).await?.token;
        last = Some(last.map_or(Ok(token), |last| rises(last, token))?);
        client.give_back(&claim).await?;
    }
    Ok(())
}

async fn c04_tokens_rise_across_expiry(bench: &Bench) -> Check {
    let name = name("tokens")?;
    let ttl = bench.short();
    let mut last = bench.one.granted(&Claim { ttl, ..bench.claim(&name) }).await?.token;
    for _ in 0..2 {
        let next = Asking::new(bench, &bench.two, Claim { ttl, ..bench.attempt(&name) });
        let grant = bench.in_time("a grant after an expiry", ttl, || next.granted()).await?;
        last = rises(last, grant.token)?;
    }
    Ok(())
}

async fn c04_tokens_rise_across_an_emptied_line(bench: &Bench) -> Check {
    let name = name("tokens")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    let first = bench.one.granted(&holder).await?.token;
    bench.two.waits(&waiter).await?;
    bench.one.give_back(&holder).await?;
    let second = rises(first, bench.two.granted(&waiter).await?.token)?;
    bench.two.give_back(&waiter).await?;
    bench.one.is_deserted(&name).await?;
    // Long enough that a store which forgets idle names has forgotten this one.
    if bench.movable() {
        bench.pass(std::time::Duration::from_secs(3600)).await;
    }
    rises(second, bench.one.granted(&bench.claim(&name)).await?.token)?;
    Ok(())
}

async fn c04_tokens_rise_among_holders_together(bench: &Bench) -> Check {
    let name = name("tokens")?;
    let mut last = None;
    for round in 0..5 {
        let client = if round % 2 == 0 { &bench.one } else { &bench.two };
        let reader = Claim { share: Share::SHARED, ..bench.attempt(&name) };
        let token = client.granted(&reader).await?.token;
        last = Some(last.map_or(Ok(token), |last| rises(last, token))?);
    }
    Ok(())
}

async fn c04_tokens_rise_although_the_wall_clock_steps_back(bench: &Bench) -> Check {
    let name = name("tokens")?;
    let mut last = None;
    for micros in [0, -1, -3_600_000_000, 7_200_000_000, -86_400_000_000] {
        bench.clock().step_wall(micros);
        for _ in 0..3 {
            let claim = bench.attempt(&name);
            let token = bench.one.granted(&claim).await?.token;
            last = Some(last.map_or(Ok(token), |last| rises(last, token))?);
            bench.one.give_back(&claim).await?;
        }
    }
    Ok(())
}

async fn c04_tokens_are_above_what_the_client_has_seen(bench: &Bench) -> Check {
    let name = name("tokens")?;
    let claim = bench.attempt(&name);
    let first = bench.one.granted(&claim).await?.token;
    bench.one.give_back(&claim).await?;
    // An hour ahead, as after a failover to a copy whose clock is behind.
    let seen = Token::new(first.get() + 3_600_000_000);
    let claim = Claim { seen, ..bench.attempt(&name) };
    let second = bench.one.granted(&claim).await?.token;
    ensure!(Some(second) > seen, "{second:?} is not above {seen:?}, which the client has seen");
    bench.one.give_back(&claim).await?;
    rises(second, bench.two.granted(&bench.attempt(&name)).await?.token)?;
    Ok(())
}

async fn c04_a_client_gone_mad_does_not_use_up_the_scale(bench: &Bench) -> Check {
    let name = name("tokens")?;
    let mad = Token::new((1 << 53) - 2);
    let claim = Claim { seen: mad, ..bench.attempt(&name) };
    let first = bench.one.granted(&claim).await?.token;
    ensure!(Some(first) < mad, "{first:?} believes what a mad client has seen");
    bench.one.give_back(&claim).await?;
    rises(first, bench.one.granted(&bench.attempt(&name)).await?.token)?;
    Ok(())
}

async fn c04_the_token_after_a_run_is_above_all_of_it(bench: &Bench) -> Check {
    let name = name("tokens")?;
    let mut last: Option<Token> = None;
    for _ in 0..4 {
        // A store grants a run only while its counter is not ahead of its clock.
        bench.pass(std::time::Duration::from_millis(1)).await;
        let claim = Claim { tokens: 50, ..bench.attempt(&name) };
        let grant = bench.one.granted(&claim).await?;
        ensure!((1..=50).contains(&grant.tokens), "50 tokens were asked for: {grant:?}");
        if let Some(last) = last {
            rises(last, grant.token)?;
        }
        last = grant.token.after(grant.tokens - 1);
        bench.one.give_back(&claim).await?;
    }
    Ok(())
}

/// A token near the store's clock that was proposed for the name and granted.
async fn near(bench: &Bench, name: &leasehold_core::LockName) -> Check<Token> {
    // Some stores have one counter for all names.
    bench.pass(std::time::Duration::from_millis(1)).await;
    let other = bench.attempt(&crate::bench::name("clock")?);
    let clock = bench.one.granted(&other).await?.token;
    bench.one.give_back(&other).await?;
    let claim = Claim { proposed: after(clock, 1)?, ..bench.attempt(name) };
    let token = bench.one.granted(&claim).await?.token;
    bench.one.give_back(&claim).await?;
    Ok(token)
}

fn after(token: Token, steps: u32) -> Check<Option<Token>> {
    token.after(steps).map(Some).ok_or_else(|| Failure::new("the scale of tokens is used up"))
}

async fn c04_a_proposal_is_granted_only_above_the_counter(bench: &Bench) -> Check {
    let name = name("proposals")?;
    let last = near(bench, &name).await?;
    for proposed in [Some(last), Token::new(last.get() - 1), Token::new(1)] {
        let claim = Claim { proposed, ..bench.attempt(&name) };
        match bench.one.claim(&claim).await?.state {
            State::Refused { counter } => {
                ensure!(counter >= last, "a refusal names the counter, {last:?} at least: {counter:?}");
            }
            other => return Err(Failure::new(format!("{proposed:?} is not above {last:?}: {other:?}"))),
        }
        bench.one.is_deserted(&name).await?;
    }
    let claim = Claim { proposed: after(last, 10)?, ..bench.attempt(&name) };
    let grant = bench.one.granted(&claim).await?;
    ensure!(Some(grant.token) == claim.proposed, "it must get the token it proposed: {grant:?}");
    ensure!(grant.tokens == 1, "a proposal is one token: {grant:?}");
    bench.one.give_back(&claim).await?;
    rises(grant.token, near(bench, &name).await?)?;
    Ok(())
}

async fn c04_a_holder_may_raise_its_proposal(bench: &Bench) -> Check {
    let name = name("proposals")?;
    let last = near(bench, &name).await?;
    let first = Claim { proposed: after(last, 5)?, ..bench.attempt(&name) };
    bench.one.granted(&first).await?;
    let equal = bench.one.granted(&first).await?;
    ensure!(Some(equal.token) == first.proposed, "an equal repeat is accepted: {equal:?}");
    let raised = Claim { proposed: after(last, 9)?, ..first.clone() };
    let grant = bench.one.granted(&raised).await?;
    ensure!(Some(grant.token) == raised.proposed, "a raise is accepted: {grant:?}");
    let state = bench.one.claim(&first).await?.state;
    ensure!(matches!(state, State::Refused { .. }), "a lower one is refused, not accepted: {state:?}");
    bench.one.give_back(&first).await?;
    rises(grant.token, near(bench, &name).await?)?;
    Ok(())
}

async fn c04_a_proposal_far_ahead_of_the_clock_is_refused(bench: &Bench) -> Check {
    let name = name("proposals")?;
    let last = near(bench, &name).await?;
    let day = 24 * 3600 * 1_000_000;
    let claim = Claim { proposed: Token::new(last.get() + day), ..bench.attempt(&name) };
    let state = bench.one.claim(&claim).await?.state;
    ensure!(matches!(state, State::Refused { .. }), "a proposal a day ahead is refused: {state:?}");
    rises(last, near(bench, &name).await?)?;
    Ok(())
}

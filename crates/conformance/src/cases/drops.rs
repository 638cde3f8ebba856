//! Line 11: every future may be dropped at any await, and every reply may be lost; what was left is found and
//! released by its id.

use std::time::Duration;

use leasehold_core::{Claim, Effect, Error, Leave, LockName, Note, Op, Release, Renewal, State, Store};

use crate::bench::{Bench, name};
use crate::chaos::{Chaos, Mishap};
use crate::client::{Client, renewal};
use crate::{Check, Failure, drop_after, ensure};

super::cases! {
    c11_a_claim_dropped_at_any_poll_leaves_nothing [],
    c11_a_waiter_dropped_at_any_poll_leaves_nothing [Line],
    c11_a_wait_dropped_at_any_poll_leaves_the_place_alone [Line],
    c11_a_renewal_dropped_at_any_poll_loses_nothing [],
    c11_a_release_dropped_at_any_poll_can_be_repeated [],
    c11_a_closing_release_dropped_at_any_poll_can_be_repeated [Closing],
    c11_a_lost_reply_to_a_claim_is_cured_by_asking_again [],
    c11_a_lost_reply_to_a_renewal_is_cured_by_asking_again [],
    c11_a_lost_reply_to_a_release_is_cured_by_asking_again [],
    c11_a_claim_overtaken_by_its_own_release_is_never_granted [],
    c11_a_late_claim_is_not_executed [],
    c11_a_claim_in_time_is_executed [],
}

/// Beyond any number of polls that a call to a store takes; one that takes more is given up at this one.
const MOST_POLLS: usize = 40;

/// Runs `round` with 0, 1, 2 .. polls until it says that the call came to its end.
pub(super) async fn at_every_poll(mut round: impl AsyncFnMut(usize) -> Check<bool>) -> Check {
    for polls in 0..MOST_POLLS {
        let finished =
            round(polls).await.map_err(|failure| failure.during(format!("after {polls} polls")))?;
        if finished {
            return Ok(());
        }
    }
    Ok(())
}

/// Gives up a claim as every program does: by its id, until the store has acknowledged it. Then nothing is left.
async fn give_up(bench: &Bench, claim: &Claim) -> Check {
    let ended = bench.one.end(claim).await?;
    let state = bench.one.claim(claim).await?.state;
    ensure!(state == State::Spent, "what was given up ({ended:?}) must not be granted: {state:?}");
    Ok(())
}

async fn c11_a_claim_dropped_at_any_poll_leaves_nothing(bench: &Bench) -> Check {
    let name = name("drop")?;
    at_every_poll(async |polls| {
        let claim = bench.claim(&name);
        let finished = drop_after(polls, bench.one.claim(&claim)).await.transpose()?.is_some();
        give_up(bench, &claim).await?;
        bench.two.is_deserted(&name).await?;
        let next = bench.attempt(&name);
        bench.two.granted(&next).await?;
        bench.two.give_back(&next).await?;
        Ok(finished)
    })
    .await
}

async fn c11_a_waiter_dropped_at_any_poll_leaves_nothing(bench: &Bench) -> Check {
    let name = name("drop")?;
    let holder = bench.claim(&name);
    bench.two.granted(&holder).await?;
    at_every_poll(async |polls| {
        let waiter = bench.fifo(&name);
        let finished = drop_after(polls, bench.one.claim(&waiter)).await.transpose()?.is_some();
        give_up(bench, &waiter).await?;
        let waiters = bench.two.inspect(&name).await?.waiters;
        ensure!(waiters.is_empty(), "a place was left: {waiters:?}");
        Ok(finished)
    })
    .await?;
    bench.two.give_back(&holder).await?;
    bench.two.granted(&bench.attempt(&name)).await?;
    Ok(())
}

async fn c11_a_wait_dropped_at_any_poll_leaves_the_place_alone(bench: &Bench) -> Check {
    let name = name("drop")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.two.granted(&holder).await?;
    for polls in 0..6 {
        let cursor = bench.one.waits(&waiter).await?;
        drop_after(polls, bench.one.changed(&name, &cursor)).await.transpose()?;
        let waiters = bench.two.inspect(&name).await?.waiters;
        ensure!(waiters.len() == 1 && waiters[0].id == waiter.id, "after {polls} polls: {waiters:?}");
    }
    give_up(bench, &waiter).await?;
    let waiters = bench.two.inspect(&name).await?.waiters;
    ensure!(waiters.is_empty(), "a place was left: {waiters:?}");
    Ok(())
}

async fn c11_a_renewal_dropped_at_any_poll_loses_nothing(bench: &Bench) -> Check {
    let claim = bench.claim(&name("drop")?);
    let token = bench.one.granted(&claim).await?.token;
    at_every_poll(async |polls| {
        let finished = drop_after(polls, bench.one.prolong(&claim, token)).await.transpose()?.is_some();
        bench.one.kept(&claim, token).await?;
        bench.two.waits(&bench.attempt(&claim.name)).await?;
        Ok(finished)
    })
    .await?;
    bench.one.give_back(&claim).await?;
    bench.two.is_deserted(&claim.name).await?;
    Ok(())
}

async fn c11_a_release_dropped_at_any_poll_can_be_repeated(bench: &Bench) -> Check {
    let name = name("drop")?;
    at_every_poll(async |polls| {
        let claim = bench.claim(&name);
        bench.one.granted(&claim).await?;
        let finished = drop_after(polls, bench.one.end(&claim)).await.transpose()?.is_some();
        give_up(bench, &claim).await?;
        bench.two.is_deserted(&name).await?;
        Ok(finished)
    })
    .await
}

async fn c11_a_closing_release_dropped_at_any_poll_can_be_repeated(bench: &Bench) -> Check {
    let mut round = 0;
    at_every_poll(async |polls| {
        round += 1;
        let claim = bench.claim(&name(&format!("drop:{round}"))?);
        bench.one.granted(&claim).await?;
        let leave = || Leave::Closed { lasting: bench.long(), note: Note::NONE };
        let release = bench.one.release(&claim.name, claim.id, leave());
        let finished = drop_after(polls, release).await.transpose()?.is_some();
        bench.one.release(&claim.name, claim.id, leave()).await?;
        bench.two.shut(&bench.attempt(&claim.name)).await?;
        Ok(finished)
    })
    .await
}

/// The first client, with mishaps.
pub(super) fn chaos(bench: &Bench) -> (std::sync::Arc<Chaos>, Client) {
    let chaos = std::sync::Arc::new(Chaos::calm(bench.one.store(), bench.clock().clone()));
    let client = Client(std::sync::Arc::clone(&chaos) as std::sync::Arc<dyn Store>);
    (chaos, client)
}

pub(super) fn unknown<T: std::fmt::Debug>(answer: Result<T, Error>) -> Check {
    match answer {
        Err(error) if error.outcome_unknown() => Ok(()),
        other => Err(Failure::new(format!("the reply was to be lost: {other:?}"))),
    }
}

async fn c11_a_lost_reply_to_a_claim_is_cured_by_asking_again(bench: &Bench) -> Check {
    let (chaos, client) = chaos(bench);
    for mishap in [Mishap::LosesReply, Mishap::LosesRequest] {
        let claim = bench.claim(&name(&format!("lost:{mishap:?}"))?);
        for _ in 0..3 {
            chaos.order(Op::Claim, mishap);
            unknown(client.claim(&claim).await)?;
        }
        let grant = client.granted(&claim).await?;
        ensure!(grant.ttl > claim.ttl / 2, "asking again cures it: {grant:?}");
        let holders = bench.two.inspect(&claim.name).await?.holders;
        ensure!(holders.len() == 1 && holders[0].token == Some(grant.token), "one claim: {holders:?}");
        client.give_back(&claim).await?;
    }
    Ok(())
}

async fn c11_a_lost_reply_to_a_renewal_is_cured_by_asking_again(bench: &Bench) -> Check {
    let (chaos, client) = chaos(bench);
    let claim = bench.claim(&name("lost")?);
    let token = client.granted(&claim).await?.token;
    for mishap in [Mishap::LosesReply, Mishap::LosesRequest] {
        chaos.order(Op::Renew, mishap);
        let answers = client.renew(&[renewal(&claim, token)]).await;
        ensure!(answers.len() == 1, "one answer each, also when it is unknown: {answers:?}");
        for answer in answers {
            unknown(answer)?;
        }
        let renewed = client.prolong(&claim, token).await?;
        ensure!(matches!(renewed, Renewal::Kept { .. }), "unknown is not lost: {renewed:?}");
    }
    client.give_back(&claim).await
}

async fn c11_a_lost_reply_to_a_release_is_cured_by_asking_again(bench: &Bench) -> Check {
    let (chaos, client) = chaos(bench);
    let name = name("lost")?;
    for (mishap, then) in [(Mishap::LosesReply, Release::NotHeld), (Mishap::LosesRequest, Release::Released)]
    {
        let claim = bench.claim(&name);
        client.granted(&claim).await?;
        chaos.order(Op::Release, mishap);
        unknown(client.release(&name, claim.id, Leave::Open).await)?;
        let ended = client.end(&claim).await?;
        ensure!(ended == then, "after {mishap:?} the second release says {ended:?}");
        bench.two.is_deserted(&name).await?;
    }
    Ok(())
}

async fn c11_a_claim_overtaken_by_its_own_release_is_never_granted(bench: &Bench) -> Check {
    let name = name("overtaken")?;
    let claims = [bench.attempt(&name), bench.claim(&name)];
    for claim in claims {
        let ended = bench.one.end(&claim).await?;
        ensure!(ended == Release::NotHeld, "it was never stated: {ended:?}");
        // It comes later by another way, as from a connection that was slow.
        bench.two.spent(&claim).await?;
        bench.pass(Duration::from_millis(10)).await;
        bench.two.spent(&claim).await?;
        bench.one.is_deserted(&name).await?;
    }
    bench.one.granted(&bench.attempt(&name)).await?;
    Ok(())
}

async fn server_time(bench: &Bench, name: &LockName) -> Check<Option<leasehold_core::ServerTime>> {
    Ok(bench.one.inspect(name).await?.server_time)
}

async fn c11_a_late_claim_is_not_executed(bench: &Bench) -> Check {
    let name = name("late")?;
    let not_after = server_time(bench, &name).await?;
    if not_after.is_none() {
        // A store that does not tell its time is never given a limit by it.
        return Ok(());
    }
    bench.pass(Duration::from_millis(50)).await;
    let late = Claim { not_after, ..bench.claim(&name) };
    let Err(error) = bench.one.claim(&late).await else {
        return Err(Failure::new("a claim was executed after its time"));
    };
    let effect = if let Error::Store(error) = &error { error.effect } else { Effect::None };
    ensure!(effect == Effect::None, "it is known not to have been executed: {error}");
    bench.two.is_deserted(&name).await?;
    Ok(())
}

async fn c11_a_claim_in_time_is_executed(bench: &Bench) -> Check {
    let name = name("timely")?;
    let not_after = server_time(bench, &name).await?.map(|now| now.after(Duration::from_secs(60)));
    let claim = Claim { not_after, ..bench.claim(&name) };
    bench.one.granted(&claim).await?;
    bench.two.granted(&claim).await?;
    bench.one.give_back(&claim).await
}

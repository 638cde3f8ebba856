//! Line 16: several claims in one step are all granted, or none is and nothing is left behind.

use leasehold_core::{Claim, Code, LockName, Op, Share, Standing, State};

use super::drops::{at_every_poll, chaos, unknown};
use super::waits::wakes;
use crate::bench::{Bench, name};
use crate::chaos::Mishap;
use crate::{Check, Failure, drop_after, ensure};

super::cases! {
    c16_all_are_granted_in_one_step [Together],
    c16_one_that_is_taken_leaves_nothing_of_the_others [Together],
    c16_whoever_waits_keeps_no_place_in_the_other_lines [Together, Line],
    c16_a_place_that_stood_before_is_left_alone [Together, Line],
    c16_nobody_who_waits_is_passed [Together, Line],
    c16_a_shut_name_is_in_the_way [Together, Closing],
    c16_a_spent_id_is_in_the_way [Together],
    c16_asked_again_it_repeats_the_grants [Together],
    c16_two_claims_of_one_name_are_refused [Together],
    c16_a_late_one_ends_the_step [Together],
    c16_another_number_of_permits_ends_the_step [Together, Shares],
    c16_the_wait_for_what_was_in_the_way_ends [Together],
    c16_who_waits_for_one_of_them_is_woken [Together, Line],
    c16_readers_of_several_names_hold_together [Together, Shares],
    c16_two_in_opposite_order_never_hold_half_of_it [Together],
    c16_sixty_four_names_are_one_step [Together],
    c16_no_claim_at_all_is_granted [Together],
    c16_dropped_at_any_poll_it_is_released_by_its_ids [Together],
    c16_a_lost_reply_is_cured_by_asking_again [Together],
}

/// A try for each of these names.
fn step(bench: &Bench, names: &[&str]) -> Check<Vec<Claim>> {
    names.iter().map(|text| Ok(bench.attempt(&name(text)?))).collect()
}

async fn deserted(bench: &Bench, claims: &[Claim]) -> Check {
    for claim in claims {
        bench.two.is_deserted(&claim.name).await?;
    }
    Ok(())
}

async fn give_back(bench: &Bench, claims: &[Claim]) -> Check {
    for claim in claims {
        bench.one.give_back(claim).await?;
    }
    Ok(())
}

async fn c16_all_are_granted_in_one_step(bench: &Bench) -> Check {
    let claims = step(bench, &["c", "a", "b"])?;
    let before = bench.one.granted(&bench.attempt(&name("other")?)).await?;
    let grants = bench.one.all(&claims).await?;
    for (claim, grant) in claims.iter().zip(&grants) {
        let holders = bench.two.inspect(&claim.name).await?.holders;
        let shown: Vec<_> = holders.iter().map(|entry| (entry.id, entry.token)).collect();
        ensure!(
            shown == [(claim.id, Some(grant.token))],
            "{} is held as was answered: {shown:?}",
            claim.name
        );
        ensure!(grant.ttl == claim.ttl, "for the full ttl: {grant:?} after {before:?}");
        bench.two.waits(&bench.attempt(&claim.name)).await?;
        bench.one.kept(claim, grant.token).await?;
    }
    give_back(bench, &claims).await?;
    let again = bench.two.all(&step(bench, &["a", "b", "c"])?).await?;
    ensure!(again[1].token > grants[2].token, "tokens rise here too: {again:?} after {grants:?}");
    Ok(())
}

/// The step is in the way of nobody, and nothing of it is to be seen.
async fn stopped_by(bench: &Bench, claims: &[Claim], at: usize) -> Check<Standing> {
    let (index, standing) = bench.one.none(claims).await?;
    ensure!(index == at, "number {index} is told to be in the way, not {at}: {standing:?}");
    for (other, claim) in claims.iter().enumerate() {
        let seen = bench.two.inspect(&claim.name).await?;
        let ids: Vec<_> = seen.holders.iter().chain(&seen.waiters).map(|entry| entry.id).collect();
        ensure!(!ids.contains(&claim.id), "number {other} was left behind: {seen:?}");
    }
    Ok(standing)
}

async fn c16_one_that_is_taken_leaves_nothing_of_the_others(bench: &Bench) -> Check {
    for taken in 0..3 {
        let names = ["a", "b", "c"].map(|text| format!("{text}:{taken}"));
        let claims = step(bench, &names.each_ref().map(String::as_str))?;
        let holder = bench.attempt(&claims[taken].name);
        bench.two.granted(&holder).await?;
        let standing = stopped_by(bench, &claims, taken).await?;
        ensure!(matches!(standing.state, State::Waiting { .. }), "it is taken: {standing:?}");
        bench.two.give_back(&holder).await?;
        deserted(bench, &claims).await?;
        // The same ids: none was granted, so none is spent.
        bench.one.all(&claims).await?;
        give_back(bench, &claims).await?;
    }
    Ok(())
}

/// A place in one line, kept while others are waited for, would be half of it left behind.
async fn c16_whoever_waits_keeps_no_place_in_the_other_lines(bench: &Bench) -> Check {
    let names = [name("a")?, name("b")?];
    let claims = [bench.fifo(&names[0]), bench.claim(&names[1])];
    let holder = bench.attempt(&names[1]);
    bench.two.granted(&holder).await?;
    stopped_by(bench, &claims, 1).await?;
    ensure!(bench.two.inspect(&names[1]).await?.waiters.is_empty(), "nor in the line of what was taken");
    Ok(())
}

async fn c16_a_place_that_stood_before_is_left_alone(bench: &Bench) -> Check {
    let claims = [bench.fifo(&name("a")?), bench.fifo(&name("b")?)];
    let holder = bench.attempt(&claims[1].name);
    bench.two.granted(&holder).await?;
    bench.one.waits(&claims[1]).await?;
    let (index, _) = bench.one.none(&claims).await?;
    ensure!(index == 1, "the taken one is in the way, not {index}");
    bench.two.is_deserted(&claims[0].name).await?;
    let waiters = bench.two.inspect(&claims[1].name).await?.waiters;
    ensure!(waiters.len() == 1 && waiters[0].id == claims[1].id, "it waits as before: {waiters:?}");
    bench.two.give_back(&holder).await?;
    bench.one.all(&claims).await.map(drop)
}

async fn c16_nobody_who_waits_is_passed(bench: &Bench) -> Check {
    let claims = step(bench, &["a", "b"])?;
    let (holder, waiter) = (bench.claim(&claims[1].name), bench.fifo(&claims[1].name));
    bench.one.granted(&holder).await?;
    bench.two.waits(&waiter).await?;
    bench.one.give_back(&holder).await?;
    stopped_by(bench, &claims, 1).await?;
    bench.two.granted(&waiter).await?;
    bench.two.give_back(&waiter).await?;
    bench.one.all(&claims).await.map(drop)
}

async fn c16_a_shut_name_is_in_the_way(bench: &Bench) -> Check {
    let claims = step(bench, &["a", "b"])?;
    let closes = bench.claim(&claims[1].name);
    bench.two.granted(&closes).await?;
    bench.two.give_back_shut(&closes, bench.long(), "shut").await?;
    let standing = stopped_by(bench, &claims, 1).await?;
    ensure!(matches!(standing.state, State::Closed(_)), "it is shut: {standing:?}");
    Ok(())
}

async fn c16_a_spent_id_is_in_the_way(bench: &Bench) -> Check {
    let claims = step(bench, &["a", "b"])?;
    bench.two.end(&claims[1]).await?;
    let standing = stopped_by(bench, &claims, 1).await?;
    ensure!(standing.state == State::Spent, "it ended before: {standing:?}");
    // And when half of what was granted is gone, asking again does not bring it back.
    let claims = step(bench, &["c", "d"])?;
    bench.one.all(&claims).await?;
    bench.one.give_back(&claims[0]).await?;
    let (index, standing) = bench.one.none(&claims).await?;
    ensure!((index, &standing.state) == (0, &State::Spent), "it was given back: {index}, {standing:?}");
    bench.one.give_back(&claims[1]).await
}

async fn c16_asked_again_it_repeats_the_grants(bench: &Bench) -> Check {
    let claims = step(bench, &["a", "b"])?;
    let first = bench.one.all(&claims).await?;
    bench.pass(std::time::Duration::from_millis(20)).await;
    for client in [&bench.one, &bench.two] {
        let again = client.all(&claims).await?;
        for (again, first) in again.iter().zip(&first) {
            ensure!(again.token == first.token, "another token: {again:?} after {first:?}");
            ensure!(again.ttl < first.ttl, "a repeat prolongs nothing: {again:?} after {first:?}");
        }
    }
    give_back(bench, &claims).await
}

async fn c16_two_claims_of_one_name_are_refused(bench: &Bench) -> Check {
    let mut names = vec!["a", "b", "a"];
    for _ in 0..2 {
        let mut claims = step(bench, &names)?;
        if bench.offer.capabilities.shares == leasehold_core::Shares::Any {
            // Not even where the two would fit beside each other: who counts on it has made a mistake.
            claims.iter_mut().for_each(|claim| claim.share = Share::SHARED);
        }
        let Err(error) = bench.one.claim_all(&claims).await else {
            return Err(Failure::new("a name was claimed twice in one step"));
        };
        ensure!(!error.outcome_unknown() && !error.is_retryable(), "it is wrong for good: {error}");
        ensure!(error.to_string().contains("a:") && error.help().is_some(), "it says which: {error}");
        deserted(bench, &claims).await?;
        names.reverse();
        names.push("c");
    }
    Ok(())
}

async fn c16_a_late_one_ends_the_step(bench: &Bench) -> Check {
    let mut claims = step(bench, &["a", "b", "c"])?;
    claims[1].not_after = bench.one.inspect(&claims[0].name).await?.server_time;
    if claims[1].not_after.is_none() {
        // A store that does not tell its time is never given a limit by it.
        return Ok(());
    }
    bench.pass(std::time::Duration::from_millis(50)).await;
    let Err(error) = bench.one.claim_all(&claims).await else {
        return Err(Failure::new("a claim was executed after its time"));
    };
    ensure!(!error.outcome_unknown(), "it is known not to have been executed: {error}");
    deserted(bench, &claims).await
}

async fn c16_another_number_of_permits_ends_the_step(bench: &Bench) -> Check {
    let mut claims = step(bench, &["a", "b"])?;
    claims[1].share = Share::permits(1, 5)?;
    let three = Claim { share: Share::permits(1, 3)?, ..bench.attempt(&claims[1].name) };
    bench.two.granted(&three).await?;
    let Err(error) = bench.one.claim_all(&claims).await else {
        return Err(Failure::new("permits of 3 and of 5 on one name went together"));
    };
    ensure!(error.code() == Code::DISAGREES, "{error}");
    bench.two.is_deserted(&claims[0].name).await.map(drop)
}

async fn c16_the_wait_for_what_was_in_the_way_ends(bench: &Bench) -> Check {
    let claims = step(bench, &["a", "b"])?;
    let holder = bench.attempt(&claims[1].name);
    bench.one.granted(&holder).await?;
    let (_, standing) = bench.two.none(&claims).await?;
    let frees = async { bench.one.give_back(&holder).await };
    wakes(bench, &claims[1], &standing.cursor, frees).await?;
    bench.two.all(&claims).await?;
    // And where it changed before the wait.
    let more = step(bench, &["a", "b"])?;
    let (index, standing) = bench.one.none(&more).await?;
    for claim in &claims {
        bench.two.give_back(claim).await?;
    }
    let wait = bench.one.changed(&more[index].name, &standing.cursor);
    bench.soon("a wait on what had changed before", wait).await??;
    bench.one.all(&more).await.map(drop)
}

async fn c16_who_waits_for_one_of_them_is_woken(bench: &Bench) -> Check {
    let claims = step(bench, &["a", "b"])?;
    bench.one.all(&claims).await?;
    for claim in &claims {
        let waiter = bench.fifo(&claim.name);
        let cursor = bench.two.waits(&waiter).await?;
        wakes(bench, &waiter, &cursor, async { bench.one.give_back(claim).await }).await?;
        bench.two.granted(&waiter).await?;
    }
    Ok(())
}

async fn c16_readers_of_several_names_hold_together(bench: &Bench) -> Check {
    let readers = || -> Check<Vec<Claim>> {
        let claims = step(bench, &["a", "b"])?.into_iter();
        Ok(claims.map(|claim| Claim { share: Share::SHARED, ..claim }).collect())
    };
    let (first, second, writers) = (readers()?, readers()?, step(bench, &["b", "a"])?);
    bench.one.all(&first).await?;
    bench.two.all(&second).await?;
    stopped_by(bench, &writers, 0).await?;
    give_back(bench, &first).await?;
    give_back(bench, &second).await?;
    bench.one.all(&writers).await.map(drop)
}

/// Whoever took one name after the other would now and then hold one each, and both would have to back out.
async fn c16_two_in_opposite_order_never_hold_half_of_it(bench: &Bench) -> Check {
    for round in 0..200 {
        let (first, second) = (step(bench, &["a", "m", "b"])?, step(bench, &["b", "m", "a"])?);
        let (one, two) = tokio::join!(bench.one.claim_all(&first), bench.two.claim_all(&second));
        let all = |answer| matches!(answer, leasehold_core::Together::All(_));
        let (winner, loser) = match (all(one?), all(two?)) {
            (true, false) => (first, second),
            (false, true) => (second, first),
            both => {
                return Err(Failure::new(format!("in round {round} one of them should hold all: {both:?}")));
            }
        };
        for (claim, lost) in winner.iter().zip(loser.iter().rev()) {
            let seen = bench.one.inspect(&claim.name).await?;
            let ids: Vec<_> = seen.holders.iter().chain(&seen.waiters).map(|entry| entry.id).collect();
            ensure!(ids == [claim.id], "{:?} holds, {:?} left nothing: {seen:?}", claim.id, lost.id);
        }
        give_back(bench, &winner).await?;
    }
    Ok(())
}

async fn c16_sixty_four_names_are_one_step(bench: &Bench) -> Check {
    let claims = (0..64).map(|n| Ok(bench.attempt(&name(&format!("n:{n:02}"))?)));
    let claims: Vec<Claim> = claims.collect::<Check<_>>()?;
    let holder = bench.attempt(&claims[63].name);
    bench.two.granted(&holder).await?;
    stopped_by(bench, &claims, 63).await?;
    ensure!(bench.two.list("n:", None).await? == [holder.name.clone()], "nothing of it is listed");
    bench.two.give_back(&holder).await?;
    bench.one.all(&claims).await?;
    let names: Vec<LockName> = claims.iter().map(|claim| claim.name.clone()).collect();
    ensure!(bench.two.list("n:", None).await? == names, "all of them are listed");
    give_back(bench, &claims).await
}

async fn c16_no_claim_at_all_is_granted(bench: &Bench) -> Check {
    let grants = bench.one.all(&[]).await?;
    ensure!(grants.is_empty(), "{grants:?}");
    Ok(())
}

async fn c16_dropped_at_any_poll_it_is_released_by_its_ids(bench: &Bench) -> Check {
    at_every_poll(async |polls| {
        let claims = step(bench, &["a", "b"])?;
        let finished = drop_after(polls, bench.one.claim_all(&claims)).await.transpose()?.is_some();
        for claim in &claims {
            bench.one.end(claim).await?;
            bench.one.spent(claim).await?;
        }
        deserted(bench, &claims).await?;
        Ok(finished)
    })
    .await
}

async fn c16_a_lost_reply_is_cured_by_asking_again(bench: &Bench) -> Check {
    let (chaos, client) = chaos(bench);
    for mishap in [Mishap::LosesReply, Mishap::LosesRequest] {
        let claims = step(bench, &["a", "b"])?;
        for _ in 0..3 {
            chaos.order(Op::Claim, mishap);
            unknown(client.claim_all(&claims).await)?;
        }
        client.all(&claims).await?;
        for claim in &claims {
            let holders = bench.two.inspect(&claim.name).await?.holders;
            ensure!(holders.len() == 1, "one claim: {holders:?}");
        }
        give_back(bench, &claims).await?;
    }
    Ok(())
}

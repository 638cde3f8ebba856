//! Line 18: a lease goes to another owner without ever being free.

use leasehold_core::{Claim, Op, Owner, Release, Renewal, Share, State, Turn};

use super::drops::{at_every_poll, chaos, unknown};
use super::reshaping::{changed, holds, reader};
use super::waits::wakes;
use crate::bench::{Bench, name};
use crate::chaos::Mishap;
use crate::{Check, Failure, drop_after, ensure};

super::cases! {
    c18_the_heir_holds_with_a_new_token_and_the_full_ttl [Succession],
    c18_the_name_is_never_free_in_between [Succession, Line],
    c18_the_old_owner_holds_no_longer [Succession],
    c18_the_old_owner_hears_of_it [Succession],
    c18_asked_again_it_is_the_same_claim [Succession],
    c18_of_what_holds_nothing_there_is_nothing_to_take_over [Succession],
    c18_what_was_spent_takes_nothing_over_later [Succession, Line],
    c18_an_heir_that_waited_leaves_its_place [Succession, Line],
    c18_an_heir_has_heirs [Succession],
    c18_a_late_heir_takes_nothing_over [Succession],
    c18_the_share_goes_over_as_it_is [Succession, Shares],
    c18_a_wish_does_not_go_over [Succession, Shares, Reshaping],
    c18_a_lost_reply_is_cured_by_asking_again [Succession],
    c18_dropped_at_any_poll_one_of_the_two_holds [Succession],
}

/// A claim of somebody else that takes over from this one.
fn heir(bench: &Bench, old: &Claim) -> Claim {
    let owner = Owner { host: "elsewhere".to_owned(), ..bench.claim(&old.name).owner };
    Claim { succeeds: Some(old.id), share: old.share, owner, ..bench.attempt(&old.name) }
}

async fn c18_the_heir_holds_with_a_new_token_and_the_full_ttl(bench: &Bench) -> Check {
    let old = Claim { tokens: 5, ..bench.claim(&name("heir")?) };
    let before = bench.one.granted(&old).await?;
    bench.pass(bench.long() / 50).await;
    let new = heir(bench, &old);
    let grant = bench.two.granted(&new).await?;
    let run = before.token.get() + u64::from(before.tokens);
    ensure!(grant.token.get() >= run, "a new owner has a new token: {grant:?} after {before:?}");
    ensure!(grant.ttl == new.ttl, "for the full ttl: {grant:?}");
    let holders = bench.one.inspect(&new.name).await?.holders;
    ensure!(holders.len() == 1 && holders[0].owner == new.owner, "the new owner is shown: {holders:?}");
    ensure!(holders[0].id == new.id && holders[0].token == Some(grant.token), "{holders:?}");
    bench.two.kept(&new, grant.token).await?;
    bench.two.give_back(&new).await?;
    bench.one.granted(&bench.attempt(&old.name)).await.map(drop)
}

async fn c18_the_name_is_never_free_in_between(bench: &Bench) -> Check {
    let old = bench.claim(&name("heir")?);
    bench.one.granted(&old).await?;
    let waiter = bench.fifo(&old.name);
    bench.one.waits(&waiter).await?;
    let new = heir(bench, &old);
    // Nobody who waits is passed by: the lease was not to be had.
    bench.two.granted(&new).await?;
    bench.one.waits(&waiter).await?;
    bench.one.waits(&bench.attempt(&old.name)).await?;
    bench.two.give_back(&new).await?;
    bench.one.granted(&waiter).await.map(drop)
}

async fn c18_the_old_owner_holds_no_longer(bench: &Bench) -> Check {
    let old = bench.claim(&name("heir")?);
    let token = bench.one.granted(&old).await?.token;
    let new = heir(bench, &old);
    bench.two.granted(&new).await?;
    let renewed = bench.one.prolong(&old, token).await?;
    ensure!(renewed == Renewal::Lost, "the old one holds nothing: {renewed:?}");
    bench.one.spent(&old).await?;
    let ended = bench.one.end(&old).await?;
    ensure!(ended == Release::NotHeld, "nor has it anything to give back: {ended:?}");
    bench.one.waits(&bench.attempt(&old.name)).await?;
    bench.two.give_back(&new).await
}

async fn c18_the_old_owner_hears_of_it(bench: &Bench) -> Check {
    let old = bench.claim(&name("heir")?);
    let cursor = bench.two.claim(&old).await?.cursor;
    let new = heir(bench, &old);
    wakes(bench, &old, &cursor, async { bench.one.granted(&new).await.map(drop) }).await?;
    bench.two.spent(&old).await
}

async fn c18_asked_again_it_is_the_same_claim(bench: &Bench) -> Check {
    let old = bench.claim(&name("heir")?);
    bench.one.granted(&old).await?;
    let new = heir(bench, &old);
    let first = bench.two.granted(&new).await?;
    bench.pass(std::time::Duration::from_millis(20)).await;
    for client in [&bench.one, &bench.two] {
        let again = client.granted(&new).await?;
        ensure!(again.token == first.token && again.ttl < first.ttl, "{again:?} after {first:?}");
    }
    bench.two.give_back(&new).await?;
    bench.two.spent(&new).await
}

async fn c18_of_what_holds_nothing_there_is_nothing_to_take_over(bench: &Bench) -> Check {
    let old = bench.claim(&name("heir")?);
    // Never stated, given back, and somebody else's.
    bench.two.spent(&heir(bench, &old)).await?;
    bench.one.granted(&old).await?;
    bench.one.give_back(&old).await?;
    bench.two.spent(&heir(bench, &old)).await?;
    bench.two.is_deserted(&old.name).await?;
    let other = bench.claim(&old.name);
    bench.one.granted(&other).await?;
    for turn in [Turn::Now, Turn::Any] {
        bench.two.spent(&Claim { turn, ..heir(bench, &old) }).await?;
    }
    let seen = bench.two.inspect(&old.name).await?;
    ensure!(seen.waiters.is_empty() && seen.holders.len() == 1, "it leaves nothing behind: {seen:?}");
    bench.one.give_back(&other).await
}

/// Otherwise the same request, arriving once more, would take what nobody behind it renews.
async fn c18_what_was_spent_takes_nothing_over_later(bench: &Bench) -> Check {
    let name = name("heir")?;
    let (holder, old) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&old).await?;
    let new = heir(bench, &old);
    bench.two.spent(&new).await?;
    bench.one.give_back(&holder).await?;
    bench.one.granted(&old).await?;
    bench.two.spent(&new).await?;
    bench.one.give_back(&old).await
}

async fn c18_an_heir_that_waited_leaves_its_place(bench: &Bench) -> Check {
    let name = name("heir")?;
    let (old, waiter, last) = (bench.claim(&name), bench.fifo(&name), bench.fifo(&name));
    bench.one.granted(&old).await?;
    bench.two.waits(&waiter).await?;
    bench.one.waits(&last).await?;
    let new = Claim { succeeds: Some(old.id), ..waiter };
    let grant = bench.two.granted(&new).await?;
    let seen = bench.one.inspect(&name).await?;
    let ids = |entries: &[leasehold_core::Entry]| entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
    ensure!(ids(&seen.holders) == [new.id] && ids(&seen.waiters) == [last.id], "{seen:?}");
    ensure!(grant.ttl == new.ttl, "for the full ttl: {grant:?}");
    bench.two.give_back(&new).await?;
    bench.one.granted(&last).await.map(drop)
}

async fn c18_an_heir_has_heirs(bench: &Bench) -> Check {
    let mut holder = bench.claim(&name("heir")?);
    let mut token = bench.one.granted(&holder).await?.token;
    for round in 0..5 {
        let client = if round % 2 == 0 { &bench.two } else { &bench.one };
        let new = heir(bench, &holder);
        let grant = client.granted(&new).await?;
        ensure!(grant.token > token, "{grant:?} after {token:?}");
        (holder, token) = (new, grant.token);
    }
    bench.one.give_back(&holder).await?;
    bench.one.is_deserted(&holder.name).await.map(drop)
}

async fn c18_a_late_heir_takes_nothing_over(bench: &Bench) -> Check {
    let old = bench.claim(&name("heir")?);
    bench.one.granted(&old).await?;
    let not_after = bench.one.inspect(&old.name).await?.server_time;
    if not_after.is_none() {
        // A store that does not tell its time is never given a limit by it.
        return Ok(());
    }
    bench.pass(std::time::Duration::from_millis(50)).await;
    let late = Claim { not_after, ..heir(bench, &old) };
    ensure!(bench.two.claim(&late).await.is_err(), "a claim was executed after its time");
    bench.one.give_back(&old).await
}

async fn c18_the_share_goes_over_as_it_is(bench: &Bench) -> Check {
    let old = holds(&bench.one, bench, "heir", Share::SHARED).await?;
    let other = reader(bench, "heir")?;
    bench.one.granted(&other).await?;
    // Asked again after a lost reply it would be a change of share, so it is none by the way.
    bench.two.refused(&Claim { share: Share::EXCLUSIVE, ..heir(bench, &old) }).await?;
    let new = heir(bench, &old);
    bench.two.granted(&new).await?;
    bench.one.waits(&bench.attempt(&old.name)).await?;
    let holders = bench.one.inspect(&old.name).await?.holders;
    ensure!(holders.len() == 2 && holders.iter().all(|e| e.share == Share::SHARED), "{holders:?}");
    bench.two.give_back(&new).await?;
    bench.one.give_back(&other).await
}

async fn c18_a_wish_does_not_go_over(bench: &Bench) -> Check {
    let plain = holds(&bench.one, bench, "heir", Share::SHARED).await?;
    let old = holds(&bench.one, bench, "heir", Share::UPGRADEABLE).await?;
    let wish = changed(&old, Share::EXCLUSIVE);
    bench.one.waits(&wish).await?;
    bench.two.waits(&reader(bench, "heir")?).await?;
    let new = heir(bench, &old);
    bench.one.granted(&new).await?;
    let held_back = reader(bench, "heir")?;
    bench.two.granted(&held_back).await?;
    bench.one.spent(&wish).await?;
    // It wants more on its own account, if it does.
    bench.one.waits(&changed(&new, Share::EXCLUSIVE)).await?;
    bench.two.give_back(&held_back).await?;
    bench.one.give_back(&plain).await?;
    bench.one.granted(&changed(&new, Share::EXCLUSIVE)).await.map(drop)
}

async fn c18_a_lost_reply_is_cured_by_asking_again(bench: &Bench) -> Check {
    let (chaos, client) = chaos(bench);
    for mishap in [Mishap::LosesReply, Mishap::LosesRequest] {
        let old = bench.claim(&name("heir")?);
        bench.two.granted(&old).await?;
        let new = heir(bench, &old);
        for _ in 0..3 {
            chaos.order(Op::Claim, mishap);
            unknown(client.claim(&new).await)?;
        }
        client.granted(&new).await?;
        let holders = bench.two.inspect(&old.name).await?.holders;
        ensure!(holders.len() == 1 && holders[0].id == new.id, "one holder: {holders:?}");
        client.give_back(&new).await?;
    }
    Ok(())
}

async fn c18_dropped_at_any_poll_one_of_the_two_holds(bench: &Bench) -> Check {
    let name = name("heir")?;
    at_every_poll(async |polls| {
        let old = bench.claim(&name);
        bench.one.granted(&old).await?;
        let new = heir(bench, &old);
        let finished = drop_after(polls, bench.one.claim(&new)).await.transpose()?.is_some();
        bench.two.waits(&bench.attempt(&name)).await?;
        let ended = [bench.one.end(&new).await?, bench.one.end(&old).await?];
        let held = ended.iter().filter(|ended| **ended == Release::Released).count();
        ensure!(held == 1, "exactly one of the two held: {ended:?}");
        // What was given up is not granted when it comes after all.
        match bench.one.claim(&new).await?.state {
            State::Spent => {}
            other => return Err(Failure::new(format!("what was given up: {other:?}"))),
        }
        bench.two.is_deserted(&name).await?;
        Ok(finished)
    })
    .await
}

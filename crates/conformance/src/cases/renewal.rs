//! Lines 7, 8 and 12: how long a grant holds, what a renewal answers for, and that only the owner has a say.

use leasehold_core::{Claim, Leave, Release, Renewal, Token};

use crate::asking::Asking;
use crate::bench::{Bench, name};
use crate::client::renewal;
use crate::{Check, Failure, ensure};

super::cases! {
    c07_a_grant_holds_from_when_it_was_asked_for [PerClaim],
    c07_a_renewed_lease_holds_from_when_the_renewal_was_asked_for [PerClaim],
    c07_a_repeat_says_what_is_left [PerClaim],
    c08_a_renewal_keeps_a_lease [PerClaim],
    c08_a_renewal_of_what_was_released_is_lost [],
    c08_a_renewal_of_what_expired_is_lost [PerClaim],
    c08_a_renewal_of_what_somebody_else_has_now_is_lost [PerClaim],
    c08_a_renewal_of_a_waiter_is_lost_and_keeps_its_place [Line],
    c08_a_renewal_never_creates [],
    c08_a_renewal_of_one_claim_prolongs_no_other [PerClaim],
    c08_a_batch_is_answered_in_its_order [],
    c08_an_empty_batch_has_no_answers [],
    c12_nobody_else_releases_a_lease [],
    c12_nobody_else_renews_a_lease [],
    c12_a_release_of_what_ran_out_does_not_end_the_next_lease [PerClaim],
    c12_a_release_names_its_own_lock_only [],
}

/// Demands that nobody gets the name before `asked + ttl`, and that somebody does in time.
async fn holds(
    bench: &Bench,
    holder: &Claim,
    asked: leasehold_core::BootTime,
    ttl: std::time::Duration,
) -> Check {
    let attempt = Asking::new(bench, &bench.two, bench.attempt(&holder.name));
    let taken = || async { Ok(attempt.granted().await?.map(|_| bench.since(asked))) };
    let after = bench.in_time("the end of a lease", ttl, taken).await?;
    ensure!(after >= ttl, "a lease that was to hold for {ttl:?} was given away after {after:?}");
    bench.two.give_back(&attempt.claim()).await
}

async fn c07_a_grant_holds_from_when_it_was_asked_for(bench: &Bench) -> Check {
    let claim = Claim { ttl: bench.short(), ..bench.claim(&name("ttl")?) };
    let asked = bench.clock().now();
    let grant = bench.one.granted(&claim).await?;
    ensure!(!grant.ttl.is_zero(), "a grant for no time at all: {grant:?}");
    holds(bench, &claim, asked, grant.ttl).await
}

async fn c07_a_renewed_lease_holds_from_when_the_renewal_was_asked_for(bench: &Bench) -> Check {
    let claim = Claim { ttl: bench.short(), ..bench.claim(&name("ttl")?) };
    let token = bench.one.granted(&claim).await?.token;
    bench.pass(claim.ttl / 3).await;
    let asked = bench.clock().now();
    let ttl = bench.one.kept(&claim, token).await?;
    holds(bench, &claim, asked, ttl).await
}

async fn c07_a_repeat_says_what_is_left(bench: &Bench) -> Check {
    let claim = Claim { ttl: bench.short(), ..bench.claim(&name("ttl")?) };
    bench.one.granted(&claim).await?;
    bench.pass(claim.ttl / 3).await;
    let asked = bench.clock().now();
    let grant = bench.one.granted(&claim).await?;
    ensure!(grant.ttl <= claim.ttl * 3 / 4, "a third of {:?} has passed: {grant:?}", claim.ttl);
    holds(bench, &claim, asked, grant.ttl).await
}

async fn c08_a_renewal_keeps_a_lease(bench: &Bench) -> Check {
    let claim = Claim { ttl: bench.short(), ..bench.claim(&name("kept")?) };
    let token = bench.one.granted(&claim).await?.token;
    let renewals = 6;
    for _ in 0..renewals {
        bench.pass(claim.ttl / 3).await;
        bench.one.kept(&claim, token).await?;
        bench.two.waits(&bench.attempt(&claim.name)).await?;
    }
    let holders = bench.two.inspect(&claim.name).await?.holders;
    let Some(entry) = holders.first() else { return Err(Failure::new("a renewed lease is not shown")) };
    // A store that prolongs a lease without writing counts none.
    let counted = [0, renewals].contains(&entry.renewals);
    ensure!(counted, "{renewals} renewals are shown as {}", entry.renewals);
    ensure!(entry.renewed.is_zero() || !bench.movable(), "it was renewed just now: {entry:?}");
    ensure!(entry.token == Some(token), "renewals change no token: {entry:?}");
    bench.one.give_back(&claim).await
}

async fn is_lost(bench: &Bench, claim: &Claim, token: Token) -> Check {
    for client in [&bench.one, &bench.two] {
        let renewed = client.prolong(claim, token).await?;
        ensure!(renewed == Renewal::Lost, "nothing is held, so nothing is kept: {renewed:?}");
    }
    Ok(())
}

async fn c08_a_renewal_of_what_was_released_is_lost(bench: &Bench) -> Check {
    let claim = bench.claim(&name("released")?);
    let token = bench.one.granted(&claim).await?.token;
    bench.two.give_back(&claim).await?;
    is_lost(bench, &claim, token).await?;
    bench.one.is_deserted(&claim.name).await?;
    Ok(())
}

async fn expires(bench: &Bench, claim: &Claim) -> Check {
    let gone = || async { Ok(bench.two.inspect(&claim.name).await?.holders.is_empty().then_some(())) };
    bench.in_time("the end of a lease that nobody renews", claim.ttl, gone).await
}

async fn c08_a_renewal_of_what_expired_is_lost(bench: &Bench) -> Check {
    let claim = Claim { ttl: bench.short(), ..bench.claim(&name("expired")?) };
    let token = bench.one.granted(&claim).await?.token;
    expires(bench, &claim).await?;
    is_lost(bench, &claim, token).await?;
    bench.one.is_deserted(&claim.name).await?;
    bench.two.granted(&bench.attempt(&claim.name)).await?;
    Ok(())
}

async fn c08_a_renewal_of_what_somebody_else_has_now_is_lost(bench: &Bench) -> Check {
    let claim = Claim { ttl: bench.short(), ..bench.claim(&name("superseded")?) };
    let token = bench.one.granted(&claim).await?.token;
    expires(bench, &claim).await?;
    let next = bench.claim(&claim.name);
    let theirs = bench.two.granted(&next).await?.token;
    is_lost(bench, &claim, token).await?;
    let holders = bench.one.inspect(&claim.name).await?.holders;
    let held: Vec<_> = holders.iter().map(|entry| (entry.id, entry.token)).collect();
    ensure!(held == [(next.id, Some(theirs))], "the next lease is as it was: {holders:?}");
    Ok(())
}

async fn c08_a_renewal_of_a_waiter_is_lost_and_keeps_its_place(bench: &Bench) -> Check {
    let name = name("waiter")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    let token = bench.one.granted(&holder).await?.token;
    bench.one.waits(&waiter).await?;
    let renewed = bench.one.prolong(&waiter, token).await?;
    ensure!(renewed == Renewal::Lost, "who waits holds nothing: {renewed:?}");
    bench.one.give_back(&holder).await?;
    bench.one.granted(&waiter).await?;
    Ok(())
}

async fn c08_a_renewal_never_creates(bench: &Bench) -> Check {
    let claim = bench.claim(&name("never")?);
    let Some(token) = Token::new(7) else { return Err(Failure::new("7 is a token")) };
    is_lost(bench, &claim, token).await?;
    bench.one.is_deserted(&claim.name).await?;
    let listed = bench.one.list("", None).await?;
    ensure!(listed.is_empty(), "a renewal of nothing made something: {listed:?}");
    bench.two.granted(&bench.attempt(&claim.name)).await?;
    Ok(())
}

async fn c08_a_renewal_of_one_claim_prolongs_no_other(bench: &Bench) -> Check {
    // Of one owner, through one client: a store that renews a session would keep both.
    let ttl = bench.short();
    let renewed = Claim { ttl, ..bench.claim(&name("one")?) };
    let left = Claim { ttl, owner: renewed.owner.clone(), ..bench.claim(&name("other")?) };
    let token = bench.one.granted(&renewed).await?.token;
    let lost = bench.one.granted(&left).await?.token;
    let asked = bench.clock().now();
    while bench.since(asked) <= ttl + ttl / 10 {
        bench.pass(ttl / 5).await;
        bench.one.kept(&renewed, token).await?;
    }
    let answer = bench.one.prolong(&left, lost).await?;
    ensure!(answer == Renewal::Lost, "a claim that nobody renewed was kept by the renewal of another");
    bench.two.granted(&bench.attempt(&left.name)).await?;
    bench.one.give_back(&renewed).await
}

async fn c08_a_batch_is_answered_in_its_order(bench: &Bench) -> Check {
    let held = [bench.claim(&name("a")?), bench.claim(&name("b")?), bench.claim(&name("c")?)];
    let mut tokens = Vec::new();
    for claim in &held {
        tokens.push(bench.one.granted(claim).await?.token);
    }
    let never = bench.claim(&name("d")?);
    bench.one.give_back(&held[1]).await?;
    let batch = [
        renewal(&never, tokens[0]),
        renewal(&held[0], tokens[0]),
        renewal(&held[1], tokens[1]),
        renewal(&held[2], tokens[2]),
        renewal(&held[0], tokens[0]),
    ];
    let mut kept = Vec::new();
    for answer in bench.two.renew(&batch).await {
        kept.push(matches!(answer?, Renewal::Kept { .. }));
    }
    ensure!(kept == [false, true, false, true, true], "one answer each, in their order: {kept:?}");
    Ok(())
}

async fn c08_an_empty_batch_has_no_answers(bench: &Bench) -> Check {
    let answers = bench.one.renew(&[]).await;
    ensure!(answers.is_empty(), "nothing was asked: {answers:?}");
    Ok(())
}

async fn c12_nobody_else_releases_a_lease(bench: &Bench) -> Check {
    let holder = bench.claim(&name("mine")?);
    let token = bench.one.granted(&holder).await?.token;
    // Even with the same owner: it is the id that counts.
    let stranger = Claim { owner: holder.owner.clone(), ..bench.claim(&holder.name) };
    for client in [&bench.one, &bench.two] {
        let ended = client.release(&holder.name, stranger.id, Leave::Open).await?;
        ensure!(ended == Release::NotHeld, "a stranger's release should find nothing: {ended:?}");
    }
    bench.two.waits(&bench.attempt(&holder.name)).await?;
    bench.one.kept(&holder, token).await?;
    bench.one.give_back(&holder).await
}

async fn c12_nobody_else_renews_a_lease(bench: &Bench) -> Check {
    let holder = bench.claim(&name("mine")?);
    let token = bench.one.granted(&holder).await?.token;
    let stranger = Claim { owner: holder.owner.clone(), ..bench.claim(&holder.name) };
    let renewed = bench.one.prolong(&stranger, token).await?;
    ensure!(renewed == Renewal::Lost, "a stranger's renewal should find nothing: {renewed:?}");
    let holders = bench.one.inspect(&holder.name).await?.holders;
    ensure!(holders.len() == 1 && holders[0].renewals == 0, "it was renewed by a stranger: {holders:?}");
    Ok(())
}

async fn c12_a_release_of_what_ran_out_does_not_end_the_next_lease(bench: &Bench) -> Check {
    let first = Claim { ttl: bench.short(), ..bench.claim(&name("late")?) };
    bench.one.granted(&first).await?;
    expires(bench, &first).await?;
    let next = bench.claim(&first.name);
    let token = bench.two.granted(&next).await?.token;
    let ended = bench.one.end(&first).await?;
    ensure!(ended == Release::NotHeld, "what ran out is not held: {ended:?}");
    bench.two.kept(&next, token).await?;
    bench.one.waits(&bench.attempt(&first.name)).await?;
    Ok(())
}

async fn c12_a_release_names_its_own_lock_only(bench: &Bench) -> Check {
    let (one, other) = (bench.claim(&name("one")?), bench.claim(&name("other")?));
    bench.one.granted(&one).await?;
    bench.one.granted(&other).await?;
    bench.one.give_back(&one).await?;
    bench.two.waits(&bench.attempt(&other.name)).await?;
    bench.one.give_back(&other).await
}

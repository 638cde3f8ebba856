//! Line 19: a lease that nobody gave back may leave its name shut, one that was given back does not.

use std::time::Duration;

use leasehold_core::{Aftermath, BootTime, Claim, Closure, Release, SHORT_GRANT, Share, State};

use super::waits::ends_within;
use crate::asking::Asking;
use crate::bench::{Bench, name};
use crate::{Check, Failure, ensure};

super::cases! {
    c19_a_lease_that_ran_out_leaves_the_name_shut [Aftermath, PerClaim],
    c19_a_lease_that_was_given_back_leaves_it_open [Aftermath],
    c19_a_lease_that_somebody_else_ended_leaves_it_open [Aftermath],
    c19_the_least_counts_from_the_grant [Aftermath, PerClaim],
    c19_the_delay_counts_from_the_end [Aftermath, PerClaim],
    c19_the_longer_of_both_counts [Aftermath, PerClaim],
    c19_without_one_the_name_is_free_at_once [Aftermath, PerClaim],
    c19_it_is_shown_before_anybody_has_asked_for_the_name [Aftermath, PerClaim],
    c19_who_waits_goes_when_it_opens [Aftermath, PerClaim, Line],
    c19_who_looks_hears_that_it_opens [Aftermath, PerClaim],
    c19_a_waiter_that_died_with_its_grant_leaves_it_shut [Aftermath, PerClaim, Line],
    c19_a_place_that_lapses_leaves_nothing [Aftermath, PerClaim, Line],
    c19_readers_who_live_go_on [Aftermath, PerClaim, Shares],
    c19_a_shorter_one_opens_nothing_early [Aftermath, PerClaim, Closing, Shares],
    c19_a_lease_that_went_to_another_owner_leaves_nothing [Aftermath, PerClaim, Succession],
    c19_the_name_is_shut_for_several_at_once_too [Aftermath, PerClaim, Together],
    c19_more_waits_for_it [Aftermath, PerClaim, Shares, Reshaping],
}

const DELAY: Duration = Duration::from_secs(1);

fn delayed(delay: Duration) -> Aftermath {
    Aftermath { delay, at_least: Duration::ZERO }
}

/// A lease that nobody renews or gives back, and when it was asked for.
async fn dies(bench: &Bench, text: &str, aftermath: Aftermath) -> Check<(Claim, BootTime)> {
    let claim = Claim { ttl: bench.short(), aftermath, ..bench.claim(&name(text)?) };
    let asked = bench.clock().now();
    bench.one.granted(&claim).await?;
    Ok((claim, asked))
}

/// Until it has run out.
async fn ran_out(bench: &Bench, claim: &Claim) -> Check {
    let gone = || async { Ok(bench.two.inspect(&claim.name).await?.holders.is_empty().then_some(())) };
    bench.in_time("the end of a lease that nobody renews", claim.ttl, gone).await
}

/// The same of one that leaves its name shut.
async fn left_shut(bench: &Bench, claim: &Claim) -> Check {
    ran_out(bench, claim).await?;
    if !bench.offer.of_several {
        return Ok(());
    }
    // What has run out in some of several, and left them shut, is held in the others for a moment.
    let shut = || async { Ok(bench.two.inspect(&claim.name).await?.closed.map(drop)) };
    bench.in_time("the closure after a lease that nobody renews", DELAY, shut).await
}

/// How long after `since` a try gets the name, which was shut until then.
async fn opens(bench: &Bench, claim: &Claim, since: BootTime, expected: Duration) -> Check<Duration> {
    let asking = Asking::new(bench, &bench.two, bench.attempt(&claim.name));
    bench.in_time("the opening of a name", expected, || asking.granted()).await?;
    Ok(bench.since(since))
}

async fn closure(bench: &Bench, claim: &Claim) -> Check<Closure> {
    let closure = bench.two.shut(&bench.attempt(&claim.name)).await?;
    ensure!(closure.by == claim.owner, "it says whose lease it was: {closure:?}");
    Ok(closure)
}

async fn c19_a_lease_that_ran_out_leaves_the_name_shut(bench: &Bench) -> Check {
    let (claim, asked) = dies(bench, "shut", delayed(DELAY)).await?;
    left_shut(bench, &claim).await?;
    let closure = closure(bench, &claim).await?;
    ensure!(closure.left <= DELAY, "for longer than was asked for: {closure:?}");
    let waits = bench.claim(&claim.name);
    bench.two.shut(&waits).await?;
    bench.two.end(&waits).await?;
    bench.one.spent(&claim).await?;
    let after = opens(bench, &claim, asked, DELAY).await?;
    ensure!(after >= claim.ttl + DELAY, "{after:?} after the grant is too early: {:?}, {DELAY:?}", claim.ttl);
    bench.one.spent(&claim).await
}

async fn c19_a_lease_that_was_given_back_leaves_it_open(bench: &Bench) -> Check {
    let aftermath = Aftermath { delay: bench.long(), at_least: bench.long() };
    let (claim, _) = dies(bench, "clean", aftermath).await?;
    bench.one.give_back(&claim).await?;
    bench.two.granted(&bench.attempt(&claim.name)).await.map(drop)
}

async fn c19_a_lease_that_somebody_else_ended_leaves_it_open(bench: &Bench) -> Check {
    let (claim, _) = dies(bench, "broken", delayed(bench.long())).await?;
    let ended = bench.two.end(&claim).await?;
    ensure!(ended == Release::Released, "by its id anybody may: {ended:?}");
    bench.two.granted(&bench.attempt(&claim.name)).await.map(drop)
}

async fn c19_the_least_counts_from_the_grant(bench: &Bench) -> Check {
    let at_least = bench.short() + DELAY;
    let aftermath = Aftermath { delay: Duration::ZERO, at_least };
    let (claim, asked) = dies(bench, "least", aftermath).await?;
    left_shut(bench, &claim).await?;
    let closure = closure(bench, &claim).await?;
    ensure!(closure.left <= DELAY, "what is left of {at_least:?} after {:?}: {closure:?}", claim.ttl);
    let after = opens(bench, &claim, asked, DELAY).await?;
    ensure!(after >= at_least, "shut for {at_least:?} from the grant, it opened after {after:?}");
    // Once it lasted so long there is nothing to leave.
    let aftermath = Aftermath { delay: Duration::ZERO, at_least: claim.ttl / 2 };
    let (claim, _) = dies(bench, "long enough", aftermath).await?;
    ran_out(bench, &claim).await?;
    bench.two.granted(&bench.attempt(&claim.name)).await.map(drop)
}

async fn c19_the_delay_counts_from_the_end(bench: &Bench) -> Check {
    let (claim, _) = dies(bench, "renewed", delayed(DELAY)).await?;
    let token = bench.one.granted(&claim).await?.token;
    bench.pass(claim.ttl / 2).await;
    let renewed = bench.clock().now();
    bench.one.kept(&claim, token).await?;
    left_shut(bench, &claim).await?;
    closure(bench, &claim).await?;
    let after = opens(bench, &claim, renewed, DELAY).await?;
    ensure!(after >= claim.ttl + DELAY, "a renewed lease ends later: it opened after {after:?}");
    Ok(())
}

async fn c19_the_longer_of_both_counts(bench: &Bench) -> Check {
    let long = bench.short() + 2 * DELAY;
    for (text, aftermath) in [
        ("delay", Aftermath { delay: 2 * DELAY, at_least: bench.short() + DELAY }),
        ("least", Aftermath { delay: DELAY, at_least: long }),
    ] {
        let (claim, asked) = dies(bench, text, aftermath).await?;
        ran_out(bench, &claim).await?;
        let after = opens(bench, &claim, asked, 2 * DELAY).await?;
        ensure!(after >= long, "{text}: shut until {long:?} after the grant, it opened after {after:?}");
    }
    Ok(())
}

async fn c19_without_one_the_name_is_free_at_once(bench: &Bench) -> Check {
    let (claim, _) = dies(bench, "free", Aftermath::NONE).await?;
    ran_out(bench, &claim).await?;
    let seen = bench.two.is_deserted(&claim.name).await?;
    ensure!(seen.closed.is_none(), "it leaves nothing: {seen:?}");
    bench.two.granted(&bench.attempt(&claim.name)).await.map(drop)
}

async fn c19_it_is_shown_before_anybody_has_asked_for_the_name(bench: &Bench) -> Check {
    let (claim, _) = dies(bench, "shown", delayed(DELAY)).await?;
    left_shut(bench, &claim).await?;
    for client in [&bench.one, &bench.two] {
        let Some(closed) = client.is_deserted(&claim.name).await?.closed else {
            return Err(Failure::new("a name that is shut is shown as open"));
        };
        ensure!(closed.by == claim.owner && closed.left <= DELAY, "{closed:?}");
        ensure!(client.list("sho", None).await? == [claim.name.clone()], "a shut name is listed");
    }
    let gone = || async { Ok(bench.two.inspect(&claim.name).await?.closed.is_none().then_some(())) };
    bench.in_time("the opening of a name that nobody asks for", DELAY, gone).await?;
    if bench.offer.of_several {
        let unlisted = || async { Ok(bench.two.list("sho", None).await?.is_empty().then_some(())) };
        bench.in_time("the opening of a name in each", DELAY, unlisted).await?;
    }
    ensure!(bench.two.list("sho", None).await?.is_empty(), "a name that has opened is not listed");
    bench.two.granted(&bench.attempt(&claim.name)).await.map(drop)
}

async fn c19_who_waits_goes_when_it_opens(bench: &Bench) -> Check {
    let (claim, asked) = dies(bench, "line", delayed(DELAY)).await?;
    let (first, second) = (bench.fifo(&claim.name), bench.fifo(&claim.name));
    bench.two.waits(&first).await?;
    bench.two.waits(&second).await?;
    let all = claim.ttl + DELAY;
    bench.pass_asking(claim.ttl + DELAY / 2, &bench.two, &[&first, &second]).await?;
    let standing = bench.two.claim(&first).await?;
    ensure!(matches!(standing.state, State::Closed(_)), "its turn has come, and it is shut: {standing:?}");
    let wait = bench.two.changed(&claim.name, &standing.cursor);
    ends_within(bench, "the end of a wait on a shut name", DELAY / 2, wait).await?;
    let goes = || async {
        // The second one asks first, each time.
        let state = bench.one.claim(&second).await?.state;
        ensure!(!matches!(state, State::Granted(_)), "who came second goes first: {state:?}");
        let state = bench.two.claim(&first).await?.state;
        Ok(matches!(state, State::Granted(_)).then_some(()))
    };
    bench.in_time("the turn of who waited", DELAY, goes).await?;
    ensure!(bench.since(asked) >= all, "it opened after {:?}", bench.since(asked));
    Ok(())
}

/// Nobody sweeps the line, so nobody writes down that it is shut: who only looks must hear of both ends.
async fn c19_who_looks_hears_that_it_opens(bench: &Bench) -> Check {
    // Longer than the steps in which a clock that stands still is moved on to the end of the lease.
    let delay = DELAY.max(bench.short() / 4);
    let (claim, _) = dies(bench, "look", delayed(delay)).await?;
    let held = bench.two.inspect(&claim.name).await?.cursor;
    let wait = bench.two.changed(&claim.name, &held);
    ends_within(bench, "the end of a watcher's wait", claim.ttl, wait).await?;
    left_shut(bench, &claim).await?;
    let shut = bench.two.inspect(&claim.name).await?;
    ensure!(shut.closed.is_some(), "it is shut now: {shut:?}");
    let wait = bench.two.changed(&claim.name, &shut.cursor);
    ends_within(bench, "the end of a wait for the opening", delay, wait).await?;
    let open = || async { Ok(bench.two.inspect(&claim.name).await?.closed.is_none().then_some(())) };
    bench.in_time("the opening of a name", delay, open).await?;
    // Old looks are out of date for good, however the line goes on.
    for _ in 0..3 {
        let other = bench.attempt(&claim.name);
        bench.one.granted(&other).await?;
        bench.soon("a wait on an old look", bench.two.changed(&claim.name, &shut.cursor)).await??;
        bench.one.give_back(&other).await?;
        bench.soon("a wait on an old look", bench.two.changed(&claim.name, &held)).await??;
    }
    Ok(())
}

/// Nobody can tell whether it ever heard of its grant.
async fn c19_a_waiter_that_died_with_its_grant_leaves_it_shut(bench: &Bench) -> Check {
    let name = name("waiter")?;
    let holder = bench.claim(&name);
    let waiter = Claim { aftermath: delayed(DELAY), ..bench.fifo(&name) };
    bench.one.granted(&holder).await?;
    bench.one.waits(&waiter).await?;
    bench.one.give_back(&holder).await?;
    let granted = bench.clock().now();
    bench.one.granted(&waiter).await?;
    let gone = || async { Ok(bench.two.inspect(&name).await?.holders.is_empty().then_some(())) };
    bench.in_time("the end of a short grant", SHORT_GRANT, gone).await?;
    closure(bench, &waiter).await?;
    let after = opens(bench, &waiter, granted, DELAY).await?;
    ensure!(after >= SHORT_GRANT + DELAY, "it opened after {after:?}");
    Ok(())
}

async fn c19_a_place_that_lapses_leaves_nothing(bench: &Bench) -> Check {
    let name = name("place")?;
    let holder = bench.claim(&name);
    bench.one.granted(&holder).await?;
    bench.two.waits(&Claim { aftermath: delayed(bench.long()), ..bench.fifo(&name) }).await?;
    let gone = || async { Ok(bench.two.inspect(&name).await?.waiters.is_empty().then_some(())) };
    bench.in_time("the lapse of a place", leasehold_core::PLACE_LIFE, gone).await?;
    bench.one.end(&holder).await?;
    bench.two.granted(&bench.attempt(&name)).await.map(drop)
}

async fn c19_readers_who_live_go_on(bench: &Bench) -> Check {
    let name = name("readers")?;
    let lives = Claim { share: Share::SHARED, ttl: 2 * bench.short(), ..bench.claim(&name) };
    let dies = Claim {
        ttl: bench.short(),
        aftermath: delayed(bench.long()),
        id: bench.claim(&name).id,
        ..lives.clone()
    };
    let token = bench.one.granted(&lives).await?.token;
    bench.one.granted(&dies).await?;
    bench.pass(dies.ttl / 2).await;
    bench.one.kept(&lives, token).await?;
    bench.pass(dies.ttl / 2 + dies.ttl / 10).await;
    // In real time a store may be a little late to notice.
    let gone = || async { Ok((bench.two.inspect(&name).await?.holders.len() == 1).then_some(())) };
    bench.in_time("the end of a lease that nobody renews", dies.ttl, gone).await?;
    bench.one.kept(&lives, token).await?;
    bench.two.shut(&Claim { share: Share::SHARED, ..bench.attempt(&name) }).await?;
    bench.one.give_back(&lives).await
}

async fn c19_a_shorter_one_opens_nothing_early(bench: &Bench) -> Check {
    let name = name("longer")?;
    let share = Share::SHARED;
    let dies = Claim { share, ttl: bench.short(), aftermath: delayed(DELAY / 4), ..bench.claim(&name) };
    let closes = Claim { share, ..bench.claim(&name) };
    bench.one.granted(&dies).await?;
    bench.one.granted(&closes).await?;
    bench.one.give_back_shut(&closes, 3 * bench.short(), "long").await?;
    bench.pass(dies.ttl + DELAY / 2).await;
    let closure = bench.two.shut(&bench.attempt(&name)).await?;
    ensure!(closure.note.text() == Some("long"), "the longer closure holds: {closure:?}");
    Ok(())
}

async fn c19_a_lease_that_went_to_another_owner_leaves_nothing(bench: &Bench) -> Check {
    let (old, _) = dies(bench, "heir", delayed(bench.long())).await?;
    let heir = Claim { succeeds: Some(old.id), ..bench.attempt(&old.name) };
    bench.two.granted(&heir).await?;
    bench.two.give_back(&heir).await?;
    bench.one.granted(&bench.attempt(&old.name)).await?;
    // What the heir leaves behind is its own business.
    let (old, asked) = dies(bench, "own", Aftermath::NONE).await?;
    let aftermath = delayed(DELAY);
    let heir = Claim { succeeds: Some(old.id), aftermath, ttl: old.ttl, ..bench.attempt(&old.name) };
    bench.two.granted(&heir).await?;
    ran_out(bench, &heir).await?;
    closure(bench, &heir).await?;
    let after = opens(bench, &heir, asked, DELAY).await?;
    ensure!(after >= heir.ttl + DELAY, "it opened after {after:?}");
    Ok(())
}

async fn c19_the_name_is_shut_for_several_at_once_too(bench: &Bench) -> Check {
    let (claim, _) = dies(bench, "several", delayed(bench.long())).await?;
    ran_out(bench, &claim).await?;
    let step = [bench.attempt(&name("free")?), bench.attempt(&claim.name)];
    let (index, standing) = bench.one.none(&step).await?;
    ensure!(index == 1 && matches!(standing.state, State::Closed(_)), "{index}: {standing:?}");
    bench.two.is_deserted(&step[0].name).await.map(drop)
}

/// The reader that died may still be reading, which is what the delay is for.
async fn c19_more_waits_for_it(bench: &Bench) -> Check {
    let name = name("more")?;
    let dies =
        Claim { share: Share::SHARED, ttl: bench.short(), aftermath: delayed(DELAY), ..bench.claim(&name) };
    let mine = Claim { share: Share::UPGRADEABLE, ttl: 3 * bench.short(), ..bench.claim(&name) };
    let asked = bench.clock().now();
    bench.one.granted(&dies).await?;
    bench.two.granted(&mine).await?;
    let writer = super::reshaping::changed(&mine, Share::EXCLUSIVE);
    let granted = || async {
        let state = bench.two.claim(&writer).await?.state;
        Ok(matches!(state, State::Granted(_)).then_some(()))
    };
    bench.in_time("the grant of more", dies.ttl + DELAY, granted).await?;
    let after = bench.since(asked);
    ensure!(after >= dies.ttl + DELAY, "a reader died, and somebody writes {after:?} after it was granted");
    Ok(())
}

//! Line 17, what holds of every change of a share: less at once, which changes are refused, and that the last
//! statement counts.

use leasehold_core::{Claim, Code, Op, Renewal, Share, State};

use super::drops::{at_every_poll, chaos, unknown};
use super::waits::wakes;
use crate::bench::{Bench, name};
use crate::chaos::Mishap;
use crate::client::Client;
use crate::{Check, Failure, drop_after, ensure};

super::cases! {
    c17_less_is_granted_at_once_under_the_same_token [Reshaping, Shares],
    c17_a_step_down_lets_readers_in_and_no_writer [Reshaping, Shares, Line],
    c17_a_step_down_asked_again_is_one_step [Reshaping, Shares],
    c17_upgradeable_readers_exclude_each_other_and_no_plain_one [Reshaping, Shares],
    c17_a_plain_reader_cannot_grow [Reshaping, Shares],
    c17_only_permits_that_exclude_their_kind_grow [Reshaping, Shares],
    c17_a_share_stays_a_part_of_the_same_whole [Reshaping, Shares],
    c17_who_waits_keeps_its_share [Reshaping, Shares, Line],
    c17_an_old_statement_makes_no_writer_a_reader [Reshaping, Shares],
    c17_an_old_statement_brings_no_wish_back [Reshaping, Shares],
    c17_a_lost_reply_to_a_change_is_cured_by_asking_again [Reshaping, Shares],
    c17_a_change_dropped_at_any_poll_can_be_taken_back [Reshaping, Shares],
}

/// The next change of a claim's share.
pub(super) fn changed(claim: &Claim, share: Share) -> Claim {
    Claim { share, reshape: claim.reshape + 1, ..claim.clone() }
}

/// A claim of this share, granted.
pub(super) async fn holds(client: &Client, bench: &Bench, text: &str, share: Share) -> Check<Claim> {
    let claim = Claim { share, ..bench.claim(&name(text)?) };
    client.granted(&claim).await?;
    Ok(claim)
}

pub(super) fn reader(bench: &Bench, text: &str) -> Check<Claim> {
    Ok(Claim { share: Share::SHARED, ..bench.attempt(&name(text)?) })
}

async fn c17_less_is_granted_at_once_under_the_same_token(bench: &Bench) -> Check {
    let writer = bench.claim(&name("rw")?);
    let grant = bench.one.granted(&writer).await?;
    bench.two.waits(&reader(bench, "rw")?).await?;
    for (less, beside) in [(Share::UPGRADEABLE, Share::SHARED), (Share::SHARED, Share::UPGRADEABLE)] {
        let less = Claim { reshape: 1 + u32::from(less == Share::SHARED), share: less, ..writer.clone() };
        let again = bench.one.granted(&less).await?;
        ensure!(again.token == grant.token, "less needs no new token: {again:?} after {grant:?}");
        ensure!(again.ttl <= grant.ttl, "it prolongs nothing: {again:?} after {grant:?}");
        bench.one.kept(&less, again.token).await?;
        bench.two.granted(&Claim { share: beside, ..bench.attempt(&writer.name) }).await?;
        bench.two.waits(&bench.attempt(&writer.name)).await?;
    }
    let holders = bench.two.inspect(&writer.name).await?.holders;
    ensure!(holders.len() == 3 && holders[0].share == Share::SHARED, "{holders:?}");
    bench.one.give_back(&writer).await
}

async fn c17_a_step_down_lets_readers_in_and_no_writer(bench: &Bench) -> Check {
    let writer = holds(&bench.one, bench, "rw", Share::EXCLUSIVE).await?;
    let waiter = Claim { share: Share::SHARED, ..bench.fifo(&writer.name) };
    let cursor = bench.two.waits(&waiter).await?;
    let next = bench.fifo(&writer.name);
    bench.two.waits(&next).await?;
    let less = changed(&writer, Share::SHARED);
    wakes(bench, &waiter, &cursor, async { bench.one.granted(&less).await.map(drop) }).await?;
    bench.two.waits(&next).await?;
    bench.two.granted(&waiter).await?;
    // And where it changed before the wait.
    let again = holds(&bench.one, bench, "before", Share::EXCLUSIVE).await?;
    let waiter = Claim { share: Share::SHARED, ..bench.fifo(&again.name) };
    let cursor = bench.two.waits(&waiter).await?;
    bench.one.granted(&changed(&again, Share::SHARED)).await?;
    bench.soon("a wait on what had changed before", bench.two.changed(&again.name, &cursor)).await??;
    bench.two.granted(&waiter).await.map(drop)
}

async fn c17_a_step_down_asked_again_is_one_step(bench: &Bench) -> Check {
    let writer = holds(&bench.one, bench, "rw", Share::EXCLUSIVE).await?;
    let less = changed(&writer, Share::UPGRADEABLE);
    let first = bench.one.granted(&less).await?;
    for client in [&bench.one, &bench.two] {
        let again = client.granted(&less).await?;
        ensure!(again.token == first.token, "{again:?} after {first:?}");
    }
    let holders = bench.two.inspect(&writer.name).await?.holders;
    ensure!(holders.len() == 1 && holders[0].share == Share::UPGRADEABLE, "{holders:?}");
    Ok(())
}

async fn c17_upgradeable_readers_exclude_each_other_and_no_plain_one(bench: &Bench) -> Check {
    let upgradeable = holds(&bench.one, bench, "rw", Share::UPGRADEABLE).await?;
    for _ in 0..3 {
        bench.two.granted(&reader(bench, "rw")?).await?;
    }
    let second = Claim { share: Share::UPGRADEABLE, ..bench.attempt(&upgradeable.name) };
    bench.two.waits(&second).await?;
    bench.two.waits(&bench.attempt(&upgradeable.name)).await?;
    bench.one.give_back(&upgradeable).await?;
    bench.two.granted(&second).await.map(drop)
}

async fn c17_a_plain_reader_cannot_grow(bench: &Bench) -> Check {
    let plain = holds(&bench.one, bench, "rw", Share::SHARED).await?;
    // Not even alone: whoever tries it out alone would rely on it.
    for more in [Share::EXCLUSIVE, Share::UPGRADEABLE] {
        let error = bench.one.refused(&changed(&plain, more)).await?;
        ensure!(error.to_string().contains("shared"), "it says what it is: {error}");
    }
    let holders = bench.two.inspect(&plain.name).await?.holders;
    let as_before = holders.len() == 1 && holders[0].share == Share::SHARED && holders[0].wanted.is_none();
    ensure!(as_before, "what is refused changes nothing: {holders:?}");
    bench.two.granted(&reader(bench, "rw")?).await?;
    bench.one.give_back(&plain).await
}

async fn c17_only_permits_that_exclude_their_kind_grow(bench: &Bench) -> Check {
    let permits = |take| Share::permits(take, 3);
    let one = holds(&bench.one, bench, "permits", permits(1)?).await?;
    bench.one.refused(&changed(&one, permits(2)?)).await?;
    let two = holds(&bench.two, bench, "permits", permits(2)?).await?;
    let three = changed(&two, permits(3)?);
    bench.two.waits(&three).await?;
    bench.one.give_back(&one).await?;
    bench.two.granted(&three).await?;
    bench.one.waits(&Claim { share: permits(1)?, ..bench.attempt(&two.name) }).await?;
    bench.two.granted(&changed(&three, permits(1)?)).await?;
    bench.one.granted(&Claim { share: permits(2)?, ..bench.attempt(&two.name) }).await.map(drop)
}

async fn c17_a_share_stays_a_part_of_the_same_whole(bench: &Bench) -> Check {
    let upgradeable = holds(&bench.one, bench, "rw", Share::UPGRADEABLE).await?;
    for _ in 0..5 {
        bench.two.granted(&reader(bench, "rw")?).await?;
    }
    // Two of three are fewer than half of all, and too many beside five others.
    bench.one.refused(&changed(&upgradeable, Share::permits(2, 3)?)).await?;
    let three = holds(&bench.one, bench, "permits", Share::permits(3, 3)?).await?;
    let error = bench.one.refused(&changed(&three, Share::permits(1, 5)?)).await?;
    ensure!(error.code() == Code::DISAGREES, "{error}");
    bench.one.refused(&changed(&three, Share::SHARED)).await.map(drop)
}

async fn c17_who_waits_keeps_its_share(bench: &Bench) -> Check {
    let holder = holds(&bench.one, bench, "rw", Share::SHARED).await?;
    let waiter = bench.fifo(&holder.name);
    bench.two.waits(&waiter).await?;
    // It would be granted as a reader, and stand there as the writer.
    bench.two.refused(&changed(&waiter, Share::SHARED)).await?;
    bench.two.refused(&Claim { share: Share::SHARED, ..waiter.clone() }).await?;
    bench.two.waits(&waiter).await?;
    bench.one.give_back(&holder).await?;
    bench.two.granted(&waiter).await?;
    bench.one.waits(&reader(bench, "rw")?).await.map(drop)
}

/// A statement that is not executed, since a later one was.
async fn outdated(client: &Client, claim: &Claim) -> Check {
    match client.claim(claim).await {
        Err(error) if !error.outcome_unknown() => Ok(()),
        other => Err(Failure::new(format!("a later statement was executed before: {other:?}"))),
    }
}

/// The first request, sent once more because its reply was late, arrives when everything has changed.
async fn c17_an_old_statement_makes_no_writer_a_reader(bench: &Bench) -> Check {
    let upgradeable = holds(&bench.one, bench, "rw", Share::UPGRADEABLE).await?;
    let writer = changed(&upgradeable, Share::EXCLUSIVE);
    let token = bench.one.granted(&writer).await?.token;
    outdated(&bench.two, &upgradeable).await?;
    bench.two.waits(&reader(bench, "rw")?).await?;
    let less = changed(&writer, Share::UPGRADEABLE);
    bench.one.granted(&less).await?;
    outdated(&bench.two, &writer).await?;
    bench.two.granted(&reader(bench, "rw")?).await?;
    ensure!(bench.one.granted(&less).await?.token == token, "less needs no new token");
    bench.one.give_back(&less).await
}

async fn c17_an_old_statement_brings_no_wish_back(bench: &Bench) -> Check {
    let upgradeable = holds(&bench.one, bench, "rw", Share::UPGRADEABLE).await?;
    let other = reader(bench, "rw")?;
    bench.two.granted(&other).await?;
    let writer = changed(&upgradeable, Share::EXCLUSIVE);
    // A wish that was given up before it arrived.
    let given_up = changed(&writer, Share::UPGRADEABLE);
    bench.one.granted(&given_up).await?;
    outdated(&bench.one, &writer).await?;
    bench.two.give_back(&other).await?;
    outdated(&bench.one, &writer).await?;
    bench.two.granted(&reader(bench, "rw")?).await.map(drop)
}

async fn c17_a_lost_reply_to_a_change_is_cured_by_asking_again(bench: &Bench) -> Check {
    let (chaos, client) = chaos(bench);
    for mishap in [Mishap::LosesReply, Mishap::LosesRequest] {
        let mut claim = holds(&client, bench, &format!("lost:{mishap:?}"), Share::UPGRADEABLE).await?;
        let mut last = client.granted(&claim).await?;
        for share in [Share::EXCLUSIVE, Share::UPGRADEABLE, Share::EXCLUSIVE, Share::SHARED] {
            let grows = share == Share::EXCLUSIVE;
            claim = changed(&claim, share);
            for _ in 0..2 {
                chaos.order(Op::Claim, mishap);
                unknown(client.claim(&claim).await)?;
            }
            let grant = client.granted(&claim).await?;
            ensure!((grant.token > last.token) == grows, "{share}: {grant:?} after {last:?}");
            let holders = bench.two.inspect(&claim.name).await?.holders;
            ensure!(holders.len() == 1 && holders[0].share == share, "{share}: {holders:?}");
            last = grant;
        }
        client.give_back(&claim).await?;
    }
    Ok(())
}

async fn c17_a_change_dropped_at_any_poll_can_be_taken_back(bench: &Bench) -> Check {
    for alone in [true, false] {
        let text = format!("drop:{alone}");
        let mut claim = holds(&bench.one, bench, &text, Share::UPGRADEABLE).await?;
        if !alone {
            bench.two.granted(&reader(bench, &text)?).await?;
        }
        at_every_poll(async |polls| {
            let more = changed(&claim, Share::EXCLUSIVE);
            let finished = drop_after(polls, bench.one.claim(&more)).await.transpose()?.is_some();
            claim = changed(&more, Share::UPGRADEABLE);
            let State::Granted(grant) = bench.one.claim(&claim).await?.state else {
                return Err(Failure::new("less is granted at once"));
            };
            let renewed = bench.one.prolong(&claim, grant.token).await?;
            ensure!(matches!(renewed, Renewal::Kept { .. }), "it held all the time: {renewed:?}");
            let newcomer = reader(bench, &text)?;
            bench.two.granted(&newcomer).await?;
            bench.two.give_back(&newcomer).await?;
            Ok(finished)
        })
        .await?;
    }
    Ok(())
}

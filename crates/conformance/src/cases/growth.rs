//! Line 17, a lease that wants more: it waits for the other holders, ahead of everybody else, and holds meanwhile.

use leasehold_core::{Claim, PLACE_LIFE, Share, State, Turn};

use super::reshaping::{changed, holds, reader};
use super::waits::{ends_within, wakes};
use crate::bench::{Bench, name};
use crate::{Check, Failure, ensure};

super::cases! {
    c17_more_gets_a_new_token_and_no_more_time [Reshaping, Shares],
    c17_a_renewal_under_way_knows_the_old_token_only [Reshaping, Shares],
    c17_more_asked_again_repeats_its_grant [Reshaping, Shares],
    c17_more_waits_for_the_other_holders [Reshaping, Shares],
    c17_who_waits_for_more_holds_meanwhile [Reshaping, Shares],
    c17_the_wait_for_more_ends_with_a_release [Reshaping, Shares],
    c17_the_wait_for_more_ends_with_a_step_down [Reshaping, Shares],
    c17_the_wait_for_more_ends_when_the_lease_in_the_way_runs_out [Reshaping, Shares, PerClaim],
    c17_a_newcomer_stands_back_for_a_wish [Reshaping, Shares],
    c17_a_wish_goes_before_the_line [Reshaping, Shares, Line],
    c17_a_wish_given_up_lets_the_others_go [Reshaping, Shares, Line],
    c17_a_wish_ends_with_its_lease [Reshaping, Shares, Line],
    c17_a_wish_is_shown [Reshaping, Shares],
    c17_a_try_for_more_leaves_no_wish [Reshaping, Shares],
    c17_more_waits_until_a_shut_name_opens [Reshaping, Shares, Closing],
}

/// An upgradeable reader on the second client, which wants to write, and a plain one on the first in its way.
struct InTheWay {
    plain: Claim,
    upgradeable: Claim,
    writer: Claim,
}

async fn in_the_way(bench: &Bench, text: &str) -> Check<InTheWay> {
    let plain = holds(&bench.one, bench, text, Share::SHARED).await?;
    let upgradeable = holds(&bench.two, bench, text, Share::UPGRADEABLE).await?;
    let writer = changed(&upgradeable, Share::EXCLUSIVE);
    Ok(InTheWay { plain, upgradeable, writer })
}

async fn c17_more_gets_a_new_token_and_no_more_time(bench: &Bench) -> Check {
    let upgradeable = Claim { share: Share::UPGRADEABLE, tokens: 3, ..bench.claim(&name("rw")?) };
    let before = bench.one.granted(&upgradeable).await?;
    bench.pass(std::time::Duration::from_millis(20)).await;
    let writer = changed(&upgradeable, Share::EXCLUSIVE);
    let grant = bench.one.granted(&writer).await?;
    let run = before.token.get() + u64::from(before.tokens);
    ensure!(
        grant.token.get() >= run,
        "writes begin above all that was handed out: {grant:?} after {before:?}"
    );
    ensure!(grant.ttl < before.ttl, "it prolongs nothing: {grant:?} after {before:?}");
    bench.two.waits(&reader(bench, "rw")?).await?;
    bench.one.kept(&writer, grant.token).await?;
    bench.one.give_back(&writer).await?;
    let next = bench.two.granted(&bench.attempt(&writer.name)).await?;
    ensure!(next.token > grant.token, "{next:?} after {grant:?}");
    Ok(())
}

async fn c17_a_renewal_under_way_knows_the_old_token_only(bench: &Bench) -> Check {
    let upgradeable = holds(&bench.one, bench, "rw", Share::UPGRADEABLE).await?;
    let old = bench.one.granted(&upgradeable).await?.token;
    let writer = changed(&upgradeable, Share::EXCLUSIVE);
    let token = bench.one.granted(&writer).await?.token;
    bench.one.kept(&upgradeable, old).await?;
    let holders = bench.two.inspect(&writer.name).await?.holders;
    let shown = holders.len() == 1 && holders[0].token == Some(token) && holders[0].share == Share::EXCLUSIVE;
    ensure!(shown, "a renewal gives neither token nor share back: {holders:?}");
    ensure!(bench.one.granted(&writer).await?.token == token, "it has the token that it got");
    Ok(())
}

async fn c17_more_asked_again_repeats_its_grant(bench: &Bench) -> Check {
    let upgradeable = holds(&bench.one, bench, "rw", Share::UPGRADEABLE).await?;
    let writer = changed(&upgradeable, Share::EXCLUSIVE);
    let first = bench.one.granted(&writer).await?;
    for client in [&bench.one, &bench.two] {
        let again = client.granted(&writer).await?;
        ensure!(again.token == first.token && again.ttl <= first.ttl, "{again:?} after {first:?}");
    }
    Ok(())
}

async fn c17_more_waits_for_the_other_holders(bench: &Bench) -> Check {
    let InTheWay { plain, writer, .. } = in_the_way(bench, "rw").await?;
    let second = reader(bench, "rw")?;
    bench.one.granted(&second).await?;
    for left in [&plain, &second] {
        for client in [&bench.one, &bench.two] {
            let (_, ahead) = client.stands_behind(&writer).await?;
            let counted = ahead.is_none_or(|ahead| ahead == 1 + u32::from(left.id == plain.id));
            ensure!(counted, "{ahead:?} are told to be in the way");
        }
        bench.one.give_back(left).await?;
    }
    bench.two.granted(&writer).await.map(drop)
}

async fn c17_who_waits_for_more_holds_meanwhile(bench: &Bench) -> Check {
    let InTheWay { plain, upgradeable, writer } = in_the_way(bench, "rw").await?;
    let token = bench.two.granted(&upgradeable).await?.token;
    bench.two.waits(&writer).await?;
    bench.two.kept(&upgradeable, token).await?;
    bench.one.waits(&bench.attempt(&plain.name)).await?;
    let holders = bench.one.inspect(&plain.name).await?.holders;
    ensure!(holders.iter().any(|entry| entry.id == writer.id), "it still holds: {holders:?}");
    bench.two.waits(&writer).await?;
    bench.one.give_back(&plain).await?;
    bench.one.waits(&bench.attempt(&plain.name)).await?;
    bench.two.granted(&writer).await.map(drop)
}

async fn c17_the_wait_for_more_ends_with_a_release(bench: &Bench) -> Check {
    let InTheWay { plain, writer, .. } = in_the_way(bench, "during").await?;
    let cursor = bench.two.waits(&writer).await?;
    wakes(bench, &writer, &cursor, async { bench.one.give_back(&plain).await }).await?;
    bench.two.granted(&writer).await?;
    let InTheWay { plain, writer, .. } = in_the_way(bench, "before").await?;
    let cursor = bench.two.waits(&writer).await?;
    bench.one.give_back(&plain).await?;
    bench.soon("a wait on what had changed before", bench.two.changed(&writer.name, &cursor)).await??;
    bench.two.granted(&writer).await.map(drop)
}

async fn c17_the_wait_for_more_ends_with_a_step_down(bench: &Bench) -> Check {
    let permits = |take| Share::permits(take, 5);
    let other = holds(&bench.one, bench, "permits", permits(2)?).await?;
    let mine = holds(&bench.two, bench, "permits", permits(3)?).await?;
    let four = changed(&mine, permits(4)?);
    let cursor = bench.two.waits(&four).await?;
    let less = changed(&other, permits(1)?);
    wakes(bench, &four, &cursor, async { bench.one.granted(&less).await.map(drop) }).await?;
    bench.two.granted(&four).await.map(drop)
}

async fn c17_the_wait_for_more_ends_when_the_lease_in_the_way_runs_out(bench: &Bench) -> Check {
    let ttl = bench.short().min(PLACE_LIFE * 3 / 4).max(*bench.offer.capabilities.ttl.start());
    let name = name("expiry")?;
    bench.one.granted(&Claim { share: Share::SHARED, ttl, ..bench.claim(&name) }).await?;
    let upgradeable = holds(&bench.two, bench, "expiry", Share::UPGRADEABLE).await?;
    let writer = changed(&upgradeable, Share::EXCLUSIVE);
    let cursor = bench.two.waits(&writer).await?;
    let wait = bench.two.changed(&name, &cursor);
    ends_within(bench, "the end of a wait for more behind a dead reader", ttl, wait).await?;
    let granted = || async {
        let state = bench.two.claim(&writer).await?.state;
        Ok(matches!(state, State::Granted(_)).then_some(()))
    };
    bench.in_time("the grant of more", ttl, granted).await
}

async fn c17_a_newcomer_stands_back_for_a_wish(bench: &Bench) -> Check {
    let InTheWay { plain, writer, .. } = in_the_way(bench, "rw").await?;
    bench.two.waits(&writer).await?;
    bench.one.waits(&reader(bench, "rw")?).await?;
    bench.one.waits(&bench.attempt(&plain.name)).await?;
    bench.one.give_back(&plain).await?;
    bench.one.waits(&reader(bench, "rw")?).await?;
    bench.two.granted(&writer).await.map(drop)
}

/// Whoever waits in the line may be waiting for this very lease.
async fn c17_a_wish_goes_before_the_line(bench: &Bench) -> Check {
    let InTheWay { plain, writer, .. } = in_the_way(bench, "rw").await?;
    let (first, second) =
        (bench.fifo(&plain.name), Claim { share: Share::SHARED, ..bench.fifo(&plain.name) });
    bench.one.waits(&first).await?;
    bench.one.waits(&second).await?;
    bench.two.waits(&writer).await?;
    bench.one.give_back(&plain).await?;
    bench.one.waits(&first).await?;
    bench.one.waits(&second).await?;
    bench.two.granted(&writer).await?;
    bench.two.give_back(&writer).await?;
    bench.one.waits(&second).await?;
    bench.one.granted(&first).await.map(drop)
}

async fn c17_a_wish_given_up_lets_the_others_go(bench: &Bench) -> Check {
    let InTheWay { plain, writer, .. } = in_the_way(bench, "rw").await?;
    bench.one.waits(&writer).await?;
    let waiter = Claim { share: Share::SHARED, ..bench.fifo(&plain.name) };
    let cursor = bench.two.waits(&waiter).await?;
    let token = bench
        .one
        .inspect(&plain.name)
        .await?
        .holders
        .iter()
        .find(|e| e.id == writer.id)
        .and_then(|e| e.token);
    let given_up = changed(&writer, Share::UPGRADEABLE);
    let gives_up = async {
        let grant = bench.one.granted(&given_up).await?;
        ensure!(Some(grant.token) == token, "it holds what it held: {grant:?}");
        Ok(())
    };
    wakes(bench, &waiter, &cursor, gives_up).await?;
    bench.two.granted(&waiter).await?;
    // Once more, and the wish stands again.
    bench.one.waits(&changed(&given_up, Share::EXCLUSIVE)).await?;
    bench.two.waits(&reader(bench, "rw")?).await.map(drop)
}

async fn c17_a_wish_ends_with_its_lease(bench: &Bench) -> Check {
    let InTheWay { plain, writer, .. } = in_the_way(bench, "rw").await?;
    bench.one.waits(&writer).await?;
    let waiter = Claim { share: Share::SHARED, ..bench.fifo(&plain.name) };
    let cursor = bench.two.waits(&waiter).await?;
    wakes(bench, &waiter, &cursor, async { bench.one.give_back(&writer).await }).await?;
    bench.two.granted(&waiter).await?;
    bench.one.spent(&writer).await
}

async fn c17_a_wish_is_shown(bench: &Bench) -> Check {
    let InTheWay { plain, upgradeable, writer } = in_the_way(bench, "rw").await?;
    let cursor = bench.one.inspect(&plain.name).await?.cursor;
    let wishes = async { bench.two.waits(&writer).await.map(drop) };
    wakes(bench, &plain, &cursor, wishes).await?;
    let shown = async || -> Check<Vec<(Share, Option<Share>)>> {
        let snapshot = bench.one.inspect(&plain.name).await?;
        ensure!(snapshot.waiters.is_empty(), "it holds, and waits in no line: {snapshot:?}");
        Ok(snapshot.holders.iter().map(|entry| (entry.share, entry.wanted)).collect())
    };
    let wants = [(Share::SHARED, None), (Share::UPGRADEABLE, Some(Share::EXCLUSIVE))];
    ensure!(shown().await? == wants, "what it wants is shown: {:?}", shown().await?);
    bench.two.granted(&changed(&writer, Share::UPGRADEABLE)).await?;
    let rests = [(Share::SHARED, None), (upgradeable.share, None)];
    ensure!(shown().await? == rests, "and gone when it is given up: {:?}", shown().await?);
    Ok(())
}

async fn c17_a_try_for_more_leaves_no_wish(bench: &Bench) -> Check {
    let InTheWay { plain, writer, .. } = in_the_way(bench, "rw").await?;
    let attempt = Claim { turn: Turn::Now, ..writer.clone() };
    let cursor = bench.two.waits(&attempt).await?;
    let other = reader(bench, "rw")?;
    bench.one.granted(&other).await?;
    bench.one.give_back(&other).await?;
    // It may be waited on all the same.
    bench.soon("a wait on what had changed before", bench.two.changed(&plain.name, &cursor)).await??;
    // What is stated last counts: a try takes the wish back that stood.
    let wish = changed(&writer, Share::EXCLUSIVE);
    bench.two.waits(&wish).await?;
    let last = Claim { turn: Turn::Now, ..changed(&wish, Share::EXCLUSIVE) };
    bench.two.waits(&last).await?;
    bench.one.granted(&reader(bench, "rw")?).await?;
    Ok(())
}

/// A reader that closed the name, or died, may still be at it: to write is to begin anew.
async fn c17_more_waits_until_a_shut_name_opens(bench: &Bench) -> Check {
    const SHUT: std::time::Duration = std::time::Duration::from_secs(1);
    let InTheWay { plain, upgradeable, writer } = in_the_way(bench, "rw").await?;
    bench.one.give_back_shut(&plain, SHUT, "cooling down").await?;
    let token = bench.two.granted(&upgradeable).await?.token;
    let standing = bench.two.claim(&writer).await?;
    ensure!(matches!(standing.state, State::Closed(_)), "it is shut: {standing:?}");
    bench.two.kept(&upgradeable, token).await?;
    let wait = bench.two.changed(&plain.name, &standing.cursor);
    ends_within(bench, "the end of a wait for more on a shut name", SHUT, wait).await?;
    let granted = || async {
        match bench.two.claim(&writer).await?.state {
            State::Granted(_) => Ok(Some(())),
            State::Closed(_) => Ok(None),
            other => Err(Failure::new(format!("{other:?}"))),
        }
    };
    bench.in_time("the opening of a name", SHUT, granted).await
}

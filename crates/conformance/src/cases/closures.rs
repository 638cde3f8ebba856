//! Lines 13 and 14: a name that is kept shut lets nobody in until it opens by itself; and different sizes of one
//! name are refused.

use std::time::Duration;

use leasehold_core::{Claim, Leave, Note, Release, Share, State};

use crate::asking::Asking;
use crate::bench::{Bench, name};
use crate::{Check, Failure, ensure};

super::cases! {
    c13_a_shut_name_lets_nobody_in [Closing],
    c13_a_shut_name_opens_by_itself [Closing],
    c13_who_waits_hears_that_it_opens [Closing, Line],
    c13_who_came_first_goes_first_when_it_opens [Closing, Line],
    c13_a_try_on_a_shut_name_leaves_nothing [Closing],
    c13_a_closure_is_shown [Closing],
    c13_only_a_holder_shuts [Closing],
    c13_a_closure_for_no_time_is_none [Closing],
    c13_a_shorter_closure_opens_nothing_early [Closing, Shares],
    c14_another_number_of_permits_is_refused [Shares],
    c14_another_number_is_refused_while_somebody_waits [Shares, Line],
    c14_another_number_is_fine_once_all_have_left [Shares],
}

const SHUT: Duration = Duration::from_secs(1);

async fn shuts(bench: &Bench, text: &str, lasting: Duration) -> Check<Claim> {
    let claim = bench.claim(&name(text)?);
    bench.one.granted(&claim).await?;
    bench.one.give_back_shut(&claim, lasting, "cooling down").await?;
    Ok(claim)
}

async fn c13_a_shut_name_lets_nobody_in(bench: &Bench) -> Check {
    let shut = shuts(bench, "shut", bench.long()).await?;
    let mut claims = vec![bench.attempt(&shut.name), bench.claim(&shut.name)];
    let may = &bench.offer.capabilities;
    if may.queueing != leasehold_core::Queueing::Never {
        claims.push(bench.fifo(&shut.name));
    }
    if may.shares == leasehold_core::Shares::Any {
        claims.push(Claim { share: Share::SHARED, ..bench.attempt(&shut.name) });
    }
    for claim in &claims {
        for client in [&bench.one, &bench.two] {
            let closure = client.shut(claim).await?;
            ensure!(closure.left <= bench.long(), "shut for longer than was asked for: {closure:?}");
            ensure!(closure.note.text() == Some("cooling down"), "the note is kept: {closure:?}");
            ensure!(closure.by == shut.owner, "it says who shut it: {closure:?}");
        }
    }
    Ok(())
}

async fn opens(bench: &Bench, claim: &Claim) -> Check {
    let asking = Asking::new(bench, &bench.two, claim.clone());
    bench.in_time("the opening of a name", SHUT, || asking.granted()).await.map(drop)
}

async fn c13_a_shut_name_opens_by_itself(bench: &Bench) -> Check {
    let closed = bench.clock().now();
    let shut = shuts(bench, "shut", SHUT).await?;
    opens(bench, &bench.attempt(&shut.name)).await?;
    let after = bench.since(closed);
    ensure!(after >= SHUT, "shut for {SHUT:?}, it opened after {after:?}");
    Ok(())
}

async fn c13_who_waits_hears_that_it_opens(bench: &Bench) -> Check {
    let shut = shuts(bench, "shut", SHUT).await?;
    let waiter = bench.fifo(&shut.name);
    let standing = bench.two.claim(&waiter).await?;
    ensure!(matches!(standing.state, State::Closed(_)), "it is shut: {standing:?}");
    let waits = bench.two.changed(&shut.name, &standing.cursor);
    super::waits::ends_within(bench, "the end of a wait on a shut name", SHUT, waits).await?;
    opens(bench, &waiter).await
}

async fn c13_who_came_first_goes_first_when_it_opens(bench: &Bench) -> Check {
    let shut = shuts(bench, "shut", SHUT).await?;
    let (first, second) = (bench.fifo(&shut.name), bench.fifo(&shut.name));
    bench.one.shut(&first).await?;
    bench.one.shut(&second).await?;
    let opens = || async {
        // The second one asks first, each time.
        let second = bench.two.claim(&second).await?.state;
        ensure!(!matches!(second, State::Granted(_)), "who came second goes first: {second:?}");
        let first = bench.two.claim(&first).await?.state;
        Ok(matches!(first, State::Granted(_)).then_some(()))
    };
    bench.in_time("the opening of a name", SHUT, opens).await
}

async fn c13_a_try_on_a_shut_name_leaves_nothing(bench: &Bench) -> Check {
    let shut = shuts(bench, "shut", SHUT).await?;
    bench.one.shut(&bench.attempt(&shut.name)).await?;
    bench.one.is_deserted(&shut.name).await?;
    Ok(())
}

async fn c13_a_closure_is_shown(bench: &Bench) -> Check {
    let shut = shuts(bench, "shut", SHUT).await?;
    let Some(closure) = bench.two.is_deserted(&shut.name).await?.closed else {
        return Err(Failure::new("a closure is not shown"));
    };
    ensure!(closure.by == shut.owner && closure.left <= SHUT, "{closure:?}");
    ensure!(bench.two.list("sh", None).await? == [shut.name.clone()], "a shut name is listed");
    let gone = || async { Ok(bench.two.inspect(&shut.name).await?.closed.is_none().then_some(())) };
    bench.in_time("the opening of a name", SHUT, gone).await?;
    if bench.offer.of_several {
        let unlisted = || async { Ok(bench.two.list("sh", None).await?.is_empty().then_some(())) };
        bench.in_time("the opening of a name in each", SHUT, unlisted).await?;
    }
    ensure!(bench.two.list("sh", None).await?.is_empty(), "a name that has opened is not listed");
    Ok(())
}

async fn c13_only_a_holder_shuts(bench: &Bench) -> Check {
    let name = name("shut")?;
    let leave = || Leave::Closed { lasting: bench.long(), note: Note::NONE };
    let never = bench.claim(&name);
    let ended = bench.one.release(&name, never.id, leave()).await?;
    ensure!(ended == Release::NotHeld, "it never held: {ended:?}");
    bench.one.granted(&bench.claim(&name)).await?;
    let stranger = bench.two.release(&name, bench.claim(&name).id, leave()).await?;
    ensure!(stranger == Release::NotHeld, "a stranger holds nothing: {stranger:?}");
    let closed = bench.one.inspect(&name).await?.closed;
    ensure!(closed.is_none(), "somebody who holds nothing has shut it: {closed:?}");
    Ok(())
}

async fn c13_a_closure_for_no_time_is_none(bench: &Bench) -> Check {
    let shut = shuts(bench, "shut", Duration::ZERO).await?;
    bench.two.granted(&bench.attempt(&shut.name)).await?;
    Ok(())
}

async fn c13_a_shorter_closure_opens_nothing_early(bench: &Bench) -> Check {
    let name = name("shut")?;
    let reader = || Claim { share: Share::SHARED, ..bench.attempt(&name) };
    let (long, short) = (reader(), reader());
    bench.one.granted(&long).await?;
    bench.one.granted(&short).await?;
    bench.one.give_back_shut(&long, bench.long(), "long").await?;
    bench.one.give_back_shut(&short, SHUT / 10, "short").await?;
    bench.pass(SHUT / 5).await;
    let closure = bench.two.shut(&bench.attempt(&name)).await?;
    ensure!(closure.note.text() == Some("long"), "the longer closure holds: {closure:?}");
    Ok(())
}

fn permits(bench: &Bench, text: &str, take: u32, of: u32) -> Check<Claim> {
    Ok(Claim { share: Share::permits(take, of)?, ..bench.claim(&name(text)?) })
}

async fn refused(bench: &Bench, claim: &Claim) -> Check {
    for client in [&bench.one, &bench.two] {
        let Err(error) = client.claim(claim).await else {
            return Err(Failure::new("permits of 3 and of 5 on one name went together"));
        };
        ensure!(!error.outcome_unknown(), "a refusal is a known outcome: {error}");
        ensure!(!error.is_retryable(), "asking again does not help: {error}");
    }
    Ok(())
}

async fn c14_another_number_of_permits_is_refused(bench: &Bench) -> Check {
    let (three, five) = (permits(bench, "size", 1, 3)?, permits(bench, "size", 1, 5)?);
    bench.one.granted(&three).await?;
    refused(bench, &five).await?;
    let snapshot = bench.one.inspect(&three.name).await?;
    ensure!(snapshot.waiters.is_empty(), "what is refused leaves no place: {snapshot:?}");
    bench.one.granted(&permits(bench, "size", 2, 3)?).await?;
    Ok(())
}

async fn c14_another_number_is_refused_while_somebody_waits(bench: &Bench) -> Check {
    let holder = bench.claim(&name("size")?);
    bench.one.granted(&holder).await?;
    bench.one.waits(&permits(bench, "size", 1, 3)?).await?;
    refused(bench, &permits(bench, "size", 1, 5)?).await
}

async fn c14_another_number_is_fine_once_all_have_left(bench: &Bench) -> Check {
    let three = permits(bench, "size", 1, 3)?;
    bench.one.granted(&three).await?;
    bench.one.give_back(&three).await?;
    bench.one.granted(&permits(bench, "size", 5, 5)?).await?;
    Ok(())
}

//! Line 2: a claim that may not wait leaves nothing behind when it is not granted.

use leasehold_core::{Claim, State};

use crate::asking::Asking;
use crate::bench::{Bench, name};
use crate::{Check, ensure};

super::cases! {
    c02_a_try_takes_a_free_name [],
    c02_a_failed_try_leaves_no_place [],
    c02_a_failed_try_stands_in_nobodys_way [Line],
    c02_a_try_may_be_tried_again [],
}

async fn c02_a_try_takes_a_free_name(bench: &Bench) -> Check {
    let attempt = bench.attempt(&name("free")?);
    let grant = bench.one.granted(&attempt).await?;
    ensure!(grant.ttl > attempt.ttl / 2, "who did not wait gets the whole ttl: {grant:?}");
    bench.one.give_back(&attempt).await
}

async fn c02_a_failed_try_leaves_no_place(bench: &Bench) -> Check {
    let name = name("taken")?;
    let holder = bench.claim(&name);
    bench.one.granted(&holder).await?;
    for _ in 0..3 {
        bench.two.waits(&bench.attempt(&name)).await?;
    }
    let snapshot = bench.one.inspect(&name).await?;
    ensure!(snapshot.waiters.is_empty(), "a try left a place behind: {snapshot:?}");
    bench.one.give_back(&holder).await?;
    bench.one.is_deserted(&name).await?;
    let listed = bench.one.list("", None).await?;
    ensure!(listed.is_empty(), "a try left a name behind: {listed:?}");
    Ok(())
}

async fn c02_a_failed_try_stands_in_nobodys_way(bench: &Bench) -> Check {
    let name = name("taken")?;
    let (holder, attempt, next) = (bench.claim(&name), bench.attempt(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.two.waits(&attempt).await?;
    let (_, ahead) = bench.one.stands_behind(&next).await?;
    ensure!(ahead.is_none_or(|ahead| ahead == 1), "only the holder is ahead, not a failed try: {ahead:?}");
    bench.one.give_back(&holder).await?;
    bench.one.granted(&next).await?;
    Ok(())
}

async fn c02_a_try_may_be_tried_again(bench: &Bench) -> Check {
    let name = name("taken")?;
    let (holder, attempt) = (bench.claim(&name), bench.attempt(&name));
    bench.one.granted(&holder).await?;
    bench.two.waits(&attempt).await?;
    bench.one.give_back(&holder).await?;
    // The same id: it was never granted, so it is not spent.
    let grant = Asking::new(bench, &bench.two, attempt).gets().await?;
    let other = Claim { turn: leasehold_core::Turn::Now, ..bench.claim(&name) };
    let state = bench.one.claim(&other).await?.state;
    ensure!(matches!(state, State::Waiting { .. }), "two tries hold one name: {grant:?} and {state:?}");
    Ok(())
}

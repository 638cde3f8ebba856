//! Line 3: never two admitted against the rule, and nobody overtakes who stands in the line too.

use leasehold_core::{Claim, LONG_WAIT, Share};

use crate::bench::{Bench, name};
use crate::{Check, ensure};

super::cases! {
    c03_one_holder_at_a_time [],
    c03_names_do_not_exclude_each_other [],
    c03_readers_together_writers_alone [Shares],
    c03_permits_up_to_their_number [Shares],
    c03_permits_and_readers_exclude_a_writer [Shares],
    c03_no_reader_passes_a_waiting_writer [Shares, Line],
    c03_nobody_passes_who_needs_many_permits [Shares, Line],
    c03_the_line_is_served_in_order_of_arrival [Line],
    c03_no_newcomer_passes_a_line_in_strict_order [Line],
    c03_no_newcomer_passes_who_has_waited_long [Line],
    c03_a_reader_behind_a_writer_goes_when_the_writer_withdraws [Shares, Line],
}

async fn c03_one_holder_at_a_time(bench: &Bench) -> Check {
    let name = name("one")?;
    let holder = bench.claim(&name);
    bench.one.granted(&holder).await?;
    bench.one.waits(&bench.attempt(&name)).await?;
    bench.two.waits(&bench.attempt(&name)).await?;
    bench.one.give_back(&holder).await?;
    bench.two.granted(&bench.attempt(&name)).await?;
    bench.one.waits(&bench.attempt(&name)).await?;
    Ok(())
}

async fn c03_names_do_not_exclude_each_other(bench: &Bench) -> Check {
    // Names that stores have mixed up before: case, prefixes, blanks, patterns, and two spellings of one word.
    let names =
        ["a", "A", "a ", "ab", "a:b", "a/b", "a%", "a_", "a*", "{a}", "a}b", "\u{e9}", "e\u{301}", "ß", "ss"];
    for text in names {
        bench.one.granted(&bench.attempt(&name(text)?)).await.map_err(|f| f.during(text))?;
    }
    for text in names {
        bench.two.waits(&bench.attempt(&name(text)?)).await.map_err(|f| f.during(text))?;
    }
    let long = "x".repeat(512);
    bench.one.granted(&bench.attempt(&name(&long)?)).await?;
    bench.one.granted(&bench.attempt(&name(&long[..511])?)).await?;
    Ok(())
}

async fn c03_readers_together_writers_alone(bench: &Bench) -> Check {
    let name = name("rw")?;
    let reader = || Claim { share: Share::SHARED, ..bench.attempt(&name) };
    let (first, second) = (reader(), reader());
    bench.one.granted(&first).await?;
    bench.two.granted(&second).await?;
    bench.one.waits(&bench.attempt(&name)).await?;
    bench.one.give_back(&first).await?;
    bench.one.waits(&bench.attempt(&name)).await?;
    bench.two.give_back(&second).await?;
    let writer = bench.attempt(&name);
    bench.one.granted(&writer).await?;
    bench.two.waits(&reader()).await?;
    bench.one.give_back(&writer).await?;
    bench.two.granted(&reader()).await?;
    Ok(())
}

async fn c03_permits_up_to_their_number(bench: &Bench) -> Check {
    let name = name("permits")?;
    let take =
        |take| Ok::<_, crate::Failure>(Claim { share: Share::permits(take, 5)?, ..bench.attempt(&name) });
    let (two, three) = (take(2)?, take(3)?);
    bench.one.granted(&two).await?;
    bench.two.waits(&take(4)?).await?;
    bench.two.granted(&three).await?;
    bench.one.waits(&take(1)?).await?;
    bench.one.give_back(&two).await?;
    bench.two.waits(&take(3)?).await?;
    bench.two.granted(&take(1)?).await?;
    bench.one.granted(&take(1)?).await?;
    bench.one.waits(&take(1)?).await?;
    bench.two.give_back(&three).await
}

async fn c03_permits_and_readers_exclude_a_writer(bench: &Bench) -> Check {
    let name = name("mixed")?;
    let permit = Claim { share: Share::permits(1, 3)?, ..bench.attempt(&name) };
    bench.one.granted(&permit).await?;
    bench.two.waits(&bench.attempt(&name)).await?;
    // A reader counts as one of the three while a permit is held: the tightest limit of all holds.
    let reader = || Claim { share: Share::SHARED, ..bench.attempt(&name) };
    bench.two.granted(&reader()).await?;
    bench.two.granted(&reader()).await?;
    bench.one.waits(&reader()).await?;
    bench.one.give_back(&permit).await?;
    bench.one.waits(&bench.attempt(&name)).await?;
    Ok(())
}

async fn c03_no_reader_passes_a_waiting_writer(bench: &Bench) -> Check {
    let name = name("rw")?;
    let reader = || Claim { share: Share::SHARED, ..bench.fifo(&name) };
    let (first, writer, second) = (reader(), bench.fifo(&name), reader());
    bench.one.granted(&first).await?;
    bench.one.waits(&writer).await?;
    bench.two.waits(&second).await?;
    // Nor by asking again, once it stands in the line.
    bench.two.waits(&second).await?;
    bench.one.give_back(&first).await?;
    bench.two.waits(&second).await?;
    bench.one.granted(&writer).await?;
    bench.two.waits(&second).await?;
    bench.one.give_back(&writer).await?;
    bench.two.granted(&second).await?;
    Ok(())
}

async fn c03_nobody_passes_who_needs_many_permits(bench: &Bench) -> Check {
    let name = name("permits")?;
    let take = |take| Ok::<_, crate::Failure>(Claim { share: Share::permits(take, 3)?, ..bench.fifo(&name) });
    let (small, all, late) = (take(1)?, take(3)?, take(1)?);
    bench.one.granted(&small).await?;
    bench.one.waits(&all).await?;
    bench.two.waits(&late).await?;
    bench.two.waits(&late).await?;
    bench.one.give_back(&small).await?;
    bench.two.waits(&late).await?;
    bench.one.granted(&all).await?;
    Ok(())
}

async fn c03_the_line_is_served_in_order_of_arrival(bench: &Bench) -> Check {
    let name = name("line")?;
    let holder = bench.fifo(&name);
    bench.one.granted(&holder).await?;
    let line: Vec<Claim> = (0..6).map(|_| bench.fifo(&name)).collect();
    for (at, claim) in line.iter().enumerate() {
        let (_, ahead) = bench.one.stands_behind(claim).await?;
        ensure!(ahead.is_none_or(|n| n as usize == at + 1), "{ahead:?} ahead instead of {}", at + 1);
    }
    let mut before = &holder;
    for at in 0..line.len() {
        bench.one.give_back(before).await?;
        // Those behind ask first, and are not served.
        for later in line[at + 1..].iter().rev() {
            bench.two.waits(later).await?;
        }
        bench.one.granted(&line[at]).await?;
        before = &line[at];
    }
    Ok(())
}

async fn c03_no_newcomer_passes_a_line_in_strict_order(bench: &Bench) -> Check {
    let name = name("line")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&waiter).await?;
    bench.one.give_back(&holder).await?;
    bench.two.waits(&bench.attempt(&name)).await?;
    let (any, fifo) = (bench.claim(&name), bench.fifo(&name));
    bench.two.waits(&any).await?;
    bench.two.waits(&fifo).await?;
    bench.one.granted(&waiter).await?;
    Ok(())
}

async fn c03_no_newcomer_passes_who_has_waited_long(bench: &Bench) -> Check {
    let name = name("line")?;
    let (holder, waiter) = (bench.claim(&name), bench.claim(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&waiter).await?;
    bench.pass_asking(2 * LONG_WAIT, &bench.one, &[&waiter]).await?;
    bench.one.give_back(&holder).await?;
    bench.two.waits(&bench.attempt(&name)).await?;
    bench.two.waits(&bench.claim(&name)).await?;
    bench.one.granted(&waiter).await?;
    Ok(())
}

async fn c03_a_reader_behind_a_writer_goes_when_the_writer_withdraws(bench: &Bench) -> Check {
    let name = name("rw")?;
    let reader = || Claim { share: Share::SHARED, ..bench.fifo(&name) };
    let (first, writer, second) = (reader(), bench.fifo(&name), reader());
    bench.one.granted(&first).await?;
    bench.one.waits(&writer).await?;
    bench.two.waits(&second).await?;
    bench.one.end(&writer).await?;
    bench.two.granted(&second).await?;
    Ok(())
}

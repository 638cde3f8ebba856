//! Line 15: looking changes nothing; and what is seen is so.

use std::time::Duration;

use leasehold_core::{Claim, Expiry, LockName, Note, PLACE_LIFE, Renewal, Tenure};

use crate::bench::{Bench, name};
use crate::client::renewal;
use crate::{Check, Failure, ensure};

super::cases! {
    c15_looking_leaves_no_trace [],
    c15_looking_refreshes_no_place [Line, PerClaim],
    c15_holders_and_waiters_are_shown_as_they_are [Line],
    c15_a_renewal_may_change_tenure_and_note [],
    c15_what_has_run_out_is_not_shown [PerClaim],
    c15_names_are_listed_in_order_by_prefix_and_by_page [],
    close_gives_nothing_back [Second],
}

async fn c15_looking_leaves_no_trace(bench: &Bench) -> Check {
    let name = name("nobody")?;
    for client in [&bench.one, &bench.two] {
        client.is_deserted(&name).await?;
        let listed = client.list("", None).await?;
        ensure!(listed.is_empty(), "looking made a name: {listed:?}");
    }
    let claim = bench.claim(&name);
    bench.one.granted(&claim).await?;
    let before = bench.two.inspect(&name).await?;
    for _ in 0..3 {
        bench.two.list("", None).await?;
        let again = bench.two.inspect(&name).await?;
        ensure!(again.holders.len() == 1 && again.holders[0].id == claim.id, "{again:?}");
        // Of several stores sometimes one is heard, sometimes another.
        let same = bench.offer.of_several || again.cursor == before.cursor;
        ensure!(same, "looking moved the line: {again:?} after {before:?}");
    }
    bench.one.give_back(&claim).await
}

async fn c15_looking_refreshes_no_place(bench: &Bench) -> Check {
    let name = name("places")?;
    let (holder, waiter) = (bench.claim(&name), bench.fifo(&name));
    bench.one.granted(&holder).await?;
    bench.one.waits(&waiter).await?;
    let gone = || async { Ok(bench.two.inspect(&name).await?.waiters.is_empty().then_some(())) };
    bench.in_time("the lapse of a place that is only looked at", PLACE_LIFE, gone).await
}

async fn c15_holders_and_waiters_are_shown_as_they_are(bench: &Bench) -> Check {
    let name = name("shown")?;
    let holder = Claim { note: Note::parse("job #5512, 50 % \"done\"")?, ..bench.claim(&name) };
    let waiter = Claim { note: Note::parse("Größe")?, ..bench.fifo(&name) };
    let token = bench.one.granted(&holder).await?.token;
    bench.one.waits(&waiter).await?;
    let snapshot = bench.two.inspect(&name).await?;
    ensure!(snapshot.name == name && snapshot.closed.is_none(), "{snapshot:?}");
    let ([shown], [waits]) = (&snapshot.holders[..], &snapshot.waiters[..]) else {
        return Err(Failure::new(format!("one holder and one waiter: {snapshot:?}")));
    };
    for (entry, claim) in [(shown, &holder), (waits, &waiter)] {
        ensure!(entry.id == claim.id && entry.owner == claim.owner, "{entry:?} of {claim:?}");
        ensure!(entry.share == claim.share && entry.ttl == claim.ttl, "{entry:?} of {claim:?}");
        ensure!(entry.note == claim.note, "{entry:?} of {claim:?}");
        ensure!(entry.renewals == 0, "nobody renewed: {entry:?}");
    }
    ensure!(shown.token == Some(token) && waits.token.is_none(), "{snapshot:?}");
    ensure!((shown.tenure, waits.tenure) == (1, 0), "the first tenure, and none: {snapshot:?}");
    // A place that lives with a session lives as long as that.
    let place = if bench.offer.capabilities.expiry == Expiry::Session { waiter.ttl } else { PLACE_LIFE };
    ensure!(shown.left <= holder.ttl && waits.left <= place, "{snapshot:?}");
    Ok(())
}

async fn c15_a_renewal_may_change_tenure_and_note(bench: &Bench) -> Check {
    let claim = Claim { tokens: 3, ..bench.claim(&name("tenures")?) };
    let grant = bench.one.granted(&claim).await?;
    // The second tenure has the second token of the run, if there is a run.
    let Some(token) = grant.token.after(grant.tokens.min(2) - 1) else {
        return Err(Failure::new("a run beyond the scale of tokens"));
    };
    let tenure = Tenure { count: 2, token, note: Note::parse("second")? };
    let renew = leasehold_core::Renew { tenure, ..renewal(&claim, token) };
    for answer in bench.one.renew(&[renew]).await {
        ensure!(matches!(answer?, Renewal::Kept { .. }), "it is held");
    }
    let holders = bench.two.inspect(&claim.name).await?.holders;
    let shown: Vec<_> = holders.iter().map(|entry| (entry.tenure, entry.note.text())).collect();
    ensure!(shown == [(2, Some("second"))], "the tenure that runs is shown: {holders:?}");
    let again = bench.one.granted(&claim).await?;
    ensure!(again.token == grant.token, "a repeat is the grant as it was: {again:?} after {grant:?}");
    Ok(())
}

async fn c15_what_has_run_out_is_not_shown(bench: &Bench) -> Check {
    let claim = Claim { ttl: bench.short(), ..bench.claim(&name("expired")?) };
    bench.one.granted(&claim).await?;
    ensure!(bench.two.list("", None).await? == [claim.name.clone()], "a held name is listed");
    let gone = || async { Ok(bench.two.inspect(&claim.name).await?.holders.is_empty().then_some(())) };
    bench.in_time("the end of a lease", claim.ttl, gone).await?;
    let listed = bench.two.list("", None).await?;
    ensure!(listed.is_empty(), "what has run out is listed: {listed:?}");
    Ok(())
}

async fn c15_names_are_listed_in_order_by_prefix_and_by_page(bench: &Bench) -> Check {
    let mut held = Vec::new();
    for text in ["b", "a", "a:2", "a:10", "a_", "a%", "A", "é", "a:", "b:1"] {
        let claim = bench.claim(&name(text)?);
        bench.one.granted(&claim).await?;
        held.push(claim.name);
    }
    held.sort();
    let all = bench.two.list("", None).await?;
    ensure!(all == held, "all names, in byte order: {all:?} instead of {held:?}");
    for prefix in ["a", "a:", "a_", "a%", "é", "none"] {
        let wanted: Vec<LockName> =
            held.iter().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
        let listed = bench.two.list(prefix, None).await?;
        ensure!(listed == wanted, "those that start with {prefix:?}: {listed:?} instead of {wanted:?}");
        for (at, after) in wanted.iter().enumerate() {
            let rest = bench.two.list(prefix, Some(after)).await?;
            ensure!(rest == wanted[at + 1..], "those after {after:?}: {rest:?}");
        }
    }
    Ok(())
}

async fn close_gives_nothing_back(bench: &Bench) -> Check {
    let claim = bench.claim(&name("closed")?);
    bench.two.granted(&claim).await?;
    bench.soon("closing a store", bench.two.close()).await??;
    bench.one.waits(&bench.attempt(&claim.name)).await?;
    bench.pass(Duration::from_millis(1)).await;
    bench.one.give_back(&claim).await
}

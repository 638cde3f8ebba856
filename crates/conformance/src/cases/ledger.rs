//! Beside the numbered lines: marks that something was done, and records of what happened.

use std::time::Duration;

use leasehold_core::{Ledger, LockName, Mark, MarkKind, MarkOutcome, Record, RecordId, RecordKind};

use crate::bench::{Bench, name};
use crate::{Check, Failure, ensure};

super::cases! {
    ledger_a_mark_is_made_once [Ledger],
    ledger_marks_differ_by_kind_name_and_key [Ledger],
    ledger_a_mark_ends_by_itself [Ledger],
    ledger_a_mark_can_be_taken_away [Ledger],
    ledger_no_mark_is_taken_away_unheard [Ledger],
    ledger_marks_are_read_newest_first [Ledger],
    ledger_marks_are_no_locks [Ledger],
    ledger_records_are_read_in_their_order [Ledger],
    ledger_the_newest_records_of_a_page [Ledger],
    ledger_the_last_thousand_records_are_kept [Ledger],
}

/// How often two clients get in each other's way.
const TRIES: u32 = 500;

fn ledger(bench: &Bench) -> Check<(&dyn Ledger, &dyn Ledger)> {
    match (bench.one.ledger(), bench.two.ledger()) {
        (Some(one), Some(two)) => Ok((one, two)),
        _ => Err(Failure::new("one client has a ledger and the other has none")),
    }
}

fn mark(bench: &Bench, name: &LockName, key: &str) -> Mark {
    Mark {
        kind: MarkKind::Once,
        name: name.clone(),
        key: key.to_owned(),
        by: "bench/1/c1".to_owned(),
        text: r#"{"exit": 0}"#.to_owned(),
        lasting: bench.long(),
        age: Duration::ZERO,
    }
}

async fn ledger_a_mark_is_made_once(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let first = mark(bench, &name("report")?, "2025-06-03");
    ensure!(one.mark(&first).await? == MarkOutcome::Made, "nothing stands yet");
    let second = Mark { by: "bench/2/c2".to_owned(), text: String::new(), ..first.clone() };
    for ledger in [one, two] {
        let MarkOutcome::Already(stands) = ledger.mark(&second).await? else {
            return Err(Failure::new("a mark was made although one stands"));
        };
        ensure!(stands.by == first.by && stands.text == first.text, "the first one stands: {stands:?}");
        ensure!(stands.lasting <= first.lasting, "it says for how much longer: {stands:?}");
    }
    Ok(())
}

async fn ledger_marks_differ_by_kind_name_and_key(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let first = mark(bench, &name("report")?, "k");
    let others = [
        Mark { kind: MarkKind::Pause, ..first.clone() },
        Mark { kind: MarkKind::Overdue, ..first.clone() },
        Mark { name: name("report2")?, ..first.clone() },
        Mark { key: "K".to_owned(), ..first.clone() },
        Mark { key: String::new(), ..first.clone() },
    ];
    one.mark(&first).await?;
    for other in &others {
        ensure!(two.mark(other).await? == MarkOutcome::Made, "{other:?} is another mark than {first:?}");
    }
    ensure!(two.marks(MarkKind::Pause, &first.name).await?.len() == 1, "one of that kind");
    ensure!(two.marks(MarkKind::Once, &first.name).await?.len() == 3, "three keys of that kind");
    Ok(())
}

async fn ledger_a_mark_ends_by_itself(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let short = Mark { lasting: Duration::from_secs(1), ..mark(bench, &name("report")?, "k") };
    one.mark(&short).await?;
    let again = || async { Ok((two.mark(&short).await? == MarkOutcome::Made).then_some(())) };
    bench.in_time("the end of a mark", short.lasting, again).await
}

async fn ledger_a_mark_can_be_taken_away(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let mark = mark(bench, &name("report")?, "k");
    one.mark(&mark).await?;
    ensure!(two.unmark(mark.kind, &mark.name, &mark.key).await?, "one stood");
    ensure!(!one.unmark(mark.kind, &mark.name, &mark.key).await?, "none stands any more");
    ensure!(one.marks(mark.kind, &mark.name).await?.is_empty(), "none stands any more");
    ensure!(two.mark(&mark).await? == MarkOutcome::Made, "it may be made anew");
    Ok(())
}

/// Whoever takes away while another makes: a look and a step after it would take what was made in between, and say
/// that there was nothing.
async fn ledger_no_mark_is_taken_away_unheard(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let wanted = mark(bench, &name("report")?, "k");
    let makes = async {
        let mut made = 0;
        for _ in 0..TRIES {
            made += u32::from(one.mark(&wanted).await? == MarkOutcome::Made);
        }
        Ok::<_, Failure>(made)
    };
    let takes = async {
        let mut taken = 0;
        for _ in 0..TRIES {
            taken += u32::from(two.unmark(wanted.kind, &wanted.name, &wanted.key).await?);
        }
        Ok::<_, Failure>(taken)
    };
    let (made, taken) = tokio::join!(makes, takes);
    let (made, taken) =
        (made?, taken? + u32::from(one.unmark(wanted.kind, &wanted.name, &wanted.key).await?));
    ensure!(made == taken, "{made} were made, and {taken} taken away");
    Ok(())
}

async fn ledger_marks_are_read_newest_first(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let name = name("report")?;
    for key in ["b", "a", "c"] {
        one.mark(&mark(bench, &name, key)).await?;
        bench.pass(Duration::from_millis(20)).await;
    }
    let marks = two.marks(MarkKind::Once, &name).await?;
    let keys: Vec<_> = marks.iter().map(|mark| mark.key.as_str()).collect();
    ensure!(keys == ["c", "a", "b"], "newest first: {marks:?}");
    ensure!(marks[0].age < marks[2].age, "ages are told: {marks:?}");
    Ok(())
}

async fn ledger_marks_are_no_locks(bench: &Bench) -> Check {
    let (one, _) = ledger(bench)?;
    let name = name("report")?;
    one.mark(&mark(bench, &name, "k")).await?;
    ensure!(bench.two.list("", None).await?.is_empty(), "a mark is not listed as a lock");
    bench.two.is_deserted(&name).await?;
    bench.two.granted(&bench.attempt(&name)).await?;
    Ok(())
}

fn record(name: &LockName, text: String) -> Record {
    let by = "bench/1/c1".to_owned();
    Record { kind: RecordKind::Run, name: name.clone(), by, text, age: Duration::ZERO }
}

async fn ledger_records_are_read_in_their_order(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let (a, b) = (name("a")?, name("b")?);
    let mut ids = Vec::new();
    for number in 0..6 {
        let (name, writer) = if number % 2 == 0 { (&a, one) } else { (&b, two) };
        ids.push(writer.record(&record(name, format!("{{\"n\": {number}}}"))).await?);
    }
    ensure!(ids.is_sorted() && ids[0] > RecordId::default(), "numbers rise from above zero: {ids:?}");
    let all = two.records(None, RecordId::default(), 100).await?;
    ensure!(all.iter().map(|(id, _)| *id).eq(ids.iter().copied()), "oldest first: {all:?}");
    ensure!(all[3].1.text == r#"{"n": 3}"# && all[3].1.name == b, "as it was written: {:?}", all[3]);
    let of_a = one.records(Some(&a), ids[0], 100).await?;
    ensure!(of_a.iter().map(|(id, _)| *id).eq([ids[2], ids[4]]), "of a, after the first: {of_a:?}");
    let none = one.records(None, ids[5], 100).await?;
    ensure!(none.is_empty(), "nothing after the last: {none:?}");
    Ok(())
}

async fn ledger_the_newest_records_of_a_page(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let name = name("a")?;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(one.record(&record(&name, number.to_string())).await?);
    }
    let page = two.records(Some(&name), RecordId::default(), 2).await?;
    ensure!(page.iter().map(|(id, _)| *id).eq([ids[3], ids[4]]), "the two newest, oldest first: {page:?}");
    Ok(())
}

async fn ledger_the_last_thousand_records_are_kept(bench: &Bench) -> Check {
    let (one, two) = ledger(bench)?;
    let (busy, quiet) = (name("busy")?, name("quiet")?);
    one.record(&record(&quiet, "kept".to_owned())).await?;
    for number in 0..1010 {
        one.record(&record(&busy, number.to_string())).await?;
    }
    let kept = two.records(Some(&busy), RecordId::default(), 5000).await?;
    ensure!(kept.len() >= 1000, "the last thousand are kept: {} are", kept.len());
    ensure!(kept.last().is_some_and(|(_, record)| record.text == "1009"), "the newest is there");
    let quiet = two.records(Some(&quiet), RecordId::default(), 5000).await?;
    ensure!(quiet.len() == 1, "a busy name pushes out its own records only: {quiet:?}");
    Ok(())
}

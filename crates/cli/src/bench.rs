//! `leasehold bench`: how fast a store gives locks and takes them back, beside the fastest that it can do at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use leasehold::config::exact;
use leasehold::{Clock, Error, Leasehold, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::args::Global;
use crate::bench_rows::{Row, object, text};
use crate::care_args::BenchArgs;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::talk::{Talk, print};
use crate::{exit, hold, human, settings};

/// What is compared takes turns, so that a busy moment is nobody's alone: in so many rounds at least ..
const ROUNDS: u32 = 5;
/// .. and none so long that Ctrl-C would seem to do nothing.
const TURN: Duration = Duration::from_millis(250);
/// No lock is held for longer than it takes; it ends by itself if we are killed.
const TTL: Duration = Duration::from_secs(10);
const NOTHING_MEASURED: &str = "what was taken is given back, or ends by itself within seconds";

/// The number of the signal that asks us to stop; 0 for none.
type Stop = Arc<AtomicI32>;

/// Measures, and prints what came of it; what was measured before a signal is printed, too.
pub(crate) async fn bench(args: BenchArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let config = settings::config(global)?;
    let choice = config.store(None)?;
    let listener = Arc::new(Listener::new(talk));
    let failed = |error: Error| hold::failure(&error, NOTHING_MEASURED, false);
    let client = hold::open(&config, &choice, None, &listener, talk).await.map_err(failed)?;
    let prefix = format!("leasehold-bench:{}:", std::process::id());
    talk.notice(
        "",
        format_args!(
            "for {}, up to {} at once take and give back locks of their own ({prefix}*) as fast as {} answers; what \
             they leave ends by itself within seconds",
            exact(args.lasting),
            args.clients,
            human::store(client.store()),
        ),
    );
    let stop = Stop::default();
    let mut rows: Vec<Row> = if args.clients == 1 { vec![1] } else { vec![1, args.clients] }
        .into_iter()
        .map(|at_once| Row { at_once, ..Row::default() })
        .collect();
    let done = {
        let measuring = measure(&client, &prefix, args.lasting, &mut rows, &stop);
        tokio::pin!(measuring);
        tokio::select! {
            done = &mut measuring => done,
            // Whatever is under way then is given back.
            number = signalled() => {
                stop.store(number, Ordering::Relaxed);
                measuring.await
            }
        }
    };
    let signal = stop.load(Ordering::Relaxed);
    if done.is_ok() && talk.level >= 0 {
        let shown = if talk.json { object } else { text };
        print(&shown(client.store(), args.lasting, &rows, signal != 0));
    }
    hold::close(client, choice.timeout.value, talk).await;
    done.map_err(failed)?;
    Ok(if signal == 0 { exit::OK } else { exit::signalled(signal) })
}

/// Returns once somebody asks us to stop.
async fn signalled() -> i32 {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut waits = JoinSet::new();
    for kind in kinds {
        if let Ok(mut wait) = signal(kind) {
            waits.spawn(async move {
                wait.recv().await;
                kind.as_raw_value()
            });
        }
    }
    match waits.join_next().await {
        Some(Ok(number)) => number,
        _ => std::future::pending().await,
    }
}

async fn measure(
    client: &Leasehold,
    prefix: &str,
    lasting: Duration,
    rows: &mut [Row],
    stop: &Stop,
) -> Result<()> {
    let turns = u32::try_from(2 * rows.len()).unwrap_or(2);
    let rounds =
        u32::try_from(lasting.as_millis() / (TURN * turns).as_millis()).unwrap_or(u32::MAX).max(ROUNDS);
    let turn = lasting / (rounds * turns);
    for _ in 0..rounds {
        for row in &mut *rows {
            let clock = Clock::system();
            let started = clock.now();
            if let Some(bare) = client.bare(prefix, row.at_once, turn).await? {
                row.raw_spent += clock.now().since(started);
                row.raw_what = Some(bare.what);
                row.raw.extend(bare.took);
            }
            locks(client, prefix, row, turn, stop).await?;
            if stop.load(Ordering::Relaxed) != 0 {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// So many take and give back, each a lock of its own, for one turn.
async fn locks(client: &Leasehold, prefix: &str, row: &mut Row, turn: Duration, stop: &Stop) -> Result<()> {
    let clock = Clock::system();
    let started = clock.now();
    let until = started.after(turn);
    let mut tasks = JoinSet::new();
    for at in 0..row.at_once {
        let (lock, clock, stop) =
            (client.lock(format!("{prefix}{at}")).ttl(TTL), clock.clone(), stop.clone());
        tasks.spawn(async move {
            let mut took = Vec::new();
            while clock.now() < until && stop.load(Ordering::Relaxed) == 0 {
                let asked = clock.now();
                let Some(lease) = lock.try_acquire().await? else { continue };
                let held = clock.now();
                lease.release().await?;
                took.push((held.since(asked), clock.now().since(held)));
            }
            Ok::<_, Error>(took)
        });
    }
    while let Some(done) = tasks.join_next().await {
        // A task that panicked has said so; none is cancelled.
        let Ok(took) = done else { continue };
        for (acquire, release) in took? {
            row.acquire.push(acquire);
            row.release.push(release);
        }
    }
    row.spent += clock.now().since(started);
    Ok(())
}

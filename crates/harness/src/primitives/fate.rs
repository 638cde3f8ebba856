//! What befalls the hosts of a run, and what must be free when it is over.

use std::cell::RefCell;

use leasehold_conformance::{Check, Failure, Odds};

use super::drive::{lock, most, scopes, story};
use super::model::Kind;
use super::record::{Recorder, Told};
use super::scene::{Host, Scene};

/// What befalls a host: it is cut off for a while, or it dies.
pub(super) async fn fate(
    scene: &Scene,
    host: &Host,
    recorder: &Recorder,
    cuts: &RefCell<u64>,
    mut dice: fastrand::Rng,
) {
    let Some(chaos) = &host.chaos else { return };
    let pause = |dice: &mut fastrand::Rng, longest: f64| {
        let until = scene.clock.now().after(scene.ttl.mul_f64(dice.f64() * longest));
        scene.clock.sleep_until(until)
    };
    match dice.u8(..5) {
        0 => {
            pause(&mut dice, 3.0).await;
            chaos.cut_off(true);
            recorder.dies(host.number);
            host.dead.send_replace(true);
        }
        1 => {
            pause(&mut dice, 2.0).await;
            chaos.cut_off(true);
            *cuts.borrow_mut() += 1;
            pause(&mut dice, 2.0).await;
            chaos.cut_off(false);
        }
        _ => {}
    }
}

/// Whatever was left behind ends by itself: somebody who comes later gets every name.
pub(super) async fn afterwards(scene: &Scene, kinds: &[Kind], recorder: &Recorder) -> Check {
    let Some(host) = scene.hosts.last() else { return Ok(()) };
    for host in scene.hosts.iter().filter(|host| !*host.dead.borrow()) {
        if let Some(chaos) = &host.chaos {
            chaos.with_odds(Odds::default());
        }
    }
    for (name, kind) in kinds.iter().enumerate() {
        let want = most(*kind);
        // What was done is not done again, though its name is as free as any other.
        let told = *kind != Kind::Once;
        let hold = if told { recorder.asks(name, host.number, want) } else { 0 };
        let lock = lock(&host.client, &scopes(&host.client), *kind, want, name)?.ttl(scene.ttl);
        let lease = lock.acquire_within(scene.ttl * 20).await.map_err(|error| {
            Failure::new(format!("name {name} was never free again: {error}\n{}", story(&recorder.records())))
        })?;
        if !told {
            lease.release().await?;
            continue;
        }
        recorder.tell(name, host.number, hold, Told::Granted(lease.token().get(), lease.remaining()));
        recorder.tell(name, host.number, hold, Told::Releasing);
        lease.release().await?;
        recorder.tell(name, host.number, hold, Told::Released);
    }
    Ok(())
}

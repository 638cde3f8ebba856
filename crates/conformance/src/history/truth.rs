//! True histories for the tests of the checker: processes that take turns on a memory store, driven by a seed.

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_core::{
    BootTime, Claim, ClaimId, Clock, Leave, LockName, MemoryStore, Note, Owner, Renewal, Share, State, Store,
    Token, Turn,
};

use super::{Happened, Record};
use crate::client::renewal;
use crate::recorder::Recorder;

const PROCESSES: u32 = 6;

/// A claim of one process as it goes on, one call at a time.
struct Actor {
    process: u32,
    number: u64,
    claim: Claim,
    attempt: u32,
    held: Option<(Token, BootTime)>,
}

/// What happened.
pub(super) fn truth(seed: u64) -> Vec<Record> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let clock = Clock::frozen();
    let store = MemoryStore::with_clock(clock.clone());
    let recorder = Recorder::new(clock.clone());
    let mut actors: Vec<Actor> = (1..=PROCESSES).map(|process| actor(&mut dice, process, 1)).collect();
    for step in 0..900 {
        clock.advance(Duration::from_millis(dice.u64(..60)));
        let index = dice.usize(..actors.len());
        let over = act(&mut actors[index], &mut dice, &store, &clock, &recorder);
        if over {
            actors[index] = actor(&mut dice, actors[index].process, actors[index].number + 1);
        }
        if step % 200 == 100 {
            recorder.fault(dice.u32(1..=PROCESSES), "nothing in particular");
        }
    }
    recorder.records()
}

fn actor(dice: &mut fastrand::Rng, process: u32, number: u64) -> Actor {
    let permits = |take| Share::permits(take, 3).unwrap();
    let kinds = [
        ("mutex", Share::EXCLUSIVE),
        ("mutex", Share::EXCLUSIVE),
        ("files", Share::EXCLUSIVE),
        ("files", Share::SHARED),
        ("three", permits(1)),
        ("three", permits(2)),
    ];
    let (name, share) = kinds[dice.usize(..kinds.len())];
    let claim = Claim {
        name: LockName::parse(name).unwrap(),
        id: ClaimId::from_bytes(((u128::from(process) << 64) | u128::from(number)).to_be_bytes()),
        owner: Owner::default(),
        share,
        reshape: 0,
        turn: if dice.u8(..4) == 0 { Turn::Any } else { Turn::Fifo },
        ttl: Duration::from_secs(3),
        note: Note::NONE,
        anchored: false,
        aftermath: leasehold_core::Aftermath::NONE,
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    };
    Actor { process, number, claim, attempt: 0, held: None }
}

/// One call of one process, which may take its time; whether the claim is over.
fn act(
    actor: &mut Actor,
    dice: &mut fastrand::Rng,
    store: &MemoryStore,
    clock: &Clock,
    recorder: &Recorder,
) -> bool {
    let claim = actor.claim.clone();
    let tell = |what| recorder.tell(actor.process, actor.number, what);
    let slow = |dice: &mut fastrand::Rng| clock.advance(Duration::from_millis(dice.u64(..5)));
    let valid_until = |sent: BootTime, ttl: Duration| sent.after(ttl.mul_f64(0.99));
    let Some((token, until)) = actor.held else {
        actor.attempt += 1;
        recorder.asked(actor.process, actor.number, actor.attempt, &claim);
        let sent = clock.now();
        slow(dice);
        let state = store.claim(&claim).now_or_never().unwrap().unwrap().state;
        slow(dice);
        match state {
            State::Granted(grant) => {
                let valid_until = valid_until(sent, grant.ttl);
                tell(Happened::Granted { token: grant.token, valid_until });
                actor.held = Some((grant.token, valid_until));
            }
            State::Waiting { .. } => drop(tell(Happened::Queued)),
            other => panic!("{other:?}"),
        }
        return false;
    };
    if clock.now() < until && dice.bool() {
        let sent = clock.now();
        slow(dice);
        let renewed = store.renew(&[renewal(&claim, token)]).now_or_never().unwrap().remove(0).unwrap();
        if let (Renewal::Kept { ttl, .. }, true) = (renewed, clock.now() < until) {
            let until = valid_until(sent, ttl);
            tell(Happened::Renewed { valid_until: until });
            actor.held = Some((token, until));
        }
        return false;
    }
    if dice.u8(..8) > 0 {
        tell(Happened::ReleaseCalled);
        slow(dice);
        store.release(&claim.name, claim.id, Leave::Open).now_or_never().unwrap().unwrap();
        tell(Happened::Released);
    }
    true
}

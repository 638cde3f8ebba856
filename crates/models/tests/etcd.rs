//! The model of etcd's wait does what it says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use leasehold_models::etcd::{Etcd, Event, Message, Mutant, Phase, World};
use stateright::Model;

/// What happens in this order.
fn play(model: &Etcd, events: &[Event]) -> World {
    let mut world = model.init_states().remove(0);
    for event in events {
        let mut may = Vec::new();
        model.actions(&world, &mut may);
        assert!(may.contains(event), "{event:?} cannot happen in {world:#?}");
        world = model.next_state(&world, event.clone()).unwrap();
    }
    world
}

#[test]
fn a_lease_that_was_there_does_not_count_from_when_it_was_asked_for_again() {
    let id = (0, 1);
    let events = [
        Event::Ask(0),
        Event::Deliver(Message::Grant { id, sent: 1 }),
        Event::Lose(Message::Granted { id, sent: 1, made: true }),
        Event::Tick,
        Event::AskAgain(0),
        Event::Deliver(Message::Grant { id, sent: 2 }),
        Event::Deliver(Message::Granted { id, sent: 2, made: false }),
        Event::Deliver(Message::Put { id }),
        Event::Deliver(Message::Placed { id, created: Some(1), ahead: None, revision: 1 }),
    ];
    let broken = Etcd::for_mutant(Mutant::CountsFoundLease);
    let sound = Etcd { mutant: None, ..broken.clone() };
    let world = play(&sound, &events);
    assert_eq!(world.leases[&id].ends, 1 + sound.ttl);
    assert!(matches!(world.clients[0].phase, Phase::Waiting { .. }), "it is to be proved: {world:#?}");
    assert!(matches!(play(&broken, &events).clients[0].phase, Phase::Holding { .. }));
}

#[test]
fn what_a_leader_says_that_leads_no_more_does_not_count() {
    let id = (0, 1);
    let broken = Etcd::for_mutant(Mutant::TermsNotCompared);
    let events = [
        Event::Deliver(Message::Keep { id, sent: 2, to: 1 }),
        Event::Deliver(Message::Kept { id, sent: 2, term: 1, ok: true }),
        Event::Deliver(Message::Own { id, sent: 2 }),
        Event::Deliver(Message::Owns { id, sent: 2, term: 2, ok: true, revision: 3 }),
    ];
    let until = |model: &Etcd| match play(model, &events).clients[0].phase {
        Phase::Holding { until, .. } => until,
        ref other => panic!("{other:?}"),
    };
    assert!(until(&broken) > until(&Etcd { mutant: None, ..broken.clone() }));
}

//! The model of ZooKeeper's line does what it says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use leasehold_models::zookeeper::{Event, Mutant, Phase, World, ZooKeeper};
use stateright::Model;

/// What happens in this order.
fn play(model: &ZooKeeper, events: &[Event]) -> World {
    let mut world = model.init_states().remove(0);
    for event in events {
        let mut may = Vec::new();
        model.actions(&world, &mut may);
        assert!(may.contains(event), "{event:?} cannot happen in {world:#?}");
        world = model.next_state(&world, event.clone()).unwrap();
    }
    world
}

fn holders(world: &World) -> usize {
    world.clients.iter().filter(|client| matches!(client.phase, Phase::Holding { .. })).count()
}

/// Why it is no promise: the rule rests on a leader that asks its servers whom they have heard of, in time.
#[test]
fn a_leader_that_does_not_ask_in_time_ends_what_is_held() {
    let granted =
        [Event::Ask(0), Event::Lead(0), Event::Apply(0), Event::Read(0), Event::Tick, Event::Lead(0)];
    let first = [&granted[..], &[Event::Tick, Event::Touch(0), Event::Read(0)]].concat();
    let renews = [Event::Renew(0), Event::Lead(0), Event::Apply(0), Event::Read(0), Event::Die(0)];
    let touches = [Event::Tick, Event::Touch(1), Event::Read(1), Event::Tick, Event::Lead(1)];
    let second = [&touches[..], &[Event::Expire(0), Event::Ask(1), Event::Lead(1)]].concat();
    let applies = vec![Event::Apply(1); 4];
    let then = |asked: Event| [&first[..], &[asked], &renews, &second, &applies, &[Event::Read(1)]].concat();
    let stalls = ZooKeeper { stalls: 1, ..ZooKeeper::small(None) };
    let world = play(&stalls, &then(Event::Stall));
    assert_eq!(holders(&world), 2, "{world:#?}");
    assert!(world.fallen.is_none(), "tokens rise all the same: {world:#?}");
    // With a leader that asked, what the server forwarded has prolonged the session.
    let asked = [&first[..], &[Event::Tick, Event::Renew(0), Event::Lead(0)]].concat();
    assert_eq!(play(&stalls, &asked).sessions[0].ends, 4 + stalls.timeout);
}

#[test]
fn a_server_that_lets_a_session_in_proves_nothing_by_that() {
    let reconnects = [Event::Tick, Event::Break(0), Event::Connect(0, 0)];
    let until = |model: &ZooKeeper| {
        let world = play(model, &reconnects);
        assert_eq!(world.sessions[0].ends, 1 + model.timeout, "its leader has not heard of it");
        let Phase::Holding { until, .. } = world.clients[0].phase else { panic!("{world:#?}") };
        until
    };
    let broken = ZooKeeper::for_mutant(Mutant::ReconnectCounts);
    let sound = ZooKeeper { mutant: None, ..broken.clone() };
    assert!(until(&broken) > until(&sound));
}

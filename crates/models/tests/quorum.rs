//! The model of the quorum does what it says, and its mutants are wrong.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use leasehold_models::quorum::{Event, Message, Mutant, Quorum, Said, World};
use stateright::Model;

/// What happens in this order.
fn play(quorum: &Quorum, events: &[Event]) -> World {
    let mut world = quorum.init_states().remove(0);
    for event in events {
        let mut may = Vec::new();
        quorum.actions(&world, &mut may);
        assert!(may.contains(event), "{event:?} cannot happen in {world:#?}");
        world = quorum.next_state(&world, event.clone()).unwrap();
    }
    world
}

fn propose(node: u8, client: u8) -> Message {
    Message::Propose { node, id: (client, 1), token: 1 }
}

fn accepted(node: u8, client: u8, token: u64) -> Message {
    Message::Voted { node, id: (client, 1), token: 1, said: Said::Accepted(token) }
}

#[test]
fn the_highest_of_counters_of_its_own_is_no_token() {
    let first = [
        Event::Ask(0),
        Event::Repeat(propose(0, 0)),
        Event::Deliver(propose(0, 0)),
        Event::Deliver(accepted(0, 0, 2)),
        Event::Deliver(propose(1, 0)),
        Event::Deliver(accepted(1, 0, 1)),
        Event::Finish(0),
        Event::Deliver(Message::Release { node: 1, id: (0, 1) }),
    ];
    let second = [
        Event::Ask(1),
        Event::Deliver(propose(1, 1)),
        Event::Deliver(propose(2, 1)),
        Event::Deliver(accepted(1, 1, 2)),
        Event::Deliver(accepted(2, 1, 1)),
    ];
    let world = play(&Quorum::for_mutant(Mutant::HighestOfCounters), &[first.as_slice(), &second].concat());
    assert_eq!(world.fallen, Some((2, 2)), "two leases with one token");
}

#[test]
fn whoever_proposes_what_a_node_has_taken_before_proposes_higher() {
    let quorum = Quorum::small(None);
    let taken = |node| Event::Deliver(propose(node, 0));
    let world = play(
        &quorum,
        &[
            Event::Ask(0),
            taken(0),
            taken(1),
            Event::Deliver(accepted(0, 0, 1)),
            Event::Deliver(accepted(1, 0, 1)),
            Event::Finish(0),
            Event::Deliver(Message::Release { node: 0, id: (0, 1) }),
            Event::Deliver(Message::Release { node: 1, id: (0, 1) }),
            Event::Ask(1),
            Event::Deliver(propose(0, 1)),
            Event::Deliver(Message::Voted { node: 0, id: (1, 1), token: 1, said: Said::Above(1) }),
            Event::Deliver(propose(1, 1)),
            Event::Deliver(Message::Voted { node: 1, id: (1, 1), token: 1, said: Said::Above(1) }),
        ],
    );
    assert!(world.network.contains(&Message::Propose { node: 0, id: (1, 1), token: 2 }), "{world:#?}");
}

/// Found on real servers: a node that answers late is told to let go of what is then claimed again under the same id.
#[test]
fn what_a_late_node_has_to_give_back_is_not_claimed_again() {
    let taken = |node, client| Event::Deliver(propose(node, client));
    let says = |node, client, said| Event::Deliver(Message::Voted { node, id: (client, 1), token: 1, said });
    // The first has two nodes; the other hears so from both, and the third, which it has, has not answered yet.
    let late = [
        Event::Ask(0),
        taken(0, 0),
        taken(1, 0),
        Event::Ask(1),
        taken(0, 1),
        taken(1, 1),
        taken(2, 1),
        says(0, 1, Said::Taken),
        says(1, 1, Said::Taken),
    ];
    let mut may = Vec::new();
    let sound = Quorum::asks_again();
    let world = play(&sound, &late);
    sound.actions(&world, &mut may);
    assert!(!may.contains(&Event::AskAgain(1)), "a node is still to answer: {world:#?}");
    // Once it has, it is told to give it back, and the id is never asked for again.
    let world = play(&sound, &[late.as_slice(), &[says(2, 1, Said::Accepted(1))]].concat());
    assert!(world.network.contains(&Message::Release { node: 2, id: (1, 1) }), "{world:#?}");
    may.clear();
    sound.actions(&world, &mut may);
    assert!(!may.contains(&Event::AskAgain(1)), "{world:#?}");
    // With the break it is, and wins by what it is about to lose.
    let broken = Quorum::for_mutant(Mutant::ClaimsWhatItGivesBack);
    let again = [
        says(0, 0, Said::Accepted(1)),
        says(1, 0, Said::Accepted(1)),
        Event::Finish(0),
        Event::Deliver(Message::Release { node: 0, id: (0, 1) }),
        Event::Deliver(Message::Release { node: 1, id: (0, 1) }),
        Event::AskAgain(1),
        says(2, 1, Said::Accepted(1)),
    ];
    let world = play(&broken, &[late.as_slice(), &again].concat());
    assert!(world.network.contains(&Message::Release { node: 2, id: (1, 1) }), "{world:#?}");
    assert!(world.network.contains(&Message::Propose { node: 2, id: (1, 1), token: 2 }), "{world:#?}");
}

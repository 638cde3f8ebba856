//! A claim as these tests state it; what matters to a test it changes.

use std::time::Duration;

use leasehold_core::{Aftermath, Claim, ClaimId, LockName, Note, Owner, Share, Turn};

/// An exclusive claim of its own for this name, held for half a minute.
pub(crate) fn claim(text: &str, turn: Turn) -> Claim {
    Claim {
        name: LockName::parse(text).unwrap(),
        id: ClaimId::random().unwrap(),
        owner: Owner::default(),
        share: Share::EXCLUSIVE,
        reshape: 0,
        turn,
        ttl: Duration::from_secs(30),
        note: Note::NONE,
        anchored: false,
        aftermath: Aftermath::NONE,
        succeeds: None,
        tokens: 1,
        seen: None,
        proposed: None,
        not_after: None,
    }
}

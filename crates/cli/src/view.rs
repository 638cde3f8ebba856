//! A lock as the read commands show it: its state in one word, and the JSON that is stable within its version.

use leasehold::{Clock, Entry, Holder, Leasehold, Reach, Share, Snapshot};
use serde_json::{Value, json};

use crate::human::{millis, utc};

/// The word for the state of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Held,
    Shared,
    /// Kept shut after a release, for a while.
    Cooling,
    /// Held, but its renewal is late.
    Suspect,
    /// Its lease has run out, and nobody has taken it yet.
    Expired,
}

impl State {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let holders = &snapshot.holders;
        match holders.first() {
            None if snapshot.closed.is_some() => Self::Cooling,
            None => Self::Free,
            Some(_) if holders.iter().all(|holder| holder.left.is_zero()) => Self::Expired,
            // A lease is renewed at a third of its ttl.
            Some(_) if holders.iter().any(|holder| holder.renewed > holder.ttl / 2) => Self::Suspect,
            Some(holder) if holder.share == Share::EXCLUSIVE => Self::Held,
            Some(_) => Self::Shared,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Shared => "shared",
            Self::Cooling => "cooling",
            Self::Suspect => "suspect",
            Self::Expired => "expired",
        }
    }
}

/// What is locked, by how its holders share it.
fn kind(snapshot: &Snapshot) -> Option<&'static str> {
    let share = snapshot.holders.first().or(snapshot.waiters.first())?.share;
    Some(match share {
        Share::EXCLUSIVE => "mutex",
        Share::SHARED => "rwlock",
        _ => "semaphore",
    })
}

/// How widely a store locks, in one word.
pub(crate) const fn scope(reach: Reach) -> &'static str {
    match reach {
        Reach::Process => "process",
        Reach::Host => "host",
        _ => "fleet",
    }
}

/// The name without the namespace, as it is typed.
pub(crate) fn typed<'a>(client: &Leasehold, name: &'a str) -> &'a str {
    let space = client.namespace();
    if space.is_empty() {
        name
    } else {
        name.strip_prefix(space).and_then(|name| name.strip_prefix(':')).unwrap_or(name)
    }
}

/// The object of `--json`: every key always there, what is not known is null, and no claim id.
pub(crate) fn object(client: &Leasehold, snapshot: &Snapshot) -> Value {
    let now = snapshot.server_time.map_or_else(|| Clock::system().wall_micros(), |time| time.as_micros());
    let at = Moments { now };
    let token = snapshot.holders.first().and_then(|holder| holder.token);
    let waiters = snapshot.waiters.iter().enumerate();
    json!({
        "v": 1,
        "name": typed(client, snapshot.name.as_str()),
        "kind": kind(snapshot),
        "state": State::of(snapshot).word(),
        "token": token.map(leasehold::Token::get),
        "holders": snapshot.holders.iter().map(|entry| at.holder(entry)).collect::<Vec<_>>(),
        "waiters": waiters.map(|(index, entry)| at.waiter(index, entry)).collect::<Vec<_>>(),
        "once": null,
        "last_ok": null,
        "skips_since_ok": null,
        "scope": scope(client.capabilities().reach),
        "store": client.store(),
    })
}

/// Ages to moments, by the clock that the store answered with.
struct Moments {
    now: u64,
}

impl Moments {
    fn ago(&self, age: std::time::Duration) -> Option<String> {
        utc(self.now.saturating_sub(millis(age).saturating_mul(1000)))
    }

    fn ahead(&self, left: std::time::Duration) -> Option<String> {
        utc(self.now.saturating_add(millis(left).saturating_mul(1000)))
    }

    fn holder(&self, entry: &Entry) -> Value {
        let Entry { owner, note, age, renewed, renewals, left, ttl, .. } = entry;
        json!({
            "id": owner.id(), "host": owner.host, "user": owner.user, "pid": owner.pid,
            "command": owner.program, "note": note.text(),
            "acquired_at": self.ago(*age), "renewed_at": self.ago(*renewed), "expires_at": self.ahead(*left),
            "ttl_ms": millis(*ttl), "left_ms": millis(*left), "renewals": renewals, "at_most_at": null,
        })
    }

    fn waiter(&self, index: usize, entry: &Entry) -> Value {
        let Entry { owner, age, .. } = entry;
        json!({
            "id": owner.id(), "host": owner.host, "since": self.ago(*age), "position": index + 1,
            "gives_up_at": null,
        })
    }
}

/// The holder of an entry, if it is one.
pub(crate) fn holder(client: &Leasehold, entry: &Entry) -> Option<Holder> {
    Holder::of(entry, client.owner())
}

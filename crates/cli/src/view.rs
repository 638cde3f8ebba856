//! A lock as the read commands show it: its state in one word, and the JSON that is stable within its version.

use leasehold::{Clock, Entry, Holder, Leasehold, Mark, Period, Reach, Share, Snapshot, Zone};
use serde_json::{Value, json};

use crate::books::Look;
use crate::human::{millis, utc};
use crate::options::Once;

/// The word for the state of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Nobody holds it, and nobody may.
    Paused,
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

    /// The same, with what stands beside the lock: who holds a paused one may finish, and is shown.
    pub(crate) fn with(snapshot: &Snapshot, look: &Look) -> Self {
        match Self::of(snapshot) {
            Self::Free | Self::Cooling if look.paused.is_some() => Self::Paused,
            state => state,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Paused => "paused",
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
        Share::SHARED | Share::UPGRADEABLE => "rwlock",
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
pub(crate) fn object(client: &Leasehold, snapshot: &Snapshot, look: &Look, once: Option<&Once>) -> Value {
    let now = snapshot.server_time.map_or_else(|| Clock::system().wall_micros(), |time| time.as_micros());
    let at = Moments { now };
    let token = snapshot.holders.first().and_then(|holder| holder.token);
    let waiters = snapshot.waiters.iter().enumerate();
    json!({
        "v": 1,
        "name": typed(client, snapshot.name.as_str()),
        "kind": kind(snapshot),
        "state": State::with(snapshot, look).word(),
        "token": token.map(leasehold::Token::get),
        "holders": snapshot.holders.iter().map(|entry| at.holder(entry)).collect::<Vec<_>>(),
        "waiters": waiters.map(|(index, entry)| at.waiter(index, entry)).collect::<Vec<_>>(),
        "once": slot(look, once).map(|slot| json!({"period": slot.period, "slot": slot.slot, "done": slot.done.is_some()})),
        "last_ok": look.history.ok.as_ref().map(|good| json!({
            "ended_at": at.ago(good.ago), "host": good.host, "ms": good.ms, "exit_code": 0,
        })),
        "skips_since_ok": look.history.first_ago.map(|_| look.history.skips),
        "scope": scope(client.capabilities().reach),
        "store": client.store(),
    })
}

/// The slot of a name's period that is now, and its mark.
pub(crate) struct Slot {
    pub(crate) period: String,
    pub(crate) slot: String,
    pub(crate) done: Option<Mark>,
}

/// What a name does once: as a rule of the files says, else as its newest mark does.
pub(crate) fn slot(look: &Look, once: Option<&Once>) -> Option<Slot> {
    let wall = Clock::system().wall_micros();
    let (period, slot) = match once {
        Some(once) => (once.period.to_string(), once.slot(wall)),
        None => {
            let text: Value = serde_json::from_str(&look.marks.first()?.text).ok()?;
            let period: Period = text["period"].as_str()?.parse().ok()?;
            let zone: Zone = text["tz"].as_str()?.parse().ok()?;
            (period.to_string(), period.slot(wall, &zone))
        }
    };
    let done = look.marks.iter().find(|mark| mark.key == slot).cloned();
    Some(Slot { period, slot, done })
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
        let (ends, ours) = (!entry.never_ends(), !is_foreign(entry));
        json!({
            "id": owner.id(), "host": owner.host, "user": owner.user, "pid": ours.then_some(owner.pid),
            "command": owner.program, "note": note.text(),
            "acquired_at": ours.then(|| self.ago(*age)), "renewed_at": ours.then(|| self.ago(*renewed)),
            "expires_at": ends.then(|| self.ahead(*left)), "ttl_ms": (ends && ours).then(|| millis(*ttl)),
            "left_ms": ends.then(|| millis(*left)), "renewals": ours.then_some(renewals), "at_most_at": null,
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

/// Whether a holder is not of Leasehold: it has no token, and of itself told nothing.
pub(crate) fn is_foreign(holder: &Entry) -> bool {
    holder.token.is_none()
}

/// The holder of an entry, if it is one.
pub(crate) fn holder(client: &Leasehold, entry: &Entry) -> Option<Holder> {
    Holder::of(entry, client.owner())
}

//! The line of a name, as the cluster has it at one revision.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use leasehold_core::{
    ClaimId, Closure, Entry, LockName, Note, Overruled, Owner, PLACE_LIFE, Share, Snapshot, Token, Watch,
    fault,
};

use crate::client::{Done, Left, between, created_at, only, reads};
use crate::fail::{Fail, Result};
use crate::keys::{Keys, Own, shuts};
use crate::proto::{Compare, KeyValue, RequestOp};
use crate::value::{Value, unwords, words};

/// One key in the line.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) key: Vec<u8>,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) lease: i64,
    /// What it takes; that of another client takes all.
    pub(crate) share: Share,
    /// `None` for that of another client.
    pub(crate) value: Option<Value>,
}

/// A name that is shut.
#[derive(Debug, Clone)]
pub(crate) struct Shut {
    pub(crate) key: Vec<u8>,
    /// The key that must be gone for it to count, if there is one.
    pub(crate) after: Option<Vec<u8>>,
    pub(crate) lease: i64,
    lasting: Duration,
    by: Owner,
    note: Note,
}

/// What was read of a name.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) revision: i64,
    /// In the order of their creation.
    pub(crate) members: Vec<Member>,
    /// Whether the id that was asked for was granted, or has ended.
    pub(crate) spent: bool,
    /// What shuts the name now.
    pub(crate) shut: Vec<Shut>,
    /// What will once a lease ends uncleanly.
    pub(crate) after: Vec<Shut>,
}

/// The steps that read a view.
pub(crate) fn looks(keys: &Keys, spent: &[u8]) -> Vec<RequestOp> {
    vec![reads(between(&keys.line, &keys.end)), reads(only(spent))]
}

impl View {
    /// What those steps have read.
    pub(crate) fn parse(keys: &Keys, done: &mut Done) -> Result<Self> {
        let line = done.read()?;
        let spent = !done.read()?.is_empty();
        let shuts = line.iter().filter_map(|kv| Some(Shut::of(kv, shuts(&keys.line, &kv.key)?)));
        let stands = |key: &Vec<u8>| line.iter().any(|kv| kv.key == *key);
        let (after, shut) = shuts.partition(|shut| shut.after.as_ref().is_some_and(stands));
        let mut members: Vec<_> =
            line.into_iter().filter(|kv| keys.is_member(&kv.key)).map(Member::of).collect();
        if fault!("etcd_passes_strangers") {
            members.retain(|member| member.value.is_some());
        }
        Ok(Self { revision: done.revision, members, spent, shut, after })
    }

    /// Where the claim stands, if it does.
    pub(crate) fn mine(&self, own: &Own, id: ClaimId) -> Result<Option<(usize, &Member, &Value)>> {
        let Some(index) = self.members.iter().position(|member| member.key == own.key) else {
            return Ok(None);
        };
        let member = &self.members[index];
        match &member.value {
            Some(value) if value.id == id => Ok(Some((index, member, value))),
            _ => Err(Fail::new(
                leasehold_core::StoreErrorKind::Protocol,
                "another client has a key of the very number of this claim's lease",
            )
            .help("acquire it again: the next claim has another number")),
        }
    }

    /// Whether nothing shuts the name.
    pub(crate) fn is_open(&self) -> bool {
        self.shut.is_empty()
    }

    /// Those live still whose end would shut it.
    pub(crate) fn lives(&self) -> impl Iterator<Item = Compare> {
        let after = self.after.iter().filter_map(|shut| shut.after.as_ref());
        let mut after: Vec<_> = after.collect();
        after.dedup();
        after.into_iter().filter_map(|key| {
            let member = self.members.iter().find(|member| member.key == *key)?;
            Some(created_at(key, member.created))
        })
    }

    /// The shares of the first so many.
    pub(crate) fn shares(&self, ahead: usize) -> Vec<Share> {
        self.members.iter().take(ahead).map(|member| member.share).collect()
    }

    pub(crate) fn disagrees(&self, ahead: usize, mine: Share) -> Option<Overruled> {
        let mut shares = self.members.iter().take(ahead).map(|member| member.share);
        shares.find(|share| mine.disagrees(*share)).map(|theirs| Overruled::Disagrees { theirs })
    }

    /// How many hold: ours say so, others by the rule of their recipe, which is the first key of all.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (&Member, bool)> {
        self.members
            .iter()
            .enumerate()
            .map(|(index, member)| (member, member.value.as_ref().map_or(index == 0, Value::holds)))
    }

    /// What changes with whatever somebody who looks wants to hear of: not with a renewal.
    pub(crate) fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (member, holds) in self.holders() {
            (&member.key, member.created, holds).hash(&mut hasher);
            member.value.as_ref().map(|value| (value.tenure, &value.note)).hash(&mut hasher);
        }
        self.shut.iter().for_each(|shut| (&shut.key, shut.lease).hash(&mut hasher));
        hasher.finish()
    }

    /// What shuts the name for the longest time.
    pub(crate) fn closure(&self, left: impl Fn(i64) -> Option<Left>) -> Option<Closure> {
        self.shut.iter().map(|shut| shut.closure(left(shut.lease))).max_by_key(|closure| closure.left)
    }

    /// The line as people look at it; of leases that are not asked for nothing is known.
    pub(crate) fn snapshot(&self, name: &LockName, left: impl Fn(i64) -> Option<Left>) -> Snapshot {
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        for (member, holds) in self.holders() {
            let entry = member.entry(holds, left(member.lease));
            if holds { holders.push(entry) } else { waiters.push(entry) }
        }
        Snapshot {
            name: name.clone(),
            holders,
            waiters,
            closed: self.closure(left),
            cursor: Watch::Any(self.version()).cursor(),
            server_time: None,
        }
    }
}

impl Member {
    fn of(kv: KeyValue) -> Self {
        let KeyValue { key, create_revision: created, mod_revision: modified, version: _, value, lease } = kv;
        let value = Value::parse(&value);
        let share = value.as_ref().map_or(Share::EXCLUSIVE, |value| value.share);
        Self { key, created, modified, lease, share, value }
    }

    fn entry(&self, holds: bool, left: Option<Left>) -> Entry {
        let since = left.map_or(Duration::ZERO, Left::shown);
        // Rounded up: no more than this is left.
        let ends = left.map(|left| Duration::from_secs(left.left + 1));
        let token = holds.then(|| token(self.created)).flatten();
        let Some(value) = &self.value else { return self.stranger(left) };
        let Value { id, tenure, share, ttl, held, renewals, note, owner } = value.clone();
        let most = if holds { ttl } else { PLACE_LIFE };
        Entry {
            id,
            owner,
            share,
            wanted: None,
            reshape: 0,
            note,
            token,
            tenure,
            age: held + since,
            renewed: since,
            renewals,
            left: ends.unwrap_or(most).min(most),
            ttl,
        }
    }

    /// Somebody else's: a mutex of another client, a candidate of an election. It has told us of no token, and whoever
    /// reads entries knows strangers by that.
    fn stranger(&self, left: Option<Left>) -> Entry {
        let since = left.map_or(Duration::ZERO, Left::shown);
        let note = if self.lease == 0 {
            "another client has this key, and it never ends by itself: look whether its holder lives"
        } else {
            "another client has this key: a mutex, an election"
        };
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.created.to_be_bytes());
        id[8..].copy_from_slice(&self.lease.to_be_bytes());
        // Without a lease it stays until somebody takes it away.
        let (ends, ttl) = match left {
            Some(left) => (Duration::from_secs(left.left + 1), Duration::from_secs(left.granted)),
            None if self.lease == 0 => (Duration::MAX, Duration::MAX),
            None => (Duration::ZERO, Duration::MAX),
        };
        Entry {
            id: ClaimId::from_bytes(id),
            owner: Owner {
                host: "another client".to_owned(),
                user: "unknown".to_owned(),
                pid: 0,
                program: "foreign".to_owned(),
                tag: format!("lease {:x}", self.lease),
            },
            share: Share::EXCLUSIVE,
            wanted: None,
            reshape: 0,
            note: Note::parse(note).unwrap_or_default(),
            tenure: 0,
            token: None,
            age: since,
            renewed: since,
            renewals: 0,
            left: ends.min(ttl),
            ttl,
        }
    }
}

impl Shut {
    fn of(kv: &KeyValue, after: Option<Vec<u8>>) -> Self {
        let told = unwords(&kv.value).unwrap_or_default();
        let text = |at: usize| told.get(at).cloned().unwrap_or_default();
        let by = Owner {
            host: text(2),
            user: text(3),
            pid: text(4).parse().unwrap_or(0),
            program: text(5),
            tag: text(6),
        };
        let lasting = Duration::from_millis(text(1).parse().unwrap_or(0));
        let key = kv.key.clone();
        Self { key, after, lease: kv.lease, lasting, by, note: Note::parse(&text(7)).unwrap_or_default() }
    }

    pub(crate) fn value(lasting: Duration, by: &Owner, note: &Note) -> Vec<u8> {
        let Owner { host, user, pid, program, tag } = by;
        let (millis, pid) = (lasting.as_millis().to_string(), pid.to_string());
        words(&["lh1", &millis, host, user, &pid, program, tag, note.text().unwrap_or("")])
    }

    /// Leases are whole seconds, and no shorter than the cluster likes: it may last a little longer than it says.
    pub(crate) fn closure(&self, left: Option<Left>) -> Closure {
        let most = left.map_or(self.lasting, |left| Duration::from_secs(left.left + 1));
        // One that counts from the end of a lease has lived longer before.
        let passed = left.filter(|_| self.after.is_none()).map_or(Duration::ZERO, Left::shown);
        Closure {
            left: self.lasting.saturating_sub(passed).min(most),
            by: self.by.clone(),
            note: self.note.clone(),
        }
    }
}

/// The token of what was created at this revision.
pub(crate) fn token(created: i64) -> Option<Token> {
    u64::try_from(created).ok().and_then(Token::new)
}

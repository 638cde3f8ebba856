//! What a quorum looks like: what a majority of its nodes says; and how a wait on it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use leasehold_core::{Closure, Cursor, Entry, LockName, Op, Result, Snapshot};

use super::Quorum;
use super::round::{Heard, request};

/// A wait that no node can tell the end of.
const BLIND: Duration = Duration::from_millis(100);
/// How many names a store gives at once.
const PAGE: usize = 1000;

/// The cursors of several nodes as one.
pub(super) fn pack(cursors: &[(usize, Cursor)]) -> Cursor {
    let mut bytes = BytesMut::new();
    for (index, cursor) in cursors {
        let cursor = cursor.as_bytes();
        // More nodes than 256 or longer cursors make no sense; whoever has them polls.
        let (Ok(index), Ok(length)) = (u8::try_from(*index), u16::try_from(cursor.len())) else { continue };
        bytes.put_u8(index);
        bytes.put_u16(length);
        bytes.put_slice(cursor);
    }
    Cursor::new(bytes.freeze())
}

fn unpack(cursor: &Cursor) -> Vec<(usize, Cursor)> {
    let mut bytes = cursor.as_bytes();
    let mut cursors = Vec::new();
    while let [index, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((cursor, rest)) = rest.split_at_checked(length) else { break };
        cursors.push((usize::from(*index), Cursor::new(Bytes::copy_from_slice(cursor))));
        bytes = rest;
    }
    cursors
}

impl Quorum {
    /// Waits until some node has news.
    pub(super) async fn wait(&self, name: &LockName, since: &Cursor) -> Result<()> {
        let cursors = unpack(since);
        let mut waits: FuturesUnordered<_> = cursors
            .iter()
            .filter_map(|(index, cursor)| Some((self.0.nodes.get(*index)?, cursor)))
            .map(|(node, cursor)| node.store.changed(name, cursor))
            .collect();
        while let Some(heard) = waits.next().await {
            if heard.is_ok() {
                return Ok(());
            }
        }
        self.0.clock.sleep_until(self.0.clock.now().after(BLIND)).await;
        Ok(())
    }

    /// One name, as a majority has it.
    pub(super) async fn look(&self, name: &LockName) -> Result<Snapshot> {
        let mut answers = self.ask(Op::Inspect, Some(name), self.0.node_timeout, |node| {
            let name = name.clone();
            request(node, async move |store| store.inspect(&name).await)
        });
        let (mut seen, mut heard) = (Vec::new(), Heard::default());
        while let Some((answer, snapshot)) = answers.good(&mut heard).await {
            seen.push((answer.index, snapshot));
            if seen.len() >= self.needed() && self.is_decided(&seen) {
                break;
            }
        }
        if seen.len() < self.needed() {
            return Err(self.too_few(Op::Inspect, Some(name), &heard));
        }
        let cursors: Vec<_> = seen.iter().map(|(index, seen)| (*index, seen.cursor.clone())).collect();
        Ok(Snapshot {
            name: name.clone(),
            holders: self.agreed(&seen),
            waiters: Vec::new(),
            closed: self.shut(&seen),
            cursor: pack(&cursors),
            server_time: None,
        })
    }

    /// Whether the nodes that are still to answer can change what is seen.
    fn is_decided(&self, seen: &[(usize, Snapshot)]) -> bool {
        let open = self.0.nodes.len() - seen.len();
        let needed = self.needed();
        let undecided = |count: usize| count < needed && count + open >= needed;
        let holders = holders(seen);
        let shut = seen.iter().filter(|(_, snapshot)| snapshot.closed.is_some()).count();
        open == 0 || !(holders.values().any(|entries| undecided(entries.len())) || undecided(shut))
    }

    /// The holders that a majority has, with what is left on the last node that is needed.
    fn agreed(&self, seen: &[(usize, Snapshot)]) -> Vec<Entry> {
        let needed = self.needed();
        let agreed = holders(seen).into_values().filter_map(|mut entries| {
            entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.left));
            entries.get(needed - 1).map(|entry| (*entry).clone())
        });
        agreed.collect()
    }

    fn shut(&self, seen: &[(usize, Snapshot)]) -> Option<Closure> {
        let mut shut: Vec<&Closure> =
            seen.iter().filter_map(|(_, snapshot)| snapshot.closed.as_ref()).collect();
        shut.sort_unstable_by_key(|closure| std::cmp::Reverse(closure.left));
        shut.get(self.needed() - 1).map(|closure| (*closure).clone())
    }

    /// Names that a majority has.
    pub(super) async fn names(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let mut after = after.cloned();
        loop {
            let (names, horizon) = self.page(prefix, after.as_ref()).await?;
            // An empty page would be the end.
            if !names.is_empty() || horizon.is_none() {
                return Ok(names);
            }
            after = horizon;
        }
    }

    /// A page of names, and up to where all nodes are known to have told theirs, if one had more to tell.
    async fn page(
        &self,
        prefix: &str,
        after: Option<&LockName>,
    ) -> Result<(Vec<LockName>, Option<LockName>)> {
        let mut answers = self.ask(Op::List, None, self.0.node_timeout, |node| {
            let (prefix, after) = (prefix.to_owned(), after.cloned());
            request(node, async move |store| store.list(&prefix, after.as_ref()).await)
        });
        let (mut counts, mut answered, mut heard) = (BTreeMap::<LockName, usize>::new(), 0, Heard::default());
        let mut horizon: Option<LockName> = None;
        while let Some((_, names)) = answers.good(&mut heard).await {
            answered += 1;
            if let Some(last) = names.last().filter(|_| names.len() >= PAGE) {
                horizon = Some(horizon.map_or_else(|| last.clone(), |known| known.min(last.clone())));
            }
            for name in names {
                *counts.entry(name).or_default() += 1;
            }
        }
        let needed = self.needed();
        if answered < needed {
            return Err(self.too_few(Op::List, None, &heard));
        }
        let within = |name: &LockName| horizon.as_ref().is_none_or(|horizon| name <= horizon);
        let names = counts.into_iter().filter(|(name, count)| *count >= needed && within(name));
        Ok((names.map(|(name, _)| name).collect(), horizon))
    }
}

fn holders(seen: &[(usize, Snapshot)]) -> BTreeMap<leasehold_core::ClaimId, Vec<&Entry>> {
    let mut by_id = BTreeMap::<_, Vec<&Entry>>::new();
    for entry in seen.iter().flat_map(|(_, snapshot)| &snapshot.holders) {
        by_id.entry(entry.id).or_default().push(entry);
    }
    by_id
}

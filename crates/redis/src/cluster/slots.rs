//! Who has which slot of a cluster, as one of its nodes tells it.

use std::fmt;

use leasehold_core::StoreErrorKind;
use redis::Value;

use crate::config::Place;
use crate::fail::{Fail, Result};
use crate::keys::SLOTS;
use crate::script::{Answer, text};

/// No master has it.
const NOBODY: u16 = u16::MAX;

/// Where a node listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Reads what stands in MOVED and ASK. A node that does not know what the other is called from here leaves its host
    /// out: it is then the one that was asked.
    pub(crate) fn parse(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = if is_unknown(host) { asked.host.clone() } else { host.to_owned() };
        Some(Self { host, port: port.parse().ok()? })
    }

    pub(crate) fn of(place: &Place) -> Option<Self> {
        match place {
            Place::Tcp { host, port, tls: _ } => Some(Self { host: host.clone(), port: *port }),
            Place::Unix(_) => None,
        }
    }
}

/// How a node calls another whose name it does not know.
fn is_unknown(host: &str) -> bool {
    matches!(host, "" | "?")
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A master, and who copies it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Master {
    address: Address,
    replicas: Vec<Address>,
}

/// Who has which slot.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    masters: Vec<Master>,
    /// For each slot the place of its master.
    owner: Vec<u16>,
}

/// What a newer map says that the older did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// Slots went to another master, with what is in them.
    Moved,
    /// A replica took the slots of its master over, with what it had of them.
    Promoted,
}

impl Slots {
    /// Nobody has anything.
    pub(crate) fn nobodys() -> Self {
        Self { masters: Vec::new(), owner: vec![NOBODY; SLOTS] }
    }

    /// Reads what CLUSTER SLOTS says, which this node was asked for.
    pub(crate) fn parse(value: Value, asked: &Address) -> Result<Self> {
        let mut slots = Self::nobodys();
        for range in Answer::new(value)?.rest() {
            let mut range = Answer::new(range)?;
            let (first, last) = (range.natural()?, range.natural()?);
            let mut nodes = range.rest().map(|node| address(node, asked));
            let address = nodes.next().ok_or_else(|| Fail::garbled("slots without a node"))??;
            let replicas = nodes.collect::<Result<Vec<_>>>()?;
            let at = slots.master(address);
            slots.masters[usize::from(at)].replicas = replicas;
            let range = usize::try_from(first).ok().zip(usize::try_from(last).ok());
            let range = range.and_then(|(first, last)| slots.owner.get_mut(first..=last));
            range.ok_or_else(|| Fail::garbled("a slot out of range"))?.fill(at);
        }
        Ok(slots)
    }

    /// The place of this master.
    fn master(&mut self, address: Address) -> u16 {
        let at = self.masters.iter().position(|master| master.address == address);
        let at = at.unwrap_or_else(|| {
            self.masters.push(Master { address, replicas: Vec::new() });
            self.masters.len() - 1
        });
        u16::try_from(at).unwrap_or(NOBODY)
    }

    /// Who has this slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<&Address> {
        self.of(usize::from(slot)).map(|master| &master.address)
    }

    fn of(&self, slot: usize) -> Option<&Master> {
        self.masters.get(usize::from(*self.owner.get(slot)?))
    }

    /// One slot went elsewhere, as a node said that had it.
    pub(crate) fn moved(&mut self, slot: u16, to: Address) -> Change {
        let from = self.of(usize::from(slot)).cloned();
        let copied = from.as_ref().is_some_and(|from| from.replicas.contains(&to));
        let at = self.master(to);
        let Some(owner) = self.owner.get_mut(usize::from(slot)) else { return Change::None };
        if *owner == at {
            return Change::None;
        }
        *owner = at;
        if copied { Change::Promoted } else { Change::Moved }
    }

    /// All masters that have slots.
    pub(crate) fn masters(&self) -> Vec<Address> {
        let has = |at: &usize| self.owner.iter().any(|owner| usize::from(*owner) == *at);
        (0..self.masters.len()).filter(has).map(|at| self.masters[at].address.clone()).collect()
    }

    /// Whether anybody has anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.owner.iter().all(|owner| *owner == NOBODY)
    }

    /// What is new in this map.
    pub(crate) fn since(&self, older: &Self) -> Change {
        let change = |slot| {
            let (Some(now), Some(then)) = (self.of(slot), older.of(slot)) else { return Change::None };
            if now.address == then.address {
                Change::None
            } else if then.replicas.contains(&now.address) || now.replicas.contains(&then.address) {
                Change::Promoted
            } else {
                Change::Moved
            }
        };
        (0..SLOTS).map(change).max().unwrap_or(Change::None)
    }

    /// The slots that nobody has, as people write them.
    pub(crate) fn uncovered(&self) -> Vec<String> {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for slot in (0..SLOTS).filter(|slot| self.of(*slot).is_none()) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        let told = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
        ranges.into_iter().map(told).collect()
    }
}

/// Where a node listens: its name or address, its port, its id, and what else it is called. One that does not know its
/// own name, or was told to keep it back, is found where the one is that was asked.
fn address(node: Value, asked: &Address) -> Result<Address> {
    let mut node = Answer::new(node)?;
    let host = match node.next()? {
        Value::Nil => String::new(),
        told => text(told)?,
    };
    let port = u16::try_from(node.natural()?).map_err(|_| Fail::garbled("a port out of range"))?;
    if port == 0 {
        // What it has for clients without TLS, which is nothing.
        let message = "the nodes of this cluster announce no port at which they speak TLS";
        return Err(Fail::new(StoreErrorKind::Protocol, message).help("set tls-cluster yes on each of them"));
    }
    if !is_unknown(&host) {
        return Ok(Address { host, port });
    }
    let also = node.rest().nth(1).and_then(|also| Answer::new(also).ok()).and_then(|also| also.texts().ok());
    let named = |what| {
        let pairs = also.as_deref().unwrap_or_default();
        let pair = pairs.chunks_exact(2).find(|pair| pair[0] == what && !is_unknown(&pair[1]));
        pair.map(|pair| pair[1].clone())
    };
    let host = if host == "?" { named("ip") } else { None };
    Ok(Address { host: host.unwrap_or_else(|| asked.host.clone()), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), text("0123"), Value::Array(Vec::new())])
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    fn map(ranges: Vec<Value>) -> Slots {
        Slots::parse(Value::Array(ranges), &at("asked", 6379)).unwrap()
    }

    #[test]
    fn each_slot_has_the_master_that_stands_first() {
        let slots = map(vec![
            range(0, 100, vec![node(text("a"), 1), node(text("b"), 2)]),
            range(102, 16_383, vec![node(text("c"), 3)]),
        ]);
        assert_eq!(slots.owner(0), Some(&at("a", 1)));
        assert_eq!(slots.owner(100), Some(&at("a", 1)));
        assert_eq!(slots.owner(101), None);
        assert_eq!(slots.owner(16_383), Some(&at("c", 3)));
        assert_eq!(slots.masters(), [at("a", 1), at("c", 3)]);
        assert_eq!(slots.uncovered(), ["101"]);
        assert_eq!(Slots::nobodys().uncovered(), ["0-16383"]);
    }

    #[test]
    fn a_node_without_a_name_is_where_the_one_is_that_was_asked() {
        let by_ip = Value::Array(vec![text("ip"), text("10.0.0.7")]);
        let by_ip = Value::Array(vec![text("?"), Value::Int(4), text("id"), by_ip]);
        let slots = map(vec![
            range(0, 0, vec![node(text(""), 1)]),
            range(1, 1, vec![node(Value::Nil, 2)]),
            range(2, 2, vec![node(text("?"), 3)]),
            range(3, 3, vec![by_ip]),
            range(4, 4, vec![node(text("node-5.example"), 5)]),
        ]);
        let hosts: Vec<_> = (0..5).map(|slot| slots.owner(slot).unwrap().to_string()).collect();
        assert_eq!(hosts, ["asked:1", "asked:2", "asked:3", "10.0.0.7:4", "node-5.example:5"]);
    }

    #[test]
    fn where_a_slot_went_is_read_as_nodes_write_it() {
        let asked = at("asked", 1);
        for (text, read) in [
            ("10.0.0.1:7000", Some(at("10.0.0.1", 7000))),
            ("::1:7000", Some(at("::1", 7000))),
            ("[::1]:7000", Some(at("::1", 7000))),
            (":7000", Some(at("asked", 7000))),
            ("?:7000", Some(at("asked", 7000))),
            ("node", None),
            ("node:x", None),
        ] {
            assert_eq!(Address::parse(text, &asked), read, "{text}");
        }
        assert_eq!(at("::1", 7).to_string(), "[::1]:7");
    }

    #[test]
    fn a_replica_that_took_over_is_told_from_a_slot_that_went_elsewhere() {
        let [a, b, c] = ["a", "b", "c"].map(|host| node(text(host), 1));
        let before = map(vec![range(0, 9, vec![a.clone(), b.clone()]), range(10, 19, vec![c.clone()])]);
        assert_eq!(before.since(&before), Change::None);
        assert_eq!(before.since(&Slots::nobodys()), Change::None);
        let moved = map(vec![range(0, 5, vec![a.clone(), b.clone()]), range(6, 19, vec![c.clone()])]);
        assert_eq!(moved.since(&before), Change::Moved);
        let promoted = map(vec![range(0, 9, vec![b.clone()]), range(10, 19, vec![c.clone()])]);
        assert_eq!(promoted.since(&before), Change::Promoted);
        // A new replica, which we had not heard of, took over, and the old master came back as its copy.
        let swapped = map(vec![range(0, 9, vec![a, b]), range(10, 19, vec![node(text("d"), 1), c])]);
        assert_eq!(swapped.since(&before), Change::Promoted);
    }

    #[test]
    fn one_slot_can_be_moved_alone() {
        let mut slots = map(vec![range(0, 16_383, vec![node(text("a"), 1)])]);
        assert_eq!(slots.moved(7, at("b", 2)), Change::Moved);
        assert_eq!((slots.owner(6), slots.owner(7)), (Some(&at("a", 1)), Some(&at("b", 2))));
        assert_eq!(slots.moved(7, at("b", 2)), Change::None);
        assert_eq!(slots.moved(60_000, at("b", 2)), Change::None);
        let mut slots = map(vec![range(0, 9, vec![node(text("a"), 1), node(text("b"), 2)])]);
        assert_eq!(slots.moved(7, at("b", 2)), Change::Promoted);
    }

    #[test]
    fn what_no_cluster_says_is_not_understood() {
        for told in [
            Value::Int(1),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 1, Vec::new())]),
            Value::Array(vec![range(0, 16_384, vec![node(text("a"), 1)])]),
            Value::Array(vec![range(5, 1, vec![node(text("a"), 1)])]),
            Value::Array(vec![range(0, 1, vec![node(text("a"), 70_000)])]),
            Value::Array(vec![range(0, 1, vec![node(text("a"), 0)])]),
        ] {
            assert!(Slots::parse(told.clone(), &at("x", 1)).is_err(), "{told:?}");
        }
    }
}

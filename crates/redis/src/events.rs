//! Which claims of this process wait for a key that another client holds, and the keyspace events that tell of its end.
//!
//! Only the first in a line listens, and only for the one key that it waits for: whoever stands behind is told by us.

use std::collections::{HashMap, HashSet};

use leasehold_core::{ClaimId, fault};
use tokio::sync::mpsc::UnboundedSender;

/// Events by which a key goes away. Others, such as `expire` and `set`, are renewals of its holder.
const ENDS: [&str; 4] = ["del", "expired", "evicted", "rename_from"];

/// Where a server tells what becomes of a key, if it does (`notify-keyspace-events`).
pub(crate) fn channel_of(database: i64, plain: &str) -> String {
    format!("__keyspace@{database}__:{plain}")
}

/// Whether this is where events are told.
pub(crate) fn is_of_events(channel: &str) -> bool {
    channel.starts_with("__keyspace@")
}

/// Whether the key is gone after this event.
pub(crate) fn is_end(event: &str) -> bool {
    ENDS.contains(&event)
}

/// What the subscribed connection is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Hear(String),
    Forget(String),
}

/// What is listened to over one connection.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    /// None without a connection, and once the server has refused: then it is as if events were off.
    orders: Option<UnboundedSender<Order>>,
    channels: HashMap<String, HashSet<ClaimId>>,
    of: HashMap<ClaimId, String>,
}

impl Ears {
    /// Those of a connection that carries such orders out.
    pub(crate) fn over(orders: UnboundedSender<Order>) -> Self {
        Self { orders: Some(orders), ..Self::default() }
    }

    /// This claim waits for the end of a key. Once that is listened to, it is told once, since the end may have come
    /// before.
    pub(crate) fn hear(&mut self, id: ClaimId, channel: String) {
        let Some(orders) = self.orders.as_ref().filter(|_| !fault!("redis_hears_no_events")) else { return };
        if self.of.contains_key(&id) {
            return;
        }
        let ids = self.channels.entry(channel.clone()).or_default();
        // Another claim of this process may listen already, and this one then has missed nothing since its answer but
        // what the order, given again, makes up for.
        ids.insert(id);
        self.of.insert(id, channel.clone());
        // A connection that has ended takes no orders, and all that it heard for have been told so.
        drop(orders.send(Order::Hear(channel)));
    }

    /// This claim waits for it no longer.
    pub(crate) fn forget(&mut self, id: ClaimId) {
        let Some(channel) = self.of.remove(&id) else { return };
        let Some(ids) = self.channels.get_mut(&channel) else { return };
        ids.remove(&id);
        if ids.is_empty() {
            self.channels.remove(&channel);
            if let Some(orders) = &self.orders {
                drop(orders.send(Order::Forget(channel)));
            }
        }
    }

    /// Who listens there.
    pub(crate) fn listeners(&self, channel: &str) -> impl Iterator<Item = ClaimId> {
        self.channels.get(channel).into_iter().flatten().copied()
    }

    /// The server does not let us listen.
    pub(crate) fn refused(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn a_channel_is_given_up_with_the_last_who_listens() {
        let (orders, mut given) = unbounded_channel();
        let mut ears = Ears::over(orders);
        let [one, two] = [1, 2].map(|id| ClaimId::from_bytes([id; 16]));
        let channel = channel_of(3, "lock:x");
        assert_eq!(channel, "__keyspace@3__:lock:x");
        ears.hear(one, channel.clone());
        ears.hear(one, channel.clone());
        ears.hear(two, channel.clone());
        for _ in 0..2 {
            assert_eq!(given.try_recv(), Ok(Order::Hear(channel.clone())));
        }
        ears.forget(one);
        assert!(given.try_recv().is_err());
        assert_eq!(ears.listeners(&channel).collect::<Vec<_>>(), [two]);
        ears.forget(two);
        assert_eq!(given.try_recv(), Ok(Order::Forget(channel.clone())));
        ears.refused();
        ears.hear(one, channel.clone());
        assert_eq!(ears.listeners(&channel).count(), 0);
    }

    #[test]
    fn a_renewal_of_a_foreign_holder_is_no_end() {
        assert!(is_end("del") && is_end("expired") && !is_end("expire") && !is_end("set"));
    }
}

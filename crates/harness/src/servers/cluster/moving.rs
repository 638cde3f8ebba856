//! A slot that moves from one master to another, step by step, so that a test can stop in the middle.

use std::io;

use super::super::redis::{ask, ok, refused};
use super::{Cluster, until};

/// How long one key may take from one server to the other.
const MIGRATE_MILLIS: &str = "1500";

impl Cluster {
    /// Begins to move a slot: from now on its master sends to the new one whoever asks for keys that it has not.
    ///
    /// # Errors
    ///
    /// When one of both does not agree.
    pub fn begin(&self, slot: usize, to: usize) -> io::Result<Move<'_>> {
        let from = self.master_of(slot)?;
        let number = slot.to_string();
        ok(&self.servers[to], &["CLUSTER", "SETSLOT", &number, "IMPORTING", &self.ids[from]])?;
        ok(&self.servers[from], &["CLUSTER", "SETSLOT", &number, "MIGRATING", &self.ids[to]])?;
        Ok(Move { cluster: self, slot: number, from, to })
    }

    /// Moves a slot with all its keys.
    ///
    /// # Errors
    ///
    /// As the steps of it.
    pub fn move_slot(&self, slot: usize, to: usize) -> io::Result<()> {
        if self.master_of(slot)? != to {
            let under_way = self.begin(slot, to)?;
            under_way.all()?;
            under_way.finish()?;
        }
        Ok(())
    }
}

/// A slot that is being moved. Dropped, it stays half moved.
#[derive(Debug)]
pub struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl Move<'_> {
    /// Keys that have not been moved yet.
    ///
    /// # Errors
    ///
    /// When the old master does not answer.
    pub fn keys(&self) -> io::Result<Vec<String>> {
        let answer = ask(&self.cluster.servers[self.from], &["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"])?;
        refused(&answer)?;
        Ok(answer.lines().skip(1).filter(|line| !line.starts_with('$')).map(str::to_owned).collect())
    }

    /// Moves one key, if it is still there.
    ///
    /// # Errors
    ///
    /// When one of both does not agree.
    pub fn key(&self, key: &str) -> io::Result<()> {
        let Self { cluster, slot: _, from, to } = self;
        let address = cluster.servers[*to].address();
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        refused(&ask(&cluster.servers[*from], &["MIGRATE", &ip, &port, key, "0", MIGRATE_MILLIS])?)
    }

    /// Moves all keys.
    ///
    /// # Errors
    ///
    /// When one of both does not agree.
    pub fn all(&self) -> io::Result<()> {
        until("all keys have been moved", || {
            let keys = self.keys()?;
            keys.iter().try_for_each(|key| self.key(key))?;
            Ok(keys.is_empty())
        })
    }

    /// Gives the slot to the new master, and tells all nodes that answer.
    ///
    /// # Errors
    ///
    /// When one of both masters does not agree: the old one while it has keys.
    pub fn finish(self) -> io::Result<()> {
        let Self { cluster, slot, from, to } = self;
        let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &cluster.ids[to]];
        ok(&cluster.servers[to], &words)?;
        ok(&cluster.servers[from], &words)?;
        for server in &cluster.servers {
            // Replicas refuse it, and hear of it from their masters; so do those that are asleep now.
            drop(ask(server, &words));
        }
        Ok(())
    }
}

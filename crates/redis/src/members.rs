//! Which nodes a quorum has, as each client of it was told: a node remembers the lists that clients came with, so that
//! those who disagree hear of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{Check, Code, Endpoint, StoreErrorKind, fault};
use redis::Value;

use crate::config::PORT;
use crate::fail::{Fail, Result};
use crate::script::Answer;

const NAME: &str = "members";

/// The list of one client, and what its nodes say of it.
#[derive(Debug, Clone)]
pub(crate) struct Members(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: String,
    list: String,
    epoch: u32,
    /// Lists that others came to a node with.
    others: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl Members {
    /// These hosts, as the list of this epoch; a quorum is all that has one prefix.
    pub(crate) fn new(hosts: &[Endpoint], prefix: &str, epoch: u32) -> Self {
        let host =
            |host: &Endpoint| format!("{}:{}", host.host.to_ascii_lowercase(), host.port.unwrap_or(PORT));
        let hosts: BTreeSet<String> = hosts.iter().map(host).collect();
        let list = hosts.into_iter().collect::<Vec<_>>().join(",");
        Self(Arc::new(Inner {
            key: format!("leasehold:quorum:{prefix}"),
            list,
            epoch,
            others: Mutex::default(),
        }))
    }

    /// What the script of this name is called with.
    pub(crate) fn words(&self) -> ([String; 1], [Vec<u8>; 2]) {
        ([self.0.key.clone()], [self.0.list.clone().into(), self.0.epoch.to_string().into()])
    }

    /// What a node answered. It has no say for a client whose list was replaced.
    pub(crate) fn hear(&self, node: &str, answer: Value) -> Result<()> {
        let Inner { list, epoch, others, .. } = &*self.0;
        let mut told = Answer::new(answer)?.texts()?.into_iter();
        let top: u32 = told.next().and_then(|top| top.parse().ok()).unwrap_or_default();
        let newest = told.next().unwrap_or_default();
        if top > *epoch && !fault!("redis_trusts_old_lists") {
            let message = format!(
                "the list of nodes was changed: by epoch {top} they are {newest}; this client has epoch {epoch}, {list}"
            );
            let help = format!("give this client the list that the others have, and epoch={top}");
            return Err(Fail::new(StoreErrorKind::Denied, message).help(help));
        }
        let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
        others.insert(node.to_owned(), told.collect());
        Ok(())
    }

    /// Whether clients agree.
    pub(crate) fn check(&self) -> Check {
        let Inner { list, epoch, others, .. } = &*self.0;
        let others = others.lock().unwrap_or_else(PoisonError::into_inner);
        let lists: BTreeSet<&String> = others.values().flatten().collect();
        if lists.is_empty() {
            return Check::ok(
                NAME,
                format!("all clients of the last day name the same nodes (epoch {epoch})"),
            );
        }
        let lists: Vec<_> = lists.into_iter().map(String::as_str).collect();
        let says = format!(
            "in the last day a client came with another list of nodes: {}; this one has {list}. Two lists may have \
             majorities that share no node",
            lists.join(" and ")
        );
        let fix = "give all clients one list, spelled alike; to change it, raise epoch= with it (docs/design/quorum.md)";
        Check::warning(NAME, Code::QUORUM, says, fix)
    }
}

//! Asking all nodes at once: each has its own deadline, whoever is slow goes on being asked in the background, and the
//! caller hears the answers as they come.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::{BootTime, Code, Error, LockName, Op, Result, Store, StoreError, StoreErrorKind};
use tokio::sync::mpsc;

use super::Quorum;
use super::node::Node;

/// One node's answer.
pub(super) struct Answer<T> {
    pub(super) node: Arc<Node>,
    pub(super) index: usize,
    pub(super) sent: BootTime,
    pub(super) said: Result<T>,
}

/// The answers to come.
pub(super) struct Answers<T>(mpsc::UnboundedReceiver<Answer<T>>);

impl<T> Answers<T> {
    /// The next answer that is no failure, and what it says; failures on the way are noted. `None` after the last
    /// node's.
    pub(super) async fn good(&mut self, heard: &mut Heard) -> Option<(Answer<()>, T)> {
        while let Some(Answer { node, index, sent, said }) = self.next().await {
            match said {
                Ok(said) => {
                    heard.ok(&node);
                    return Some((Answer { node, index, sent, said: Ok(()) }, said));
                }
                Err(error) => heard.failed(&node, &error),
            }
        }
        None
    }

    /// The next answer; `None` after the last node's.
    pub(super) async fn next(&mut self) -> Option<Answer<T>> {
        self.0.recv().await
    }
}

impl Quorum {
    /// Asks every node. Requests go out now, whether or not the answers are waited for.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        op: Op,
        name: Option<&LockName>,
        limit: Duration,
        ask: impl Fn(&Arc<Node>) -> BoxFuture<'static, Result<T>>,
    ) -> Answers<T> {
        let (tell, hear) = mpsc::unbounded_channel();
        for (index, node) in self.0.nodes.iter().enumerate() {
            let (node, tell, name, ask) = (node.clone(), tell.clone(), name.cloned(), ask(node));
            let sent = self.0.clock.now();
            tokio::spawn(async move {
                let said = node.ask(op, name.as_ref(), limit, ask).await;
                // Whoever asked may have heard enough.
                drop(tell.send(Answer { node, index, sent, said }));
            });
        }
        Answers(hear)
    }

    /// Why a majority cannot be had.
    pub(super) fn too_few(&self, op: Op, name: Option<&LockName>, heard: &Heard) -> Error {
        let Heard { said, ok, failures, helps, unknown } = heard;
        let (nodes, needed) = (self.0.nodes.len(), self.needed());
        let message = format!("{ok} of {nodes} nodes answered, {needed} are needed: {}", said.join("; "));
        let looks = matches!(op, Op::Inspect | Op::List | Op::Check);
        // Where all say the same, it is that: a wrong password, a request that came too late. That some cannot be had, and
        // others can, is the quorum's trouble.
        let (kind, code) = match failures.as_slice() {
            [(kind, code), rest @ ..]
                if rest.iter().all(|other| other == &(*kind, *code))
                    && failures.len() == nodes
                    && !unknown =>
            {
                (*kind, *code)
            }
            _ => (StoreErrorKind::Unavailable, Code::QUORUM),
        };
        let error = StoreError::new(kind, op, self).saying(message).code(code);
        let help = match helps.as_slice() {
            [help, rest @ ..] if rest.iter().all(|other| other == help) => help,
            _ => "leasehold doctor tells what is wrong with each node",
        };
        let error = error.help(help);
        let error = if *unknown && !looks { error.unknown() } else { error };
        name.map_or(error.clone(), |name| error.about(name)).into()
    }
}

/// What each node said, for people.
#[derive(Debug, Default)]
pub(super) struct Heard {
    said: Vec<String>,
    ok: usize,
    failures: Vec<(StoreErrorKind, Code)>,
    /// What to do about them, where they say so.
    helps: Vec<String>,
    /// Whether one may have done it that did not say so.
    unknown: bool,
}

impl Heard {
    pub(super) fn ok(&mut self, node: &Node) {
        self.said.push(format!("{} ok", node.name));
        self.ok += 1;
    }

    pub(super) fn mute(&mut self, node: &Node, why: &str) {
        self.said.push(format!("{} has no say, since {why}", node.name));
        self.failures.push((StoreErrorKind::Unavailable, Code::QUORUM));
    }

    pub(super) fn failed(&mut self, node: &Node, error: &Error) {
        self.unknown |= error.outcome_unknown();
        self.helps.extend(error.help());
        let (kind, text) = match error {
            Error::Store(error) if !error.message.is_empty() => (error.kind, error.message.clone()),
            Error::Store(error) => (error.kind, error.to_string()),
            other => (StoreErrorKind::Unexpected, other.to_string()),
        };
        self.said.push(format!("{} {text}", node.name));
        self.failures.push((kind, error.code()));
    }
}

/// A request to a node's store, as a future of its own.
pub(super) fn request<T, F>(
    node: &Arc<Node>,
    ask: impl FnOnce(Arc<dyn Store>) -> F,
) -> BoxFuture<'static, Result<T>>
where
    F: Future<Output = Result<T>> + Send + 'static,
{
    Box::pin(ask(node.store.clone()))
}

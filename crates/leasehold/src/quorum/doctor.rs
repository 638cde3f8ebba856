//! What the nodes of a quorum tell of themselves: one check for all of them, by the worst.

use async_trait::async_trait;
use leasehold_core::{Check, Doctor, LockName, Op, Result, ServerTime};

use super::Quorum;
use super::round::{Heard, request};

#[async_trait]
impl Doctor for Quorum {
    async fn greet(&self) -> Result<String> {
        let mut answers = self.ask(Op::Check, None, self.0.node_timeout, |node| {
            request(node, async move |store| match store.doctor() {
                Some(doctor) => doctor.greet().await,
                None => Ok(store.to_string()),
            })
        });
        let (mut greetings, mut heard) = (Vec::new(), Heard::default());
        while let Some((answer, greeting)) = answers.good(&mut heard).await {
            greetings.push((answer.index, greeting));
        }
        if greetings.len() < self.needed() {
            return Err(self.too_few(Op::Check, None, &heard));
        }
        greetings.sort_unstable();
        let each: Vec<String> = greetings.into_iter().map(|(_, greeting)| greeting).collect();
        Ok(format!("{} of {} nodes: {}", each.len(), self.0.nodes.len(), each.join("; ")))
    }

    async fn ping(&self) -> Result<Option<ServerTime>> {
        let mut answers = self.ask(Op::Check, None, self.0.node_timeout, |node| {
            request(node, async move |store| match store.doctor() {
                Some(doctor) => doctor.ping().await,
                None => Ok(None),
            })
        });
        let (mut count, mut heard) = (0, Heard::default());
        while let Some((answer, time)) = answers.good(&mut heard).await {
            answer.node.tell_time(answer.sent, time);
            count += 1;
            if count >= self.needed() {
                // None of their clocks is the clock of them all.
                return Ok(None);
            }
        }
        Err(self.too_few(Op::Check, None, &heard))
    }

    async fn checkup(&self) -> Vec<Check> {
        let mut checks: Vec<(String, Check)> = Vec::new();
        for node in &self.0.nodes {
            let own = async {
                Ok(match node.store.doctor() {
                    Some(doctor) => doctor.checkup().await,
                    None => Vec::new(),
                })
            };
            // Many questions, and each has its own limit.
            let told = node.ask(Op::Check, None, self.0.node_timeout * MANY, own).await;
            let told = told.unwrap_or_else(|error| vec![Check::failed_by("nodes", &error)]);
            for check in told {
                match checks.iter_mut().find(|(_, other)| other.name == check.name) {
                    Some((_, other)) if other.health >= check.health => {}
                    Some(worse) => *worse = (node.name.clone(), check),
                    None => checks.push((node.name.clone(), check)),
                }
            }
        }
        let of_node = |(node, check): (String, Check)| {
            let mut check = check;
            check.says = format!("{node}: {}", check.says);
            check
        };
        checks.into_iter().map(of_node).collect()
    }

    async fn bare(&self, _: &LockName) -> Result<Option<&'static str>> {
        Ok(None)
    }
}

/// How many questions a node may be asked in a row.
const MANY: u32 = 20;

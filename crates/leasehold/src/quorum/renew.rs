//! How a quorum prolongs leases: on every node, and on those that have forgotten one anew.

use std::sync::Arc;

use leasehold_core::quorum::{Upshot, Word, upshot};
use leasehold_core::{Leave, Op, Renew, Renewal, Result, Standing, State, fault};

use super::Quorum;
use super::claim::{ROUNDS, to_node};
use super::round::{Answer, Heard, request};

/// What the nodes have said of one lease, by their numbers.
#[derive(Debug, Clone, Default)]
struct Words(Vec<(usize, Word)>);

impl Words {
    fn upshot(&self, nodes: usize) -> Upshot {
        let words: Vec<Word> = self.0.iter().map(|(_, word)| *word).collect();
        upshot(nodes, &words)
    }

    /// The nodes that did not say that they have nothing of it, and those that did.
    fn nodes(&self, lost: bool) -> Vec<usize> {
        self.0.iter().filter(|(_, word)| (*word == Word::Lost) == lost).map(|(index, _)| *index).collect()
    }
}

impl Quorum {
    /// Prolongs each on all nodes, and answers as soon as a majority has said the same of each.
    pub(super) async fn prolong(&self, batch: &[Renew]) -> Vec<Result<Renewal>> {
        let shortest = batch.iter().map(|renew| renew.claim.ttl).min().unwrap_or_default();
        let all: Arc<[Renew]> = batch.into();
        let mut answers = self.ask(Op::Renew, None, self.limit(shortest), |node| {
            let all = all.clone();
            request(node, async move |store| Ok(store.renew(&all).await))
        });
        let nodes = self.0.nodes.len();
        let mut words = vec![Words::default(); batch.len()];
        let mut heard = Heard::default();
        while words.iter().any(|words| words.upshot(nodes) == Upshot::Open) {
            let Some(answer) = answers.next().await else { break };
            match &answer.said {
                Ok(_) => heard.ok(&answer.node),
                Err(error) => heard.failed(&answer.node, error),
            }
            for (words, word) in words.iter_mut().zip(words_of(&answer, batch.len())) {
                words.0.push((answer.index, word));
            }
        }
        let kept: Vec<bool> =
            words.iter().map(|words| matches!(words.upshot(nodes), Upshot::Kept(_))).collect();
        for ((words, renew), kept) in words.iter().zip(batch).zip(&kept) {
            words.nodes(true).into_iter().filter(|_| *kept).for_each(|index| self.mend(renew, index));
        }
        let quorum = self.clone();
        tokio::spawn(async move {
            while let Some(answer) = answers.next().await {
                for ((word, renew), kept) in words_of(&answer, all.len()).into_iter().zip(&*all).zip(&kept) {
                    if *kept && word == Word::Lost {
                        quorum.mend(renew, answer.index);
                    }
                }
            }
        });
        let each = words.into_iter().zip(batch).map(|(words, renew)| match words.upshot(nodes) {
            Upshot::Kept(ttl) => Ok(Renewal::Kept { ttl, server_time: None }),
            Upshot::Lost => {
                // A minority may still have it, and would keep others out for nothing.
                let claim = &renew.claim;
                let involved = words.nodes(false);
                drop(self.give_back_on(&involved, &claim.name, claim.id, &Leave::Open, claim.ttl));
                Ok(Renewal::Lost)
            }
            Upshot::Open | Upshot::Unknown => Err(self.too_few(Op::Renew, Some(&renew.claim.name), &heard)),
        });
        each.collect()
    }

    /// Gives a held lease back to a node that has forgotten it, so that two restarts far apart do not lose it. What the
    /// node takes it under is above its own counter, and so above what it may have granted since; the holder's token
    /// stays what it is.
    fn mend(&self, renew: &Renew, index: usize) {
        let Some(node) = self.0.nodes.get(index).filter(|_| !fault!("quorum_mends_nothing")) else { return };
        let (node, claim, limit) = (node.clone(), renew.claim.clone(), self.limit(renew.claim.ttl));
        let mut proposal = renew.tenure.token;
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let claim = to_node(&claim, proposal, &node);
                let ask = node.store.claim(&claim);
                let said = node.ask(Op::Claim, Some(&claim.name), limit, ask).await;
                let Ok(Standing { state: State::Refused { counter }, .. }) = said else { return };
                let Some(higher) = counter.max(proposal).after(1) else { return };
                proposal = higher;
            }
        });
    }
}

/// What a node said of each of so many leases.
fn words_of(answer: &Answer<Vec<Result<Renewal>>>, count: usize) -> Vec<Word> {
    let mute = answer.node.mute().is_some();
    let said = answer.said.as_deref().unwrap_or_default();
    let word = |index: usize| match said.get(index) {
        Some(Ok(Renewal::Kept { ttl, server_time })) => {
            answer.node.tell_time(answer.sent, *server_time);
            if mute { Word::Silent } else { Word::Kept(*ttl) }
        }
        Some(Ok(Renewal::Lost)) => Word::Lost,
        Some(Err(_)) | None => Word::Silent,
    };
    (0..count).map(word).collect()
}

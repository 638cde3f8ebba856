//! The calls that the store is made of: grant, keep alive, revoke, and transactions; the watch is in `wake.rs`.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::StoreErrorKind;

use crate::fail::{Fail, Result, What};
use crate::link::{Link, most_bytes};
use crate::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::kv_client::KvClient;
use crate::proto::lease_client::LeaseClient;
use crate::proto::request_op::Request as Op;
use crate::proto::response_op::Response as Did;
use crate::proto::{
    Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseOp, TxnRequest,
};

/// What a transaction did.
#[derive(Debug)]
pub(crate) struct Done {
    /// Whether all its conditions held.
    pub(crate) succeeded: bool,
    /// The cluster's revision after it.
    pub(crate) revision: i64,
    /// In which term of which leader the member was that answered.
    pub(crate) term: u64,
    answers: std::vec::IntoIter<ResponseOp>,
}

/// What a lease got, or has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leased {
    pub(crate) id: i64,
    /// For how long it then lives.
    pub(crate) ttl: Duration,
    /// Set when a leader alone said so; see [`counts`].
    pub(crate) term: Option<u64>,
}

/// Whether what a leader alone said of a lease counts, by the term in which it was said and the one in which a
/// transaction was answered that was asked *after* that.
///
/// A keep-alive asks no quorum. A leader that was stopped answers the one that waited in its socket when it goes on, and
/// only then learns that it leads no longer; the lease has counted down at the new one since that was elected. A
/// transaction does ask a quorum: where it is done in the same term, any later leader was elected after the keep-alive,
/// and counts each lease anew from there.
pub(crate) fn counts(said: Option<u64>, done: u64) -> bool {
    said.is_none_or(|term| term == done || leasehold_core::fault!("etcd_terms_not_compared"))
}

/// What is left of a lease, in whole seconds rounded down, and what it was granted for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    pub(crate) left: u64,
    pub(crate) granted: u64,
    /// As that of [`Leased`].
    pub(crate) term: u64,
}

impl Left {
    /// How long it has been since it was granted or kept alive: at most.
    pub(crate) fn passed(self) -> Duration {
        Duration::from_secs(self.granted.saturating_sub(self.left))
    }

    /// How long it has been since then, at least, as people are shown it.
    pub(crate) fn shown(self) -> Duration {
        self.passed().saturating_sub(Duration::from_secs(1))
    }
}

/// Whole seconds, rounded up, as leases are asked for.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    let more = i64::from(ttl.subsec_nanos() > 0);
    i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX - 1) + more
}

impl Link {
    /// Makes a lease, unless there is one of this id; an id of zero lets the cluster choose.
    pub(crate) async fn grant(&self, id: i64, ttl: Duration) -> Result<Leased> {
        let message = LeaseGrantRequest { ttl: seconds(ttl).max(1), id };
        let asked = self.call(message, |channel, request| {
            Box::pin(async move { LeaseClient::new(channel).lease_grant(request).await })
        });
        match asked.await {
            // This asked a quorum: it counts as it is.
            Ok(granted) if granted.error.is_empty() && granted.ttl > 0 => {
                let ttl = Duration::from_secs(granted.ttl.unsigned_abs());
                Ok(Leased { id: granted.id, ttl, term: None })
            }
            Ok(granted) => Err(Fail::new(StoreErrorKind::Unexpected, granted.error).unknown()),
            // An earlier request of the same claim whose reply was lost.
            Err(fail) if fail.what() == What::LeaseExists => match self.keep_alive(id).await? {
                Some(leased) => Ok(leased),
                None => Err(Fail::silent("a lease that was there a moment ago")),
            },
            Err(fail) => Err(fail),
        }
    }

    /// Prolongs a lease. `None` when there is none of that id.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<Option<Leased>> {
        let told = self.call(id, |channel, request| {
            Box::pin(async move {
                let (mut metadata, extensions, id) = request.into_parts();
                metadata.insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
                let message = futures_util::stream::iter([LeaseKeepAliveRequest { id }]);
                let request = tonic::Request::from_parts(metadata, extensions, message);
                let mut stream = LeaseClient::new(channel).lease_keep_alive(request).await?.into_inner();
                let answer = stream.next().await;
                answer
                    .unwrap_or_else(|| Err(tonic::Status::unknown("the stream ended without an answer")))
                    .map(tonic::Response::new)
            })
        });
        let told = match told.await {
            Ok(told) => told,
            Err(fail) if fail.what() == What::NoLease => return Ok(None),
            Err(fail) => return Err(fail),
        };
        if told.id != id {
            return Err(Fail::garbled("the answer is about another lease"));
        }
        let term = Some(told.header.map_or(0, |header| header.raft_term));
        Ok((told.ttl > 0).then(|| Leased { id, ttl: Duration::from_secs(told.ttl.unsigned_abs()), term }))
    }

    /// Ends a lease, and what keys it has. Nothing, if there is none of that id.
    pub(crate) async fn revoke(&self, id: i64) -> Result<()> {
        let asked = self.call(LeaseRevokeRequest { id }, |channel, request| {
            Box::pin(async move { LeaseClient::new(channel).lease_revoke(request).await })
        });
        match asked.await {
            Ok(_) => Ok(()),
            Err(fail) if fail.what() == What::NoLease => Ok(()),
            Err(fail) => Err(fail),
        }
    }

    /// What is left of a lease. `None` when there is none of that id.
    pub(crate) async fn left(&self, id: i64) -> Result<Option<Left>> {
        let asked = self.call(LeaseTimeToLiveRequest { id, keys: false }, |channel, request| {
            Box::pin(async move { LeaseClient::new(channel).lease_time_to_live(request).await })
        });
        let told = match asked.await {
            Ok(told) => told,
            Err(fail) if fail.what() == What::NoLease => return Ok(None),
            Err(fail) => return Err(fail),
        };
        let term = told.header.map_or(0, |header| header.raft_term);
        let left = u64::try_from(told.ttl).ok();
        Ok(left.map(|left| Left { left, granted: told.granted_ttl.unsigned_abs(), term }))
    }

    /// All or nothing, under conditions.
    pub(crate) async fn txn(&self, txn: TxnRequest) -> Result<Done> {
        let before = self.revision();
        let asked =
            self.call(txn, |channel, request| Box::pin(async move { kv(channel).txn(request).await }));
        let done = asked.await?;
        let revision = self.saw(done.header.as_ref(), before)?;
        let term = done.header.map_or(0, |header| header.raft_term);
        Ok(Done { succeeded: done.succeeded, revision, term, answers: done.responses.into_iter() })
    }

    /// Reads without writing.
    pub(crate) async fn range(&self, range: RangeRequest) -> Result<RangeResponse> {
        let before = self.revision();
        let asked =
            self.call(range, |channel, request| Box::pin(async move { kv(channel).range(request).await }));
        let answer = asked.await?;
        self.saw(answer.header.as_ref(), before)?;
        Ok(answer)
    }
}

fn kv(channel: tonic::transport::Channel) -> KvClient<tonic::transport::Channel> {
    KvClient::new(channel).max_decoding_message_size(most_bytes())
}

impl Done {
    /// What the next step of it read.
    pub(crate) fn read(&mut self) -> Result<Vec<KeyValue>> {
        match self.answers.next().and_then(|answer| answer.response) {
            Some(Did::ResponseRange(range)) => Ok(range.kvs),
            _ => Err(Fail::garbled("a transaction did not read what it was to")),
        }
    }

    /// Passes over the next step of it, which wrote.
    pub(crate) fn skip(&mut self) {
        self.answers.next();
    }

    /// What the next step of it deleted.
    pub(crate) fn deleted(&mut self) -> Result<Vec<KeyValue>> {
        match self.answers.next().and_then(|answer| answer.response) {
            Some(Did::ResponseDeleteRange(deleted)) => Ok(deleted.prev_kvs),
            _ => Err(Fail::garbled("a transaction did not delete what it was to")),
        }
    }
}

/// The key is not there.
pub(crate) fn absent(key: &[u8]) -> Compare {
    created_at(key, 0)
}

/// The key is there.
pub(crate) fn present(key: &[u8]) -> Compare {
    Compare { result: CompareResult::Greater.into(), ..created_at(key, 0) }
}

/// The key is there, and is the one that was created at this revision.
pub(crate) fn created_at(key: &[u8], revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

/// The key is as it was last changed at this revision.
pub(crate) fn changed_at(key: &[u8], revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..created_at(key, 0)
    }
}

/// No key of the range was created after this revision.
pub(crate) fn none_since(first: &[u8], end: &[u8], revision: i64) -> Compare {
    Compare {
        result: CompareResult::Less.into(),
        range_end: end.to_vec(),
        target_union: Some(TargetUnion::CreateRevision(revision.saturating_add(1))),
        ..created_at(first, 0)
    }
}

/// All keys from the first one up to, and without, the end; in order of their creation.
pub(crate) fn between(first: &[u8], end: &[u8]) -> RangeRequest {
    RangeRequest {
        key: first.to_vec(),
        range_end: end.to_vec(),
        sort_order: crate::proto::range_request::SortOrder::Ascend.into(),
        sort_target: crate::proto::range_request::SortTarget::Create.into(),
        ..RangeRequest::default()
    }
}

pub(crate) fn only(key: &[u8]) -> RangeRequest {
    RangeRequest { key: key.to_vec(), ..RangeRequest::default() }
}

pub(crate) fn reads(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Op::RequestRange(range)) }
}

pub(crate) fn puts(key: &[u8], value: Vec<u8>, lease: i64) -> RequestOp {
    let put = PutRequest { key: key.to_vec(), value, lease, ..PutRequest::default() };
    RequestOp { request: Some(Op::RequestPut(put)) }
}

/// Takes all keys of a range away, and tells what they were.
pub(crate) fn takes_all(first: &[u8], end: &[u8]) -> RequestOp {
    let (key, range_end) = (first.to_vec(), end.to_vec());
    RequestOp { request: Some(Op::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: true })) }
}

/// Takes a key away, and tells what it was.
pub(crate) fn takes(key: &[u8]) -> RequestOp {
    let delete = DeleteRangeRequest { key: key.to_vec(), prev_kv: true, ..DeleteRangeRequest::default() };
    RequestOp { request: Some(Op::RequestDeleteRange(delete)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leader_alone_said_counts_only_if_it_still_led_afterwards() {
        assert!(counts(Some(7), 7));
        assert!(!counts(Some(7), 8), "a stopped leader answered as it went on");
        assert!(counts(None, 8), "a grant asked a quorum");
    }

    #[test]
    fn ttls_are_whole_seconds_rounded_up() {
        for (millis, whole) in [(100, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(seconds(Duration::from_millis(millis)), whole);
        }
    }
}

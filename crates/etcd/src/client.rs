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
    answers: std::vec::IntoIter<ResponseOp>,
}

/// What is left of a lease, in whole seconds rounded down, and what it was granted for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    pub(crate) left: u64,
    pub(crate) granted: u64,
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
    /// Makes a lease, unless there is one of this id; an id of zero lets the cluster choose. Answers its id, and the
    /// time to live that it got.
    pub(crate) async fn grant(&self, id: i64, ttl: Duration) -> Result<(i64, Duration)> {
        let message = LeaseGrantRequest { ttl: seconds(ttl).max(1), id };
        let asked = self.call(message, |channel, request| {
            Box::pin(async move { LeaseClient::new(channel).lease_grant(request).await })
        });
        match asked.await {
            Ok(granted) if granted.error.is_empty() && granted.ttl > 0 => {
                Ok((granted.id, Duration::from_secs(granted.ttl.unsigned_abs())))
            }
            Ok(granted) => Err(Fail::new(StoreErrorKind::Unexpected, granted.error).unknown()),
            // An earlier request of the same claim whose reply was lost. It counts from now on, or not at all.
            Err(fail) if fail.what() == What::LeaseExists => match self.keep_alive(id).await? {
                Some(ttl) => Ok((id, ttl)),
                None => Err(Fail::silent("a lease that was there a moment ago").unknown()),
            },
            Err(fail) => Err(fail),
        }
    }

    /// Prolongs a lease. `None` when there is none of that id.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<Option<Duration>> {
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
        Ok((told.ttl > 0).then(|| Duration::from_secs(told.ttl.unsigned_abs())))
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
        let left = u64::try_from(told.ttl).ok();
        Ok(left.map(|left| Left { left, granted: told.granted_ttl.unsigned_abs() }))
    }

    /// All or nothing, under conditions.
    pub(crate) async fn txn(&self, txn: TxnRequest) -> Result<Done> {
        let before = self.revision();
        let asked =
            self.call(txn, |channel, request| Box::pin(async move { kv(channel).txn(request).await }));
        let done = asked.await?;
        let revision = self.saw(done.header.as_ref(), before)?;
        Ok(Done { succeeded: done.succeeded, revision, answers: done.responses.into_iter() })
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

/// Takes a key away, and tells what it was.
pub(crate) fn takes(key: &[u8]) -> RequestOp {
    let delete = DeleteRangeRequest { key: key.to_vec(), prev_kv: true, ..DeleteRangeRequest::default() };
    RequestOp { request: Some(Op::RequestDeleteRange(delete)) }
}

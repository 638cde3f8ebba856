//! The watch itself: opened, read with a deadline, and opened again from where it ended.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Doubt;
use tokio::sync::mpsc;
use tonic::metadata::MetadataValue;

use crate::fail::{Fail, Result, What};
use crate::keys::all_lines;
use crate::link::{Link, most_bytes};
use crate::proto::event::EventType;
use crate::proto::watch_client::WatchClient;
use crate::proto::watch_request::RequestUnion;
use crate::proto::{WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use crate::version::{Version, faults};
use crate::wake::{Heard, Wakes};

/// After so long without a word the member is asked for one.
const SILENCE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MOST_PAUSE: Duration = Duration::from_secs(1);

/// Listens until it is aborted.
pub(crate) async fn listen(link: Arc<Link>, wakes: Arc<Wakes>) {
    tokio::join!(warn(&link), hear(&link, &wakes));
}

async fn hear(link: &Link, wakes: &Wakes) {
    let mut next = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = next;
        let fail = match session(link, wakes, &mut next).await {
            Ok(never) => match never {},
            Err(fail) => fail,
        };
        // Nothing was missed that is still there to be told, unless it has been compacted away.
        if fail.what() == What::Compacted {
            next = None;
        }
        pause = if next == begun { (2 * pause).min(MOST_PAUSE) } else { FIRST_PAUSE };
        tokio::time::sleep(pause).await;
    }
}

/// Once in the life of a client, on the first lock that it holds or waits for.
async fn warn(link: &Link) {
    for (member, place) in link.places().enumerate() {
        let Ok(status) = link.status(member).await else { continue };
        let faults = Version::parse(&status.version).map(faults).unwrap_or_default();
        if !faults.is_empty() {
            let version = status.version;
            tracing::warn!(%place, %version, faults = %faults.join("; "), "this etcd may end a lease early: check tokens");
            return;
        }
    }
}

enum Never {}

async fn session(link: &Link, wakes: &Wakes, next: &mut Option<i64>) -> Result<Never> {
    let (first, end) = all_lines(&wakes.prefix);
    let create = WatchCreateRequest {
        key: first,
        range_end: end,
        start_revision: next.unwrap_or(0),
        progress_notify: true,
    };
    let (ask, asked) = mpsc::channel(4);
    let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let _ = ask.try_send(create);
    let requests = futures_util::stream::unfold(asked, async |mut asked| {
        let request: WatchRequest = asked.recv().await?;
        Some((request, asked))
    });
    let (channel, mut request, member) = link.open(requests).await?;
    // A member that lost its leader ends the stream then, instead of saying nothing.
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    let mut client = WatchClient::new(channel).max_decoding_message_size(most_bytes());
    let ends = |status: Option<&tonic::Status>| {
        let fail = link.failed(member, status);
        if fail.what() != What::Compacted {
            link.leave(member);
        }
        fail
    };
    let opened = tokio::time::timeout(link.timeout(), client.watch(request)).await;
    let mut stream = match opened {
        Ok(Ok(stream)) => stream.into_inner(),
        Ok(Err(status)) => return Err(ends(Some(&status))),
        Err(_) => return Err(ends(None)),
    };
    let mut silent = false;
    loop {
        let patience = if silent { link.timeout() } else { SILENCE };
        let message = match tokio::time::timeout(patience, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return Err(ends(None)),
            Ok(Err(status)) => return Err(ends(Some(&status))),
            Err(_) if silent => return Err(ends(None)),
            Err(_) => {
                silent = true;
                let progress = WatchProgressRequest {};
                let progress = RequestUnion::ProgressRequest(progress);
                let _ = ask.try_send(WatchRequest { request_union: Some(progress) });
                continue;
            }
        };
        silent = false;
        take(link, wakes, next, message)?;
    }
}

fn take(link: &Link, wakes: &Wakes, next: &mut Option<i64>, message: WatchResponse) -> Result<()> {
    let WatchResponse {
        header,
        watch_id: _,
        created,
        canceled,
        compact_revision,
        cancel_reason,
        fragment: _,
        events,
    } = message;
    if canceled {
        if compact_revision > 0 || cancel_reason.contains("compacted") {
            *next = None;
        }
        return Err(Fail::new(
            leasehold_core::StoreErrorKind::Unavailable,
            format!("the watch ended: {cancel_reason}"),
        ));
    }
    let revision = header.map_or(0, |header| header.revision);
    if created {
        match *next {
            // It would wait for a revision that this cluster reaches some day, and say nothing until then.
            Some(from) if revision < from - 1 => {
                *next = None;
                link.doubt(Doubt::Replaced);
                return Err(Fail::garbled("its revision went back"));
            }
            Some(_) => {}
            None => {
                *next = Some(revision + 1);
                wakes.opened(revision);
            }
        }
    }
    for event in events {
        let gone = event.r#type() == EventType::Delete;
        let Some(kv) = event.kv else { continue };
        *next = Some(kv.mod_revision + 1);
        wakes.hear(link, Heard { key: kv.key, revision: kv.mod_revision, gone });
    }
    Ok(())
}

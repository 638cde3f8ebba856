//! A connection that only listens: to channels of a whole server, and in a cluster to those of one slot.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use leasehold_core::StoreErrorKind;
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{FromRedisValue as _, Msg, PushInfo, PushKind, Value};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::fail::{Fail, Result};
use crate::servers::Node;

/// How channels of one slot start: a tag follows, as in a key.
const OF_A_SLOT: &str = "lh:wake:{";

/// Whether this is a channel of one slot.
pub(crate) fn is_of_a_slot(channel: &str) -> bool {
    channel.starts_with(OF_A_SLOT)
}

/// By which it is told what to listen to.
pub(crate) enum Sink {
    Server(PubSubSink),
    Cluster(MultiplexedConnection),
}

/// By which it tells.
pub(crate) enum Stream {
    Server(BoxStream<'static, Msg>),
    Cluster(UnboundedReceiver<PushInfo>),
}

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message {
        channel: String,
        text: String,
    },
    /// This channel is heard no longer: its slot went elsewhere.
    Ended(String),
    /// Nothing that concerns anybody.
    Nothing,
}

/// Opens one. In a cluster it listens to nothing yet; on a single server to this channel.
pub(crate) async fn open(node: &Node, channel: &str) -> Result<(Sink, Stream)> {
    if node.address.is_none() {
        let (sink, stream) = node.link.subscribe(channel).await?;
        return Ok((Sink::Server(sink), Stream::Server(stream)));
    }
    let (connection, heard) = node.link.hear().await?;
    Ok((Sink::Cluster(connection), Stream::Cluster(heard)))
}

impl Sink {
    pub(crate) async fn subscribe(&mut self, channel: &str) -> Result<()> {
        match self {
            Self::Server(sink) => Ok(sink.subscribe(channel).await?),
            Self::Cluster(connection) if is_of_a_slot(channel) => {
                order(connection, "SSUBSCRIBE", channel, &PushKind::SSubscribe).await
            }
            Self::Cluster(connection) => order(connection, "SUBSCRIBE", channel, &PushKind::Subscribe).await,
        }
    }

    pub(crate) async fn unsubscribe(&mut self, channel: &str) -> Result<()> {
        match self {
            Self::Server(sink) => Ok(sink.unsubscribe(channel).await?),
            Self::Cluster(connection) if is_of_a_slot(channel) => {
                order(connection, "SUNSUBSCRIBE", channel, &PushKind::SUnsubscribe).await
            }
            Self::Cluster(connection) => {
                order(connection, "UNSUBSCRIBE", channel, &PushKind::Unsubscribe).await
            }
        }
    }

    /// Whether the connection still answers.
    pub(crate) async fn answers(&mut self) -> bool {
        match self {
            Self::Server(sink) => sink.ping::<Value>().await.is_ok(),
            Self::Cluster(connection) => {
                let told = connection.send_packed_command(&redis::cmd("PING")).await;
                // What the server tells unasked may have been taken for the answer.
                matches!(told, Ok(Value::SimpleString(_) | Value::Okay | Value::BulkString(_)))
            }
        }
    }
}

/// Orders are sent one at a time. What the server tells unasked, that a subscription ended, looks as the answer to an
/// order does; where it was taken for one, the connection is no good any more.
async fn order(
    connection: &mut MultiplexedConnection,
    verb: &str,
    channel: &str,
    kind: &PushKind,
) -> Result<()> {
    let told = connection.send_packed_command(redis::cmd(verb).arg(channel)).await?.extract_error()?;
    match told {
        Value::Push { kind: told, data } if told == *kind && first(&data).as_deref() == Some(channel) => {
            Ok(())
        }
        _ => {
            let message = "an answer on a subscribed connection was another's";
            Err(Fail::new(StoreErrorKind::Unavailable, message).unknown())
        }
    }
}

fn first(data: &[Value]) -> Option<String> {
    data.first().and_then(|value| String::from_redis_value_ref(value).ok())
}

impl Stream {
    /// What is heard next; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        match self {
            Self::Server(stream) => {
                let message = stream.next().await?;
                let channel = message.get_channel_name().to_owned();
                Some(message.get_payload().map_or(Heard::Nothing, |text| Heard::Message { channel, text }))
            }
            Self::Cluster(heard) => told(&heard.recv().await?),
        }
    }
}

fn told(push: &PushInfo) -> Option<Heard> {
    let PushInfo { kind, data } = push;
    Some(match kind {
        PushKind::Disconnection => return None,
        PushKind::Message | PushKind::SMessage => {
            let text = data.get(1).and_then(|value| String::from_redis_value_ref(value).ok());
            match first(data).zip(text) {
                Some((channel, text)) => Heard::Message { channel, text },
                None => Heard::Nothing,
            }
        }
        PushKind::SUnsubscribe => first(data).map_or(Heard::Nothing, Heard::Ended),
        _ => Heard::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(kind: PushKind, words: &[&str]) -> PushInfo {
        let data = words.iter().map(|word| Value::BulkString((*word).into())).collect();
        PushInfo { kind, data }
    }

    #[test]
    fn what_a_server_tells_is_understood() {
        let message = Heard::Message { channel: "c".to_owned(), text: "t".to_owned() };
        assert_eq!(told(&push(PushKind::SMessage, &["c", "t"])), Some(message));
        assert_eq!(told(&push(PushKind::SUnsubscribe, &["c", "0"])), Some(Heard::Ended("c".to_owned())));
        assert_eq!(told(&push(PushKind::SSubscribe, &["c", "1"])), Some(Heard::Nothing));
        assert_eq!(told(&push(PushKind::Message, &["c"])), Some(Heard::Nothing));
        assert_eq!(told(&push(PushKind::Disconnection, &[])), None);
    }
}

//! The scripts that are run on the server, and what they answer.

use std::borrow::Cow;
use std::sync::LazyLock;

use leasehold_core::fault;
use redis::{Cmd, Value};

use crate::fail::{Fail, Result};

/// A script, known to the server by its hash once it has seen it.
#[derive(Debug)]
pub(crate) struct Script {
    source: Cow<'static, str>,
    hash: String,
}

macro_rules! scripts {
    ($($(#[$doc:meta])+ $name:ident = [$($part:literal),+];)+) => {
        $($(#[$doc])+ pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("lua/", $part, ".lua"))),+)));)+

        #[cfg(test)]
        const ALL: &[(&str, &LazyLock<Script>)] = &[$((stringify!($name), &$name)),+];
    };
}

scripts! {
    /// States a claim.
    CLAIM = ["words", "claim_fast", "claim", "line", "law", "claim_end"];
    /// States several as one.
    CLAIM_ALL = ["words", "claim_all", "line", "law", "claim_all_end"];
    /// Ends a claim.
    RELEASE = ["words", "release_fast", "line", "release"];
    /// Prolongs plain leases.
    RENEW = ["words", "renew_one", "renew"];
    /// Prolongs one of them without its tombstone, which may be at another node for now.
    RENEW_ALONE = ["words", "renew_one", "renew_alone"];
    /// Prolongs those in the line.
    RENEW_LINE = ["words", "line", "renew_line"];
    /// Looks at a name.
    LOOK = ["look"];
    /// Makes a mark.
    MARK = ["mark"];
    /// Takes a mark away.
    UNMARK = ["unmark"];
    /// Writes a record.
    RECORD = ["record"];
    /// Does nothing, with whatever keys it is given.
    NOTHING = ["nothing"];
    /// Finds out which commands a user may not call.
    RIGHTS = ["rights"];
    /// Notes with what list of nodes a client came.
    MEMBERS = ["members"];
    /// Looks at whatever stands under keys.
    HEADS = ["heads"];
}

impl Script {
    fn new(source: &'static str) -> Self {
        let source = broken(source);
        Self { hash: redis::Script::new(&source).get_hash().to_owned(), source }
    }

    /// The call by hash, which every server but a new one understands.
    pub(crate) fn by_hash(&self, keys: &[String], args: &[Vec<u8>]) -> Cmd {
        Self::command("EVALSHA", &self.hash, keys, args)
    }

    /// The call that brings the script along.
    pub(crate) fn by_source(&self, keys: &[String], args: &[Vec<u8>]) -> Cmd {
        Self::command("EVAL", &self.source, keys, args)
    }

    fn command(verb: &str, script: &str, keys: &[String], args: &[Vec<u8>]) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(keys.len()).arg(keys).arg(args);
        command
    }
}

/// The script as it is, unless one of the [planted faults](mod@leasehold_core::fault) was picked.
fn broken(source: &'static str) -> Cow<'static, str> {
    if fault!("redis_renews_by_set") {
        // Needs memory, which a full server does not give.
        let set = "redis.call('SET', key, stands, 'PX', ttl - 1)";
        return source.replace("redis.call('PEXPIRE', key, ttl - 1)", set).into();
    }
    if fault!("redis_leaves_the_key_free") {
        return source.replace("redis.call('SET', K, OCCUPIED, 'PX', ms(lasts))", "").into();
    }
    if fault!("redis_takes_foreign_keys") {
        return source.replace("foreign = not plain and stands ~= OCCUPIED", "foreign = false").into();
    }
    if fault!("redis_admits_one_more") {
        let (all, more) = ("> math.min(limit, c.of) then", "> math.min(limit, c.of) + 1 then");
        return source.replace(all, more).into();
    }
    if fault!("cluster_skips_unheard") {
        return source.replace(" and string.sub(channel, 9, 9) ~= '~'", "").into();
    }
    Cow::Borrowed(source)
}

/// The parts of an answer, taken one after the other.
#[derive(Debug)]
pub(crate) struct Answer(std::vec::IntoIter<Value>);

impl Answer {
    pub(crate) fn new(value: Value) -> Result<Self> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            other => Err(Fail::garbled(kind_of(&other))),
        }
    }

    pub(crate) fn next(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(|| Fail::garbled("it is too short"))
    }

    pub(crate) fn number(&mut self) -> Result<i64> {
        number(&self.next()?)
    }

    pub(crate) fn natural(&mut self) -> Result<u64> {
        u64::try_from(self.number()?).map_err(|_| Fail::garbled("a number is negative"))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        text(self.next()?)
    }

    /// What is left, as texts.
    pub(crate) fn texts(self) -> Result<Vec<String>> {
        self.0.map(text).collect()
    }

    /// What is left.
    pub(crate) fn rest(self) -> std::vec::IntoIter<Value> {
        self.0
    }
}

pub(crate) fn number(value: &Value) -> Result<i64> {
    let number = match value {
        Value::Int(number) => Some(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
        _ => None,
    };
    number.ok_or_else(|| Fail::garbled(kind_of(value)))
}

/// A text; what is not UTF-8 in it was written by somebody else and is only looked at.
pub(crate) fn text(value: Value) -> Result<String> {
    match value {
        Value::BulkString(bytes) => {
            Ok(String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into()))
        }
        Value::SimpleString(text) => Ok(text),
        Value::Int(number) => Ok(number.to_string()),
        other => Err(Fail::garbled(kind_of(&other))),
    }
}

/// What a value is, without what is in it: that may be a secret.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a text",
        Value::Array(_) => "an array",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_differ_and_none_names_a_global() {
        let mut hashes: Vec<_> = ALL.iter().map(|(_, script)| script.hash.clone()).collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), ALL.len());
    }
}

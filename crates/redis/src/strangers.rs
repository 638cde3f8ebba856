//! Keys under our prefix that are not ours: locks of other clients, and what they forgot.

use std::time::Duration;

use leasehold_core::{Check, Clock, Code, Op};
use redis::Value;

use crate::fail::Result;
use crate::keys::id_of;
use crate::line::OCCUPIED;
use crate::list::literal;
use crate::script::{Answer, HEADS, text};
use crate::store::RedisStore;

const NAME: &str = "foreign_keys";
/// So many are named.
const SHOWN: usize = 3;
/// How many keys the server looks at in one go.
const COUNT: usize = 200;
/// A server with millions of keys is not gone through for this.
const PATIENCE: Duration = Duration::from_secs(3);

/// A key of somebody else's.
#[derive(Debug)]
struct Stranger {
    key: String,
    kind: String,
    left: Option<Duration>,
}

#[derive(Debug, Default)]
struct Found {
    strangers: u64,
    endless: u64,
    /// The first few; those without an end before all others.
    shown: Vec<Stranger>,
    seen: u64,
    all: bool,
}

impl RedisStore {
    /// Whose keys stand under our prefix.
    pub(crate) async fn check_strangers(&self) -> Check {
        let found = match self.strangers().await {
            Ok(found) => found,
            Err(fail) => return Check::untold(NAME, &self.failed(Op::Check, None)(fail)),
        };
        let prefix = self.prefix();
        let Found { strangers, endless, shown, seen, all } = &found;
        let most = if *all { "" } else { ", as far as was looked" };
        if *strangers == 0 {
            return Check::ok(NAME, format!("no lock of another client among {seen} under {prefix}*{most}"));
        }
        let list: Vec<_> = shown.iter().map(Stranger::told).collect();
        let more = if usize::try_from(*strangers).is_ok_and(|all| all > list.len()) { ", .." } else { "" };
        let list = format!("{}{more}", list.join(", "));
        if *endless == 0 {
            return Check::ok(
                NAME,
                format!("{strangers} of {seen} locks under {prefix}* are of other clients{most}: {list}"),
            );
        }
        let first = shown.first().map_or("", |stranger| stranger.key.as_str());
        Check::warning(
            NAME,
            Code::LEAKED,
            format!(
                "{strangers} of {seen} locks under {prefix}* are of other clients{most}, {endless} without an end: {list}"
            ),
            format!("if its holder is gone: redis-cli DEL {}", quoted(first)),
        )
    }

    async fn strangers(&self) -> Result<Found> {
        let clock = Clock::system();
        let until = clock.now().after(PATIENCE);
        let pattern = format!("{}*", literal(self.prefix()));
        let mut found = Found { all: true, ..Found::default() };
        for node in self.servers().all().await? {
            let mut cursor = "0".to_owned();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(COUNT);
                let mut answer = Answer::new(node.link.call(&scan).await?)?;
                cursor = answer.text()?;
                let page = Answer::new(answer.next()?)?.rest();
                let names: Result<Vec<String>> = page.filter(is_text).map(text).collect();
                let ours = |key: &String| key.starts_with("lh:{") || key.starts_with("leasehold:");
                let names: Vec<_> = names?.into_iter().filter(|key| !ours(key)).collect();
                for names in self.servers().by_slot(names) {
                    found.add(&names, self.servers().run(&HEADS, &names, &[]).await?)?;
                }
                if cursor == "0" {
                    break;
                }
                if clock.now() >= until {
                    found.all = false;
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }
}

impl Found {
    fn add(&mut self, names: &[String], heads: Value) -> Result<()> {
        for (key, head) in names.iter().zip(Answer::new(heads)?.rest()) {
            let mut head = Answer::new(head)?;
            let (start, kind, left) = (head.text()?, head.text()?, head.number()?);
            // What ran out meanwhile is nobody's.
            if kind == "none" {
                continue;
            }
            self.seen += 1;
            if is_ours(&start) {
                continue;
            }
            let left = u64::try_from(left).ok().map(Duration::from_millis);
            self.strangers += 1;
            self.endless += u64::from(left.is_none());
            self.shown.push(Stranger { key: key.clone(), kind, left });
            self.shown.sort_by_key(|stranger| stranger.left.is_some());
            self.shown.truncate(SHOWN);
        }
        Ok(())
    }
}

impl Stranger {
    fn told(&self) -> String {
        let Self { key, kind, left } = self;
        let key: String = key.chars().map(|c| if c.is_control() { '?' } else { c }).take(80).collect();
        let left = left.map_or_else(|| "no ttl".to_owned(), |left| format!("{}s left", left.as_secs()));
        format!("{key} ({kind}, {left})")
    }
}

fn is_ours(start: &str) -> bool {
    start == OCCUPIED || start.get(..32).and_then(id_of).is_some() && start.ends_with('|')
}

fn is_text(key: &Value) -> bool {
    matches!(key, Value::BulkString(bytes) if std::str::from_utf8(bytes).is_ok())
}

/// A key as a word of a shell.
fn quoted(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,^".contains(c);
    if key.chars().all(plain) { key.to_owned() } else { format!("'{}'", key.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_known_by_how_they_start() {
        assert!(is_ours("0123456789abcdef0123456789abcdef|") && is_ours(OCCUPIED));
        for other in ["", "0123456789abcdef0123456789abcdef0", "a-secret", "leasehold"] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn those_without_an_end_are_named_first() {
        let mut found = Found::default();
        let head = |kind: &str, left| {
            let text = |text: &str| Value::BulkString(text.into());
            Value::Array(vec![text("x"), text(kind), Value::Int(left)])
        };
        let names: Vec<String> = (0..9).map(|at| format!("lock:{at}")).collect();
        let heads = (0..9).map(|at| head("string", if at == 7 { -1 } else { 5000 })).collect();
        found.add(&names, Value::Array(heads)).unwrap();
        assert_eq!((found.strangers, found.endless, found.shown.len()), (9, 1, SHOWN));
        assert_eq!(found.shown[0].told(), "lock:7 (string, no ttl)");
        assert_eq!(quoted("a'b"), r"'a'\''b'");
    }
}

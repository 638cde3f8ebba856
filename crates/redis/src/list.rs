//! Which names there are, as far as keys tell.

use std::collections::BTreeSet;

use leasehold_core::LockName;
use redis::Value;

use crate::fail::Result;
use crate::keys::plain_of;
use crate::script::{Answer, text};
use crate::servers::Node;
use crate::store::RedisStore;

/// A page of names.
const PAGE: usize = 1000;
/// How many keys the server looks at in one go.
const COUNT: usize = 1000;

impl RedisStore {
    /// A page of names. The server has no index of its keys, so all of them are gone through.
    pub(crate) async fn names(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let wanted = |plain: &str| {
            let name = LockName::parse(plain.strip_prefix(self.prefix())?).ok()?;
            let later = after.is_none_or(|after| name > *after);
            (later && name.as_str().starts_with(prefix)).then_some(name)
        };
        let mut held = BTreeSet::new();
        let pattern = format!("{}{}*", literal(self.prefix()), literal(prefix));
        self.scan(&pattern, |key| {
            let ours = key.starts_with("lh:{") || key.starts_with("leasehold:");
            held.extend((!ours).then(|| wanted(key)).flatten());
        })
        .await?;
        // A name that nobody holds may still have waiters.
        let mut waited = BTreeSet::new();
        self.scan("lh:{*:i", |key| waited.extend(plain_of(key).and_then(wanted))).await?;
        let mut names: Vec<LockName> = Vec::new();
        for name in held.union(&waited) {
            if names.len() == PAGE {
                break;
            }
            if held.contains(name) || self.is_anything(name).await? {
                names.push(name.clone());
            }
        }
        Ok(names)
    }

    async fn is_anything(&self, name: &LockName) -> Result<bool> {
        let Ok(keys) = self.keys(name) else { return Ok(false) };
        let snapshot = self.look(name, &keys).await?.snapshot(name);
        Ok(!snapshot.holders.is_empty() || !snapshot.waiters.is_empty() || snapshot.closed.is_some())
    }

    async fn scan(&self, pattern: &str, mut each: impl FnMut(&str)) -> Result<()> {
        for node in self.servers().all().await? {
            scan_one(&node, pattern, &mut each).await?;
        }
        Ok(())
    }
}

async fn scan_one(node: &Node, pattern: &str, each: &mut impl FnMut(&str)) -> Result<()> {
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(COUNT);
        let mut answer = Answer::new(node.link.call(&scan).await?)?;
        cursor = answer.text()?;
        for key in Answer::new(answer.next()?)?.rest() {
            // A key that is not text is nobody's name.
            if let Value::BulkString(bytes) = &key
                && std::str::from_utf8(bytes).is_ok()
            {
                each(&text(key)?);
            }
        }
        if cursor == "0" {
            return Ok(());
        }
    }
}

/// A text that a pattern takes literally.
pub(crate) fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            literal.push('\\');
        }
        literal.push(c);
    }
    literal
}

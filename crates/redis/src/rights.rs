//! The least rights: what a user needs, and which of it this one lacks.

use leasehold_core::{Check, ClaimId, Code, LockName, Op};

use crate::fail::{Fail, Result};
use crate::hearing;
use crate::keys::{Keys, hex, tag_for};
use crate::list::literal;
use crate::script::{Answer, NOTHING, RIGHTS};
use crate::store::RedisStore;

const NAME: &str = "rights";
/// All commands of scripts and of ours; a test holds the page to them.
const COMMANDS: &str = "+eval +evalsha +get +set +del +exists +pttl +pexpire +pexpireat +getset +time +type +publish \
                        +subscribe +unsubscribe +ping +info +role +select +scan +hget +hset +hdel +hgetall +hmget \
                        +zadd +zrem +zcard +zscore +zrange +zrevrange +zrangebyscore +zrevrangebyscore +wait";
/// What a cluster takes besides.
const CLUSTER_COMMANDS: &str = "+asking +cluster|slots +spublish +ssubscribe +sunsubscribe";
/// What works without, only less well.
const OPTIONAL: [&str; 2] = ["INFO", "ROLE"];

impl RedisStore {
    /// Whether this user may do all that locks need, found out by doing it where it has no effect.
    pub(crate) async fn check_rights(&self) -> Check {
        match self.missing_rights().await {
            Ok(missing) if missing.iter().all(|right| OPTIONAL.contains(&right.as_str())) => {
                let prefix = self.prefix();
                let less = if missing.is_empty() {
                    String::new()
                } else {
                    format!(", not {}, without which a replica is noticed late", missing.join(" and "))
                };
                Check::ok(NAME, format!("all that locks under {prefix}* need is allowed{less}"))
            }
            Ok(missing) => {
                let says = format!("not allowed: {}", missing.join(", "));
                Check::failed(NAME, Code::RIGHTS, says, self.acl_line())
            }
            Err(fail) => Check::untold(NAME, &self.failed(Op::Check, None)(fail)),
        }
    }

    /// What is refused, as people write it in an ACL or would call it.
    async fn missing_rights(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        let keys = self.probe_keys()?;
        let tokens = self.servers().tokens(&keys);
        let [plain, .., info] = keys.line();
        let mut usable = None;
        // A script that names a key is refused before it runs, so that nothing is touched.
        for (key, pattern) in [
            (plain, format!("~{}*", self.prefix())),
            (info, self.line_pattern()),
            (tokens.clone(), "~leasehold:*".to_owned()),
        ] {
            match self.servers().run(&NOTHING, std::slice::from_ref(&key), &[]).await {
                Ok(_) => usable = usable.or((key != tokens).then_some(key)),
                Err(fail) if fail.is("NOPERM") && fail.tells_of_a_key() => {
                    missing.push(format!("keys {pattern}"));
                }
                Err(fail) if fail.is("NOPERM") => {
                    missing.push("EVAL and EVALSHA".to_owned());
                    break;
                }
                Err(fail) => return Err(fail),
            }
        }
        if let Some(key) = usable {
            let channel = format!("lh:wake:{}", hex(ClaimId::from_bytes([0; 16])));
            let of_slot = self.servers().slot(&key).map(probe_channel).unwrap_or_default();
            let args = [channel, of_slot].map(String::into_bytes);
            let refused = Answer::new(self.servers().run(&RIGHTS, &[key], &args).await?)?.texts()?;
            for pair in refused.chunks_exact(2) {
                let (command, said) = (&pair[0], &pair[1]);
                if is_of_rights(said) {
                    let channel = if said.contains("channel") { " to lh:wake:*" } else { "" };
                    missing.push(format!("{command}{channel}"));
                }
            }
        }
        let node = self.servers().node_of(&keys.plain).await?;
        for command in self.direct() {
            // One by one over a connection of their own: what is asked for here must not bear on what others ask.
            match node.link.ask_apart(&command).await {
                Err(fail) if fail.is("NOPERM") => {
                    let word = command.args_iter().next();
                    missing.extend(word.and_then(|word| match word {
                        redis::Arg::Simple(word) => Some(String::from_utf8_lossy(word).into_owned()),
                        _ => None,
                    }));
                }
                Ok(_) => {}
                Err(fail) if fail.outcome_unknown() => return Err(fail),
                Err(_) => {}
            }
        }
        match node.link.subscribe("lh:wake:doctor").await {
            Ok(_) => {}
            Err(fail) if fail.is("NOPERM") => missing.push("SUBSCRIBE to lh:wake:*".to_owned()),
            Err(fail) => return Err(fail),
        }
        if let Some(slot) = self.servers().slot(&keys.plain) {
            let channel = probe_channel(slot);
            let (mut sink, _stream) = hearing::open(&node, &channel).await?;
            match sink.subscribe(&channel).await {
                Ok(()) => {}
                Err(fail) if fail.is("NOPERM") => missing.push("SSUBSCRIBE to lh:wake:*".to_owned()),
                // Servers before version 7 have none, and are told all over.
                Err(fail) if fail.is_unknown_command() => {}
                Err(fail) => return Err(fail),
            }
        }
        Ok(missing)
    }

    /// What is sent outside of scripts.
    fn direct(&self) -> Vec<redis::Cmd> {
        let command = |words: &[&str]| {
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]);
            command
        };
        let mut all = vec![
            command(&["PING"]),
            command(&["INFO", "server"]),
            command(&["ROLE"]),
            command(&["SCAN", "0", "MATCH", "lh:doctor", "COUNT", "1"]),
        ];
        if self.servers().is_cluster() {
            all.extend([command(&["ASKING"]), command(&["CLUSTER", "SLOTS"])]);
        }
        if self.0.settings.min_replicas > 0 {
            all.push(command(&["WAIT", "0", "1"]));
        }
        all
    }

    /// Keys of a name that nobody uses.
    pub(crate) fn probe_keys(&self) -> Result<Keys> {
        let garbled = |_| Fail::garbled("no name for a probe");
        let id = ClaimId::random().map_err(garbled)?;
        let name = LockName::parse(&format!("leasehold-doctor:{}", hex(id)));
        self.keys(&name.map_err(|_| Fail::garbled("no name for a probe"))?).map_err(garbled)
    }

    fn line_pattern(&self) -> String {
        let prefix = self.prefix();
        // What stands in the braces then depends on the name.
        if prefix.contains(['{', '}']) { "~lh:{*".to_owned() } else { format!("~lh:{{{}*", literal(prefix)) }
    }

    /// The command that gives a user the least rights.
    fn acl_line(&self) -> String {
        let user = self.0.settings.user.as_deref().unwrap_or("default");
        let (plain, line) = (literal(self.prefix()), self.line_pattern());
        // A name with braces of its own has its tag in ours, and stands behind it.
        let line = format!("{line} ~lh:{{*}}{plain}*");
        let more = if self.servers().is_cluster() { format!(" {CLUSTER_COMMANDS}") } else { String::new() };
        format!(
            "ACL SETUSER {user} resetkeys ~{plain}* {line} ~leasehold:* resetchannels &lh:wake:* -@all {COMMANDS}{more}"
        )
    }
}

/// A channel of this slot that nobody hears.
fn probe_channel(slot: u16) -> String {
    format!("lh:wake:{{{}}}:doctor", tag_for(slot))
}

/// Whether a script was told so because of rights, in the words of any version.
fn is_of_rights(said: &str) -> bool {
    ["NOPERM", "permissions", "The user executing the script"].iter().any(|word| said.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_the_same_rights() {
        let page = include_str!("../../../docs/design/redis.md");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let keys = "resetkeys ~lock:* ~lh:{lock:* ~lh:{*}lock:* ~leasehold:*";
        let line = format!("{keys} resetchannels &lh:wake:* -@all {COMMANDS}");
        assert!(words(page).contains(&words(&line)), "{line}");
        assert!(words(page).contains(&format!("In a cluster also ``` {CLUSTER_COMMANDS} ```")));
    }

    #[test]
    fn a_refusal_is_told_from_other_errors() {
        assert!(is_of_rights("The user executing the script can't run this command or subcommand"));
        assert!(!is_of_rights("OOM command not allowed when used memory > 'maxmemory'."));
    }
}

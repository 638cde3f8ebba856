//! Which names there are, and one of them as people look at it.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{ClaimId, Entry, LockName, Note, Owner, Share, Snapshot, Verdict, Watch, admit};
use zookeeper_client::{Error, Stat};

use crate::fail::Result;
use crate::line::{View, token};
use crate::node::{Member, name_of};
use crate::session::Session;
use crate::store::ZooKeeperStore;
use crate::value::Value;

/// So many names are answered at a time, and so many questions asked.
const PAGE: usize = 1000;
const AT_ONCE: usize = 64;
/// So many waiters are told of in full; of more nobody reads it.
const SHOWN: usize = 64;

impl ZooKeeperStore {
    pub(crate) async fn names(&self, prefix: &str, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let session = self.0.sessions.any().await?;
        let paths = &self.0.paths;
        let (lines, shuts) =
            (self.children(&session, paths.root()).await?, self.children(&session, &paths.shuts()).await?);
        // Nodes are in no order, and escaped ones in another: all are read.
        let named = |node: &String| name_of(node);
        let wanted =
            |name: &LockName| name.as_str().starts_with(prefix) && after.is_none_or(|after| name > after);
        let lines: BTreeSet<LockName> = lines.iter().filter_map(named).filter(wanted).collect();
        let shuts: BTreeSet<LockName> = shuts.iter().filter_map(named).filter(wanted).collect();
        let mut all = lines.union(&shuts);
        let mut names = Vec::new();
        while names.len() < PAGE {
            let some: Vec<&LockName> = all.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            let views = some.iter().map(|name| self.look(&session, name));
            for (name, view) in some.iter().zip(futures_util::future::join_all(views).await) {
                let view = view?;
                let shut = match &view.shut {
                    Some(shut) => shut.closure(self.server_time(&session).await?).is_some(),
                    None => false,
                };
                if shut || !view.members.is_empty() {
                    names.push((*name).clone());
                }
            }
        }
        names.truncate(PAGE);
        Ok(names)
    }

    /// Where a node of another client stands, of which a [snapshot](Self::snapshot) told this id.
    pub(crate) async fn place_of_stranger(
        &self,
        session: &Session,
        name: &LockName,
        view: &View,
        id: ClaimId,
    ) -> Result<Option<usize>> {
        let line = self.0.paths.line(name);
        for (place, member) in view.members.iter().enumerate() {
            if stranger_id(0, member.number).to_bytes()[8..] != id.to_bytes()[8..] {
                continue;
            }
            let path = format!("{line}/{}", member.node);
            let stat = session.ask(session.client().check_stat(&path)).await?;
            if stat.is_some_and(|stat| stranger_id(stat.ephemeral_owner, member.number) == id) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The nodes in a directory, none where there is no such directory.
    pub(crate) async fn children(&self, session: &Session, path: &str) -> Result<Vec<String>> {
        match session.try_ask(session.client().list_children(path)).await? {
            Ok(children) => Ok(children),
            Err(Error::NoNode) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn snapshot(&self, name: &LockName) -> Result<Snapshot> {
        let session = self.0.sessions.any().await?;
        let view = self.look_anew(&session, name).await?;
        let line = self.0.paths.line(name);
        // Those that may not write, or cannot now, see no ages.
        let now = if view.members.is_empty() && view.shut.is_none() {
            None
        } else {
            self.server_time(&session).await.ok()
        };
        let shown = view.members.iter().take(SHOWN).map(|member| {
            let path = format!("{line}/{}", member.node);
            let read = session.client().get_data(&path);
            let session = &session;
            async move { session.try_ask(read).await }
        });
        let read = futures_util::future::join_all(shown).await;
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        for (place, member) in view.members.iter().enumerate() {
            let (data, stat) = match read.get(place) {
                Some(Ok(Ok((data, stat)))) => (Some(data), Some(stat)),
                // It has gone meanwhile.
                Some(Ok(Err(Error::NoNode))) => continue,
                Some(Ok(Err(error))) => return Err(error.clone().into()),
                Some(Err(fail)) => return Err(fail.clone()),
                None => (None, None),
            };
            let holds = holds(&view, place, stat);
            let entry = entry(member, holds, data.and_then(|data| Value::parse(data)), stat, now)?;
            if holds { holders.push(entry) } else { waiters.push(entry) }
        }
        let closed = view.shut.as_ref().and_then(|shut| shut.closure(now?));
        let cursor = Watch::Any(view.version()).cursor();
        Ok(Snapshot { name: name.clone(), holders, waiters, closed, cursor, server_time: None })
    }
}

/// By what a node of another client can be told to go.
fn stranger_id(session: i64, number: i32) -> ClaimId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&session.to_be_bytes());
    id[8..12].copy_from_slice(&number.to_be_bytes());
    ClaimId::from_bytes(id)
}

/// Whether who stands there holds, or may as soon as it asks.
fn holds(view: &View, place: usize, stat: Option<&Stat>) -> bool {
    let share = view.members[place].share;
    // A name is shut by who held it: whoever held beside it came before, and shared it.
    let before = |shut: &crate::line::Shut| {
        share != Share::EXCLUSIVE && stat.is_some_and(|stat| stat.czxid < shut.changed)
    };
    admit(&view.shares(place), share) == Verdict::Admit && view.shut.as_ref().is_none_or(before)
}

fn entry(
    member: &Member,
    holds: bool,
    value: Option<Value>,
    stat: Option<&Stat>,
    now: Option<i64>,
) -> Result<Entry> {
    let since = |then: i64| now.map_or(0, |now| u64::try_from(now.saturating_sub(then)).unwrap_or(0));
    let age = Duration::from_millis(stat.map_or(0, |stat| since(stat.ctime)));
    let ours = value.is_some();
    let token = match stat {
        // Others have told us of no token, and whoever reads entries knows strangers by that.
        Some(stat) if holds && ours => match value.as_ref().and_then(|value| value.token) {
            Some(token) => Some(token),
            None => Some(token(stat.czxid)?),
        },
        _ => None,
    };
    let session = stat.map_or(0, |stat| stat.ephemeral_owner);
    let stranger = Value {
        tenure: 0,
        token: None,
        // A node that no session carries stays until somebody takes it away.
        ttl: if stat.is_some_and(|stat| stat.ephemeral_owner == 0) { Duration::MAX } else { Duration::ZERO },
        note: Note::NONE,
        owner: Owner {
            host: "another client".to_owned(),
            user: "unknown".to_owned(),
            pid: 0,
            program: "foreign".to_owned(),
            tag: format!("session {session:#x}"),
        },
    };
    let Value { tenure, token: _, ttl, note, owner } = value.unwrap_or(stranger);
    Ok(Entry {
        id: member.id().filter(|_| ours).unwrap_or(stranger_id(session, member.number)),
        owner,
        share: member.share,
        wanted: None,
        reshape: 0,
        note,
        token,
        tenure: if holds { tenure } else { 0 },
        age,
        // Sessions are prolonged, and nobody writes down when.
        renewed: age,
        renewals: 0,
        left: ttl,
        ttl: if ours { ttl } else { Duration::MAX },
    })
}

//! The line of a name, as a server has it, and what keeps the name shut.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use leasehold_core::{ClaimId, Closure, LockName, Note, Overruled, Owner, Share, Token, fault};
use zookeeper_client::{Error, Stat};

use crate::fail::{Fail, Result};
use crate::node::Member;
use crate::session::Session;
use crate::store::ZooKeeperStore;
use crate::value::{unwords, words};

/// What was read of a name.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// In the order of their numbers.
    pub(crate) members: Vec<Member>,
    pub(crate) shut: Option<Shut>,
}

/// What keeps a name shut, or did.
#[derive(Debug, Clone)]
pub(crate) struct Shut {
    /// When it was written, by the servers' clock, and for how long.
    written: i64,
    lasting: Duration,
    by: Owner,
    note: Note,
    pub(crate) version: i32,
    pub(crate) changed: i64,
}

impl View {
    /// What the answers to [`children`](zookeeper_client::Client::list_children) and to the reading of the closure tell.
    pub(crate) fn parse(
        line: &str,
        children: Result<Vec<String>, Error>,
        shut: Result<(Vec<u8>, Stat), Error>,
    ) -> Result<Self> {
        let children = match children {
            Ok(children) => children,
            // Containers go when they are empty.
            Err(Error::NoNode) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let parsed = children.iter().map(|node| Member::parse(node)).collect::<Result<Vec<_>, _>>();
        let parsed = parsed.map_err(|_| Fail::used_up(line))?;
        let mut members: Vec<Member> = parsed.into_iter().flatten().collect();
        if fault!("zookeeper_passes_strangers") {
            members.retain(|member| member.node.starts_with("_c_"));
        }
        members.sort_by(|one, other| (one.number, &one.node).cmp(&(other.number, &other.node)));
        let shut = match shut {
            Ok((data, stat)) => Some(Shut::of(&data, &stat)?),
            Err(Error::NoNode) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { members, shut })
    }

    pub(crate) fn place_of(&self, id: ClaimId) -> Option<usize> {
        self.members.iter().position(|member| member.is(id))
    }

    /// The shares of the first so many.
    pub(crate) fn shares(&self, ahead: usize) -> Vec<Share> {
        self.members.iter().take(ahead).map(|member| member.share).collect()
    }

    pub(crate) fn disagrees(&self, ahead: usize, mine: Share) -> Option<Overruled> {
        let mut shares = self.members.iter().take(ahead).map(|member| member.share);
        shares.find(|share| mine.disagrees(*share)).map(|theirs| Overruled::Disagrees { theirs })
    }

    /// What changes with whatever somebody who looks wants to hear of.
    pub(crate) fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for member in &self.members {
            member.node.hash(&mut hasher);
        }
        self.shut.as_ref().map(|shut| shut.changed).hash(&mut hasher);
        hasher.finish()
    }
}

impl Shut {
    fn of(data: &[u8], stat: &Stat) -> Result<Self> {
        let told = unwords(data).filter(|told| told.first().is_some_and(|layout| layout == "lh1"));
        let told = told.ok_or_else(|| Fail::garbled("what keeps the name shut"))?;
        let text = |at: usize| told.get(at).cloned().unwrap_or_default();
        let by = Owner {
            host: text(2),
            user: text(3),
            pid: text(4).parse().unwrap_or(0),
            program: text(5),
            tag: text(6),
        };
        let lasting = Duration::from_millis(text(1).parse().unwrap_or(0));
        let note = Note::parse(&text(7)).unwrap_or_default();
        let Stat { mtime: written, mzxid: changed, version, .. } = *stat;
        Ok(Self { written, lasting, by, note, version, changed })
    }

    pub(crate) fn data(lasting: Duration, by: &Owner, note: &Note) -> Vec<u8> {
        let Owner { host, user, pid, program, tag } = by;
        let (millis, pid) = (lasting.as_millis().to_string(), pid.to_string());
        words(&["lh1", &millis, host, user, &pid, program, tag, note.text().unwrap_or("")])
    }

    /// For how much longer, at this time of the servers'. `None` when it is over.
    pub(crate) fn closure(&self, now: i64) -> Option<Closure> {
        let passed = Duration::from_millis(u64::try_from(now.saturating_sub(self.written)).unwrap_or(0));
        let left = self.lasting.checked_sub(passed).filter(|left| !left.is_zero())?;
        Some(Closure { left, by: self.by.clone(), note: self.note.clone() })
    }
}

impl ZooKeeperStore {
    /// How a name stands, as the session's server knows it: that may be a moment behind others, never behind what was
    /// answered over this session.
    pub(crate) async fn look(&self, session: &Session, name: &LockName) -> Result<View> {
        let (line, shut) = (self.0.paths.line(name), self.0.paths.shut(name));
        // Sent in this order: a name that is given back and shut in one step is not seen free in between.
        let children = session.client().list_children(&line);
        let shut = session.client().get_data(&shut);
        let read = async { Ok::<_, Error>(futures_util::future::join(children, shut).await) };
        let (children, shut) = session.ask(read).await?;
        View::parse(&line, children, shut)
    }

    /// The same, not behind anything that had happened when this was called, as far as a server can know.
    pub(crate) async fn look_anew(&self, session: &Session, name: &LockName) -> Result<View> {
        let line = self.0.paths.line(name);
        let synced = session.client().sync(&line);
        let (synced, view) = futures_util::future::join(session.ask(synced), self.look(session, name)).await;
        synced?;
        view
    }

    /// The same for who must not miss a node of its own whose making had no answer. A server that is behind its leader, or
    /// follows one that was deposed, would show none, and the node would stand for as long as its session: so most servers
    /// write something first, over the connection that looks. (A model found that `sync` is not enough.)
    pub(crate) async fn look_surely(&self, session: &Session, name: &LockName) -> Result<View> {
        let written = self.stands(session, self.0.paths.root());
        // Sent one after the other: a server answers what is asked over one connection in its order.
        let (written, view) = futures_util::future::join(written, self.look(session, name)).await;
        written?;
        view
    }

    /// What keeps the name shut now; takes away what did.
    pub(crate) async fn closed(
        &self,
        session: &Session,
        name: &LockName,
        shut: Option<&Shut>,
    ) -> Result<Option<Closure>> {
        let Some(shut) = shut else { return Ok(None) };
        let closure = shut.closure(self.server_time(session).await?);
        if closure.is_none() {
            // Somebody else may have done so, or have shut it again.
            let over = session.client().delete(&self.0.paths.shut(name), Some(shut.version));
            drop(session.try_ask(over).await?);
        }
        Ok(closure)
    }

    /// The time of the servers, in milliseconds: that of a node just written.
    pub(crate) async fn server_time(&self, session: &Session) -> Result<i64> {
        let clock = self.0.paths.clock();
        for _ in 0..2 {
            match session.try_ask(session.client().set_data(&clock, b"", None)).await? {
                Ok(stat) => return Ok(stat.mtime),
                Err(Error::NoNode) => self.create(session, &clock, b"").await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Fail::garbled("a node that goes as soon as it is made"))
    }

    /// Creates a node that stays, with all that it stands in, unless it is there.
    pub(crate) async fn create(&self, session: &Session, path: &str, data: &[u8]) -> Result<()> {
        match self.try_create(session, path, data).await? {
            Ok(_) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same for who wants to know whether it was there.
    pub(crate) async fn try_create(
        &self,
        session: &Session,
        path: &str,
        data: &[u8],
    ) -> Result<Result<Stat, Error>> {
        let stays = zookeeper_client::CreateMode::Persistent.with_acls(session.acls());
        let create = || session.try_ask(session.client().create(path, data, &stays));
        let created = match create().await? {
            Err(Error::NoNode) => {
                session.ask(session.client().mkdir(crate::node::parent(path), &stays)).await?;
                create().await?
            }
            created => created,
        };
        Ok(created.map(|(stat, _)| stat))
    }
}

/// The token of what was created by this change.
pub(crate) fn token(czxid: i64) -> Result<Token> {
    let token = u64::try_from(czxid).ok().and_then(Token::new);
    token.ok_or_else(|| Fail::garbled("the number of a change"))
}

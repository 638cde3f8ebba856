//! What `run` and its guard say to each other: small frames over a pair of sockets.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use leasehold::BootTime;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;

use super::frame::HEAD;
use crate::pass;

/// When the command must be asked to end, and when it must be dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    /// `None` once `run` itself has asked it.
    pub(crate) term: Option<BootTime>,
    pub(crate) kill: BootTime,
}

/// What it takes to go on with a lease.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Carry {
    /// The flags that name the store.
    pub(crate) store: Option<String>,
    pub(crate) config: Option<String>,
    /// The lock as it was typed: stores may be chosen by it.
    pub(crate) name: String,
    pub(crate) ticket: String,
}

impl std::fmt::Debug for Carry {
    /// Neither the ticket nor a password in the store's URL.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// From `run` to its guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start the command, unless it is `before` already; the descriptor that comes with it keeps the lease alive.
    Start {
        deadline: Option<Deadline>,
        before: Option<BootTime>,
        /// Whether its group becomes the one in the foreground of the terminal.
        foreground: bool,
        /// What is set in its environment, or taken away.
        variables: Vec<(String, Option<String>)>,
    },
    /// The answer to [`News::Ready`]: whether to become the command.
    Go(bool),
    /// Guard a command that another guard started, which was killed.
    Attach { command: i32, deadline: Option<Deadline>, shelter: Option<String> },
    /// The lease was prolonged: this is the heartbeat.
    Beat(Deadline),
    /// Send this signal to all that the command left behind, if it has ended.
    Signal(i32),
    /// Kill the tree.
    Kill,
    /// `run` is about to be stopped by Ctrl-Z: renew the lease meanwhile.
    Carry(Carry),
    /// `run` goes on: let go of the lease.
    Back,
    /// Leave the tree alone from here on.
    LetGo,
}

/// From the guard to its `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// From the child itself, right before it becomes the command.
    Ready {
        command: i32,
    },
    Started,
    /// The number of the system's error.
    Failed(i32),
    /// The command was stopped, as by Ctrl-Z.
    Stopped,
    /// The command gets a cgroup of its own, this one; without a path, it has none after all.
    Sheltered(String),
    Ended {
        /// As `waitpid` would tell it.
        status: i32,
        /// The guard stopped it: there was no heartbeat.
        by_guard: bool,
        /// How many processes it left behind, and some of them by name.
        left: u32,
        names: String,
    },
    /// Nothing is left of what the command left behind.
    Gone,
    /// The answer to [`Order::Carry`] and [`Order::Back`]: whether the guard had the lease.
    Carried(bool),
}

/// What can be taken off the front of what was heard.
pub(super) enum Heard {
    News(News),
    /// The rest of it is still to come.
    More,
    /// It is no frame of ours.
    Noise,
}

/// Takes the next news from the front of these bytes.
pub(super) fn next_news(bytes: &mut Vec<u8>) -> Heard {
    let Some(&[low, high]) = bytes.first_chunk::<HEAD>() else { return Heard::More };
    let end = HEAD + usize::from(u16::from_le_bytes([low, high]));
    let Some(frame) = bytes.get(HEAD..end) else { return Heard::More };
    let news = News::unpacked(frame);
    bytes.drain(..end);
    news.map_or(Heard::Noise, Heard::News)
}

/// Sends an order without ever waiting: a guard that does not listen for hundreds of heartbeats is no guard.
pub(super) fn send_order(to: impl AsFd, order: &Order, life: Option<BorrowedFd<'_>>) -> io::Result<()> {
    pass::send(to, &order.packed(), life)
}

/// The guard's end. It waits for what it reads and writes.
#[derive(Debug)]
pub(super) struct Link(UnixStream);

impl Link {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// The process that made the pair: `run`, also when it is dead.
    pub(super) fn maker(&self) -> Option<Pid> {
        socket_peercred(&self.0).ok().map(|credentials| credentials.pid)
    }

    /// A second one, for the child that becomes the command.
    pub(super) fn again(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn tell(&self, news: &News) -> io::Result<()> {
        (&self.0).write_all(&news.packed())
    }

    /// The next order, and the descriptor that came with it; `None` once `run` is gone.
    pub(super) fn order(&self) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
        let mut head = [0; HEAD];
        let mut life = None;
        let mut have = 0;
        while have < HEAD {
            let (got, along) = pass::receive(&self.0, &mut head[have..])?;
            if got == 0 {
                return Ok(None);
            }
            have += got;
            life = along.or(life);
        }
        let mut bytes = vec![0; u16::from_le_bytes(head).into()];
        (&self.0).read_exact(&mut bytes)?;
        let order = Order::unpacked(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some((order, life)))
    }

    /// Says that the child is there and waits for the word to go on. Between fork and exec: it allocates nothing.
    pub(super) fn may_go(&self) -> io::Result<bool> {
        let [low, high, ..] = 5_u16.to_le_bytes();
        let pid = rustix::process::getpid().as_raw_nonzero().get().to_le_bytes();
        let frame = [low, high, b'r', pid[0], pid[1], pid[2], pid[3]];
        (&self.0).write_all(&frame)?;
        let mut answer = [0; HEAD + 2];
        (&self.0).read_exact(&mut answer)?;
        Ok(answer[HEAD] == b'G' && answer[HEAD + 1] != 0)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_is_read_as_it_was_written() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Link::new(theirs);
        let at = BootTime::from_nanos;
        let deadline = Deadline { term: Some(at(1)), kill: at(2) };
        let variables = vec![("A".to_owned(), Some("b".to_owned())), ("C".to_owned(), None)];
        let (deadlines, before) = (Some(deadline), Some(at(9)));
        let orders = [
            Order::Start { deadline: deadlines, before, foreground: true, variables },
            Order::Start { deadline: None, before: None, foreground: false, variables: Vec::new() },
            Order::Go(true),
            Order::Attach { command: 7, deadline: deadlines, shelter: Some("/x".to_owned()) },
            Order::Beat(Deadline { term: None, kill: at(3) }),
            Order::Signal(15),
            Order::Kill,
            Order::Carry(Carry {
                store: Some("sqlite:x".to_owned()),
                config: None,
                name: "n".to_owned(),
                ticket: "{}".to_owned(),
            }),
            Order::Back,
            Order::LetGo,
        ];
        for order in orders {
            let life = std::fs::File::open("/dev/null").unwrap();
            send_order(&ours, &order, Some(life.as_fd())).unwrap();
            let (read, life) = link.order().unwrap().unwrap();
            assert_eq!(read, order);
            assert!(life.is_some());
        }
        let news = [
            News::Ready { command: 4 },
            News::Started,
            News::Failed(2),
            News::Stopped,
            News::Sheltered("/y".to_owned()),
            News::Ended { status: 9, by_guard: true, left: 3, names: "nginx (812)".to_owned() },
            News::Gone,
            News::Carried(true),
        ];
        let mut bytes = Vec::new();
        for one in &news {
            bytes.extend(one.packed());
        }
        for one in news {
            assert!(matches!(next_news(&mut bytes), Heard::News(read) if read == one), "{one:?}");
        }
        assert!(matches!(next_news(&mut bytes), Heard::More));
        drop(ours);
        assert!(link.order().unwrap().is_none());
    }

    #[test]
    fn the_maker_of_a_link_is_run_and_not_whoever_adopts_orphans() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(Link::new(theirs).maker(), Some(rustix::process::getpid()));
    }
}

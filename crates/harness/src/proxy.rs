//! A TCP proxy between a client and its server that misbehaves on demand: it eats replies, freezes, delays, cuts.
//!
//! It found most of what is known of how client libraries behave when something goes wrong: a reply that never comes
//! after a command that was executed, a connection that stays open and goes silent. Everything passes at the grain of
//! what was read at once, which for a request and its reply is one message.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// The most that is read, and so passed on or lost, at once.
const CHUNK: usize = 64 * 1024;

/// What becomes of what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// It passes.
    #[default]
    Pass,
    /// Requests arrive; replies do not, and the connection is closed instead of each.
    EatReplies,
    /// Requests do not arrive; the connection is closed instead of each.
    EatRequests,
    /// Nothing passes in either direction, and nothing is closed, until the mode changes: then all of it does.
    Freeze,
    /// Connections that are there freeze for good; those that are made from now on pass.
    FreezeOld,
    /// Everything comes later by this.
    Delay(Duration),
    /// Every byte comes by itself, with this between them: what was written at once is read in parts.
    Trickle(Duration),
    /// Each request arrives once more, later by this, as a network or another proxy may send it again: over a
    /// connection of its own, on which nobody has logged in and whose replies nobody hears.
    Duplicate(Duration),
    /// Connections are accepted and closed at once; those that were there are closed.
    Refuse,
}

/// How often what befalls a message, in percent; rolled by the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Odds {
    /// Its reply is eaten.
    pub eat_reply: u8,
    /// It is eaten itself.
    pub eat_request: u8,
    /// It comes late, by up to [`late_by`](Self::late_by).
    pub late: u8,
    /// The most that it comes late.
    pub late_by: Duration,
}

/// How much has passed, and what was done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that were made.
    pub connections: u64,
    /// Pieces that went to the server.
    pub requests: u64,
    /// Pieces that came back.
    pub replies: u64,
    /// Pieces that were eaten.
    pub eaten: u64,
}

#[derive(Debug, Default)]
struct Tally {
    connections: AtomicU64,
    requests: AtomicU64,
    replies: AtomicU64,
    eaten: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    mode: watch::Sender<Mode>,
    /// Rises with each cut: connections of an earlier age close.
    age: watch::Sender<u64>,
    eat_next: AtomicU64,
    dice: Mutex<fastrand::Rng>,
    odds: Mutex<Odds>,
    tally: Tally,
}

/// A proxy on a port of its own of the loopback device. It ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Proxy {
    /// Starts one before this server, on a thread of its own: a test that blocks its runtime does not freeze it.
    ///
    /// # Errors
    ///
    /// When there is no port or no thread to be had.
    pub fn start(target: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            mode: watch::Sender::new(Mode::Pass),
            age: watch::Sender::new(0),
            eat_next: AtomicU64::new(0),
            dice: Mutex::new(fastrand::Rng::with_seed(seed)),
            odds: Mutex::default(),
            tally: Tally::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(serving, listener) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
        if mode == Mode::Refuse {
            self.cut();
        }
    }

    /// Lets misfortune befall single messages, besides the mode.
    pub fn odds(&self, odds: Odds) {
        *lock(&self.shared.odds) = odds;
    }

    /// Eats the next so many replies, each with its connection; whatever the mode.
    pub fn eat_next_replies(&self, count: u64) {
        self.shared.eat_next.store(count, Ordering::SeqCst);
    }

    /// Closes all connections there are.
    pub fn cut(&self) {
        self.shared.age.send_modify(|age| *age += 1);
    }

    /// How much has passed.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Tally { connections, requests, replies, eaten } = &self.shared.tally;
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Counts {
            connections: read(connections),
            requests: read(requests),
            replies: read(replies),
            eaten: read(eaten),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A proxy that panicked has failed its test already.
            drop(thread.join());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(shared: Arc<Shared>, listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        if *shared.mode.borrow() == Mode::Refuse {
            continue;
        }
        shared.tally.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(connect(shared.clone(), client));
    }
}

async fn connect(shared: Arc<Shared>, client: TcpStream) {
    let mut age = shared.age.subscribe();
    age.mark_unchanged();
    let Ok(server) = TcpStream::connect(shared.target).await else { return };
    // What is small must not wait for more: this is about latency, not throughput.
    drop(client.set_nodelay(true).and_then(|()| server.set_nodelay(true)));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // One that was there when the others were frozen for good.
    let newer = shared.mode.subscribe();
    let old = Old { mode: newer, was: *shared.mode.borrow() == Mode::FreezeOld };
    tokio::select! {
        () = pump(&shared, Way::Request, from_client, to_server, old.clone()) => {}
        () = pump(&shared, Way::Reply, from_server, to_client, old) => {}
        _ = age.changed() => {}
    }
}

/// What a connection needs to know to tell whether it is an old one.
#[derive(Debug, Clone)]
struct Old {
    mode: watch::Receiver<Mode>,
    /// Made while the old ones were frozen: it is none of them.
    was: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Request,
    Reply,
}

/// Passes on what comes, until one side closes or something is eaten.
async fn pump(shared: &Shared, way: Way, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut old: Old) {
    let mut bytes = vec![0; CHUNK];
    let twin = Arc::new(Twin::default());
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        let piece = &bytes[..count];
        let count = match way {
            Way::Request => &shared.tally.requests,
            Way::Reply => &shared.tally.replies,
        };
        count.fetch_add(1, Ordering::SeqCst);
        thaw(&mut old).await;
        let mode = *old.mode.borrow();
        if eaten(shared, way, mode) {
            shared.tally.eaten.fetch_add(1, Ordering::SeqCst);
            return;
        }
        tokio::time::sleep(lateness(shared, mode)).await;
        let sent = match mode {
            Mode::Trickle(pause) => trickle(&mut to, piece, pause).await,
            Mode::Duplicate(by) if way == Way::Request => {
                twin.clone().repeat(shared.target, piece.to_vec(), by);
                to.write_all(piece).await.is_ok()
            }
            _ => to.write_all(piece).await.is_ok(),
        };
        if !sent {
            return;
        }
    }
}

/// The second way to the server, for what arrives twice.
#[derive(Debug, Default)]
struct Twin(tokio::sync::Mutex<Option<TcpStream>>);

impl Twin {
    /// Sends a piece once more, later by this.
    fn repeat(self: Arc<Self>, target: SocketAddr, piece: Vec<u8>, by: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(by).await;
            let mut stream = self.0.lock().await;
            if stream.is_none() {
                *stream = TcpStream::connect(target).await.ok();
            }
            let Some(open) = stream.as_mut() else { return };
            // Replies are read, since a server stops at a client that does not, and thrown away.
            let mut replies = [0; CHUNK];
            let sent = open.write_all(&piece).await.is_ok();
            if !sent || matches!(open.try_read(&mut replies), Ok(0)) {
                *stream = None;
            }
        });
    }
}

/// Waits while nothing passes.
async fn thaw(old: &mut Old) {
    let was = old.was;
    let passes = |mode: &Mode| match mode {
        Mode::Freeze => false,
        Mode::FreezeOld => was,
        _ => true,
    };
    // The proxy that ends drops the connection anyway.
    drop(old.mode.wait_for(passes).await);
}

fn eaten(shared: &Shared, way: Way, mode: Mode) -> bool {
    let by_mode = matches!((mode, way), (Mode::EatReplies, Way::Reply) | (Mode::EatRequests, Way::Request));
    if by_mode {
        return true;
    }
    let take = |left: u64| left.checked_sub(1);
    let next = &shared.eat_next;
    if way == Way::Reply && next.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
        return true;
    }
    let odds = *lock(&shared.odds);
    let percent = if way == Way::Reply { odds.eat_reply } else { odds.eat_request };
    lock(&shared.dice).u8(..100) < percent
}

fn lateness(shared: &Shared, mode: Mode) -> Duration {
    if let Mode::Delay(by) = mode {
        return by;
    }
    let Odds { late, late_by, .. } = *lock(&shared.odds);
    let mut dice = lock(&shared.dice);
    if dice.u8(..100) < late { late_by.mul_f64(dice.f64()) } else { Duration::ZERO }
}

async fn trickle(to: &mut OwnedWriteHalf, piece: &[u8], pause: Duration) -> bool {
    for byte in piece {
        if to.write_all(&[*byte]).await.is_err() {
            return false;
        }
        tokio::time::sleep(pause).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// A server that answers each line with itself.
    fn echo() -> SocketAddr {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 1024];
                    while let Ok(count @ 1..) = client.read(&mut bytes) {
                        if client.write_all(&bytes[..count]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    fn client(proxy: &Proxy) -> std::net::TcpStream {
        let client = std::net::TcpStream::connect(proxy.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client
    }

    fn ask(client: &mut std::net::TcpStream, text: &str) -> io::Result<String> {
        client.write_all(text.as_bytes())?;
        let mut bytes = vec![0; text.len()];
        client.read_exact(&mut bytes)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn what_is_not_touched_passes_in_parts_too() {
        let proxy = Proxy::start(echo(), 1).unwrap();
        let mut one = client(&proxy);
        assert_eq!(ask(&mut one, "hello").unwrap(), "hello");
        proxy.set(Mode::Trickle(Duration::from_micros(100)));
        assert_eq!(ask(&mut one, "in parts").unwrap(), "in parts");
        assert_eq!(proxy.counts().connections, 1);
    }

    #[test]
    fn a_reply_is_eaten_after_its_request_arrived() {
        let proxy = Proxy::start(echo(), 1).unwrap();
        let mut one = client(&proxy);
        proxy.eat_next_replies(1);
        assert!(ask(&mut one, "hello").is_err(), "the connection is closed instead");
        assert_eq!(proxy.counts(), Counts { connections: 1, requests: 1, replies: 1, eaten: 1 });
        assert_eq!(ask(&mut client(&proxy), "again").unwrap(), "again");
        proxy.set(Mode::EatRequests);
        assert!(ask(&mut client(&proxy), "lost").is_err());
        assert_eq!(proxy.counts().replies, 2, "it never arrived");
    }

    #[test]
    fn a_frozen_connection_stays_open_and_says_all_of_it_later() {
        let proxy = Proxy::start(echo(), 1).unwrap();
        let mut one = client(&proxy);
        ask(&mut one, "x").unwrap();
        proxy.set(Mode::Freeze);
        one.write_all(b"later").unwrap();
        one.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut bytes = [0; 5];
        assert_eq!(one.read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        one.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        proxy.set(Mode::Pass);
        one.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"later");
    }

    #[test]
    fn old_connections_freeze_while_new_ones_pass() {
        let proxy = Proxy::start(echo(), 1).unwrap();
        let mut old = client(&proxy);
        ask(&mut old, "x").unwrap();
        proxy.set(Mode::FreezeOld);
        assert_eq!(ask(&mut client(&proxy), "new").unwrap(), "new");
        old.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(ask(&mut old, "old").is_err());
    }

    #[test]
    fn a_cut_closes_what_is_there_and_a_refusal_what_comes() {
        let proxy = Proxy::start(echo(), 1).unwrap();
        let mut one = client(&proxy);
        ask(&mut one, "x").unwrap();
        proxy.cut();
        assert!(ask(&mut one, "y").is_err());
        assert_eq!(ask(&mut client(&proxy), "z").unwrap(), "z");
        proxy.set(Mode::Refuse);
        assert!(ask(&mut client(&proxy), "w").is_err());
    }

    #[test]
    fn a_request_that_arrives_twice_is_answered_once() {
        let (heard, hears) = std::sync::mpsc::channel();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, heard) = (client.unwrap(), heard.clone());
                std::thread::spawn(move || {
                    let mut bytes = [0; 5];
                    while client.read_exact(&mut bytes).is_ok() && client.write_all(&bytes).is_ok() {
                        heard.send(bytes).unwrap();
                    }
                });
            }
        });
        let proxy = Proxy::start(address, 1).unwrap();
        proxy.set(Mode::Duplicate(Duration::from_millis(1)));
        let mut one = client(&proxy);
        for said in ["hello", "again"] {
            assert_eq!(ask(&mut one, said).unwrap(), said, "no reply belongs to another request");
        }
        let mut all: Vec<_> = (0..4).map(|_| hears.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, [b"again", b"again", b"hello", b"hello"].map(|said| *said));
    }

    #[test]
    fn the_same_seed_has_the_same_misfortunes() {
        let run = |seed| {
            let proxy = Proxy::start(echo(), seed).unwrap();
            proxy.odds(Odds { eat_reply: 30, ..Odds::default() });
            (0..40).map(|_| ask(&mut client(&proxy), "x").is_ok()).collect::<Vec<_>>()
        };
        let (first, again) = (run(7), run(7));
        assert_eq!(first, again);
        assert!(first.iter().any(|ok| *ok) && first.iter().any(|ok| !*ok), "{first:?}");
    }
}

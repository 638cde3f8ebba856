//! Waking waiters: those of this process through memory, those of others through the sockets of their lives.

use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{ClaimId, LockName};
use tokio::sync::watch;

/// What a waiter is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// It is your turn, or your claim is gone: ask again.
    Go,
    /// What is in your way is not what it was: look again.
    Look,
}

/// How a claim is called in a message: enough to find it, too little to release it with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Called(u64);

impl Called {
    /// FNV-1a: the same in every version of the program, as std's hasher is not.
    pub(crate) fn of(id: ClaimId) -> Self {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(id.to_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// A message to a waiter.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    /// The life it goes to.
    pub(crate) to: Arc<str>,
    pub(crate) called: Called,
    pub(crate) word: Word,
    /// The line it is about, to be swept again if its reader turns out to be dead.
    pub(crate) name: LockName,
}

/// The length of a message: a word and a hash.
const BYTES: usize = 9;

impl Letter {
    pub(crate) fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0] = match self.word {
            Word::Go => b'g',
            Word::Look => b'l',
        };
        bytes[1..].copy_from_slice(&self.called.0.to_be_bytes());
        bytes
    }
}

/// What a message says; `None` for what no version of ours sent.
fn parse(bytes: &[u8]) -> Option<(Called, Word)> {
    let (word, called) = bytes.split_first()?;
    let word = match word {
        b'g' => Word::Go,
        b'l' => Word::Look,
        _ => return None,
    };
    Some((Called(u64::from_be_bytes(called.try_into().ok()?)), word))
}

/// How often a waiter was told to go and to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Told {
    pub(crate) go: u64,
    pub(crate) look: u64,
}

/// The waits of this client, by how their claims are called.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<HashMap<Called, watch::Sender<Told>>>);

impl Waits {
    /// Begins to listen for a claim. Nothing that is told from now on is missed.
    pub(crate) fn begin(self: &Arc<Self>, called: Called) -> Listening {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = waits.entry(called).or_default().subscribe();
        Listening { waits: self.clone(), called, told }
    }

    pub(crate) fn tell(&self, called: Called, word: Word) {
        let waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = waits.get(&called) {
            wait.send_modify(|told| match word {
                Word::Go => told.go += 1,
                Word::Look => told.look += 1,
            });
        }
    }

    /// Reads messages from the socket of our life until its runtime ends.
    pub(crate) async fn receive(self: Arc<Self>, socket: tokio::net::UnixDatagram) {
        let mut bytes = [0; BYTES + 1];
        loop {
            match socket.recv(&mut bytes).await {
                Ok(length) => {
                    if let Some((called, word)) = parse(&bytes[..length]) {
                        self.tell(called, word);
                    }
                }
                // Nothing can fail for good on a socket that only we hold; if it does, places in line are
                // refreshed all the same.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

/// One wait. Told `go` or `look`, it hears it.
#[derive(Debug)]
pub(crate) struct Listening {
    waits: Arc<Waits>,
    called: Called,
    told: watch::Receiver<Told>,
}

impl Listening {
    /// What was told so far: taken before a look, so that nothing told during it is missed.
    pub(crate) fn mark(&self) -> Told {
        *self.told.borrow()
    }

    /// Returns when something was told after the mark: `true` to go, `false` to look again.
    pub(crate) async fn heard(&mut self, before: Told) -> bool {
        loop {
            let now = *self.told.borrow_and_update();
            if now != before {
                return now.go != before.go;
            }
            if self.told.changed().await.is_err() {
                return false;
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut waits = self.waits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waits.get(&self.called).is_some_and(|wait| wait.receiver_count() == 1) {
            waits.remove(&self.called);
        }
    }
}

/// A socket to send from.
pub(crate) fn sender() -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(word: Word) -> Letter {
        let (called, name) = (Called::of(ClaimId::from_bytes([7; 16])), LockName::parse("a").unwrap());
        Letter { to: "x".into(), called, word, name }
    }

    #[test]
    fn a_message_says_what_it_was_made_of_and_others_nothing() {
        for word in [Word::Go, Word::Look] {
            let letter = letter(word);
            assert_eq!(parse(&letter.to_bytes()), Some((letter.called, word)));
        }
        for bad in [&b""[..], b"g", b"x12345678", b"g123456789"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[tokio::test]
    async fn a_word_between_the_look_and_the_wait_is_heard() {
        let waits = Arc::new(Waits::default());
        let called = letter(Word::Go).called;
        let mut listening = waits.begin(called);
        let mark = listening.mark();
        waits.tell(called, Word::Go);
        assert!(listening.heard(mark).await);
        drop(listening);
        assert!(waits.0.lock().unwrap().is_empty(), "a wait that is over leaves nothing behind");
    }
}

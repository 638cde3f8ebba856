//! A program on a host that holds a lock, and what it was told of it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::{BootTime, Clock, Code, Event, Leasehold, Observer, Token};
use leasehold_harness::servers::net::Host;

use super::PATIENCE;

pub(crate) const TTL: Duration = Duration::from_secs(2);
/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_millis(500);

/// What a program was told of its lease, and when.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// Until when it believed in it last.
    pub(crate) valid_until: Option<BootTime>,
    pub(crate) endangered: Option<BootTime>,
    pub(crate) lost: Option<BootTime>,
}

/// A program that takes a lock and keeps it until it is lost.
pub(crate) struct Holder {
    granted: Receiver<(BootTime, Token)>,
    told: JoinHandle<Told>,
}

#[derive(Debug)]
struct Ears(Clock, Mutex<Told>);

impl Observer for Ears {
    fn on(&self, event: &Event) {
        let (now, mut told) = (self.0.now(), self.1.lock().unwrap());
        match event {
            Event::Acquired { remaining, .. } | Event::Renewed { remaining, .. } => {
                told.valid_until = Some(now.after(*remaining));
            }
            Event::Endangered { .. } => told.endangered = Some(now),
            _ => {}
        }
    }
}

impl Holder {
    /// Starts it; it waits for its turn.
    pub(crate) fn start(host: &Host, store: &str, name: &'static str) -> Self {
        let (send, granted) = channel();
        let (host, store) = (host.clone(), store.to_owned());
        Self { granted, told: std::thread::spawn(move || hold(&host, &store, name, &send)) }
    }

    /// Returns once it has it.
    pub(crate) fn has(&self) -> (BootTime, Token) {
        self.granted.recv_timeout(PATIENCE).unwrap()
    }

    /// Returns once it has lost it.
    pub(crate) fn loses(self) -> Told {
        self.told.join().unwrap()
    }
}

fn on<T>(host: &Host, what: impl AsyncFnOnce() -> T) -> T {
    host.enter().unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what())
}

fn hold(host: &Host, store: &str, name: &str, granted: &Sender<(BootTime, Token)>) -> Told {
    on(host, async || {
        let clock = Clock::system();
        let ears = Arc::new(Ears(clock.clone(), Mutex::default()));
        let client = Leasehold::builder().timeout(TIMEOUT).observer(ears.clone());
        let client = client.connect(store).await.unwrap();
        let lease = client.lock(name).ttl(TTL).acquire_within(PATIENCE).await.unwrap();
        granted.send((clock.now(), lease.token())).unwrap();
        lease.lost().await;
        Told { lost: Some(clock.now()), ..*ears.1.lock().unwrap() }
    })
}

/// Whether somebody on this host gets a lock, within a ttl: the token, or why not.
pub(crate) fn gets(host: &Host, store: &str, name: &'static str) -> Result<Token, (Option<Code>, String)> {
    let (host, store) = (host.clone(), store.to_owned());
    let asks = std::thread::spawn(move || {
        on(&host, async || {
            let client = Leasehold::builder().timeout(TIMEOUT).connect(&store).await?;
            let lease = client.lock(name).ttl(TTL).acquire_within(TTL).await?;
            let token = lease.token();
            lease.release().await?;
            Ok(token)
        })
    });
    asks.join().unwrap().map_err(|error: leasehold::Error| (Some(error.code()), error.to_string()))
}

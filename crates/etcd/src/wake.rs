//! Who waits for what, and the one watch that tells them: lines and closures under our prefix, from now on.
//!
//! A watch that starts in the past is served by etcd on a loop of 100 ms, which made ten turns a second of a waiter the
//! most there could be. So there is one watch from the present, and what was read before it opened is read again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{ClaimId, Doubt, Share, Verdict, admit, fault};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::fail::{Fail, Result};
use crate::keys::{line_of, shuts};
use crate::line::View;
use crate::link::Link;

/// So many changes are remembered, for those whose reading was overtaken by them.
const REMEMBERED: usize = 8192;

/// Tries stand in no line, and nobody takes them back: so many are remembered, in case they wait.
const TRIES: usize = 256;

/// Somebody whose turn has not come.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// At which revision this was so.
    revision: i64,
    /// Its key, unless it stands nowhere.
    own: Option<Vec<u8>>,
    share: Share,
    /// Who must go first, or some of them.
    ahead: Vec<(Vec<u8>, Share)>,
    /// What shuts the name: always, or once this key is gone.
    shut: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ready: bool,
    /// Whether what was read may be older than what was heard.
    stale: bool,
    notify: Arc<Notify>,
}

impl Turn {
    pub(crate) fn new(view: &View, own: Option<Vec<u8>>, ahead: usize, share: Share) -> Self {
        let ahead = view.members.iter().take(ahead).map(|member| (member.key.clone(), member.share));
        let after = view.after.iter().map(|shut| (shut.key.clone(), shut.after.clone()));
        Self {
            revision: view.revision,
            own,
            share,
            ahead: ahead.collect(),
            shut: view.shut.iter().map(|shut| (shut.key.clone(), None)).chain(after).collect(),
            ready: false,
            stale: false,
            notify: Arc::new(Notify::new()),
        }
    }

    fn hear(&mut self, line: &[u8], event: &Heard) {
        let Heard { key, revision: _, gone } = event;
        match shuts(line, key) {
            Some(_) if *gone => self.shut.retain(|(shut, _)| shut != key),
            Some(after) if !self.shut.iter().any(|(shut, _)| shut == key) => {
                self.shut.push((key.clone(), after));
            }
            Some(_) => {}
            None if *gone => {
                self.ready |= self.own.as_ref() == Some(key);
                self.ahead.retain(|(ahead, _)| ahead != key);
                // What it left behind counts from now on.
                let left = self.shut.iter_mut().filter(|(_, after)| after.as_ref() == Some(key));
                left.for_each(|(_, after)| *after = None);
            }
            None => {}
        }
        // Nobody is woken before its turn, however many stand before it, and whoever of them goes.
        if *gone && self.shut.iter().all(|(_, after)| after.is_some()) {
            let ahead: Vec<Share> = self.ahead.iter().map(|(_, share)| *share).collect();
            self.ready |= admit(&ahead, self.share) == Verdict::Admit;
        }
    }
}

/// A change of one key.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) key: Vec<u8>,
    pub(crate) revision: i64,
    pub(crate) gone: bool,
}

#[derive(Debug, Default)]
struct Waits {
    /// By line and claim.
    turns: HashMap<Vec<u8>, HashMap<ClaimId, Turn>>,
    /// Those of them that stand in no line, the oldest first.
    tries: VecDeque<(Vec<u8>, ClaimId)>,
    /// Who wants to hear of a line or key, whatever happens to it.
    interests: HashMap<Vec<u8>, Vec<Arc<Notify>>>,
    /// The keys under which this process holds.
    held: HashMap<Vec<u8>, ClaimId>,
    recent: VecDeque<Heard>,
    /// What was heard up to this revision may be forgotten.
    forgotten: i64,
}

impl Waits {
    /// Whoever waits for it nevertheless is told to look again.
    fn remove(&mut self, line: &[u8], id: ClaimId) {
        if let Some(turns) = self.turns.get_mut(line) {
            if let Some(turn) = turns.remove(&id) {
                turn.notify.notify_one();
            }
            if turns.is_empty() {
                self.turns.remove(line);
            }
        }
    }
}

/// Who waits for what.
#[derive(Debug)]
pub(crate) struct Wakes {
    pub(crate) prefix: String,
    waits: Mutex<Waits>,
    /// Since which revision nothing was missed.
    since: watch::Sender<Option<i64>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Wakes {
    pub(crate) fn new(prefix: &str) -> Self {
        let since = watch::Sender::new(None);
        Self { prefix: prefix.to_owned(), waits: Mutex::default(), since, task: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to listen, if nobody has.
    pub(crate) fn start(self: &Arc<Self>, link: &Arc<Link>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            self.since.send_replace(None);
            *task = Some(tokio::spawn(crate::listen::listen(link.clone(), self.clone())));
        }
    }

    /// Listens; returns once it does.
    pub(crate) async fn open(self: &Arc<Self>, link: &Arc<Link>) -> Result<()> {
        self.start(link);
        let mut since = self.since.subscribe();
        let opened = tokio::time::timeout(2 * link.timeout(), since.wait_for(Option::is_some)).await;
        match opened {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Fail::silent("a watch")),
        }
    }

    pub(crate) fn close(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    /// Whether everything after this revision is heard.
    fn covers(&self, waits: &Waits, revision: i64) -> bool {
        self.since.borrow().is_some_and(|since| since <= revision) && waits.forgotten <= revision
    }

    /// Notes that a claim waits: what happened since it was read counts as well.
    pub(crate) fn expect(&self, line: &[u8], id: ClaimId, mut turn: Turn) {
        let mut waits = self.lock();
        turn.stale = !self.covers(&waits, turn.revision) && !fault!("etcd_gap_not_read");
        for heard in waits.recent.iter() {
            if heard.revision <= turn.revision {
                continue;
            }
            if line_of(&self.prefix, &heard.key).is_some_and(|of| of == line) {
                turn.hear(line, heard);
            }
        }
        let stands_nowhere = turn.own.is_none();
        let before = waits.turns.entry(line.to_vec()).or_default().insert(id, turn);
        if stands_nowhere && before.is_none() {
            waits.tries.push_back((line.to_vec(), id));
            if waits.tries.len() > TRIES
                && let Some((line, id)) = waits.tries.pop_front()
                && waits
                    .turns
                    .get(&line)
                    .and_then(|turns| turns.get(&id))
                    .is_some_and(|turn| turn.own.is_none())
            {
                waits.remove(&line, id);
            }
        }
    }

    /// Where the wait of a claim stands, if it is known.
    pub(crate) fn turn(&self, line: &[u8], id: ClaimId) -> Option<Stage> {
        let waits = self.lock();
        let turn = waits.turns.get(line)?.get(&id)?;
        Some(match turn {
            Turn { ready: true, .. } => Stage::Ready,
            Turn { stale: true, .. } => Stage::Stale { own: turn.own.clone(), share: turn.share },
            _ => Stage::Waits(turn.notify.clone()),
        })
    }

    pub(crate) fn forget(&self, line: &[u8], id: ClaimId) {
        let mut waits = self.lock();
        waits.remove(line, id);
        waits.held.retain(|_, held| *held != id);
    }

    /// Notes that a claim holds under this key: that the key goes is news then.
    pub(crate) fn holds(&self, key: &[u8], id: ClaimId) {
        self.lock().held.insert(key.to_vec(), id);
    }

    /// Is told of whatever happens to a line, or to one key of it, from now on.
    pub(crate) fn interest(self: &Arc<Self>, of: &[u8]) -> Interest {
        let notify = Arc::new(Notify::new());
        self.lock().interests.entry(of.to_vec()).or_default().push(notify.clone());
        Interest { wakes: self.clone(), of: of.to_vec(), notify }
    }

    /// The watch opened at this revision: what was read before is out of date.
    pub(crate) fn opened(&self, revision: i64) {
        let mut waits = self.lock();
        waits.recent.clear();
        waits.forgotten = revision;
        let re_read = !fault!("etcd_gap_not_read");
        for turn in waits.turns.values_mut().flat_map(HashMap::values_mut).filter(|_| re_read) {
            turn.stale = turn.stale || turn.revision < revision;
            turn.notify.notify_one();
        }
        waits.interests.values().flatten().for_each(|notify| notify.notify_one());
        self.since.send_replace(Some(revision));
    }

    /// What happened.
    pub(crate) fn hear(&self, link: &Link, heard: Heard) {
        let mut waits = self.lock();
        let Waits { turns, tries: _, interests, held, recent, forgotten } = &mut *waits;
        if heard.gone && held.remove(&heard.key).is_some() {
            link.doubt(Doubt::Cut);
        }
        let tell = |of: &[u8]| {
            interests.get(of).into_iter().flatten().for_each(|notify| notify.notify_one());
        };
        tell(&heard.key);
        if let Some(line) = line_of(&self.prefix, &heard.key) {
            tell(line);
            for turn in turns.get_mut(line).into_iter().flat_map(HashMap::values_mut) {
                if heard.revision > turn.revision {
                    turn.hear(line, &heard);
                    if turn.ready {
                        turn.notify.notify_one();
                    }
                }
            }
        }
        if recent.len() >= REMEMBERED
            && let Some(oldest) = recent.pop_front()
        {
            *forgotten = oldest.revision;
        }
        recent.push_back(heard);
    }
}

/// Where a wait stands.
pub(crate) enum Stage {
    /// It is over.
    Ready,
    /// The line must be read again.
    Stale { own: Option<Vec<u8>>, share: Share },
    /// It goes on; this is told when it may be over.
    Waits(Arc<Notify>),
}

/// Somebody who is told of whatever happens, until dropped.
#[derive(Debug)]
pub(crate) struct Interest {
    wakes: Arc<Wakes>,
    of: Vec<u8>,
    notify: Arc<Notify>,
}

impl Interest {
    /// Something happened, or enough time has passed to look anyway.
    pub(crate) async fn told(&self, most: Duration) {
        let _ = tokio::time::timeout(most, self.notify.notified()).await;
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut waits = self.wakes.lock();
        if let Some(all) = waits.interests.get_mut(&self.of) {
            all.retain(|one| !Arc::ptr_eq(one, &self.notify));
            if all.is_empty() {
                waits.interests.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(revision: i64, ahead: &[&str], share: Share) -> Turn {
        Turn {
            revision,
            own: Some(b"lock/a/9".to_vec()),
            share,
            ahead: ahead.iter().map(|key| (key.as_bytes().to_vec(), share)).collect(),
            shut: Vec::new(),
            ready: false,
            stale: false,
            notify: Arc::new(Notify::new()),
        }
    }

    fn stage(wakes: &Wakes) -> &'static str {
        match wakes.turn(b"lock/a/", ClaimId::from_bytes([1; 16])) {
            None => "unknown",
            Some(Stage::Ready) => "ready",
            Some(Stage::Stale { .. }) => "stale",
            Some(Stage::Waits(_)) => "waits",
        }
    }

    fn link() -> Link {
        let url = "etcd://127.0.0.1:1".parse().unwrap();
        Link::new(&crate::config::Settings::parse(&url).unwrap()).unwrap()
    }

    fn gone(key: &str, revision: i64) -> Heard {
        Heard { key: key.as_bytes().to_vec(), revision, gone: true }
    }

    fn expect(wakes: &Wakes, turn: Turn) {
        wakes.expect(b"lock/a/", ClaimId::from_bytes([1; 16]), turn);
    }

    #[tokio::test]
    async fn what_was_read_before_the_watch_opened_is_read_again() {
        let (wakes, link) = (Wakes::new("lock/"), link());
        expect(&wakes, turn(5, &["lock/a/1"], Share::EXCLUSIVE));
        assert_eq!(stage(&wakes), "stale", "nobody listens yet");
        wakes.opened(10);
        assert_eq!(stage(&wakes), "stale", "it may have gone between 5 and 10");
        expect(&wakes, turn(10, &["lock/a/1"], Share::EXCLUSIVE));
        assert_eq!(stage(&wakes), "waits");
        // It opens again from now: what was compacted away was missed.
        wakes.opened(20);
        assert_eq!(stage(&wakes), "stale");
        expect(&wakes, turn(20, &["lock/a/1"], Share::EXCLUSIVE));
        wakes.hear(&link, gone("lock/a/1", 21));
        assert_eq!(stage(&wakes), "ready");
    }

    #[tokio::test]
    async fn what_happened_between_the_reading_and_the_wait_counts() {
        let (wakes, link) = (Wakes::new("lock/"), link());
        wakes.opened(10);
        wakes.hear(&link, gone("lock/a/1", 12));
        expect(&wakes, turn(11, &["lock/a/1"], Share::EXCLUSIVE));
        assert_eq!(stage(&wakes), "ready");
        // Of what was read later it was no part.
        expect(&wakes, turn(13, &["lock/a/1"], Share::EXCLUSIVE));
        assert_eq!(stage(&wakes), "waits");
    }

    #[tokio::test]
    async fn nobody_is_woken_before_its_turn() {
        let (wakes, link) = (Wakes::new("lock/"), link());
        wakes.opened(10);
        let three = Share::permits(1, 3).unwrap();
        expect(&wakes, turn(10, &["lock/a/1", "lock/a/2", "lock/a/3", "lock/a/4"], three));
        for (key, then) in [("lock/b/1", "waits"), ("lock/a/4", "waits"), ("lock/a/1", "ready")] {
            wakes.hear(&link, gone(key, 11));
            assert_eq!(stage(&wakes), then, "{key}");
        }
    }

    #[test]
    fn tries_that_nobody_waits_for_are_not_kept_for_ever() {
        let wakes = Wakes::new("lock/");
        let stands = turn(10, &["lock/a/1"], Share::EXCLUSIVE);
        expect(&wakes, stands.clone());
        for number in 0..1000_u128 {
            let id = ClaimId::from_bytes((number + 1000).to_be_bytes());
            let notify = Arc::new(Notify::new());
            wakes.expect(b"lock/a/", id, Turn { own: None, notify, ..stands.clone() });
        }
        let kept = wakes.lock().turns.values().map(HashMap::len).sum::<usize>();
        assert_eq!(kept, TRIES + 1, "and who stands in line is");
        assert_ne!(stage(&wakes), "unknown");
    }

    #[tokio::test]
    async fn a_key_that_goes_while_it_is_held_is_doubted_and_one_that_is_given_back_is_not() {
        let (wakes, link) = (Wakes::new("lock/"), link());
        wakes.opened(10);
        let id = ClaimId::from_bytes([1; 16]);
        wakes.holds(b"lock/a/9", id);
        wakes.forget(b"lock/a/", id);
        wakes.hear(&link, gone("lock/a/9", 11));
        wakes.holds(b"lock/a/9", id);
        let doubted = tokio::time::timeout(Duration::from_millis(10), link.doubted()).await;
        assert!(doubted.is_err(), "it was given back");
        wakes.hear(&link, gone("lock/a/9", 12));
        assert_eq!(link.doubted().await, Doubt::Cut);
    }
}

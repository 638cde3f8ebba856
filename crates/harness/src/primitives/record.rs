//! Takes down what the tasks of a run asked for and were told, in one order.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::{BootTime, Clock};

use super::model::{Hold, Kind, Want};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Somebody asks for it.
    Asked(Want),
    /// .. and has it now, under this token, for so long at least.
    Granted(u64, Duration),
    /// .. and it is taken.
    Busy,
    /// .. and no longer waits, or does not know.
    GaveUp,
    /// A holder was told that it holds, under this token, for so long at least.
    Holds(u64, Duration),
    /// A holder was told that it is lost.
    Lost,
    /// A holder asks for another share.
    Changing(Want),
    /// .. and has it now, under this token.
    Changed(u64),
    /// .. and has not, and never will without asking again.
    NotChanged,
    /// .. and does not know.
    ChangeUnknown,
    /// A holder gives it back.
    Releasing,
    /// .. and the store has acknowledged that.
    Released,
    /// .. and was told that it had ended before.
    ReleasedTooLate,
    /// .. and does not know, or does not wait for the answer.
    LetGo,
    /// Nobody renews it any more, and nobody gives it back.
    Left,
    /// What had to be done is done, though not marked yet.
    Finishing,
    /// .. and the store remembers it, and somebody gives the lease back.
    Finished,
    /// Somebody asked, and it had been done.
    AlreadyDone,
    /// Somebody asks that it be forgotten that it has been done.
    Forgetting,
    /// .. and it had been done.
    Forgot,
    /// .. and it had not.
    NothingToForget,
    /// .. and does not know.
    MayHaveForgotten,
}

/// Something that happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, by the boot clock.
    pub at: BootTime,
    /// Which name, by its place in the run.
    pub name: usize,
    /// Which host's.
    pub host: usize,
    /// Which acquire, and the lease that it may have led to.
    pub hold: Hold,
    /// What.
    pub told: Told,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, name, host, hold, told } = self;
        write!(f, "{:>14} name {name} host {host} #{hold} {told:?}", at.as_nanos())
    }
}

/// What a run did, host by host and name by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Records {
    /// What each name is.
    pub kinds: Vec<Kind>,
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// Which host was dead from which event on.
    pub deaths: Vec<(usize, usize, BootTime)>,
}

/// Takes it down.
#[derive(Debug)]
pub struct Recorder {
    clock: Clock,
    records: Mutex<(Records, Hold)>,
}

impl Recorder {
    /// For names of these kinds.
    #[must_use]
    pub fn new(clock: Clock, kinds: Vec<Kind>) -> Self {
        Self { clock, records: Mutex::new((Records { kinds, ..Records::default() }, 0)) }
    }

    fn lock(&self) -> MutexGuard<'_, (Records, Hold)> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody asks for a name; gives the number under which it goes on.
    pub fn asks(&self, name: usize, host: usize, want: Want) -> Hold {
        self.begins(name, host, Told::Asked(want))
    }

    /// Something begins; gives the number under which it goes on.
    pub fn begins(&self, name: usize, host: usize, told: Told) -> Hold {
        let hold = {
            let mut records = self.lock();
            records.1 += 1;
            records.1
        };
        self.tell(name, host, hold, told);
        hold
    }

    /// Something happened, now.
    pub fn tell(&self, name: usize, host: usize, hold: Hold, told: Told) {
        let mut records = self.lock();
        if records.0.deaths.iter().any(|(dead, ..)| *dead == host) {
            // The dead tell nothing; what they do without a way to the store is seen by nobody.
            return;
        }
        // Under the lock, so that the order is that of the clock.
        let at = self.clock.now();
        records.0.events.push(Event { at, name, host, hold, told });
    }

    /// A host is dead.
    pub fn dies(&self, host: usize) {
        let mut records = self.lock();
        let (at, now) = (records.0.events.len(), self.clock.now());
        records.0.deaths.push((host, at, now));
    }

    /// All of it.
    #[must_use]
    pub fn records(&self) -> Records {
        self.lock().0.clone()
    }
}

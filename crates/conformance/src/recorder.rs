//! Takes down what the tasks of one process do, in one order.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{BootTime, Claim, Clock};

use crate::history::{FaultKind, Happened, Record};

/// The records of a run, each stamped later than the one before: on a clock that stands still everything would
/// happen at once, and nothing could be told from it.
#[derive(Debug)]
pub(crate) struct Recorder {
    clock: Clock,
    records: Mutex<Vec<Record>>,
}

impl Recorder {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, records: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, process: u32, claim: u64, what: Happened) -> BootTime {
        let mut records = self.lock();
        let last = records.last().map_or(0, |record| record.at.as_nanos());
        let at = BootTime::from_nanos(self.clock.now().as_nanos().max(last + 1));
        records.push(Record { at, process, claim, what });
        at
    }

    pub(crate) fn asked(&self, process: u32, number: u64, attempt: u32, claim: &Claim) {
        let Claim { name, share, turn, .. } = claim;
        let (name, turn, share) = (name.clone(), *turn, *share);
        self.tell(process, number, Happened::Asked { name, attempt, turn, share });
    }

    pub(crate) fn fault(&self, process: u32, what: &str) {
        self.tell(process, 0, Happened::Fault(FaultKind::Other(what.to_owned())));
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.lock().clone()
    }
}

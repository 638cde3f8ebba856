//! What the library tells while it works: kept for the messages that need it, and printed under `-vv`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold::{Event, Observer};

use crate::human::{millis, rough};
use crate::talk::Talk;

/// Hears the events of one client.
#[derive(Debug)]
pub(crate) struct Listener {
    talk: Talk,
    heard: Mutex<Heard>,
}

/// What was heard last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    /// How many are ahead of us in the line.
    pub(crate) ahead: Option<u32>,
    /// Why the last renewal failed, if none has succeeded since.
    pub(crate) renewal_error: Option<String>,
}

impl Listener {
    pub(crate) fn new(talk: Talk) -> Self {
        Self { talk, heard: Mutex::default() }
    }

    pub(crate) fn heard(&self) -> Heard {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // Each change is one assignment; a panic between two of them leaves nothing half done.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Listener {
    fn on(&self, event: &Event) {
        let talk = self.talk;
        match event {
            Event::Waiting { ahead, name } => {
                self.lock().ahead = *ahead;
                let ahead = ahead.map_or_else(|| "some".to_owned(), |ahead| ahead.to_string());
                talk.trace(format_args!("{name}: waiting, {ahead} ahead"));
            }
            Event::Acquired { name, token, waited, .. } => {
                talk.explain(format_args!("{name}: acquired after {}, token {token}", rough(*waited)));
            }
            Event::Renewed { name, remaining, .. } => {
                self.lock().renewal_error = None;
                talk.trace(format_args!("{name}: renewed, {} left", rough(*remaining)));
            }
            Event::RenewalFailed { name, error, remaining, .. } => {
                self.lock().renewal_error = Some(error.to_string());
                talk.trace(format_args!("{name}: renewal failed, {} left: {error}", rough(*remaining)));
            }
            Event::Asked { op, name, took, error } => {
                let name = name.as_ref().map_or("the store", |name| name.as_str());
                let answer = error.as_ref().map_or_else(|| "ok".to_owned(), ToString::to_string);
                talk.trace(format_args!("asked to {op} {name}: {answer} ({} ms)", millis(*took)));
            }
            // The rest is said by `run` itself, once and in its own words.
            _ => {}
        }
    }
}

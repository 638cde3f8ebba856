//! What is asked of a store's ledger, each as one visit: who is paused, what is done, what happened.

use std::pin::Pin;
use std::time::Duration;

use leasehold::config::Pattern;
use leasehold::{
    AsyncLedger, Error, Leasehold, Ledger, LockName, Mark, MarkKind, MarkOutcome, NameError, Record,
    RecordId, RecordKind, Result,
};
use serde_json::Value;

use crate::history::{History, WINDOW};
use crate::view;

/// Under which name all pauses are kept, so that one look finds those that match.
const PAUSES: &str = "lh:pauses";
/// At most one complaint in this time, from each host.
const COMPLAIN_EVERY: Duration = Duration::from_secs(3600);

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A name with its namespace, as the store knows it.
pub(crate) fn full(client: &Leasehold, name: &LockName) -> Result<LockName, NameError> {
    name.within(client.namespace())
}

/// Where the pauses of this namespace are kept.
pub(crate) fn pauses(client: &Leasehold) -> Result<LockName, NameError> {
    LockName::parse(PAUSES)?.within(client.namespace())
}

/// What stands in the way of a run.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// The pause that ends last of those that match.
    pub(crate) paused: Option<Mark>,
    /// The mark of the slot.
    pub(crate) done: Option<Mark>,
    /// All marks of the name, the newest first; only if they were asked for.
    pub(crate) marks: Vec<Mark>,
    /// Empty unless it was asked for.
    pub(crate) history: History,
}

/// A look at one name.
pub(crate) struct Ask {
    pub(crate) name: LockName,
    pub(crate) typed: String,
    pub(crate) pauses: LockName,
    pub(crate) slot: Option<String>,
    pub(crate) marks: bool,
    pub(crate) history: bool,
}

impl AsyncLedger<Look> for Ask {
    fn run(self, ledger: &dyn Ledger) -> Answer<'_, Look> {
        Box::pin(async move {
            let Self { name, typed, pauses, slot, marks, history } = self;
            let paused = ledger.marks(MarkKind::Pause, &pauses).await?;
            let matching = paused.into_iter().filter(|mark| matches(&mark.key, &typed));
            let paused = matching.max_by_key(|mark| mark.lasting);
            let marks =
                if slot.is_some() || marks { ledger.marks(MarkKind::Once, &name).await? } else { Vec::new() };
            let done = slot.and_then(|slot| marks.iter().find(|mark| mark.key == slot).cloned());
            let history = if history {
                History::of(&ledger.records(Some(&name), RecordId(0), WINDOW).await?)
            } else {
                History::default()
            };
            Ok(Look { paused, done, marks, history })
        })
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    Pattern::parse(pattern).is_ok_and(|pattern| pattern.matches(name))
}

/// Looks at one name: at pauses and at the mark of a slot, and for people at the rest too. A store that keeps no
/// marks has none.
pub(crate) async fn look(
    client: &Leasehold,
    name: &LockName,
    slot: Option<&str>,
    in_full: bool,
) -> Result<Look> {
    let ask = Ask {
        name: full(client, name)?,
        typed: name.to_string(),
        pauses: pauses(client)?,
        slot: slot.map(str::to_owned),
        marks: in_full,
        history: in_full,
    };
    match client.with_ledger(ask).await {
        Err(Error::Unsupported(_)) if slot.is_none() => Ok(Look::default()),
        answer => answer,
    }
}

/// The same of a name as a store lists it.
pub(crate) async fn look_at(client: &Leasehold, full: &LockName) -> Result<Look> {
    let typed = LockName::parse(view::typed(client, full.as_str()))?;
    look(client, &typed, None, true).await
}

/// Makes a mark, or tells of the one that stands.
pub(crate) struct Make(pub(crate) Mark);

impl AsyncLedger<MarkOutcome> for Make {
    fn run(self, ledger: &dyn Ledger) -> Answer<'_, MarkOutcome> {
        Box::pin(async move { ledger.mark(&self.0).await })
    }
}

/// Takes a mark away, and says whether one stood.
pub(crate) struct Take {
    pub(crate) kind: MarkKind,
    pub(crate) name: LockName,
    pub(crate) key: String,
}

impl AsyncLedger<bool> for Take {
    fn run(self, ledger: &dyn Ledger) -> Answer<'_, bool> {
        Box::pin(async move { ledger.unmark(self.kind, &self.name, &self.key).await })
    }
}

/// Marks that stand for a name.
pub(crate) struct Standing {
    pub(crate) kind: MarkKind,
    pub(crate) name: LockName,
}

impl AsyncLedger<Vec<Mark>> for Standing {
    fn run(self, ledger: &dyn Ledger) -> Answer<'_, Vec<Mark>> {
        Box::pin(async move { ledger.marks(self.kind, &self.name).await })
    }
}

/// Writes down how a run ended, and finds out whether its name is overdue.
pub(crate) struct Conclude {
    pub(crate) kind: RecordKind,
    pub(crate) name: LockName,
    pub(crate) by: String,
    pub(crate) host: String,
    /// A JSON object.
    pub(crate) text: Value,
    /// After how long to complain, if at all.
    pub(crate) limit: Option<Duration>,
}

/// What somebody has to be told.
pub(crate) struct Overdue {
    pub(crate) limit: Duration,
    pub(crate) history: History,
}

impl AsyncLedger<Option<Overdue>> for Conclude {
    fn run(self, ledger: &dyn Ledger) -> Answer<'_, Option<Overdue>> {
        Box::pin(async move {
            let Self { kind, name, by, host, mut text, limit } = self;
            let mut records = ledger.records(Some(&name), RecordId(0), WINDOW).await?;
            text["so_far"] = History::of(&records).carried();
            let text = text.to_string();
            let record = Record { kind, name: name.clone(), by: by.clone(), text, age: Duration::ZERO };
            let id = ledger.record(&record).await?;
            let Some(limit) = limit else { return Ok(None) };
            records.push((id, record));
            let history = History::of(&records);
            if history.without_good_run().is_none_or(|since| since <= limit) {
                return Ok(None);
            }
            let stamp = Mark {
                kind: MarkKind::Overdue,
                name,
                key: host,
                by,
                text: String::new(),
                lasting: COMPLAIN_EVERY,
                age: Duration::ZERO,
            };
            // Looked at before it is made: to find one standing costs no write.
            let told = ledger.marks(stamp.kind, &stamp.name).await?.iter().any(|mark| mark.key == stamp.key);
            let first = !told && ledger.mark(&stamp).await? == MarkOutcome::Made;
            Ok(first.then_some(Overdue { limit, history }))
        })
    }
}

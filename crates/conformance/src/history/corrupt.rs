//! The checker against histories that are true but for one corruption: it must reject every one.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{BootTime, LockName, Share, Token, Turn};

use super::check::{Least, check};
use super::truth::truth;
use super::{ClaimKey, FaultKind, Happened, Record};

const LEAST: Least = Least { grants: 40, contended: 20, faults: 3 };
/// A true history, and handles to what can be corrupted in it.
struct Corrupt {
    records: Vec<Record>,
    grants: Vec<Grant>,
    dice: fastrand::Rng,
}

/// A grant, with the places of its records.
#[derive(Clone)]
struct Grant {
    key: ClaimKey,
    asked: Vec<usize>,
    queued: Option<usize>,
    granted: usize,
    released: Option<usize>,
    renewed: Vec<usize>,
}

/// All grants of a history.
fn grants(records: &[Record]) -> Vec<Grant> {
    let mut by_key: BTreeMap<ClaimKey, Vec<usize>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        by_key.entry((record.process, record.claim)).or_default().push(at);
    }
    let grant = |(key, all): (ClaimKey, Vec<usize>)| {
        let places = |wanted: fn(&Happened) -> bool| -> Vec<usize> {
            all.iter().copied().filter(|at| wanted(&records[*at].what)).collect()
        };
        Some(Grant {
            key,
            granted: *places(|what| matches!(what, Happened::Granted { .. })).first()?,
            asked: places(|what| matches!(what, Happened::Asked { .. })),
            queued: places(|what| *what == Happened::Queued).first().copied(),
            released: places(|what| *what == Happened::ReleaseCalled).first().copied(),
            renewed: places(|what| matches!(what, Happened::Renewed { .. })),
        })
    };
    let mut grants: Vec<Grant> = by_key.into_iter().filter_map(grant).collect();
    grants.sort_by_key(|grant| grant.granted);
    grants
}

impl Corrupt {
    fn grants(&self) -> Vec<Grant> {
        self.grants.clone()
    }

    fn share(&self, grant: &Grant) -> (LockName, Turn, Share) {
        match &self.records[grant.asked[0]].what {
            Happened::Asked { name, turn, share, .. } => (name.clone(), *turn, *share),
            other => panic!("{other:?}"),
        }
    }

    fn at(&self, index: usize) -> BootTime {
        self.records[index].at
    }

    fn token(&self, grant: &Grant) -> Token {
        match self.records[grant.granted].what {
            Happened::Granted { token, .. } => token,
            ref other => panic!("{other:?}"),
        }
    }

    fn set_token(&mut self, grant: &Grant, new: Token) {
        let Happened::Granted { token, .. } = &mut self.records[grant.granted].what else { return };
        *token = new;
    }

    fn any<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        self.dice.choice(of).cloned()
    }

    /// Two grants of one name for which `wanted` holds, at random.
    fn pair(&mut self, wanted: impl Fn(&Self, &Grant, &Grant) -> bool) -> Option<(Grant, Grant)> {
        let grants = self.grants();
        let mut pairs = Vec::new();
        for (at, early) in grants.iter().enumerate() {
            for late in &grants[at + 1..] {
                if self.share(early).0 == self.share(late).0 && wanted(self, early, late) {
                    pairs.push((early.clone(), late.clone()));
                }
            }
        }
        self.any(&pairs)
    }

    fn insert(&mut self, key: ClaimKey, at: BootTime, what: Happened) {
        self.records.push(Record { at, process: key.0, claim: key.1, what });
    }

    /// Grants of which the later was asked for the first time after the earlier was returned.
    fn one_after_the_other(&mut self) -> Option<(Grant, Grant)> {
        self.pair(|this, early, late| this.at(early.granted) < this.at(late.asked[0]))
    }

    /// Neighbours that exclude each other: who had it, and who had it next.
    fn neighbours(&mut self) -> Option<(Grant, Grant)> {
        self.pair(|this, early, late| {
            let excludes = this.share(early).2.excludes(this.share(late).2);
            excludes && early.released.is_some_and(|released| this.at(released) < this.at(late.granted))
        })
    }
}

type Corruption = fn(&mut Corrupt) -> Option<()>;

fn nanos(at: BootTime, by: i64) -> BootTime {
    BootTime::from_nanos(at.as_nanos().saturating_add_signed(by))
}

/// Every kind of corruption: what is done, and how.
const CORRUPTIONS: &[(&str, Corruption)] = &[
    ("two tokens swapped", |it| {
        let (early, late) = it.one_after_the_other()?;
        let (one, two) = (it.token(&early), it.token(&late));
        it.set_token(&early, two);
        it.set_token(&late, one);
        Some(())
    }),
    ("a token given twice", |it| {
        let (early, late) = it.pair(|_, _, _| true)?;
        let token = it.token(&early);
        it.set_token(&late, token);
        Some(())
    }),
    ("tokens begin anew", |it| {
        let (_, late) = it.one_after_the_other()?;
        it.set_token(&late, Token::new(1)?);
        Some(())
    }),
    ("a lease that nobody gave back, valid for ever", |it| {
        let (early, _) = it.neighbours()?;
        let last = early.renewed.last().copied().unwrap_or(early.granted);
        if let Happened::Granted { valid_until, .. } | Happened::Renewed { valid_until } =
            &mut it.records[last].what
        {
            *valid_until = BootTime::from_nanos(u64::MAX);
        }
        let key = early.key;
        it.records.retain(|record| {
            let ends = matches!(record.what, Happened::ReleaseCalled | Happened::Released);
            !(ends && (record.process, record.claim) == key)
        });
        Some(())
    }),
    ("a grant returned while another was valid", |it| {
        let (early, late) = it.neighbours()?;
        it.records[late.granted].at = nanos(it.at(early.granted), 1);
        Some(())
    }),
    ("a grant that was never asked for", |it| {
        let grants = it.grants();
        let key = it.any(&grants)?.key;
        it.records.retain(|record| {
            !matches!(record.what, Happened::Asked { .. }) || (record.process, record.claim) != key
        });
        Some(())
    }),
    ("a grant before it was asked for", |it| {
        let grants = it.grants();
        let grant = it.any(&grants)?;
        it.records[grant.granted].at = nanos(it.at(grant.asked[0]), -1);
        Some(())
    }),
    ("a renewal after the release", |it| {
        let grants: Vec<Grant> = it.grants().into_iter().filter(|grant| grant.released.is_some()).collect();
        let grant = it.any(&grants)?;
        let at = nanos(it.at(grant.released?), 1);
        it.insert(grant.key, at, Happened::Renewed { valid_until: nanos(at, 1_000_000_000) });
        Some(())
    }),
    ("a renewal after the lease had run out", |it| {
        let grants: Vec<Grant> = it.grants().into_iter().filter(|grant| !grant.renewed.is_empty()).collect();
        let grant = it.any(&grants)?;
        let renewed = it.at(grant.renewed[0]);
        let Happened::Granted { valid_until, .. } = &mut it.records[grant.granted].what else { return None };
        *valid_until = nanos(renewed, -1);
        Some(())
    }),
    ("a claim granted twice", |it| {
        let grants = it.grants();
        let grant = it.any(&grants)?;
        let (at, token) = (nanos(it.at(grant.granted), 1), it.token(&grant).after(1_000_000)?);
        it.insert(grant.key, at, Happened::Granted { token, valid_until: nanos(at, 1) });
        Some(())
    }),
    ("two who stood in line, served in the other order", |it| {
        let (early, late) = it.pair(|this, early, late| {
            let strict = this.share(early).1 == Turn::Fifo || this.share(late).1 == Turn::Fifo;
            // Not so far apart that a place may have lapsed, which would excuse it.
            let kept = early.asked.len() > 1
                && this.at(early.granted).since(this.at(early.asked[0])) < Duration::from_millis(1800);
            let stood = early.queued.is_some_and(|queued| this.at(queued) < this.at(late.asked[0]));
            strict && stood && kept && this.share(early).2.excludes(this.share(late).2)
        })?;
        let (one, two) = (it.token(&early), it.token(&late));
        it.set_token(&early, two);
        it.set_token(&late, one);
        Some(())
    }),
    ("a reader that was a writer", |it| {
        let (early, late) = it.pair(|this, early, late| {
            let readers = [early, late].map(|grant| this.share(grant).2) == [Share::SHARED; 2];
            let end = early.released.map(|released| this.at(released));
            readers && early.renewed.is_empty() && end.is_some_and(|end| this.at(late.granted) < end)
        })?;
        // Only where the first was still valid when the second came.
        let Happened::Granted { valid_until, .. } = it.records[early.granted].what else { return None };
        if valid_until <= it.at(late.granted) {
            return None;
        }
        for asked in late.asked {
            let Happened::Asked { share, .. } = &mut it.records[asked].what else { return None };
            *share = Share::EXCLUSIVE;
        }
        Some(())
    }),
    ("a claim that changed its name", |it| {
        let grants: Vec<Grant> = it.grants().into_iter().filter(|grant| grant.asked.len() > 1).collect();
        let grant = it.any(&grants)?;
        let Happened::Asked { name, .. } = &mut it.records[grant.asked[1]].what else { return None };
        *name = LockName::parse("another").ok()?;
        Some(())
    }),
    ("a release without its call", |it| {
        let grants: Vec<Grant> = it.grants().into_iter().filter(|grant| grant.released.is_some()).collect();
        let grant = it.any(&grants)?;
        it.records.remove(grant.released?);
        Some(())
    }),
    ("a loss of what was never granted", |it| {
        let grants = it.grants();
        let grant = it.any(&grants)?;
        let at = nanos(it.at(grant.granted), -1);
        it.insert(grant.key, at, Happened::Lost);
        Some(())
    }),
    ("two claims under one number", |it| {
        let (early, late) = it.one_after_the_other()?;
        for record in &mut it.records {
            if (record.process, record.claim) == late.key {
                (record.process, record.claim) = early.key;
            }
        }
        Some(())
    }),
    ("a place in line after the grant", |it| {
        let grants = it.grants();
        let grant = it.any(&grants)?;
        let at = nanos(it.at(grant.granted), 1);
        it.insert(grant.key, at, Happened::Queued);
        Some(())
    }),
    ("the clock of one process a minute behind", |it| {
        // Process 1 is then granted what others hold, or asks for what it has.
        for record in &mut it.records {
            if record.process == 1 {
                record.at = nanos(record.at, -60_000_000_000);
            }
        }
        Some(())
    }),
    ("most of it lost", |it| {
        it.records.truncate(it.records.len() / 8);
        Some(())
    }),
    ("no faults", |it| {
        it.records.retain(|record| !matches!(record.what, Happened::Fault(FaultKind::Other(_))));
        Some(())
    }),
    ("no contention", |it| {
        // Each claim on a name of its own.
        for record in &mut it.records {
            if let Happened::Asked { name, .. } = &mut record.what {
                *name = LockName::parse(&format!("{}:{}", record.process, record.claim)).ok()?;
            }
        }
        Some(())
    }),
];

#[test]
fn every_corruption_of_a_true_history_is_rejected() {
    let mut met: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..40 {
        let records = truth(seed);
        let report = check(&records);
        if seed == 0 {
            println!("{report}");
        }
        report.judge(&LEAST).unwrap();
        let grants = grants(&records);
        for (what, corruption) in CORRUPTIONS {
            let dice = fastrand::Rng::with_seed(seed);
            let mut corrupt = Corrupt { records: records.clone(), grants: grants.clone(), dice };
            if corruption(&mut corrupt).is_none() {
                continue;
            }
            let report = check(&corrupt.records);
            assert!(report.judge(&LEAST).is_err(), "seed {seed}, {what}: {report}");
            *met.entry(what).or_default() += 1;
        }
    }
    println!("{} corruptions of 40 histories rejected: {met:?}", met.values().sum::<u32>());
    for (what, _) in CORRUPTIONS {
        assert!(met.get(what).is_some_and(|times| *times >= 5), "{what} must be tried: {met:?}");
    }
}

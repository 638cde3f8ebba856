//! From what was told to what must have happened: between which events each step took effect.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::BootTime;

use super::model::{Hold, Kind, Step, Want};
use super::record::{Event, Records, Told};
use super::wgl::{NEVER, Operation, Stamp};

/// What happened to one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// What the name is.
    pub kind: Kind,
    /// What happened.
    pub operations: Vec<Operation>,
    /// What no order can explain: a holder that was told one thing and then another.
    pub broken: Vec<String>,
}

/// For how long at most what nobody keeps up any longer stays in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lingers {
    /// A lease, after its holder was last known to renew it.
    pub lease: Duration,
    /// A claim that somebody gave up.
    pub claim: Duration,
}

/// Sorts a run, all of whose leases had this ttl, into the histories of its names.
#[must_use]
pub fn histories(records: &Records, ttl: Duration, lingers: Option<Lingers>) -> Vec<History> {
    let Records { kinds, events, deaths } = records;
    let of = |name: usize, kind: Kind| {
        let mut told: BTreeMap<Hold, Vec<(Stamp, &Event)>> = BTreeMap::new();
        for (at, event) in events.iter().enumerate().filter(|(_, event)| event.name == name) {
            told.entry(event.hold).or_default().push((stamp(at), event));
        }
        let times = Times { events, ttl, lingers };
        let mut history = History { kind, operations: Vec::new(), broken: Vec::new() };
        for (hold, told) in told {
            let host = told[0].1.host;
            let death =
                deaths.iter().find(|(dead, ..)| *dead == host).map(|(_, at, time)| (stamp(*at), *time));
            let mut story = Story { hold, told: &told, times: &times, death, history: &mut history };
            story.tell();
        }
        history
    };
    kinds.iter().enumerate().map(|(name, kind)| of(name, *kind)).collect()
}

fn stamp(at: usize) -> Stamp {
    Stamp::try_from(at).unwrap_or(NEVER)
}

/// Which event comes at which time.
struct Times<'a> {
    events: &'a [Event],
    ttl: Duration,
    lingers: Option<Lingers>,
}

impl Times<'_> {
    /// The first event at this time or later.
    fn from(&self, time: BootTime) -> Stamp {
        stamp(self.events.partition_point(|event| event.at < time))
    }

    /// The last event up to so long after this time; never, if that is beyond the end.
    fn within(&self, time: BootTime, long: Option<Duration>) -> Stamp {
        let Some(long) = long else { return NEVER };
        let after = self.events.partition_point(|event| event.at <= time.after(long));
        if after == self.events.len() { NEVER } else { stamp(after.saturating_sub(1)) }
    }
}

impl Times<'_> {
    /// How often somebody may have made it forgotten that this was done, between these.
    fn forgotten(&self, name: usize, from: Stamp, to: Stamp) -> usize {
        let of_it = || self.events.iter().enumerate().filter(|(_, event)| event.name == name);
        let asked = of_it().filter(|(at, event)| event.told == Told::Forgetting && stamp(*at) < to);
        let between = |(asked, event): &(usize, &Event)| {
            let answer = of_it().find(|(at, other)| at > asked && other.hold == event.hold);
            answer.is_none_or(|(at, answer)| stamp(at) > from || answer.told == Told::MayHaveForgotten)
        };
        asked.filter(between).count()
    }
}

/// One acquire, and the lease that it may have led to.
struct Story<'a> {
    hold: Hold,
    told: &'a [(Stamp, &'a Event)],
    times: &'a Times<'a>,
    death: Option<(Stamp, BootTime)>,
    history: &'a mut History,
}

/// A lease as its story goes on.
struct Life {
    /// Until when it was said to hold at least.
    promised: BootTime,
    /// When it was lost, as far as the holder was told.
    lost: Option<BootTime>,
    token: u64,
    /// Since when it may have become the writer for a moment: somebody wished for that and did not hear the answer.
    wished: Option<(Stamp, Want)>,
}

impl Story<'_> {
    fn push(&mut self, from: Stamp, to: Stamp, step: Step) {
        // It may have been between two events that are far apart.
        let to = to.max(from);
        self.history.operations.push(Operation { from, to, step });
    }

    fn broken(&mut self, at: Stamp, why: &str) {
        self.history.broken.push(format!("event {at}, #{}: {why}", self.hold));
    }

    fn claim_lingers(&self, since: BootTime) -> Stamp {
        self.times.within(since, self.times.lingers.map(|lingers| lingers.claim))
    }

    fn lease_lingers(&self, since: BootTime) -> Stamp {
        self.times.within(since, self.times.lingers.map(|lingers| lingers.lease))
    }

    fn tell(&mut self) {
        let (asked, first) = self.told[0];
        if first.told == Told::Forgetting {
            return match self.told.get(1).map(|(to, answer)| (*to, answer.told)) {
                Some((to, Told::Forgot)) => self.push(asked, to, Step::Forgotten),
                Some((to, Told::NothingToForget)) => self.push(asked, to, Step::NotDone),
                _ => self.push(asked, NEVER, Step::Forgotten),
            };
        }
        let Told::Asked(want) = first.told else {
            return self.broken(asked, "it was told something before it asked");
        };
        let Some((answered, answer)) = self.told.get(1).copied() else {
            // Nobody waited for the answer: the host died, or the run was over.
            let to = self.death.map_or(NEVER, |(_, died)| self.claim_lingers(died));
            if let Some((_, died)) = self.death {
                self.may_have_lost_one(asked, (first.at, died), want);
            }
            return self.lurks(asked, to, want);
        };
        match answer.told {
            Told::Granted(token, remaining) => {
                self.push(asked, answered, Step::Granted { hold: self.hold, want, token });
                if matches!(want, Want::Read | Want::Upgradeable | Want::Permits(_)) {
                    self.may_have_lost_one(asked, (first.at, answer.at), want);
                }
                // Who is late to take it may find that it has ended before he came.
                let ended = remaining.is_zero();
                let promised = if ended { BootTime::default() } else { answer.at.after(remaining) };
                self.live(Life { promised, lost: None, token, wished: None }, want);
            }
            Told::Busy => {
                self.push(asked, answered, Step::Busy { want });
                self.may_have_lost_one(asked, (first.at, answer.at), want);
            }
            Told::AlreadyDone => {
                self.push(asked, answered, Step::AlreadyDone);
                // He may have had it, looked, and given it back.
                let to = self.claim_lingers(answer.at);
                self.lurks(asked, to, want);
            }
            Told::GaveUp => {
                let to = self.claim_lingers(answer.at);
                self.lurks(asked, to, want);
                self.may_have_lost_one(asked, (first.at, answer.at), want);
            }
            _ => self.broken(answered, "this answers no acquire"),
        }
    }

    /// A grant of its own may have been heard of too late to be worth anything (if it was repeated, after half of its
    /// ttl), and is beside the next claim of the same acquire until it has been given back.
    fn may_have_lost_one(&mut self, asked: Stamp, (from, to): (BootTime, BootTime), want: Want) {
        if to.since(from) >= self.times.ttl.mul_f64(0.45) {
            let to = self.claim_lingers(to);
            self.lurks(asked, to, want);
        }
    }

    fn lurks(&mut self, from: Stamp, to: Stamp, want: Want) {
        self.push(from, to, Step::Lurks { want });
    }

    /// It ended at some time between these, and was in the way until then, of its own scope as well.
    fn ended(&mut self, from: Stamp, to: Stamp, want: Want) {
        self.push(from, to, Step::Ended { hold: self.hold });
        if self.history.kind == Kind::Reentrant {
            self.lurks(from, to, want);
        }
    }

    fn live(&mut self, mut life: Life, mut want: Want) {
        let hold = self.hold;
        let told = &self.told[2..];
        for (index, (at, event)) in told.iter().enumerate() {
            let (at, now) = (*at, event.at);
            let next = told.get(index + 1).copied();
            match event.told {
                Told::Holds(token, remaining) => {
                    if life.lost.is_some() {
                        self.broken(at, "it holds again after it was lost");
                    }
                    life.promised = life.promised.max(now.after(remaining));
                    self.grew_unheard(at, token, want, &mut life);
                    self.push(at, at, Step::Holds { hold, token });
                }
                Told::Lost => self.lose(at, now, &mut life),
                Told::Changing(wanted) => {
                    let less = wanted < want;
                    match next.map(|(to, answer)| (to, answer.told)) {
                        Some((to, Told::Changed(token))) => {
                            if less {
                                self.grew_unheard(to, token, want, &mut life);
                            }
                            life.wished = None;
                            self.push(at, to, Step::Changed { hold, want: wanted, token });
                            (want, life.token) = (wanted, token);
                        }
                        // It counts as less from the call on, whatever the store has heard.
                        _ if less => {
                            self.push(at, NEVER, Step::Changed { hold, want: wanted, token: life.token });
                            want = wanted;
                        }
                        _ => {
                            self.push(at, NEVER, Step::Lurks { want: wanted });
                            life.wished.get_or_insert((at, wanted));
                        }
                    }
                }
                Told::Changed(_) | Told::NotChanged | Told::ChangeUnknown => {}
                Told::Releasing | Told::Finishing => {
                    return self.release(at, event, next, &mut life, want);
                }
                Told::LetGo => {
                    let from = self.times.from(life.promised).min(at);
                    let to = self.lease_lingers(life.lost.unwrap_or(now));
                    return self.ended(from, to, want);
                }
                Told::Left => {
                    let from = self.times.from(life.promised);
                    let to = self.lease_lingers(now);
                    return self.ended(from, to, want);
                }
                Told::Asked(_) | Told::Forgetting | Told::Granted(..) | Told::Busy | Told::GaveUp => {
                    self.broken(at, "it was asked for again");
                }
                Told::Released
                | Told::ReleasedTooLate
                | Told::Finished
                | Told::AlreadyDone
                | Told::Forgot
                | Told::NothingToForget
                | Told::MayHaveForgotten => {
                    self.broken(at, "this answers nothing");
                }
            }
        }
        let from = self.times.from(life.promised);
        let since = life.lost.or(self.death.map(|(_, time)| time));
        let to = since.map_or(NEVER, |since| self.lease_lingers(since));
        self.ended(from, to, want);
    }

    /// A token that is higher than the last one says that a wish was granted whose answer nobody heard; it was taken
    /// back at once.
    fn grew_unheard(&mut self, at: Stamp, token: u64, want: Want, life: &mut Life) {
        let Some((since, wished)) = life.wished.filter(|_| token > life.token) else { return };
        let hold = self.hold;
        self.push(since, at, Step::Changed { hold, want: wished, token });
        self.push(since, NEVER, Step::Changed { hold, want, token });
        (life.token, life.wished) = (token, None);
    }

    fn lose(&mut self, at: Stamp, now: BootTime, life: &mut Life) {
        if now < life.promised && life.lost.is_none() {
            self.broken(at, "it was lost before its time, and nobody had given it back");
        }
        life.lost.get_or_insert(now);
    }

    fn release(
        &mut self,
        at: Stamp,
        event: &Event,
        next: Option<(Stamp, &Event)>,
        life: &mut Life,
        want: Want,
    ) {
        let hold = self.hold;
        let (now, finishing) = (event.at, event.told == Told::Finishing);
        match next.map(|(to, answer)| (to, answer.told)) {
            Some((to, Told::Released)) => {
                if life.lost.is_some() {
                    self.broken(to, "it was given back well after it was lost");
                }
                self.ended(at, to, want);
            }
            Some((to, Told::Finished)) => {
                let late = self.times.events[to as usize].at >= life.promised;
                self.push(at, to, if late { Step::DoneLate } else { Step::Done { hold } });
                self.may_mark_again(event, at, to);
                // What became of the release was said to nobody.
                let until = self.lease_lingers(self.times.events[to as usize].at);
                self.ended(at, until, want);
            }
            answer => {
                if let Some((to, Told::ReleasedTooLate)) = answer {
                    self.lose(to, self.times.events[to as usize].at, life);
                }
                let from = self.times.from(life.promised).min(at);
                let dead = self.death.filter(|_| answer.is_none()).map(|(_, time)| time);
                let since = life.lost.or(dead).unwrap_or(now);
                let to = self.lease_lingers(since);
                self.ended(from, to, want);
                if finishing {
                    // The mark may have been made, or be made yet.
                    self.push(at, NEVER, Step::DoneLate);
                    self.may_mark_again(event, at, NEVER);
                }
            }
        }
    }

    /// A mark whose answer was lost is made again, also when it was forgotten in between.
    fn may_mark_again(&mut self, event: &Event, at: Stamp, to: Stamp) {
        for _ in 0..self.times.forgotten(event.name, at, to) {
            self.push(at, NEVER, Step::DoneLate);
        }
    }
}

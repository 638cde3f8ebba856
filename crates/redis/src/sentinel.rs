//! Sentinels: where they say that the master is, and the watch by which we hear that it is elsewhere now.

mod doctor;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{StoreErrorKind, fault};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisConnectionInfo, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::{Place, Sentinels, Tls};
use crate::fail::{Fail, Result};
use crate::script::{Answer, text};
use crate::transport::{Door, login};

/// What they tell of failovers.
const CHANNEL: &str = "+switch-master";
/// How often one that we listen to is tried, since it may be dead.
const TRY_EVERY: Duration = Duration::from_secs(2);
/// Who could not be listened to is tried again after so long, and then ever more seldom.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a sentinel knows of the master.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// By which failover it became the master. Of two sentinels that say different things, the one with the higher
    /// number has heard of the later failover. 0 where it is not told.
    epoch: u64,
    host: String,
    port: u16,
}

/// What one of them said.
#[derive(Debug)]
enum Said {
    Knows(Known),
    /// It watches others, if any.
    KnowsOnly(Vec<String>),
    Failed(Fail),
}

/// Why something is to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// Most sentinels say so, or the newest of most: no failover goes without most of them.
    Majority,
    /// One says that it has just become so.
    Switch,
    /// One says so.
    Answer,
}

/// Where we believe the master to be.
#[derive(Debug, Default)]
struct Belief {
    known: Option<Known>,
    /// How often that has changed.
    moves: u64,
}

impl Belief {
    /// Whether this says that the master is elsewhere.
    fn hears(&mut self, new: Known, ground: Ground) -> bool {
        let Some(old) = &self.known else {
            self.known = Some(new);
            return false;
        };
        let counts = match ground {
            // Also what is older, as after an administrator has set up the sentinels anew.
            Ground::Majority => true,
            Ground::Switch => new.epoch >= old.epoch,
            // One that was frozen while the others switched tells of the past.
            Ground::Answer => new.epoch > old.epoch || fault!("sentinel_believes_the_past"),
        };
        if !counts {
            return false;
        }
        let moved = (&old.host, old.port) != (&new.host, new.port);
        self.moves += u64::from(moved);
        self.known = Some(new);
        moved
    }
}

/// Who asks the sentinels, and listens to them.
#[derive(Debug)]
pub(crate) struct Lookout {
    /// The way to each of them.
    sentinels: Vec<Door>,
    master: String,
    /// How the servers are spoken to that they name.
    tls: Tls,
    login: RedisConnectionInfo,
    limit: Duration,
    belief: watch::Sender<Belief>,
}

/// A server, as long as it is the one to be used.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) door: Arc<Door>,
    /// Where it may change; it was found after so many moves.
    watched: Option<(watch::Receiver<Belief>, u64)>,
}

impl Found {
    /// One that is where it is.
    pub(crate) fn fixed(door: Arc<Door>) -> Self {
        Self { door, watched: None }
    }

    pub(crate) fn moves(&self) -> u64 {
        self.watched.as_ref().map_or(0, |(_, moves)| *moves)
    }

    /// Whether no sentinel that we hear knows another one.
    pub(crate) fn is_current(&self) -> bool {
        self.watched.as_ref().is_none_or(|(belief, moves)| belief.borrow().moves == *moves)
    }

    /// Returns once a sentinel says that it is another one.
    pub(crate) async fn outdated(&self) {
        let watched = self.watched.as_ref().filter(|_| !fault!("sentinel_hears_old_master"));
        let Some((belief, moves)) = watched else { return std::future::pending().await };
        let mut belief = belief.clone();
        if belief.wait_for(|belief| belief.moves != *moves).await.is_err() {
            // Nobody listens any more.
            std::future::pending().await
        }
    }

    /// A failure there. The name of a store at a fixed place says which server it was.
    pub(crate) fn told(&self, fail: Fail) -> Fail {
        if self.watched.is_some() { fail.at(self.door.place()) } else { fail }
    }
}

impl Lookout {
    pub(crate) fn new(of: &Sentinels, login_there: RedisConnectionInfo, limit: Duration) -> Result<Self> {
        let Sentinels { places, master, user, password } = of;
        let mut sentinels = Vec::with_capacity(places.len());
        for place in places {
            sentinels.push(Door::to(place, login(user.as_deref(), password.as_ref(), 0), limit)?);
        }
        let tls = places.iter().find_map(|place| match place {
            Place::Tcp { tls, .. } => tls.clone(),
            Place::Unix(_) => None,
        });
        let (master, belief) = (master.clone(), watch::Sender::default());
        Ok(Self { sentinels, master, tls, login: login_there, limit, belief })
    }

    /// Asks them all, and gives the server that most of them, or those who answer, know of the latest failover.
    pub(crate) async fn find(&self) -> Result<Found> {
        let most = self.sentinels.len() / 2 + 1;
        let asked = |door| async move { (door, self.ask(door).await) };
        let mut asking: FuturesUnordered<_> = self.sentinels.iter().map(asked).collect();
        let mut known = Vec::new();
        let mut silent = Vec::new();
        while let Some((door, said)) = asking.next().await {
            match said {
                Said::Knows(of) => known.push(of),
                said => silent.push((door, said)),
            }
            if !known.is_empty() {
                break;
            }
        }
        if known.is_empty() {
            return Err(self.nobody_knows(&silent));
        }
        // One may be behind the others: so they are waited for, but not for those who are down.
        let others = async {
            while known.len() < most {
                match asking.next().await {
                    Some((_, Said::Knows(of))) => known.push(of),
                    Some(_) => {}
                    None => break,
                }
            }
        };
        drop(timeout(self.limit / 8, others).await);
        let ground = if known.len() >= most { Ground::Majority } else { Ground::Answer };
        if let Some(newest) = known.into_iter().max_by_key(|known| known.epoch) {
            self.believe(newest, ground);
        }
        self.found()
    }

    /// The server that we believe in.
    fn found(&self) -> Result<Found> {
        let belief = self.belief.subscribe();
        let (moves, place) = {
            let believed = belief.borrow();
            let known = believed.known.as_ref().ok_or_else(|| Fail::garbled("no master"))?;
            let place = Place::Tcp { host: known.host.clone(), port: known.port, tls: self.tls.clone() };
            (believed.moves, place)
        };
        let door = Arc::new(Door::to(&place, self.login.clone(), self.limit)?);
        Ok(Found { door, watched: Some((belief, moves)) })
    }

    /// Nobody answered in time: where that was, if it is known.
    pub(crate) fn silent(&self) -> Fail {
        let silent = self.sentinels.first().map_or_else(|| Fail::garbled("no sentinel"), Door::silent);
        match &self.belief.borrow().known {
            Some(Known { host, port, .. }) => silent.at(&format!("{host}:{port}")),
            None => silent,
        }
    }

    fn believe(&self, known: Known, ground: Ground) {
        self.belief.send_if_modified(|belief| belief.hears(known, ground));
    }

    /// Returns once the master is elsewhere than it was after so many moves, and says how many there were since.
    pub(crate) fn moves(&self) -> Moves {
        let belief = self.belief.subscribe();
        let moves = belief.borrow().moves;
        Moves { belief, moves }
    }

    fn nobody_knows(&self, said: &[(&Door, Said)]) -> Fail {
        let each = said.iter().map(|(door, said)| match said {
            Said::Knows(_) => format!("{} knows it", door.place()),
            Said::KnowsOnly(names) if names.is_empty() => format!("{} watches nobody", door.place()),
            Said::KnowsOnly(names) => format!("{} watches only {}", door.place(), names.join(", ")),
            Said::Failed(fail) => format!("{}: {}", door.place(), fail.message()),
        });
        let each = each.collect::<Vec<_>>().join("; ");
        let fails = said.iter().filter_map(|(_, said)| match said {
            Said::Failed(fail) => Some(fail),
            _ => None,
        });
        if fails.clone().count() < said.len() {
            let message = format!("no sentinel knows a master {:?}: {each}", self.master);
            let help = "name the master as `sentinel monitor` does: redis+sentinel://host1,host2,host3/name";
            return Fail::new(StoreErrorKind::Protocol, message).help(help);
        }
        // What the first one wants, if all want something: where one is only down, it may soon be up.
        let up = |fail: &&Fail| fail.kind() == StoreErrorKind::Unavailable;
        let worst = fails.clone().find(up).or_else(|| fails.clone().next());
        let kind = worst.map_or(StoreErrorKind::Unavailable, Fail::kind);
        let help = match kind {
            StoreErrorKind::Denied => {
                "check sentinel_user= and sentinel_password_file=, which are for the sentinels alone"
            }
            _ => {
                "check the hosts and the ports of the sentinels, which are 26379 as a rule, and that they are up"
            }
        };
        Fail::new(kind, format!("no sentinel answers: {each}")).help(help)
    }

    async fn ask(&self, door: &Door) -> Said {
        let asked = async {
            let (connection, _) = door.open(|| ()).await?;
            self.ask_on(connection).await
        };
        match timeout(self.limit / 2, asked).await {
            Ok(Ok(said)) => said,
            Ok(Err(fail)) => Said::Failed(fail),
            Err(_) => Said::Failed(door.silent()),
        }
    }

    async fn ask_on(&self, mut connection: MultiplexedConnection) -> Result<Said> {
        // The number first: if it switches in between, the new address must not count as an old one.
        let mut say = async |what: &str, name: Option<&str>| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(what).arg(name);
            answer(&mut connection, &command).await
        };
        let epoch = match say("MASTER", Some(&self.master)).await {
            Ok(value) => pairs(value)?.find(|(key, _)| key == "config-epoch").map(|(_, value)| value),
            Err(fail) if fail.is("NOPERM") => None,
            // That there is no such master is told again, and better.
            Err(fail) if fail.is("ERR") && !fail.message().contains("unknown command") => None,
            Err(fail) if fail.is("ERR") => {
                let message = "what answers there is no sentinel";
                return Err(Fail::new(StoreErrorKind::Protocol, message));
            }
            Err(fail) => return Err(fail),
        };
        let address = say("GET-MASTER-ADDR-BY-NAME", Some(&self.master)).await?;
        if address == Value::Nil {
            let all = say("MASTERS", None).await.unwrap_or(Value::Array(Vec::new()));
            let name = |of| pairs(of).ok()?.find(|(key, _)| key == "name").map(|(_, name)| name);
            return Ok(Said::KnowsOnly(Answer::new(all)?.rest().filter_map(name).collect()));
        }
        let mut address = Answer::new(address)?;
        let (host, port) = (address.text()?, address.text()?);
        let port = port.parse().map_err(|_| Fail::garbled("a port that is none"))?;
        let epoch = epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(Said::Knows(Known { epoch, host, port }))
    }

    /// Listens to each of them, until what this gives is dropped.
    pub(crate) fn watch(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        for sentinel in 0..self.sentinels.len() {
            tasks.spawn(self.clone().watch_one(sentinel));
        }
    }

    async fn watch_one(self: Arc<Self>, sentinel: usize) {
        let Some(door) = self.sentinels.get(sentinel) else { return };
        let mut pause = FIRST_PAUSE;
        loop {
            if self.listen(door).await {
                pause = FIRST_PAUSE;
            }
            // Not all clients at once.
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Listens to one until it is gone, and says whether it was there.
    async fn listen(&self, door: &Door) -> bool {
        let Ok((mut sink, mut stream)) = door.subscribe(CHANNEL).await else { return false };
        // Since nobody says again what was said before.
        if let Said::Knows(known) = self.ask(door).await {
            self.hear(known, Ground::Answer);
        }
        let mut tries = tokio::time::interval(TRY_EVERY);
        tries.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = stream.next() => {
                    let Some(message) = message else { return true };
                    let Some(mut new) = switched(&message, &self.master) else { continue };
                    match self.ask(door).await {
                        Said::Knows(known) => new = known,
                        _ => new.epoch = self.belief.borrow().known.as_ref().map_or(0, |known| known.epoch),
                    }
                    self.hear(new, Ground::Switch);
                }
                _ = tries.tick() => {
                    let answer = timeout(self.limit, sink.ping::<Value>()).await;
                    if !matches!(answer, Ok(Ok(_))) {
                        return true;
                    }
                }
            }
        }
    }

    fn hear(&self, known: Known, ground: Ground) {
        if !fault!("sentinel_keeps_old_master") {
            self.believe(known, ground);
        }
    }
}

/// Tells of each time that the master is elsewhere.
#[derive(Debug)]
pub(crate) struct Moves {
    belief: watch::Receiver<Belief>,
    moves: u64,
}

impl Moves {
    /// Returns at the next move. `None` when nobody listens any more.
    pub(crate) async fn next(&mut self) -> Option<()> {
        let before = self.moves;
        let belief = self.belief.wait_for(|belief| belief.moves != before).await.ok()?;
        self.moves = belief.moves;
        Some(())
    }
}

/// Where the master is from now on, if this tells of it: `<name> <old host> <old port> <new host> <new port>`.
fn switched(message: &redis::Msg, master: &str) -> Option<Known> {
    let told = message.get_payload::<String>().ok()?;
    let mut words = told.split(' ');
    let name = words.next()?;
    let host = words.nth(2)?.to_owned();
    let port = words.next()?.parse().ok()?;
    (name == master).then_some(Known { epoch: 0, host, port })
}

async fn answer(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value> {
    Ok(connection.send_packed_command(command).await.and_then(Value::extract_error)?)
}

/// What is told as names and values by turns.
fn pairs(value: Value) -> Result<impl Iterator<Item = (String, String)>> {
    let mut parts = Answer::new(value)?.rest();
    let pair = move || Some((text(parts.next()?).ok()?, text(parts.next()?).ok()?));
    Ok(std::iter::from_fn(pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(epoch: u64, port: u16) -> Known {
        Known { epoch, host: "h".to_owned(), port }
    }

    /// After believing in port 1 by failover 5.
    fn hears(new: Known, ground: Ground) -> (bool, Option<u16>) {
        let mut belief = Belief::default();
        assert!(!belief.hears(known(5, 1), Ground::Answer), "the first is no move");
        let moved = belief.hears(new, ground);
        assert_eq!(belief.moves, u64::from(moved));
        (moved, belief.known.map(|known| known.port))
    }

    #[test]
    fn one_who_knows_less_than_we_do_is_not_believed() {
        for ground in [Ground::Answer, Ground::Switch] {
            assert_eq!(hears(known(4, 2), ground), (false, Some(1)), "{ground:?}");
            assert_eq!(hears(known(6, 2), ground), (true, Some(2)), "{ground:?}");
            assert_eq!(hears(known(6, 1), ground), (false, Some(1)), "{ground:?}: the same server");
        }
    }

    #[test]
    fn what_most_say_counts_even_if_they_were_set_up_anew() {
        assert_eq!(hears(known(0, 2), Ground::Majority), (true, Some(2)));
    }

    #[test]
    fn where_failovers_have_no_numbers_only_news_and_a_majority_count() {
        assert_eq!(hears(known(5, 2), Ground::Answer), (false, Some(1)));
        assert_eq!(hears(known(5, 2), Ground::Switch), (true, Some(2)));
    }
}

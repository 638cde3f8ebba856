//! Random operations on a store and on the memory store as its model, which must agree on every answer.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_core::{
    Claim, ClaimId, Cursor, Leave, LockName, MemoryStore, Note, Renew, ServerTime, Share, Standing, State,
    Store, Tenure, Together, Token, Turn,
};

use crate::agree::{Agreed, renewals, snapshots, standings};
use crate::bench::{Bench, name};
use crate::steps::{Asked, SLOTS, Step, generate};
use crate::{Check, Failure, drop_after, ensure};

crate::cases::cases! {
    random_operations_agree_with_the_model [Frozen, PerClaim],
}

const ROUNDS: u64 = 60;
const STEPS: usize = 60;
/// How many runs looking for a shorter story may take.
const SHRINKS: usize = 400;

async fn random_operations_agree_with_the_model(bench: &Bench) -> Check {
    let first = crate::seed::first();
    let rounds = bench.rounds(ROUNDS);
    let mut met = BTreeMap::new();
    for seed in first..first + rounds {
        let steps = generate(seed, STEPS, &bench.offer.capabilities);
        match run(bench, &steps).await? {
            Ok(seen) => seen.into_iter().for_each(|(what, times)| *met.entry(what).or_insert(0) += times),
            Err(disagreement) => return Err(tell(bench, seed, steps, disagreement).await?),
        }
    }
    eprintln!("random operations: {rounds} rounds of {STEPS} agreed: {met:?}");
    // A generator that no longer gets anywhere would agree for ever.
    let may = &bench.offer.capabilities;
    let mut wanted = vec!["granted", "repeated", "waiting", "spent", "kept", "lost", "ready"];
    wanted.extend(may.together.then_some(["all", "none"]).into_iter().flatten());
    wanted.extend(may.reshaping.then_some("reshaped"));
    wanted.extend(may.succession.then_some("succeeded"));
    for what in wanted {
        ensure!(rounds < ROUNDS || met.contains_key(what), "no answer was ever {what:?}: {met:?}");
    }
    Ok(())
}

/// Where and how the store and its model differ.
struct Disagreement {
    at: usize,
    what: Failure,
}

type Met = BTreeMap<&'static str, u64>;

/// Makes a failing story as short as it gets by leaving out one step after the other.
async fn tell(bench: &Bench, seed: u64, mut steps: Vec<Step>, mut last: Disagreement) -> Check<Failure> {
    steps.truncate(last.at + 1);
    let mut runs = 0;
    let mut at = steps.len();
    while at > 0 && runs < SHRINKS {
        at -= 1;
        let mut shorter = steps.clone();
        shorter.remove(at);
        runs += 1;
        if let Err(disagreement) = run(bench, &shorter).await? {
            shorter.truncate(disagreement.at + 1);
            (steps, last) = (shorter, disagreement);
            at = at.min(steps.len());
        }
    }
    let story: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
    let story = story.join("\n");
    Ok(Failure::new(format!("{}\nafter these steps (LEASEHOLD_SEED={seed}):\n{story}", last.what)))
}

async fn run(bench: &Bench, steps: &[Step]) -> Check<Result<Met, Disagreement>> {
    let bench = bench.another().await?;
    let mut pair = Pair::new(&bench);
    for (at, step) in steps.iter().enumerate() {
        if let Err(what) = pair.step(step, at).await {
            return Ok(Err(Disagreement { at, what }));
        }
    }
    match pair.end().await {
        Ok(()) => Ok(Ok(pair.met)),
        Err(what) => Ok(Err(Disagreement { at: steps.len(), what })),
    }
}

/// A claim as the one store and as the model knows it: tokens and cursors differ.
struct Stated {
    claim: Claim,
    tokens: Option<(Token, Token)>,
    cursors: (Cursor, Cursor),
}

/// The store under test and its model, on one clock.
struct Pair<'a> {
    bench: &'a Bench,
    model: MemoryStore,
    slots: HashMap<usize, Stated>,
    agreed: Agreed,
    met: Met,
    calls: usize,
}

impl<'a> Pair<'a> {
    fn new(bench: &'a Bench) -> Self {
        let model = MemoryStore::with_clock(bench.clock().clone());
        Self { bench, model, slots: HashMap::new(), agreed: Agreed::default(), met: Met::new(), calls: 0 }
    }

    /// The store, by one of its clients after the other.
    fn store(&mut self) -> &'a dyn Store {
        self.calls += 1;
        if self.calls.is_multiple_of(2) { &*self.bench.one } else { &*self.bench.two }
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_insert(0) += 1;
    }

    async fn step(&mut self, step: &Step, at: usize) -> Check {
        match step {
            Step::State { slot, asked } => {
                let claim = self.new_claim(asked, 8 * at)?;
                self.put(*slot, claim);
                self.claim(*slot).await
            }
            Step::Succeed { slot, asked, as_it_is } => self.succeed(*slot, asked, *as_it_is, at).await,
            Step::Again(slot) => self.claim(*slot).await,
            Step::Reshape { slot, share, turn, newer } => self.reshape(*slot, *share, *turn, *newer).await,
            Step::Together { slot, asked } => {
                let slots: Vec<usize> = (0..asked.len()).map(|number| (slot + number) % SLOTS).collect();
                for (number, (slot, asked)) in slots.iter().zip(asked).enumerate() {
                    let claim = self.new_claim(asked, 8 * at + number)?;
                    self.put(*slot, claim);
                }
                self.together(&slots).await
            }
            Step::AgainTogether(slots) => self.together(slots).await,
            Step::Renew(slots) => self.renew(slots, at).await,
            Step::Release { slot, shut } => self.release(*slot, *shut).await,
            Step::Wait(slot) => self.wait(*slot).await,
            Step::Pass(by) => {
                self.bench.clock().advance(*by);
                Ok(())
            }
            Step::Wall(micros) => {
                if !self.bench.offer.one_clock {
                    self.bench.clock().step_wall(*micros);
                }
                Ok(())
            }
            Step::List(prefix) => self.list(prefix).await,
        }
    }

    fn new_claim(&self, asked: &Asked, number: usize) -> Check<Claim> {
        let Asked { name: text, turn, share, ttl, tokens, late, aftermath } = asked;
        let wall = self.bench.clock().wall_micros();
        let limit = if *late { wall.saturating_sub(1000) } else { wall + 3_600_000_000 };
        Ok(Claim {
            id: ClaimId::from_bytes((1 + number as u128).to_be_bytes()),
            turn: *turn,
            share: *share,
            ttl: *ttl,
            tokens: *tokens,
            aftermath: *aftermath,
            not_after: Some(ServerTime::from_micros(limit)),
            ..self.bench.claim(&name(text)?)
        })
    }

    fn put(&mut self, slot: usize, claim: Claim) {
        let cursors = (Cursor::default(), Cursor::default());
        self.slots.insert(slot, Stated { claim, tokens: None, cursors });
    }

    async fn succeed(&mut self, slot: usize, asked: &Asked, as_it_is: bool, at: usize) -> Check {
        let Some(Stated { claim: old, .. }) = self.slots.get(&slot) else { return Ok(()) };
        let share = if as_it_is { old.share } else { asked.share };
        let (succeeds, name) = (Some(old.id), old.name.clone());
        let claim = Claim { name, share, succeeds, ..self.new_claim(asked, 8 * at)? };
        self.put(slot, claim);
        self.meet("succeeded");
        self.claim(slot).await
    }

    async fn reshape(&mut self, slot: usize, share: Share, turn: Turn, newer: bool) -> Check {
        let Some(stated) = self.slots.get_mut(&slot) else { return Ok(()) };
        let was = stated.claim.clone();
        let reshape = if newer { was.reshape + 1 } else { was.reshape.saturating_sub(1) };
        stated.claim = Claim { share, reshape, turn, ..was.clone() };
        self.claim(slot).await?;
        self.meet("reshaped");
        match self.slots.get_mut(&slot) {
            Some(stated) if !newer => stated.claim = was,
            _ => {}
        }
        Ok(())
    }

    async fn together(&mut self, slots: &[usize]) -> Check {
        let mut slots = slots.to_vec();
        slots.retain(|slot| self.slots.contains_key(slot));
        let claims: Vec<Claim> =
            slots.iter().filter_map(|slot| Some(self.slots.get(slot)?.claim.clone())).collect();
        let answers = (self.store().claim_all(&claims).await, self.model.claim_all(&claims).await);
        match answers {
            (Ok(Together::All(one)), Ok(Together::All(model))) => {
                ensure!(one.len() == model.len(), "{one:?}, by the model {model:?}");
                for (slot, (one, model)) in slots.iter().zip(one.into_iter().zip(model)) {
                    self.stands(*slot, one, model)?;
                }
                self.meet("all");
            }
            (
                Ok(Together::None { index, standing: one }),
                Ok(Together::None { index: other, standing: model }),
            ) => {
                ensure!(index == other, "number {index} is in the way, by the model {other}");
                self.stands(slots[index], one, model)?;
                self.meet("none");
            }
            (Err(one), Err(model)) => {
                ensure!(one.code() == model.code(), "refused for {one}, by the model for {model}");
                self.meet("refused");
            }
            (one, model) => return Err(Failure::new(format!("{one:?}, by the model {model:?}"))),
        }
        for claim in &claims {
            self.look(&claim.name).await?;
        }
        Ok(())
    }

    async fn claim(&mut self, slot: usize) -> Check {
        let by_turns = self.store();
        let same = if slot.is_multiple_of(2) { &*self.bench.one } else { &*self.bench.two };
        let store = if self.bench.offer.of_several { same } else { by_turns };
        let Some(Stated { claim, .. }) = self.slots.get(&slot) else { return Ok(()) };
        let claim = claim.clone();
        let answers = (store.claim(&claim).await, self.model.claim(&claim).await);
        let (one, model): (Standing, Standing) = match answers {
            (Ok(one), Ok(model)) => (one, model),
            (Err(one), Err(model)) => {
                ensure!(one.code() == model.code(), "refused for {one}, by the model for {model}");
                self.meet("refused");
                return Ok(());
            }
            (one, model) => return Err(Failure::new(format!("{one:?}, by the model {model:?}"))),
        };
        self.stands(slot, one, model)?;
        self.look(&claim.name).await
    }

    /// Compares where the claim of a slot stands, and goes on from there.
    fn stands(&mut self, slot: usize, one: Standing, model: Standing) -> Check {
        let Some(stated) = self.slots.get_mut(&slot) else { return Ok(()) };
        let what = standings(&one.state, &model.state)?;
        if let (State::Granted(one), State::Granted(model)) = (&one.state, &model.state) {
            let tokens = (one.token, model.token);
            match stated.tokens {
                // Both the same as before: a repeat.
                Some(before) if before == tokens => *self.met.entry("repeated").or_insert(0) += 1,
                // Ended ids are not remembered for ever, so a claim that comes back much later is a new one; but
                // then it has a new token with both.
                _ => self.agreed.granted(&stated.claim.name, one, model)?,
            }
            stated.tokens = Some(tokens);
        }
        stated.cursors = (one.cursor, model.cursor);
        self.meet(what);
        Ok(())
    }

    async fn renew(&mut self, slots: &[usize], at: usize) -> Check {
        let (mut one, mut model) = (Vec::new(), Vec::new());
        for slot in slots {
            let Some(Stated { claim, tokens, .. }) = self.slots.get(slot) else { continue };
            let Some(some) = Token::new(1) else { continue };
            let tokens = tokens.unwrap_or((some, some));
            let note = Note::parse(&format!("step {at}"))?;
            let renew = |token| Renew {
                claim: std::sync::Arc::new(claim.clone()),
                tenure: Tenure { count: 1 + u32::from(at.is_multiple_of(2)), token, note: note.clone() },
            };
            one.push(renew(tokens.0));
            model.push(renew(tokens.1));
        }
        let answers = (self.store().renew(&one).await, self.model.renew(&model).await);
        for what in renewals(answers.0, answers.1)? {
            self.meet(what);
        }
        let names: Vec<LockName> = one.iter().map(|renew| renew.claim.name.clone()).collect();
        for name in names {
            self.look(&name).await?;
        }
        Ok(())
    }

    async fn release(&mut self, slot: usize, shut: Option<Duration>) -> Check {
        let Some(Stated { claim, .. }) = self.slots.get(&slot) else { return Ok(()) };
        let (name, id) = (claim.name.clone(), claim.id);
        let leave = || match shut {
            Some(lasting) => Leave::Closed { lasting, note: Note::NONE },
            None => Leave::Open,
        };
        let one = self.store().release(&name, id, leave()).await?;
        let model = self.model.release(&name, id, leave()).await?;
        ensure!(one == model, "{one:?}, by the model {model:?}");
        self.meet("released");
        self.look(&name).await
    }

    /// What the model says is over must be over. The store may be early, so nothing else is compared.
    async fn wait(&mut self, slot: usize) -> Check {
        let store = self.store();
        let Some(Stated { claim, cursors, .. }) = self.slots.get(&slot) else { return Ok(()) };
        let name = claim.name.clone();
        if cursors.0 == Cursor::default()
            || drop_after(1, self.model.changed(&name, &cursors.1)).await.is_none()
        {
            return Ok(());
        }
        self.bench
            .soon("the end of a wait that is over in the model", store.changed(&name, &cursors.0))
            .await??;
        self.meet("ready");
        Ok(())
    }

    async fn list(&mut self, prefix: &str) -> Check {
        let one = self.store().list(prefix, None).await?;
        let model = self.model.list(prefix, None).await?;
        ensure!(one == model, "listed are {one:?}, by the model {model:?}");
        Ok(())
    }

    async fn look(&mut self, name: &LockName) -> Check {
        let one = self.store().inspect(name).await?;
        let model = self.model.inspect(name).await?;
        snapshots(&one, &model)
    }

    /// In the end everything runs out, and nothing is left.
    async fn end(&mut self) -> Check {
        for slot in 0..SLOTS {
            self.wait(slot).await?;
        }
        self.list("").await?;
        self.bench.clock().advance(Duration::from_secs(3600));
        self.list("").await?;
        let left = self.store().list("", None).await?;
        ensure!(left.is_empty(), "everything has run out, but {left:?}");
        Ok(())
    }
}

/// Shares as random claims have them.
pub(crate) fn some_shares() -> Check<Vec<Share>> {
    let permits = [Share::permits(1, 3)?, Share::permits(2, 3)?, Share::permits(1, 2)?];
    let kinds = [Share::EXCLUSIVE, Share::EXCLUSIVE, Share::SHARED, Share::UPGRADEABLE];
    Ok(kinds.into_iter().chain(permits).collect())
}

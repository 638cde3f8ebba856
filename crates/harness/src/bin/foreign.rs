//! Lets clients of other people contend with ours for one name on one server or on several, one after another, and checks what happened.

use std::time::Duration;

use clap::Parser;
use leasehold_harness::foreign::clients::FOREIGN;
use leasehold_harness::foreign::ground::Ground;
use leasehold_harness::foreign::{Arena, Contended, Contest};
use leasehold_harness::puppet::Trouble;

/// Each client of other people, the library and `leasehold run` contend for one name.
#[derive(Debug, Parser)]
struct Arguments {
    /// For how long each.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Only this one.
    #[arg(long)]
    client: Option<String>,
    /// On which servers, those who can.
    #[arg(long, default_value_t = Ground::Redis, value_parser = ground)]
    on: Ground,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Trouble> {
    let Arguments { seconds, client, on } = Arguments::parse();
    let arena = Arena::open(on)?;
    println!("{}, ours {}", arena.version()?, env!("CARGO_PKG_VERSION"));
    println!("{}", Contended::head());
    let contest = Contest::lasting(Duration::from_secs(seconds));
    let mut troubles = Vec::new();
    for foreign in FOREIGN
        .iter()
        .filter(|one| one.grounds.contains(&on))
        .filter(|one| client.as_ref().is_none_or(|name| name == one.name))
    {
        // What cannot be had is told, and the others run all the same.
        match arena.contend(foreign, contest).await {
            Ok(contended) => {
                println!("{contended}");
                troubles.extend(contended.judge().err().map(|trouble| trouble.to_string()));
                let starved = contended.starved(contest.least());
                troubles.extend(starved.iter().map(|who| {
                    format!("{who} had the lock fewer than {} times beside {}", contest.least(), foreign.name)
                }));
            }
            Err(error) => troubles.push(error.to_string()),
        }
        troubles.extend(arena.leaves_alone(foreign).await.err().map(|error| error.to_string()));
    }
    // On the standard output, so that it is written down with the rest.
    troubles.iter().for_each(|trouble| println!("trouble: {trouble}"));
    if troubles.is_empty() { Ok(()) } else { Err("it did not go as promised".into()) }
}

fn ground(word: &str) -> Result<Ground, String> {
    let ground = Ground::ALL.iter().find(|ground| ground.to_string() == word);
    let all = || Ground::ALL.iter().map(Ground::to_string).collect::<Vec<_>>().join(", ");
    ground.copied().ok_or_else(|| format!("one of {}", all()))
}

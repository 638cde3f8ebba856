//! One visit of a protected section: what `leasehold run` runs in a contest. `inside JOURNAL MILLISECONDS`

use std::time::Duration;

use leasehold::Token;
use leasehold_harness::foreign::journal::Visitor;
use leasehold_harness::foreign::ours::RUN;
use leasehold_harness::puppet::Trouble;

fn main() -> Result<(), Trouble> {
    let mut words = std::env::args().skip(1);
    let (journal, hold) = (words.next().ok_or("no journal")?, words.next().ok_or("no time")?);
    let hold = Duration::from_millis(hold.parse()?);
    let token = std::env::var("LEASE_TOKEN")?.parse().ok().and_then(Token::new).ok_or("no token")?;
    let mut visitor = Visitor::open(journal.as_ref(), RUN)?;
    visitor.enter(Some(token))?;
    std::thread::sleep(hold);
    visitor.leave()?;
    Ok(())
}

//! What `leasehold run` runs where it is asked until when a command lived: it writes down the time and its token, again
//! and again, until it is killed. `beat FILE`

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use leasehold_core::Clock;
use leasehold_harness::puppet::Trouble;

fn main() -> Result<(), Trouble> {
    let file = std::env::args().nth(1).ok_or("no file")?;
    let token = std::env::var("LEASE_TOKEN")?;
    let (clock, mut file) = (Clock::system(), File::options().create(true).append(true).open(file)?);
    loop {
        // One write, so that no half of it is ever read.
        file.write_all(format!("{} {token}\n", clock.now().as_nanos()).as_bytes())?;
        std::thread::sleep(Duration::from_millis(5));
    }
}

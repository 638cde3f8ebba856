//! Why a token: a holder that was frozen beyond its lease is refused by what it writes to.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Clock, Leasehold, MemoryStore, Result, Token};

/// Something that can be written to, and remembers the highest token that came by.
#[derive(Default)]
struct Ledger {
    highest: Option<Token>,
    balance: i64,
}

impl Ledger {
    fn add(&mut self, amount: i64, token: Token) -> bool {
        // In SQL: UPDATE .. WHERE token <= $1, in the transaction of the write.
        if self.highest.is_some_and(|highest| token < highest) {
            return false;
        }
        self.highest = Some(token);
        self.balance += amount;
        true
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // The machine of the first worker sleeps for a minute: its clock, and with it the store's, goes on.
    let clock = Clock::system();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let first = Leasehold::builder().clock(clock.clone()).store(store.clone());
    let second = Leasehold::builder().clock(clock.clone()).store(store);
    let mut ledger = Ledger::default();

    let old = first.lock("account:17").acquire().await?;
    let write_on_its_way = old.check()?;
    clock.advance(Duration::from_secs(60));

    let new = second.lock("account:17").acquire().await?;
    assert!(ledger.add(100, new.check()?), "the present holder may write");
    assert!(!ledger.add(-100, write_on_its_way), "the write that was on its way is refused");
    assert!(old.check().is_err(), "and the old holder knows");
    println!("balance {} under token {}", ledger.balance, new.token());
    new.release().await?;
    first.close().await?;
    second.close().await
}

//! Where random cases start, and how long they go on: `LEASEHOLD_SEED` and `LEASEHOLD_ROUNDS` say otherwise.
//!
//! The seed is the same each time unless told: a suite that fails now and then teaches people to run it twice.

fn told(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The first seed.
pub(crate) fn first() -> u64 {
    told("LEASEHOLD_SEED").unwrap_or(1)
}

/// How many rounds to go, `usual` unless told. A told seed is a story to be played again, so it is one round.
pub(crate) fn rounds(usual: u64) -> u64 {
    let usual = if told("LEASEHOLD_SEED").is_some() { 1 } else { usual };
    told("LEASEHOLD_ROUNDS").unwrap_or(usual)
}

//! Planted faults: the breaks that prove the tests bite.
//!
//! A build with `--cfg leasehold_faults` holds them all, and the environment variable `LEASEHOLD_FAULT` picks
//! one. A normal build holds none: there [`fault!`](crate::fault!) is the word `false`, [`PLANTED`] is empty,
//! and the variable is never read. `cargo xtask test faults` runs each against the tests that must catch it.

/// One break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planted {
    /// What to set `LEASEHOLD_FAULT` to.
    pub name: &'static str,
    /// The promise that it breaks.
    pub breaks: &'static str,
}

#[cfg(leasehold_faults)]
macro_rules! planted {
    ($($name:literal: $breaks:literal,)+) => { &[$(Planted { name: $name, breaks: $breaks }),+] };
}

/// All the faults that this build holds: none in a normal build.
#[cfg(not(leasehold_faults))]
pub const PLANTED: &[Planted] = &[];

/// All the faults that this build holds.
#[cfg(leasehold_faults)]
pub const PLANTED: &[Planted] = planted! {
    "clock_monotonic": "time counts on while the machine sleeps",
    "rule_ignores_line": "no claim overtakes a queued one",
    "claim_twice_granted": "an id is granted at most once",
    "repeat_prolongs": "a repeated claim prolongs nothing",
    "try_leaves_place": "a try that was not granted leaves nothing behind",
    "token_per_tenure": "tokens rise across release and expiry",
    "token_follows_wall": "tokens rise although the wall clock steps back",
    "renew_creates": "a renewal never brings a lost lease back",
    "renew_without_asking": "a renewal answers for the claim itself",
    "release_ignores_id": "only the owner releases",
    "release_without_tombstone": "a claim overtaken by its own release is never granted",
    "readers_upgrade": "two readers that want to write do not wait for each other for ever",
    "old_statement_counts": "a statement that was overtaken by a later one makes no writer a reader again",
    "half_of_all_stays": "several locks at once are all or none",
    "old_owner_stays": "a lease that went to another owner is the old one's no longer",
    "no_aftermath": "a name stays shut after a lease that ended uncleanly, if asked to",
    "place_never_lapses": "a dead waiter delays the others by at most 2 s",
    "grant_never_short": "a waiter that died with its grant delays the others by at most 2 s",
    "wake_nobody": "a release wakes the next in line",
    "expiry_wakes_nobody": "a wait ends when the lease ahead runs out",
    "validity_from_reply": "validity counts from before the request was sent",
    "lost_comes_back": "a lost lease never comes back to life",
    "doubts_nothing": "a store that was replaced is asked at once whether it still has what is held",
    "no_release_on_drop": "dropping a future leaves nothing behind",
    "retry_with_new_id": "a lost reply is cured by asking again with the same id",
    "renew_on_user_thread": "a program that blocks its threads keeps its lease",
    "hand_on_same_token": "each tenure has its own higher token",
    "hand_on_for_ever": "other processes get their turn",
    "upgrade_keeps_token": "writes after an upgrade go under a token of their own",
    "dropped_upgrade_waits_on": "a wish to write that nobody has any more holds nobody back",
    "shrinks_late": "a request for less that was given up never makes the writer a reader",
    "half_gathered_stays": "of several locks that are not all acquired none stays",
    "half_gathered_lives_on": "a future that nobody polls keeps nothing beyond its ttl",
    "gathered_as_written": "no two who want the same locks wait for each other",
    "term_outlives_lease": "a leader's term is over before its lease is",
    "once_looks_away": "what was done once is not done again",
    "scope_forgets_count": "what a scope holds several times is held until the last is given back",
    "waits_for_itself": "a run inside a run of the same name says busy, and does not hang",
    "no_deadlock_seen": "scopes and runs that wait for each other are reported",
    "giver_believes_on": "whoever hands a lease over holds it no longer, from that moment",
    "closes_in_silence": "the leases of a closed client are endangered at once, and lost at their end",
    "open_when_busy": "nothing runs without a lease because somebody else has it",
    "half_of_both_stays": "two locks held as one are both or none",
    "sqlite_forgets_high_water": "tokens rise over a power cut",
    "sqlite_ignores_life": "the lease of a dead holder is free at once",
    "sqlite_ignores_replaced_file": "a replaced file is noticed",
    "redis_grants_at_once": "a server that forgot grants nothing until what it forgot has run out, if asked to",
    "redis_ignores_lost": "a lease that the server no longer has is lost to its holder",
    "redis_renews_by_set": "a server that is full renews what is held",
    "redis_leaves_the_key_free": "readers keep out who knows the plain key only",
    "redis_admits_one_more": "random programs on a real server are held to their histories",
    "redis_takes_foreign_keys": "what is not ours is never changed",
    "redis_keeps_silent_connection": "a connection that has gone silent costs no lease",
    "quorum_of_half": "two majorities share a node",
    "quorum_adds_up": "a lease is what a majority took under one proposal",
    "quorum_trusts_clocks": "a node whose clock jumped has no say",
    "quorum_keeps_partial": "a claim that was not won leaves nothing behind",
    "quorum_claims_what_it_gives_back": "what a late node still has to give back counts for no majority",
    "redis_trusts_old_lists": "a client whose list of nodes was replaced has no majority",
    "quorum_mends_nothing": "two nodes that forget one after the other cost no lease",
    "cluster_ignores_moved": "a lock is found where its slot went",
    "cluster_forgets_asking": "what has arrived of a slot that is being moved is found there",
    "cluster_renews_two_keys": "a lease is renewed while its keys are at two nodes",
    "cluster_resends_unknown": "what may have been done is not sent again",
    "cluster_waits_for_all": "a node that hangs holds up no renewal at another",
    "cluster_doubts_nothing": "a replica that took over is asked at once whether it has what is held",
    "cluster_forgets_waiters": "who waits is told of the end, also after the slot went elsewhere",
    "cluster_skips_unheard": "no place is skipped because nobody knows who heard",
    "redis_hears_no_events": "the end of a foreign lock is noticed at once where the server tells of it",
    "sentinel_keeps_old_master": "a connection to an old master is never used again once a sentinel knows better",
    "sentinel_hears_old_master": "what an old master answers counts no more, and is not waited for",
    "sentinel_trusts_role": "a server that is no master is not asked, whoever names it",
    "sentinel_believes_the_past": "a sentinel that slept through a failover is not believed",
    "session_claim_left_to_itself": "what a session carries is given back, however long the store was away",
    "zookeeper_passes_strangers": "other recipes of the same line exclude us as we do them",
    "zookeeper_adopts_any": "a place that another session left is never taken over",
    "zookeeper_no_tombstone": "a claim overtaken by its own release is never granted, whoever released it",
    "zookeeper_nothing_lapses": "what nobody asks for any more ends although the session lives on",
    "zookeeper_renewed_by_reading": "a server that is cut off from the others prolongs nothing",
    "zookeeper_renews_what_is_gone": "a lease whose node was taken away is lost",
    "zookeeper_turn_not_confirmed": "a server that is behind grants nothing",
    "zookeeper_watches_the_first": "a waiter hears of the one that it waits for, not of all",
    "zookeeper_write_counts_itself": "the life of a session counts from what the leader has surely heard",
    "etcd_turn_not_confirmed": "a turn is taken by a step that writes, which no member answers from the past",
    "etcd_renewed_by_keep_alive": "a lease whose key is gone is lost, whatever its keep-alive says",
    "etcd_terms_not_compared": "a leader that was stopped prolongs nothing when it goes on",
    "etcd_gap_not_read": "what was read before the watch opened is read again",
    "etcd_lines_nest": "no name stands in the way of another",
    "etcd_passes_strangers": "other clients of the same line exclude us as we do them",
    "etcd_lease_stays": "what is given up leaves no lease behind",
    "etcd_no_tombstone": "a claim that comes after its release is never granted",
    "guard_ignores_deadline": "the command of a frozen run is dead before its lease is",
    "guard_ignores_end_of_run": "the command of a killed run is dead within half a second",
    "guard_walks_no_tree": "what left the command's process group is killed, too",
};

/// Whether the named fault was picked for this process.
///
/// # Panics
///
/// When the name is not in [`PLANTED`]: a fault that no table knows would never be run.
#[cfg(leasehold_faults)]
#[must_use]
pub fn picked(name: &str) -> bool {
    use std::sync::OnceLock;
    static PICKED: OnceLock<Option<String>> = OnceLock::new();
    assert!(
        PLANTED.iter().any(|planted| planted.name == name),
        "{name} is not in the table of planted faults"
    );
    PICKED.get_or_init(|| std::env::var("LEASEHOLD_FAULT").ok()).as_deref() == Some(name)
}

/// Whether the named [planted fault](mod@crate::fault) is to be committed now; the word `false` in normal builds.
#[cfg(leasehold_faults)]
#[macro_export]
macro_rules! fault {
    ($name:literal) => {
        $crate::fault::picked($name)
    };
}

/// Whether the named [planted fault](mod@crate::fault) is to be committed now; the word `false` in normal builds.
#[cfg(not(leasehold_faults))]
#[macro_export]
macro_rules! fault {
    ($name:literal) => {
        false
    };
}

#[cfg(all(test, not(leasehold_faults)))]
mod tests {
    #[test]
    fn a_normal_build_holds_no_fault() {
        assert!(super::PLANTED.is_empty());
        const { assert!(!crate::fault!("wake_nobody")) };
    }
}

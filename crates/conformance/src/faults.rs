//! Which test must fail for which planted fault of the core.
//!
//! A build with `RUSTFLAGS="--cfg leasehold_faults"` holds the faults, and `LEASEHOLD_FAULT` picks one. Each is run
//! against the test that is named here; a fault that no test catches is a promise that nobody checks.

/// Each fault, and what must fail while it is committed: the package, its test target, and the test's name.
///
/// The test command reads this table as text, four strings to a row.
pub const CAUGHT: &[(&str, &str, &str, &str)] = &[
    ("clock_monotonic", "leasehold-core", "boot_clock", "time_counts_on_while_the_machine_sleeps"),
    ("rule_ignores_line", "leasehold-core", "conformance", "c03_no_newcomer_passes_a_line_in_strict_order"),
    ("claim_twice_granted", "leasehold-core", "conformance", "c01_a_released_id_is_spent"),
    ("repeat_prolongs", "leasehold-core", "conformance", "c01_a_repeat_prolongs_nothing"),
    ("try_leaves_place", "leasehold-core", "conformance", "c02_a_failed_try_leaves_no_place"),
    ("token_per_tenure", "leasehold-core", "conformance", "c04_tokens_rise_across_releases"),
    (
        "token_follows_wall",
        "leasehold-core",
        "conformance",
        "c04_tokens_rise_although_the_wall_clock_steps_back",
    ),
    ("renew_creates", "leasehold-core", "conformance", "c08_a_renewal_never_creates"),
    ("renew_without_asking", "leasehold-core", "conformance", "c08_a_renewal_of_what_was_released_is_lost"),
    ("release_ignores_id", "leasehold-core", "conformance", "c12_nobody_else_releases_a_lease"),
    (
        "release_without_tombstone",
        "leasehold-core",
        "conformance",
        "c11_a_claim_overtaken_by_its_own_release_is_never_granted",
    ),
    ("readers_upgrade", "leasehold-core", "conformance", "c17_a_plain_reader_cannot_grow"),
    (
        "old_statement_counts",
        "leasehold-core",
        "conformance",
        "c17_an_old_statement_makes_no_writer_a_reader",
    ),
    (
        "half_of_all_stays",
        "leasehold-core",
        "conformance",
        "c16_one_that_is_taken_leaves_nothing_of_the_others",
    ),
    ("old_owner_stays", "leasehold-core", "conformance", "c18_the_old_owner_holds_no_longer"),
    ("no_aftermath", "leasehold-core", "conformance", "c19_a_lease_that_ran_out_leaves_the_name_shut"),
    ("place_never_lapses", "leasehold-core", "conformance", "c09_a_dead_waiter_costs_two_seconds"),
    (
        "grant_never_short",
        "leasehold-core",
        "conformance",
        "c09_a_waiter_that_died_with_its_grant_costs_its_short_ttl",
    ),
    ("wake_nobody", "leasehold-core", "conformance", "c05_a_release_during_the_wait_ends_it"),
    ("expiry_wakes_nobody", "leasehold-core", "conformance", "c06_a_wait_ends_when_the_lease_ahead_runs_out"),
    (
        "validity_from_reply",
        "leasehold",
        "engine",
        "trouble::validity_counts_from_before_the_request_was_sent",
    ),
    (
        "lost_comes_back",
        "leasehold",
        "engine",
        "trouble::an_answer_that_comes_after_the_end_brings_nothing_back",
    ),
    (
        "doubts_nothing",
        "leasehold",
        "engine",
        "trouble::a_store_that_was_replaced_endangers_what_is_held_until_it_has_been_asked",
    ),
    ("no_release_on_drop", "leasehold", "engine", "promises::a_dropped_lease_is_given_back"),
    (
        "retry_with_new_id",
        "leasehold",
        "engine",
        "trouble::a_lost_answer_is_cured_by_asking_again_with_the_same_id",
    ),
    (
        "renew_on_user_thread",
        "leasehold",
        "engine",
        "promises::a_program_that_blocks_its_only_thread_for_five_ttl_keeps_its_lease",
    ),
    (
        "hand_on_same_token",
        "leasehold",
        "engine",
        "promises::tasks_of_one_process_hand_a_lease_on_each_with_a_higher_token",
    ),
    ("hand_on_for_ever", "leasehold", "engine", "promises::hand_on_leaves_other_processes_their_turn"),
    ("term_outlives_lease", "leasehold", "engine", "election::a_term_is_over_before_its_lease_is"),
    ("once_looks_away", "leasehold", "engine", "once::it_is_done_once_and_what_was_remembered_is_told"),
    (
        "upgrade_keeps_token",
        "leasehold",
        "engine",
        "readers::an_upgrade_waits_for_the_readers_and_goes_under_a_new_token",
    ),
    (
        "dropped_upgrade_waits_on",
        "leasehold",
        "engine",
        "readers::a_dropped_upgrade_wishes_no_more_however_often_it_was_polled",
    ),
    (
        "shrinks_late",
        "leasehold",
        "engine",
        "readers::a_request_for_less_that_arrives_late_lets_nobody_in_beside_the_writer",
    ),
    (
        "half_gathered_stays",
        "leasehold",
        "engine",
        "several::a_dropped_future_leaves_none_of_them_behind_however_often_it_was_polled",
    ),
    ("half_gathered_lives_on", "leasehold", "engine", "several::a_future_that_nobody_polls_keeps_nothing"),
    ("gathered_as_written", "leasehold", "engine", "several::opposite_orders_never_wait_for_each_other"),
    (
        "scope_forgets_count",
        "leasehold",
        "engine",
        "scope::what_a_scope_holds_it_takes_again_under_one_token_without_asking_the_store",
    ),
    (
        "waits_for_itself",
        "leasehold",
        "engine",
        "knots::an_acquire_inside_a_run_of_the_same_name_says_that_it_is_you",
    ),
    ("no_deadlock_seen", "leasehold", "engine", "knots::scopes_that_wait_for_each_other_are_reported_once"),
    (
        "giver_believes_on",
        "leasehold",
        "engine",
        "succession::whoever_hands_over_believes_in_it_no_longer_nor_does_his_scope",
    ),
    (
        "closes_in_silence",
        "leasehold",
        "engine",
        "promises::a_lease_of_a_closed_client_is_endangered_at_once_and_lost_at_its_end",
    ),
    ("open_when_busy", "leasehold", "engine", "policy::nothing_opens_a_lock_that_somebody_has"),
    ("quorum_of_half", "leasehold-core", "lib", "quorum::tests::two_majorities_share_a_node"),
    ("quorum_adds_up", "leasehold-core", "lib", "quorum::tests::accepts_of_different_tokens_never_add_up"),
    ("quorum_trusts_clocks", "leasehold", "quorum", "a_node_whose_clock_jumped_has_no_say"),
    (
        "quorum_keeps_partial",
        "leasehold",
        "quorum",
        "a_claim_that_is_not_won_is_given_back_by_the_quorum_itself",
    ),
    (
        "redis_trusts_old_lists",
        "leasehold-harness",
        "redlock",
        "a_client_with_a_list_that_was_replaced_is_refused",
    ),
    (
        "quorum_claims_what_it_gives_back",
        "leasehold",
        "quorum",
        "what_a_late_node_will_have_to_give_back_is_not_claimed_again",
    ),
    (
        "quorum_mends_nothing",
        "leasehold",
        "quorum",
        "a_node_that_forgot_is_mended_by_the_holder_so_that_two_restarts_far_apart_lose_nothing",
    ),
    (
        "session_claim_left_to_itself",
        "leasehold",
        "engine",
        "line::what_a_session_carries_is_given_back_however_long_the_store_was_away",
    ),
    ("half_of_both_stays", "leasehold", "engine", "migrate::all_or_none_within_one_deadline"),
    (
        "sqlite_forgets_high_water",
        "leasehold-sqlite",
        "processes",
        "trouble::tokens_rise_over_a_power_cut_and_a_clock_that_went_back",
    ),
    ("sqlite_ignores_life", "leasehold-sqlite", "processes", "life::a_killed_holder_frees_its_lease_at_once"),
    (
        "sqlite_ignores_replaced_file",
        "leasehold-sqlite",
        "processes",
        "trouble::a_replaced_file_is_noticed_and_leases_of_the_old_one_are_lost",
    ),
    (
        "redis_grants_at_once",
        "leasehold-redis",
        "trouble",
        "a_server_that_was_just_started_grants_nothing_until_what_it_forgot_has_run_out",
    ),
    (
        "redis_ignores_lost",
        "leasehold-redis",
        "trouble",
        "a_lease_that_is_gone_is_lost_at_the_next_renewal_and_tokens_rise",
    ),
    (
        "redis_renews_by_set",
        "leasehold-redis",
        "trouble",
        "at_maxmemory_leases_are_renewed_and_given_back_and_none_is_granted",
    ),
    (
        "redis_leaves_the_key_free",
        "leasehold-redis",
        "trouble",
        "the_whole_world_is_excluded_by_the_plain_key_and_excludes_us",
    ),
    ("redis_admits_one_more", "leasehold-harness", "primitives", "redis_is_linearizable"),
    (
        "redis_takes_foreign_keys",
        "leasehold-redis",
        "trouble",
        "a_foreign_key_without_an_end_is_told_and_never_changed",
    ),
    (
        "redis_keeps_silent_connection",
        "leasehold-cli",
        "command_redis",
        "network::check_12_a_connection_that_is_silent_for_good_is_replaced_in_time",
    ),
    (
        "cluster_ignores_moved",
        "leasehold-redis",
        "cluster",
        "moves::a_lease_is_kept_when_its_slot_has_gone_elsewhere",
    ),
    (
        "cluster_forgets_asking",
        "leasehold-redis",
        "cluster",
        "moves::a_plain_lease_is_renewed_throughout_the_move_of_its_slot",
    ),
    (
        "cluster_renews_two_keys",
        "leasehold-redis",
        "cluster",
        "moves::a_plain_lease_is_renewed_throughout_the_move_of_its_slot",
    ),
    (
        "cluster_resends_unknown",
        "leasehold-redis",
        "cluster",
        "nodes::what_may_have_been_done_is_not_sent_again",
    ),
    (
        "cluster_waits_for_all",
        "leasehold-redis",
        "cluster",
        "nodes::a_node_that_hangs_holds_up_no_renewal_at_another",
    ),
    (
        "cluster_doubts_nothing",
        "leasehold-redis",
        "cluster",
        "nodes::a_replica_that_takes_over_is_a_doubt_and_renews_what_it_has",
    ),
    (
        "cluster_forgets_waiters",
        "leasehold-redis",
        "cluster",
        "waits::who_waits_is_told_at_once_also_after_the_slot_went_elsewhere",
    ),
    (
        "cluster_skips_unheard",
        "leasehold-redis",
        "cluster",
        "waits::without_channels_of_slots_everybody_is_told_and_no_place_is_skipped",
    ),
    (
        "redis_hears_no_events",
        "leasehold-redis",
        "events",
        "the_end_of_a_foreign_key_is_heard_where_the_server_tells_of_it",
    ),
    (
        "sentinel_keeps_old_master",
        "leasehold-harness",
        "sentinel",
        "an_old_master_that_wakes_is_never_used_again_by_whoever_still_had_a_connection_to_it",
    ),
    (
        "sentinel_hears_old_master",
        "leasehold-harness",
        "sentinel",
        "what_an_old_master_has_not_answered_is_waited_for_no_longer",
    ),
    (
        "sentinel_trusts_role",
        "leasehold-harness",
        "sentinel",
        "a_server_that_the_sentinels_name_and_that_is_a_replica_is_not_asked",
    ),
    (
        "sentinel_believes_the_past",
        "leasehold-redis",
        "lib",
        "sentinel::tests::one_who_knows_less_than_we_do_is_not_believed",
    ),
    ("etcd_turn_not_confirmed", "leasehold-etcd", "trouble", "a_turn_is_taken_by_a_step_that_writes"),
    (
        "etcd_renewed_by_keep_alive",
        "leasehold-etcd",
        "trouble",
        "a_key_that_is_deleted_by_hand_is_lost_although_its_lease_lives",
    ),
    (
        "etcd_terms_not_compared",
        "leasehold-etcd",
        "lib",
        "client::tests::what_a_leader_alone_said_counts_only_if_it_still_led_afterwards",
    ),
    (
        "etcd_gap_not_read",
        "leasehold-etcd",
        "lib",
        "wake::tests::what_was_read_before_the_watch_opened_is_read_again",
    ),
    ("etcd_lines_nest", "leasehold-etcd", "trouble", "names_that_start_alike_are_locks_of_their_own"),
    ("etcd_lease_stays", "leasehold-etcd", "trouble", "what_is_given_up_leaves_no_key_and_no_lease"),
    (
        "etcd_no_tombstone",
        "leasehold-etcd",
        "trouble",
        "a_claim_that_comes_after_its_release_is_never_granted",
    ),
    ("etcd_passes_strangers", "leasehold-harness", "foreign", "etcdctl_lock_and_we_exclude_each_other"),
    ("zookeeper_passes_strangers", "leasehold-harness", "foreign", "kazoo_and_we_exclude_each_other"),
    (
        "zookeeper_adopts_any",
        "leasehold-zookeeper",
        "trouble",
        "a_place_that_another_session_left_is_never_taken_over",
    ),
    (
        "zookeeper_no_tombstone",
        "leasehold-zookeeper",
        "trouble",
        "a_claim_that_comes_after_its_release_is_never_granted",
    ),
    (
        "zookeeper_nothing_lapses",
        "leasehold-zookeeper",
        "trouble",
        "what_nobody_asks_for_any_more_ends_although_the_session_lives_on",
    ),
    (
        "zookeeper_renewed_by_reading",
        "leasehold-zookeeper",
        "trouble",
        "a_member_that_is_cut_off_prolongs_nothing",
    ),
    (
        "zookeeper_renews_what_is_gone",
        "leasehold-zookeeper",
        "trouble",
        "a_lease_whose_node_is_deleted_by_hand_is_lost",
    ),
    (
        "zookeeper_turn_not_confirmed",
        "leasehold-zookeeper",
        "trouble",
        "a_member_that_is_cut_off_grants_nothing",
    ),
    ("zookeeper_watches_the_first", "leasehold-zookeeper", "counts", "whoever_waits_for_a_mutex_asks_twice"),
    (
        "zookeeper_write_counts_itself",
        "leasehold-zookeeper",
        "lib",
        "touches::tests::a_write_proves_what_was_answered_half_a_tick_before_it",
    ),
    ("guard_ignores_deadline", "leasehold-cli", "command", "guard::check_09_a_frozen_run_is_a_dead_holder"),
    (
        "guard_ignores_end_of_run",
        "leasehold-cli",
        "command",
        "guard::check_08_a_killed_run_takes_its_whole_tree_with_it_in_half_a_second",
    ),
    (
        "guard_walks_no_tree",
        "leasehold-cli",
        "command",
        "guard::check_08_a_killed_run_takes_its_whole_tree_with_it_in_half_a_second",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_fault_of_the_core_is_caught_by_a_case_that_there_is() {
        let mut faults = HashSet::new();
        for (fault, _, target, filter) in CAUGHT {
            assert!(faults.insert(*fault), "{fault} is there twice");
            let known = *target != "conformance" || crate::cases::all().any(|case| case.name == *filter);
            assert!(known, "{fault} is to be caught by {filter}, which is no case");
        }
    }

    #[cfg(leasehold_faults)]
    #[test]
    fn each_fault_is_planted() {
        for (fault, ..) in CAUGHT {
            let planted = leasehold_core::fault::PLANTED.iter().any(|planted| planted.name == *fault);
            assert!(planted, "{fault} is not planted");
        }
    }
}

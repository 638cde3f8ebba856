//! The 25 checks of the command: which test covers which on which store. The table is held to the tests that there are.

use std::collections::BTreeSet;
use std::process::Command;

use crate::store;

/// A check, and the tests that carry its number.
struct Check {
    number: u8,
    what: &'static str,
    everywhere: &'static [&'static str],
    sqlite: &'static [&'static str],
    redis: &'static [&'static str],
    /// etcd and ZooKeeper.
    fleet: &'static [&'static str],
}

const CHECKS: &[Check] = &[
    Check {
        number: 1,
        what: "It ends like the command.",
        everywhere: &[
            "ends::check_01_a_command_that_cannot_be_started_gives_the_lock_back_at_once",
            "ends::check_01_it_ends_like_the_command",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 2,
        what: "Terminal and pipes are handed over.",
        everywhere: &[
            "ends::check_02_stdin_stdout_and_stderr_are_handed_over_untouched",
            "terminal::check_02_ctrl_c_reaches_the_command_once_and_its_trap_runs_to_the_end",
            "terminal::check_02_the_command_reads_the_terminal",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 3,
        what: "Ctrl-Z keeps the lease, `fg` goes on.",
        everywhere: &[
            "freeze::check_03_a_stopped_command_is_dead_before_its_lease_is",
            "freeze::check_03_a_stopped_command_whose_lease_is_gone_does_not_go_on",
            "freeze::check_03_ctrl_z_keeps_the_lease_for_more_than_three_ttl_and_fg_goes_on",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 4,
        what: "A closed terminal hangs up on the command.",
        everywhere: &["freeze::check_04_a_closed_terminal_hangs_up_on_the_command_and_frees_the_lock"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 5,
        what: "Busy is silent, or a failure if asked.",
        everywhere: &[
            "busy::check_05_busy_can_be_a_failure_that_names_the_holder_and_what_to_type",
            "busy::check_05_busy_without_a_terminal_is_silent_and_good",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 6,
        what: "TERM lets the command clean up.",
        everywhere: &["signals::check_06_term_lets_the_command_clean_up_and_then_frees_the_lock"],
        sqlite: &[],
        redis: &["network::check_06_what_cannot_be_given_back_does_not_keep_run_for_ever"],
        fleet: &[],
    },
    Check {
        number: 7,
        what: "Signals reach the command.",
        everywhere: &["signals::check_07_every_signal_is_passed_on_once"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 8,
        what: "A killed `run` takes its tree with it.",
        everywhere: &[
            "guard::check_08_a_killed_run_takes_its_whole_tree_with_it_in_half_a_second",
            "guard::check_08_nobody_enters_while_the_tree_lives",
        ],
        sqlite: &[],
        redis: &[
            "orphans::check_08_with_run_and_guard_killed_nobody_enters_before_the_ttl_and_then_under_a_higher_token",
        ],
        fleet: &[
            "orphans::check_08_with_run_and_guard_killed_nobody_enters_before_the_ttl_and_then_under_a_higher_token",
        ],
    },
    Check {
        number: 9,
        what: "A frozen `run` is a dead holder.",
        everywhere: &["guard::check_09_a_frozen_run_is_a_dead_holder"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 10,
        what: "A killed guard is replaced.",
        everywhere: &[
            "guard::check_10_a_killed_guard_is_replaced_within_a_second_with_one_warning",
            "guard::check_10_the_new_guard_guards",
            "guard::check_10_the_new_guard_guards_in_a_session_without_a_number",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 11,
        what: "The store stops: the command is dead before its lease is.",
        everywhere: &["loss::check_11_the_command_is_dead_before_its_lease_is"],
        sqlite: &[],
        redis: &[
            "network::check_11_a_server_that_is_killed_is_a_store_that_is_gone",
            "network::check_11_a_server_that_refuses_to_renew_is_a_store_that_is_gone",
        ],
        fleet: &["network::check_11_a_server_that_is_killed_is_a_store_that_is_gone"],
    },
    Check {
        number: 12,
        what: "Nothing passes and nothing is closed: the same times.",
        everywhere: &[],
        sqlite: &["file::check_12_a_store_that_swallows_calls_without_any_error_is_as_one_that_is_gone"],
        redis: &[
            "network::check_12_a_connection_that_is_silent_for_good_is_replaced_in_time",
            "network::check_12_a_network_that_swallows_all_without_a_reset_is_as_a_store_that_is_gone",
        ],
        fleet: &["network::check_12_a_network_that_swallows_all_without_a_reset_is_as_a_store_that_is_gone"],
    },
    Check {
        number: 13,
        what: "The lease is taken away: the command is told.",
        everywhere: &[
            "breaking::check_13_break_stops_the_command_within_a_third_of_its_ttl",
            "loss::check_13_a_lease_that_is_gone_stops_the_command_at_once",
        ],
        sqlite: &[],
        redis: &[
            "network::check_13_a_server_that_comes_back_without_its_data_has_no_lease_and_the_command_is_told_at_once",
        ],
        fleet: &[],
    },
    Check {
        number: 14,
        what: "The store is down or refuses at the start.",
        everywhere: &[
            "store_trouble::check_14_a_store_that_does_not_answer_is_told_within_the_timeout",
            "store_trouble::check_14_a_store_that_is_not_there_is_a_failure_unless_asked_otherwise",
        ],
        sqlite: &[],
        redis: &[
            "trouble::check_14_a_login_that_is_refused_is_not_a_store_that_is_down",
            "trouble::check_14_a_name_that_is_something_else_is_left_alone",
            "trouble::check_14_a_network_that_swallows_all_is_told_within_the_timeout_and_asked_otherwise_goes_on",
            "trouble::check_14_a_replica_is_told_from_its_master",
            "trouble::check_14_a_server_that_is_full_takes_no_new_lease_and_keeps_those_that_are_held",
            "trouble::check_14_a_server_that_refuses_is_told_of_by_its_own_words_within_the_timeout",
            "trouble::check_14_a_server_without_tls_is_told_to_who_wants_it",
            "trouble::check_14_rights_that_are_missing_are_told",
            "trouble::check_14_what_is_no_redis_is_told_within_the_timeout",
        ],
        fleet: &["network::check_14_a_network_that_swallows_all_is_told_within_the_timeout"],
    },
    Check {
        number: 15,
        what: "TERM ends a wait.",
        everywhere: &["signals::check_15_signals_end_a_wait_at_once_and_leave_no_place_behind"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 16,
        what: "Twenty waiters keep their order.",
        everywhere: &[
            "busy::check_16_twenty_waiters_keep_their_order_and_a_killed_one_costs_at_most_two_seconds",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 17,
        what: "A `run` inside a `run`.",
        everywhere: &[
            "nested::check_17_a_leaked_chain_in_another_session_lets_nobody_in",
            "nested::check_17_also_through_runs_of_other_names_and_v_says_so",
            "nested::check_17_the_inner_run_goes_on_under_the_same_token",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 18,
        what: "What a command leaves behind.",
        everywhere: &[
            "descendants::check_18_kill_kills_it",
            "descendants::check_18_release_leaves_it_alone",
            "descendants::check_18_the_lock_is_held_for_what_was_left_and_says_so",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 19,
        what: "Hosts whose clocks differ.",
        everywhere: &[
            "at_least::check_19_a_short_job_runs_on_one_host_of_five",
            "clocks::check_19_five_hosts_that_fire_by_clocks_up_to_50_seconds_apart_run_it_once",
            "once::check_19_one_host_of_five_runs_it_and_the_others_end_well_in_silence",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 20,
        what: "A failure is not done.",
        everywhere: &["once::check_20_a_command_that_failed_is_not_done_and_the_next_host_runs_it"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 21,
        what: "What takes too long is stopped.",
        everywhere: &["guard::check_21_a_command_that_takes_too_long_is_stopped_with_all_its_tree"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 22,
        what: "Overdue is told once.",
        everywhere: &["overdue::check_22_one_message_per_host_and_hour_and_none_before_the_limit"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 23,
        what: "An empty environment is enough, and nothing here is opened.",
        everywhere: &[
            "nothing_else::check_23_an_empty_environment_is_enough",
            "nothing_else::check_23_the_configuration_of_the_machine_is_enough",
            "nothing_else::check_23_nothing_in_the_current_directory_is_opened",
        ],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 24,
        what: "An old token breaks nothing.",
        everywhere: &["breaking::check_24_with_an_old_token_nothing_happens"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
    Check {
        number: 25,
        what: "Everything has its text.",
        everywhere: &["looking::check_25_every_code_and_topic_is_explained"],
        sqlite: &[],
        redis: &[],
        fleet: &[],
    },
];

/// Whole files that one store has and the other has not, and why.
const ALONE: &[(&str, &str)] = &[
    (
        "anchored",
        "the kernel keeps a file's lease for a tree whose run and guard are killed; a server knows the ttl alone",
    ),
    ("bad_input", "a line is refused before any store is asked"),
    ("file", "a file is made, may be another program's, locks on one host, and hangs without a network"),
    ("strangers", "who may ask a `run` by its socket has nothing to do with its store"),
    ("network", "a file has no server that dies, and no network"),
    ("orphans", "what is left of the promise where `anchored` cannot be kept"),
    ("secrets", "a file has no password"),
    ("trouble", "a file has no login, no rights, no replicas and no TLS"),
];

/// Whole files that are there for one server and not for the other, and why.
const ONE_SERVER: &[(&str, &str)] = &[
    ("secrets", "logins, and files with certificates, are tested where the stores of etcd and ZooKeeper are"),
    ("trouble", "no space, no rights, keys that are something else: tested where those stores are"),
];

/// The tests of this very program.
fn tests() -> BTreeSet<String> {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(["--list", "--format", "terse"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// The number that a test carries.
fn number(test: &str) -> Option<u8> {
    let name = test.rsplit("::").next()?.strip_prefix("check_")?;
    name.get(..2)?.parse().ok().filter(|_| name.as_bytes().get(2) == Some(&b'_'))
}

#[test]
fn each_check_has_its_tests_on_this_store() {
    let there = tests();
    let mut told = BTreeSet::new();
    for (row, check) in (1..).zip(CHECKS) {
        let Check { number: own, what, everywhere, sqlite, redis, fleet } = check;
        assert_eq!(*own, row, "{what}");
        let here = match store::NAME {
            "sqlite" => sqlite,
            "redis" => redis,
            "etcd" | "zookeeper" => fleet,
            other => panic!("the table knows no {other}"),
        };
        assert!(!everywhere.is_empty() || !here.is_empty(), "{own}: {what} has no test on {}", store::NAME);
        for test in everywhere.iter().chain(*here) {
            assert!(there.contains(*test), "{own}: {what} There is no test {test} on {}", store::NAME);
            assert_eq!(number(test), Some(row), "{test}");
            assert!(told.insert((*test).to_owned()), "{test} stands there twice");
        }
    }
    assert_eq!(told.iter().filter_map(|test| number(test)).collect::<BTreeSet<_>>(), (1..=25).collect());
    let loose: Vec<_> = there.iter().filter(|test| number(test).is_some() && !told.contains(*test)).collect();
    assert!(loose.is_empty(), "not in the table: {loose:?}");
}

#[test]
fn what_one_store_has_and_another_has_not_is_said() {
    fn modules(text: &str) -> BTreeSet<&str> {
        text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect()
    }
    let sqlite = modules(include_str!("main.rs"));
    let redis = modules(include_str!("../command_redis/main.rs"));
    let etcd = modules(include_str!("../command_etcd/main.rs"));
    assert_eq!(etcd, modules(include_str!("../command_zookeeper/main.rs")));
    let one_server: BTreeSet<&str> = redis.symmetric_difference(&etcd).copied().collect();
    assert_eq!(one_server, ONE_SERVER.iter().map(|(module, _)| *module).collect());
    assert!(ONE_SERVER.iter().all(|(_, why)| why.len() > 20));
    let alone: BTreeSet<&str> = sqlite.symmetric_difference(&redis).copied().collect();
    assert_eq!(alone, ALONE.iter().map(|(module, _)| *module).collect());
    assert!(ALONE.iter().all(|(_, why)| why.len() > 20));
}

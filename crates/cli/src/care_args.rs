//! The arguments of `doctor` and `bench`.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use leasehold::config::parse_duration;
use leasehold::{Code, ConfigError};

/// More would measure this machine rather than the store.
const MOST_CLIENTS: usize = 1024;
const LONGEST: Duration = Duration::from_secs(600);

pub(crate) const DOCTOR_HELP: &str = "\
Exit code: 0 nothing must be fixed · 1 something must · 69, 77 the store cannot be asked (with -q only the exit code)

It takes a lock of a name that nobody uses, leasehold-doctor:.., and gives it back.

Examples:
  leasehold doctor
  leasehold doctor report:daily       with the store and the ttl that rules give this lock
  leasehold doctor --json | jq '.checks[] | select(.verdict == \"failed\")'
  leasehold explain doctor            what each check means";

pub(crate) const BENCH_HELP: &str = "\
It makes as much load as the store bears, in turns: alone, then with so many clients at once, each with a lock of its
own that nobody else uses; and the same with the store's own cheapest commands, which is the limit beside it. On a
server that others use now, they will notice.

Examples:
  leasehold bench
  leasehold bench --clients 64 --for 10s --json | jq '.rows[].of_raw'";

#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    /// Check what holds for this lock, rather than for all
    pub(crate) name: Option<OsString>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// How many acquire and release at once, after one alone has
    #[arg(long, value_name = "N", default_value = "16", value_parser = some_clients)]
    pub(crate) clients: usize,
    /// How long, in all
    #[arg(long = "for", value_name = "DUR", default_value = "5s", value_parser = some_lasting)]
    pub(crate) lasting: Duration,
}

fn some_clients(text: &str) -> Result<usize, ConfigError> {
    match usize::from_str(text) {
        Ok(clients @ 1..=MOST_CLIENTS) => Ok(clients),
        _ => Err(ConfigError::new(format!("it takes 1 to {MOST_CLIENTS}"))
            .code(Code::VALUE)
            .help("write a number such as 16")),
    }
}

fn some_lasting(text: &str) -> Result<Duration, ConfigError> {
    match parse_duration(text)? {
        lasting if lasting >= Duration::from_millis(100) && lasting <= LONGEST => Ok(lasting),
        _ => Err(ConfigError::new("it takes 100ms to 10m").code(Code::VALUE).help("write one such as 5s")),
    }
}

//! The flags of the commands for scripts, and of `break`.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use leasehold::config::{Wait, parse_duration};
use leasehold::{Code, ConfigError, Token};

use crate::args::some_ttl;

pub(crate) const ACQUIRE_HELP: &str = "\
Nobody renews a lease that is taken this way: it ends by itself after --ttl, unless the script says
`leasehold renew` in time, or --while-pid has it renewed until that process ends.

In a script, in two lines, since eval of an empty text succeeds and a failed acquire would go on:
  vars=$(leasehold acquire import --ttl 5m --wait 30s --print sh) || exit
  eval \"$vars\"
  trap 'leasehold release' EXIT
  step_one; leasehold renew || exit 79
  step_two

Exit code: 0 it is yours · 75 somebody else has it · 69 the store cannot be reached";

pub(crate) const TRY_HELP: &str = "\
Exit code: 0 it is yours · 75 somebody else has it · 69 the store cannot be reached
Everything else is as in `leasehold acquire`; see there how a script uses it.";

pub(crate) const CHECK_HELP: &str = "\
Exit code: 0 yes · 79 no, the lease is gone · 69 the store cannot be reached

Under `leasehold run`, and after eval of `leasehold acquire --print sh`:
  for f in *.csv; do
    leasehold check --left 30s || exit 1     renews if less than 30s is left
    load \"$f\"
  done";

pub(crate) const RENEW_HELP: &str = "\
It is renewed for its whole ttl from now on. LEASE_NAME and LEASE_TOKEN say which lease is meant.
Exit code: 0 renewed · 79 the lease is gone · 69 the store cannot be reached";

pub(crate) const RELEASE_HELP: &str = "\
LEASE_NAME and LEASE_TOKEN say which lease is meant. Somebody else's is ended by `leasehold break`.
Exit code: 0 given back · 79 it was gone before · 69 the store cannot be reached";

pub(crate) const BREAK_HELP: &str = "\
A second job may start at once while the first still runs: its holder hears of it at its next renewal, and then
stops its command. The token (see `leasehold status`) makes sure that nobody newer is hit.

Examples:
  leasehold break report:daily                        shows the holder, and asks for the name
  leasehold break report:daily --token 4182 --yes     asks nothing; exit 75 if 4182 is not the holder's any more";

/// What `acquire` and `try` share.
#[derive(Debug, Clone, Args)]
pub(crate) struct TakeArgs {
    /// What is locked, noun first: report:daily
    pub(crate) name: OsString,
    /// Others get in after this long unless it is renewed or given back [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = some_ttl)]
    pub(crate) ttl: Option<Duration>,
    /// Shown to people who wait or look
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Print variables to be evaluated by a shell, rather than the token alone
    #[arg(long, value_name = "sh", value_parser = Print::from_str)]
    pub(crate) print: Option<Print>,
    /// Renew it in the background until this process ends, then give it back; $$ is the script itself
    #[arg(long, value_name = "PID")]
    pub(crate) while_pid: Option<u32>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) take: TakeArgs,
    /// Wait in the queue, at most so long [default: forever]
    #[arg(short, long, value_name = "DUR|forever", value_parser = Wait::from_str)]
    pub(crate) wait: Option<Wait>,
    /// Do not wait: exit 75 if somebody else has it
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Strict order of arrival: nobody who came later goes first
    #[arg(long)]
    pub(crate) fair: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TryArgs {
    #[command(flatten)]
    pub(crate) take: TakeArgs,
}

/// What `renew` and `release` take.
#[derive(Debug, Clone, Args)]
pub(crate) struct HeldArgs {
    /// The lock [default: LEASE_NAME]
    pub(crate) name: Option<OsString>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArgs {
    /// The lock [default: LEASE_NAME]
    pub(crate) name: Option<OsString>,
    /// Make sure that so much is left, renewing if there is less
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) left: Option<Duration>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BreakArgs {
    /// The lock
    pub(crate) name: OsString,
    /// The token of the lease to end; nothing is done if it is not the holder's any more
    #[arg(long, value_name = "N", value_parser = some_token)]
    pub(crate) token: Option<Token>,
    /// Do not ask; needs --token
    #[arg(long)]
    pub(crate) yes: bool,
    /// Why, for those who look later
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// What the background renewer is started with. The lease itself comes through its stdin.
#[derive(Debug, Clone, Args)]
pub(crate) struct KeeperArgs {
    /// The process to wait for
    #[arg(long)]
    pub(crate) pid: u32,
    /// When that process was started, in the kernel's ticks
    #[arg(long)]
    pub(crate) started: u64,
    /// The lock as it was typed, which says what store it is in
    pub(crate) name: String,
}

/// How a new lease is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Print {
    Sh,
}

impl FromStr for Print {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "sh" => Ok(Self::Sh),
            _ => {
                Err(ConfigError::new(format!("{text:?} is not a choice")).code(Code::VALUE).help("write sh"))
            }
        }
    }
}

/// Whether an inner `run` of a lock that an outer one holds goes on under that one's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Nested {
    #[default]
    Reuse,
    Fail,
}

impl FromStr for Nested {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "reuse" => Ok(Self::Reuse),
            "fail" => Ok(Self::Fail),
            _ => {
                let error = ConfigError::new(format!("{text:?} is not a choice")).code(Code::VALUE);
                Err(error.help("write reuse or fail"))
            }
        }
    }
}

fn some_token(text: &str) -> Result<Token, ConfigError> {
    text.parse().ok().and_then(Token::new).ok_or_else(|| {
        ConfigError::new("a token is a number above 0")
            .code(Code::VALUE)
            .help("leasehold status NAME   shows the holder's")
    })
}

//! `cargo xtask`: the commands of the project's own workshop, one file each.

mod command;
mod context;
mod deny;
mod house;
mod parts;
mod prove;
mod report;
mod servers;
mod source;
mod stopwatch;
mod tally;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What a command of this workshop answers. Its errors are for people: a sentence each.
type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The project's own workshop")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs all tests, in parts
    Test(test::Args),
    /// Runs the long form of a test, or measures something, and writes the result down
    Prove(prove::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Prove(args) => prove::run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

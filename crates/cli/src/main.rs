//! `leasehold`, the command. All of it is in the library of this package.

fn main() -> std::process::ExitCode {
    leasehold_cli::main()
}

//! Many processes of one store, killed, frozen and measured: what the tests and proofs of whole programs share.
//!
//! Not published. It starts the programs of this package itself and ends each by its process id.

use std::path::PathBuf;

pub mod campaign;
pub mod cancelled;
pub mod fight;
pub mod foreign;
pub mod foreign_release;
pub mod handover;
pub mod once;
pub mod primitives;
pub mod proxy;
pub mod puppet;
pub mod resource;
pub mod servers;
pub mod waiting;

use puppet::Trouble;

/// A program of this package, beside the one that runs.
///
/// # Errors
///
/// When it was not built.
pub fn beside(name: &str) -> Result<PathBuf, Trouble> {
    let program = std::env::current_exe()?.with_file_name(name);
    if program.exists() {
        Ok(program)
    } else {
        Err(format!("build the whole package: no {name} here").into())
    }
}

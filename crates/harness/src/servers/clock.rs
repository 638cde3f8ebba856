//! The clock of a server under test: a library that is compiled here and preloaded there.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where its source is; the store's own tests use it too.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../redis/tests/support/clockshim.c");

/// Compiles it into this folder.
///
/// # Errors
///
/// When there is no compiler, or it fails.
pub fn build(folder: &Path) -> io::Result<PathBuf> {
    let library = folder.join("clockshim.so");
    let done =
        Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(SOURCE).output()?;
    if done.status.success() {
        Ok(library)
    } else {
        Err(io::Error::other(format!("cc: {}", String::from_utf8_lossy(&done.stderr))))
    }
}

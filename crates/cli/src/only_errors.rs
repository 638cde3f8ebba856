//! `--only-errors`: the command's output goes into files without a name, and comes out only if it fails.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::PathBuf;

use rustix::fd::OwnedFd;
use rustix::stdio::{dup2_stderr, dup2_stdout, stderr, stdout};

/// The output that is kept back. Files rather than memory, so that a chatty command costs none; without a name,
/// so that nothing is left behind however this process ends.
#[derive(Debug)]
pub(crate) struct Kept {
    out: File,
    /// `None` where both went to one place: then what came first is to come out first.
    err: Option<File>,
}

/// While it lives, what is started writes into the files.
#[derive(Debug)]
pub(crate) struct Diverted {
    out: OwnedFd,
    err: OwnedFd,
}

impl Kept {
    /// Makes the files.
    pub(crate) fn new() -> io::Result<Self> {
        let out = nameless()?;
        let err = if same_place() { None } else { Some(nameless()?) };
        Ok(Self { out, err })
    }

    /// From now on stdout and stderr of this process are the files, until what is returned is dropped: just so long
    /// that the command inherits them. What we ourselves have to say still goes to people.
    pub(crate) fn divert(&self) -> io::Result<Diverted> {
        let diverted = Diverted {
            out: rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?,
            err: rustix::io::fcntl_dupfd_cloexec(stderr(), 3)?,
        };
        dup2_stdout(&self.out)?;
        dup2_stderr(self.err.as_ref().unwrap_or(&self.out))?;
        Ok(diverted)
    }

    /// Prints it after all.
    pub(crate) fn print(mut self) -> io::Result<()> {
        self.out.rewind()?;
        // A stream that is closed, or whose reader has gone, changes nothing.
        drop(io::copy(&mut self.out, &mut io::stdout().lock()));
        if let Some(mut err) = self.err {
            err.rewind()?;
            drop(io::copy(&mut err, &mut io::stderr().lock()));
        }
        Ok(())
    }
}

impl Drop for Diverted {
    fn drop(&mut self) {
        // Both were open a moment ago, and a number that is open can always be replaced.
        let _ = dup2_stdout(&self.out);
        let _ = dup2_stderr(&self.err);
    }
}

fn nameless() -> io::Result<File> {
    // A relative TMPDIR would be read from the current directory.
    let folder = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let file = tempfile::tempfile_in(folder.unwrap_or_else(|| PathBuf::from("/tmp")))?;
    // Two writers of one file, as of one terminal, must not overwrite each other.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags | rustix::fs::OFlags::APPEND)?;
    Ok(file)
}

/// Whether stdout and stderr lead to the same pipe, file or terminal.
fn same_place() -> bool {
    match (rustix::fs::fstat(stdout()), rustix::fs::fstat(stderr())) {
        (Ok(out), Ok(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => false,
    }
}

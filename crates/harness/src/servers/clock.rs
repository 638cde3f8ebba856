//! A clock that a test sets and moves, for servers that ask the C library what time it is: a preloaded library tells
//! them what stands in a file of their folder.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{NoServer, Server};

const SOURCE: &str = include_str!("clockshim.c");
/// By which the library finds the file.
const VARIABLE: &str = "LEASEHOLD_CLOCK";
/// Where the time stands, and where by how much it is moved.
const TIME: u64 = 0;
const STEP: u64 = 8;
const SIZE: u64 = 16;

/// The clock of a server that was started with one.
#[derive(Debug)]
pub struct ToldClock(File);

impl ToldClock {
    /// That of this server.
    ///
    /// # Errors
    ///
    /// When it was started without.
    pub fn of(server: &Server) -> io::Result<Self> {
        Ok(Self(File::options().write(true).open(file_in(server.folder()))?))
    }

    /// Says what time it is, in microseconds since 1970; it stands still there.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn set(&self, micros: u64) -> io::Result<()> {
        let micros = i64::try_from(micros).map_err(io::Error::other)?;
        self.tell(TIME, micros.saturating_mul(1000))
    }

    /// Lets it go so many nanoseconds ahead of the machine's, unless it stands still.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn step(&self, nanos: i64) -> io::Result<()> {
        self.tell(STEP, nanos)
    }

    fn tell(&self, at: u64, nanos: i64) -> io::Result<()> {
        self.0.write_all_at(&nanos.to_ne_bytes(), at)
    }
}

/// Has this server go by a clock in its folder. A server that is started again there goes on with the same.
pub(super) fn give(command: &mut Command, library: &Path, folder: &Path) -> io::Result<()> {
    let file = file_in(folder);
    File::options().create(true).truncate(false).write(true).open(&file)?.set_len(SIZE)?;
    command.env("LD_PRELOAD", library).env(VARIABLE, file);
    Ok(())
}

fn file_in(folder: &Path) -> PathBuf {
    folder.join("clock")
}

/// The library to preload: compiled where it is not there yet, beside the program that runs.
///
/// # Errors
///
/// When there is no C compiler.
pub fn library() -> Result<PathBuf, NoServer> {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let library = folder.join(format!("clockshim-{:016x}.so", hasher.finish()));
    if !library.exists() {
        compile(folder, &library)?;
    }
    Ok(library)
}

/// Others may do so at the same time: each on its own, and the last one stays.
fn compile(folder: &Path, library: &Path) -> Result<(), NoServer> {
    let work = tempfile::tempdir_in(folder)?;
    let (source, built) = (work.path().join("clock.c"), work.path().join("clock.so"));
    std::fs::write(&source, SOURCE)?;
    let output = Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&built).arg(source).output();
    match output {
        Ok(output) if output.status.success() => Ok(std::fs::rename(built, library)?),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(NoServer::Broken { tool: "cc", why })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NoServer::Missing("cc")),
        Err(error) => Err(error.into()),
    }
}

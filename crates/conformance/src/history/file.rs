//! Histories as files: appended to by processes that may be killed at any moment.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::{Record, RecordError};

/// The first line: what the file is, and how its lines are to be read.
const HEADER: &str = "leasehold-history 1\n";

/// Appends records to a file.
///
/// Each record is one `write(2)`, so that a process which is killed leaves whole lines but for the last, and what
/// it wrote is there although it was killed. Each process has a file of its own.
#[derive(Debug)]
pub struct HistoryWriter(File);

impl HistoryWriter {
    /// Opens the file, and begins it if it is new.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened or written.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let mut writer = Self(file);
        if writer.0.metadata()?.len() == 0 {
            writer.append(HEADER)?;
        }
        Ok(writer)
    }

    /// Appends one record.
    ///
    /// # Errors
    ///
    /// When it cannot be written, or only in part.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.append(&format!("{record}\n"))
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        // Not `write_all`: a line in two pieces could be cut between them.
        let written = self.0.write(line.as_bytes())?;
        if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// Why a history cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    Io(io::Error),
    /// It is not a history, or one of another version.
    Header(String),
    /// A line that is not the last is not a record.
    Line {
        /// Which, from 1.
        number: usize,
        /// What is wrong with it.
        error: RecordError,
    },
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the history cannot be read: {error}"),
            Self::Header(found) => write!(f, "not a history of this version: it begins with {found:?}"),
            Self::Line { number, error } => write!(f, "line {number}: {error}"),
        }
    }
}

impl std::error::Error for FileError {}

/// The records of one file, in their order. A last line without an end is what a killed process leaves, and is
/// dropped; a file that holds nothing yet is an empty history.
///
/// # Errors
///
/// When the file cannot be read, is no history of this version, or has a line that is no record.
pub fn read_history(path: impl AsRef<Path>) -> Result<Vec<Record>, FileError> {
    let mut text = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut text)).map_err(FileError::Io)?;
    parse(&text)
}

fn parse(text: &[u8]) -> Result<Vec<Record>, FileError> {
    // What comes after the last end of a line is torn.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = String::from_utf8_lossy(&text[..whole]);
    let mut lines = text.lines();
    match lines.next() {
        None => return Ok(Vec::new()),
        Some(header) if header == HEADER.trim_end() => {}
        Some(other) => return Err(FileError::Header(other.chars().take(40).collect())),
    }
    let record =
        |(at, line): (usize, &str)| line.parse().map_err(|error| FileError::Line { number: at + 2, error });
    lines.enumerate().map(record).collect()
}

#[cfg(test)]
mod tests {
    use leasehold_core::BootTime;

    use super::super::Happened;
    use super::*;

    fn record(at: u64) -> Record {
        Record { at: BootTime::from_nanos(at), process: 1, claim: 1, what: Happened::Queued }
    }

    #[test]
    fn a_file_goes_on_where_it_ended_and_a_torn_last_line_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.history");
        HistoryWriter::open(&path).unwrap().write(&record(1)).unwrap();
        HistoryWriter::open(&path).unwrap().write(&record(2)).unwrap();
        assert_eq!(read_history(&path).unwrap(), [record(1), record(2)]);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            let records = parse(&whole[..cut]).unwrap();
            assert!(records.len() <= 2 && (cut == whole.len() || records.len() < 2));
        }
    }

    #[test]
    fn what_is_torn_in_the_middle_or_of_another_version_is_refused() {
        let middle = format!("{HEADER}1 1 1 queu\n2 1 1 queued\n");
        assert!(matches!(parse(middle.as_bytes()), Err(FileError::Line { number: 2, .. })));
        assert!(matches!(parse(b"leasehold-history 2\n"), Err(FileError::Header(_))));
        assert!(matches!(parse(b"1 1 1 queued\n"), Err(FileError::Header(_))));
    }
}

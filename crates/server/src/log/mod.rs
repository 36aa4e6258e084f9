//! The write-ahead log of a server: a folder of segment files, of which the one with the highest
//! number is written to.
//!
//! [`Log`] writes. A batch of records is one frame with one checksum, written in one call: after a
//! crash it is there or it is not. [`LogReader`] reads. It stops at the first frame that is not
//! valid, and says whether valid frames follow. `docs/format.md` describes the bytes.
//!
//! Numbers decide whether something is lost. Records are numbered without gaps, and each segment's
//! header has the number of its first record. So whatever follows the last valid frame of a segment
//! is void if the next segment continues with the next number: a write that failed, or that a crash
//! cut off. If numbers are missing, it is damage.

mod control;
mod format;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use control::Control;
pub use format::{Batch, FORMAT, Header, RecordTooLong};
pub use reader::{Chunk, Cursor, LogReader, Record};
pub use writer::{Fsync, Log, Options};

use std::io;
use std::path::{Path, PathBuf};

/// The log cannot be written or read. The text names the file and what follows from it.
#[derive(Debug)]
pub struct LogError(pub String);

impl LogError {
    fn new(path: &Path, problem: &io::Error, effect: &str) -> Self {
        Self(format!("{}: {problem}: {effect}", path.display()))
    }
}

/// The path of a segment.
pub fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}.log"))
}

/// The numbers of all segments in a folder, in order. A folder that does not exist has none.
pub fn segments(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    let entries = match folder.read_dir() {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(numbers),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".log"));
        if let Some(number) = stem.filter(|stem| stem.bytes().all(|byte| byte.is_ascii_digit())) {
            numbers.extend(number.parse::<u64>());
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

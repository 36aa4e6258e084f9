//! A bank's file, mapped: it grows, is synced, and has one writer at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;

use bloomery_core::bank::{Memory, Trouble};
use memmap2::{MmapOptions, MmapRaw};

/// How a file is to be opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    New,
    Write,
    Read,
}

pub struct Mapped {
    file: File,
    map: MmapRaw,
}

impl Mapped {
    pub fn open(path: &Path, mode: Mode) -> io::Result<Mapped> {
        let write = mode != Mode::Read;
        let new = mode == Mode::New;
        let mut file = OpenOptions::new().read(true).write(write).create_new(new).open(path)?;
        // Held until the file is closed. Where there are no locks the file can still be used.
        let locked = if write { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Err(TryLockError::WouldBlock) => {
                let message = "another process has the bank open: it can be written by one, or \
                               read by many";
                return Err(io::Error::new(ErrorKind::WouldBlock, message));
            }
            Err(TryLockError::Error(problem)) if problem.kind() != ErrorKind::Unsupported => {
                return Err(problem);
            }
            _ => (),
        }
        if new {
            lengthen(&mut file, 1 << 16)?;
        }
        let map = match write {
            true => MmapOptions::new().map_raw(&file)?,
            false => MmapOptions::new().map_raw_read_only(&file)?,
        };
        Ok(Mapped { file, map })
    }
}

/// Zeros are written, not only a length: a disk that is full says so here, and not by a signal when
/// a page is first touched.
fn lengthen(file: &mut File, nbytes: u64) -> io::Result<()> {
    let old = file.seek(SeekFrom::End(0))?;
    let zeros = vec![0; 1 << 20];
    let mut left = nbytes.saturating_sub(old);
    while left > 0 {
        let count = left.min(zeros.len() as u64) as usize;
        if let Err(problem) = file.write_all(&zeros[..count]) {
            let _ = file.set_len(old);
            return Err(problem);
        }
        left -= count as u64;
    }
    Ok(())
}

// SAFETY: a map begins at a page's start and is as long as the file, which others leave alone: it is
// locked.
unsafe impl Memory for Mapped {
    fn start(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    fn nbytes(&self) -> usize {
        self.map.len()
    }

    fn grow(&mut self, nbytes: usize) -> Result<(), Trouble> {
        if nbytes <= self.nbytes() {
            return Ok(());
        }
        lengthen(&mut self.file, nbytes as u64).map_err(Trouble::Io)?;
        #[cfg(target_os = "linux")]
        {
            let options = memmap2::RemapOptions::new().may_move(true);
            // SAFETY: nobody holds a pointer into the map, and the file is that long.
            unsafe { self.map.remap(nbytes, options) }.map_err(Trouble::Io)
        }
        #[cfg(not(target_os = "linux"))]
        {
            self.map = MmapOptions::new().map_raw(&self.file).map_err(Trouble::Io)?;
            Ok(())
        }
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        self.map.flush().and_then(|()| self.file.sync_data()).map_err(Trouble::Io)
    }

    fn lasts(&self) -> bool {
        true
    }
}

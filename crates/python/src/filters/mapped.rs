//! A bank's file, mapped: it grows, is synced, and has one writer at a time.
//!
//! It belongs to the process that opened it. A child of a fork has the map and the file too, but two
//! who write without a common lock would ruin it; and the file's lock, which they share, is not given
//! back before the last of them has closed it. So the child closes it at once (`forked`), and whoever
//! asks there gets an error.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::mem::ManuallyDrop;
#[cfg(unix)]
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(unix)]
use std::sync::{Once, atomic::AtomicI32};

use bloomery_core::bank::{Memory, Trouble};
use memmap2::{MmapOptions, MmapRaw};

/// How a file is to be opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    New,
    Write,
    Read,
}

/// How often this process is the child of a fork.
static FORKS: AtomicU64 = AtomicU64::new(0);

pub fn forks() -> u64 {
    FORKS.load(Relaxed)
}

/// The files of this process that are open, as descriptors plus one; 0 where there is none. Not behind
/// a lock, which a thread that the child does not have might hold for ever. Of more than these a
/// child keeps the others open: then the parent's `close` lets go of the lock, and its death does not.
#[cfg(unix)]
static OPEN: [AtomicI32; 256] = [const { AtomicI32::new(0) }; 256];

#[cfg(unix)]
fn replace_open(old: i32, new: i32) {
    let _ = OPEN.iter().find(|fd| fd.compare_exchange(old, new, Relaxed, Relaxed).is_ok());
}

#[cfg(unix)]
extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
    for fd in OPEN.iter().map(|fd| fd.swap(0, Relaxed)).filter(|fd| *fd != 0) {
        // SAFETY: the file of a map that the parent made; here nobody uses or closes it.
        drop(unsafe { OwnedFd::from_raw_fd(fd - 1) });
    }
}

/// Has `forked` called in each child, whoever forks, before anything else.
#[cfg(unix)]
fn watch_forks() {
    type Hook = Option<extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(before: Hook, parent: Hook, child: Hook) -> std::ffi::c_int;
    }
    static WATCHED: Once = Once::new();
    // SAFETY: `forked` does what a child of a fork may do: it takes no lock and no memory.
    WATCHED.call_once(|| unsafe {
        pthread_atfork(None, None, Some(forked));
    });
}

pub struct Mapped {
    file: ManuallyDrop<File>,
    map: ManuallyDrop<MmapRaw>,
    forks: u64,
}

/// Lets go of the lock, though a child of a fork may have the file open still.
impl Drop for Mapped {
    fn drop(&mut self) {
        if self.forks != forks() {
            return; // the file was closed by `forked`, and the map is the parent's
        }
        #[cfg(unix)]
        replace_open(self.file.as_raw_fd() + 1, 0);
        let _ = self.file.unlock();
        // SAFETY: once, and neither is used any more.
        unsafe {
            ManuallyDrop::drop(&mut self.map);
            ManuallyDrop::drop(&mut self.file);
        }
    }
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
        // A child's map would keep the file, and so the lock, even if the parent is killed.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::DontFork);
        #[cfg(unix)]
        {
            watch_forks();
            replace_open(0, file.as_raw_fd() + 1);
        }
        let (file, map) = (ManuallyDrop::new(file), ManuallyDrop::new(map));
        Ok(Mapped { file, map, forks: forks() })
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
            *self.map = MmapOptions::new().map_raw(&*self.file).map_err(Trouble::Io)?;
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

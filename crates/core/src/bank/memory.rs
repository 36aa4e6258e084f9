//! The memory a bank lives in: it grows, and may be a file's (`crates/python` has that one).

use memmap2::MmapMut;

use super::Trouble;
use crate::budget::Charge;

/// # Safety
/// `start` is aligned to 8 bytes (for speed: to 64), and `nbytes` bytes from there on can be read and, unless the bank
/// was opened to be read only, written, by whoever holds the bank, until the next `grow` or the end.
pub unsafe trait Memory: Send + Sync {
    fn start(&self) -> *mut u8;
    fn nbytes(&self) -> usize;

    /// Makes it at least so large, perhaps in another place; what is new is zero.
    fn grow(&mut self, nbytes: usize) -> Result<(), Trouble>;

    /// Returns once all that was written is on the disk.
    fn sync(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    /// Will it be there after the process? Then it must be whole after every single store.
    fn lasts(&self) -> bool {
        false
    }
}

/// Memory of the process, from the kernel and with huge pages asked for.
pub struct Anonymous(MmapMut, Charge);

impl Anonymous {
    pub fn new(nbytes: usize) -> Result<Anonymous, Trouble> {
        let refused = || Trouble::NoMemory(nbytes as u64);
        let charge = Charge::take(nbytes as u64).ok_or_else(refused)?;
        let map = MmapMut::map_anon(nbytes).map_err(|_| refused())?;
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage); // a wish
        Ok(Anonymous(map, charge))
    }
}

// SAFETY: a map begins at a page's start and is ours alone.
unsafe impl Memory for Anonymous {
    fn start(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut()
    }

    fn nbytes(&self) -> usize {
        self.0.len()
    }

    fn grow(&mut self, nbytes: usize) -> Result<(), Trouble> {
        if nbytes <= self.nbytes() {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        {
            let more = Charge::take((nbytes - self.nbytes()) as u64);
            let more = more.ok_or(Trouble::NoMemory(nbytes as u64))?;
            // SAFETY: nobody holds a pointer into the map: that is what `grow` promises.
            let moved =
                unsafe { self.0.remap(nbytes, memmap2::RemapOptions::new().may_move(true)) };
            moved.map_err(|_| Trouble::NoMemory(nbytes as u64))?;
            self.1.merge(more);
            Ok(())
        }
        #[cfg(not(target_os = "linux"))]
        {
            let mut larger = Anonymous::new(nbytes)?;
            larger.0[..self.0.len()].copy_from_slice(&self.0);
            *self = larger;
            Ok(())
        }
    }
}

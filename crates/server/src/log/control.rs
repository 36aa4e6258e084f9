//! The number of the last written record in the control file, which the control plane creates
//! (docs/format.md). It survives a kill, as the log does: the kernel has it.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use memmap2::MmapMut;

/// Bytes of a number: itself, and its complement.
const NBYTES: usize = 16;

pub struct Control(Mutex<Inner>);

struct Inner {
    map: MmapMut,
    /// Where the number is stored, in turns: at least one of the two is intact.
    offsets: [usize; 2],
}

impl Control {
    /// Opens a control file that stores the number at these offsets.
    pub fn open(path: &Path, offsets: [usize; 2]) -> io::Result<Control> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // SAFETY: the folder's lock keeps other servers out, and the control plane, which maps the
        // file too, stores other numbers. No reference into the map outlives a call.
        let map = unsafe { MmapMut::map_mut(&file)? };
        if offsets.iter().any(|offset| offset + NBYTES > map.len()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the control file is too short",
            ));
        }
        Ok(Control(Mutex::new(Inner { map, offsets })))
    }

    /// Stores the number of the last written record.
    pub fn wrote(&self, seq: u64) {
        let Inner { map, offsets } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = &mut map[offsets[0]..offsets[0] + NBYTES];
        number[..8].copy_from_slice(&seq.to_le_bytes());
        number[8..].copy_from_slice(&(!seq).to_le_bytes());
        offsets.swap(0, 1);
    }
}

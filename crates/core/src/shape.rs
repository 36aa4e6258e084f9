//! What decides where a key's bits lie: the layout and its numbers. Which numbers suit a capacity
//! and an error rate is `bloomery.sizing`'s business; here they are only checked.

use crate::bits::{LINE_BITS, LINE_BYTES};
use crate::format::{FormatError, Header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layout {
    Blocked = 1,
    Classic = 2,
}

impl Layout {
    pub fn name(self) -> &'static str {
        match self {
            Layout::Blocked => "blocked",
            Layout::Classic => "classic",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Layout::Blocked, Layout::Classic].into_iter().find(|l| l.name() == name)
    }

    pub fn from_id(id: u8) -> Option<Self> {
        [Layout::Blocked, Layout::Classic].into_iter().find(|l| *l as u8 == id)
    }
}

/// Two patterns of eight bytes: no line holds more bits of one key.
pub const MAX_HASHES_PER_LINE: u32 = 16;
/// The textbook's k at 1e-9 is 30; twice that leaves room and bounds the work hostile bytes ask for.
pub const MAX_HASHES: u32 = 64;
/// 2^48 bits are 32 TiB: more than a machine has, and far from overflow anywhere.
pub const MAX_BITS: u64 = 1 << 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub layout: Layout,
    pub num_bits: u64,
    /// All of a key's bits, over all of its lines.
    pub num_hashes: u32,
    /// 1 or 2 in the blocked layout, 0 in the classic one.
    pub lines_per_key: u32,
}

impl Shape {
    /// The shape that a saved Bloom filter's header gives.
    pub fn of(header: &Header) -> Result<Shape, FormatError> {
        let Some(layout) = Layout::from_id(header.layout) else {
            return Err(FormatError::Newer(format!("unknown layout {}", header.layout)));
        };
        let shape = Shape {
            layout,
            num_bits: header.num_bits,
            num_hashes: u32::from(header.num_hashes),
            lines_per_key: u32::from(header.lines_per_key),
        };
        shape.check().map_err(FormatError::Corrupt)?;
        if header.nbytes != shape.nbytes() {
            let (found, expected) = (header.nbytes, shape.nbytes());
            let message = format!("{found} bytes of bits, expected {expected}");
            return Err(FormatError::Corrupt(message));
        }
        Ok(shape)
    }

    pub fn check(&self) -> Result<(), String> {
        if self.num_bits == 0 || self.num_bits > MAX_BITS {
            return Err(format!("num_bits is {}, must be 1 to {MAX_BITS}", self.num_bits));
        }
        let (lines, hashes) = (self.lines_per_key, self.num_hashes);
        match self.layout {
            Layout::Classic if lines != 0 => {
                Err(format!("lines_per_key is {lines}, must be 0 in the classic layout"))
            }
            Layout::Classic if hashes == 0 || hashes > MAX_HASHES => {
                Err(format!("num_hashes is {hashes}, must be 1 to {MAX_HASHES}"))
            }
            Layout::Blocked if !self.num_bits.is_multiple_of(LINE_BITS) => {
                Err(format!("num_bits is {}, must be whole lines of {LINE_BITS}", self.num_bits))
            }
            Layout::Blocked if lines != 1 && lines != 2 => {
                Err(format!("lines_per_key is {lines}, must be 1 or 2"))
            }
            Layout::Blocked
                if hashes == 0
                    || !hashes.is_multiple_of(2 * lines)
                    || hashes / lines > MAX_HASHES_PER_LINE =>
            {
                Err(format!(
                    "num_hashes is {hashes}, must be even and at most {MAX_HASHES_PER_LINE} for \
                     each line of a key, of which there are {lines}"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Bytes in memory and in a file: whole lines.
    pub fn nbytes(&self) -> u64 {
        self.num_bits.div_ceil(LINE_BITS) * LINE_BYTES as u64
    }
}

//! Filters whose memory lies in Redis: where a key's cells are in strings there, the commands that
//! ask for them and change them (commands.rs), and what the replies mean.
//!
//! The strings are the bytes of the local filter, one behind the other: a string ends where the next
//! shard begins. Redis counts bits from the most significant one of each byte, we from the least.

mod commands;
mod resp;
#[cfg(test)]
mod tests;

pub use commands::{Commands, Doing};

use crate::bits::{LINE_BITS, LINE_BYTES};
use crate::cells::drawn;
use crate::format::{FormatError, Header, KindId};
use crate::kind;
use crate::probe::{anywhere, in_line, mulhi, second};
use crate::shape::{Layout, Shape};

/// The longest string of Redis.
pub const MAX_SHARD_BYTES: u64 = 1 << 29;

/// Where a key's cells lie in one of its lines, or in all of the bits.
#[derive(Clone, Copy)]
enum Cells {
    /// So many bits in each half of a line.
    Blocked(usize),
    Classic(Shape),
    /// So many counters of a line.
    Counters(usize),
}

#[derive(Clone, Copy)]
pub struct Places {
    pub header: Header,
    cells: Cells,
    /// Bits of a cell: 1, 4 or 8.
    pub width: u64,
    pub shard_bytes: u64,
}

impl Places {
    /// For a Bloom or a counting filter that this header describes, in strings of so many bytes; the
    /// last may be shorter.
    pub fn new(header: &Header, shard_bytes: u64) -> Result<Self, FormatError> {
        let corrupt = |message: String| Err(FormatError::Corrupt(message));
        if shard_bytes == 0
            || !shard_bytes.is_multiple_of(LINE_BYTES as u64)
            || shard_bytes > MAX_SHARD_BYTES
        {
            return corrupt(format!(
                "{shard_bytes} bytes in a shard, must be whole lines of {LINE_BYTES} and at most \
                 {MAX_SHARD_BYTES}"
            ));
        }
        let per_key = usize::from(header.lines_per_key.max(1));
        let draws = usize::from(header.num_hashes) / per_key;
        let (cells, width) = match header.kind {
            KindId::Bloom => match Shape::of(header)? {
                shape if shape.layout == Layout::Classic => (Cells::Classic(shape), 1),
                _ => (Cells::Blocked(draws / 2), 1),
            },
            KindId::Counting => {
                // A line of it: whether the numbers are right is the counting filter's business.
                let line = Header { num_bits: LINE_BITS, nbytes: LINE_BYTES as u64, ..*header };
                kind::open(&line, None)?;
                if header.nbytes == 0 || header.nbytes.checked_mul(8) != Some(header.num_bits) {
                    return corrupt("bits and bytes do not agree".into());
                }
                (Cells::Counters(draws), header.extra[0])
            }
            other => return corrupt(format!("a {} filter cannot lie in Redis", other.name())),
        };
        Ok(Places { header: *header, cells, width, shard_bytes })
    }

    /// How long a shard's string is.
    pub fn bytes_of(&self, shard: u64) -> u64 {
        let start = shard.saturating_mul(self.shard_bytes);
        self.header.nbytes.saturating_sub(start).min(self.shard_bytes)
    }

    pub fn shards(&self) -> usize {
        self.header.nbytes.div_ceil(self.shard_bytes) as usize
    }

    /// Are all of a key's cells in one of its lines?
    fn in_lines(&self) -> bool {
        !matches!(self.cells, Cells::Classic(_))
    }

    /// The lowest bit of each of the key's cells, as we count them, in order; a cell drawn twice is
    /// one cell.
    pub fn cells(&self, h: u64, found: &mut Vec<u64>) {
        found.clear();
        let lines = self.header.nbytes / LINE_BYTES as u64;
        let hashes = [h, second(h)];
        let hashes = hashes.into_iter().take(usize::from(self.header.lines_per_key));
        match self.cells {
            Cells::Classic(shape) => found.extend(anywhere(h, shape.num_bits, shape.num_hashes)),
            Cells::Blocked(each) => hashes.for_each(|h| {
                let start = mulhi(h, lines) * LINE_BITS;
                found.extend(in_line(h, each).map(|bit| start + bit));
            }),
            Cells::Counters(draws) => hashes.for_each(|h| {
                let start = mulhi(h, lines) * LINE_BITS;
                let cell = |lane| start + ((lane * (LINE_BITS / self.width)) >> 16) * self.width;
                found.extend(drawn(h, draws).map(cell));
            }),
        }
        found.sort_unstable();
        found.dedup();
    }

    /// The shard that a bit lies in, and the bit's place there.
    fn shard(&self, bit: u64) -> (usize, u64) {
        let bits = self.shard_bytes * 8;
        ((bit / bits) as usize, bit % bits)
    }

    /// Redis's offset of a cell, from that of its lowest bit.
    fn offset(&self, bit: u64) -> u64 {
        bit ^ (8 - self.width)
    }

    /// A cell's value, out of a line's bytes.
    fn value(&self, line: &[u8], bit: u64) -> u8 {
        let byte = line.get((bit % LINE_BITS / 8) as usize).copied().unwrap_or(0);
        byte >> (bit % 8) & (u8::MAX >> (8 - self.width))
    }
}

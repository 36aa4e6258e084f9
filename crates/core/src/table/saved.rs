//! A table in a file: its numbers in the header, its slots as they are in memory.
//!
//! `layout` is the number of slots of two buckets, `num_bits` all bits of all slots; `lines_per_key`
//! and `num_hashes` are 2, the buckets of a key. The first word of `extra` has the number of buckets
//! and the bits of a tag, a stream and a mark, the second the entries, the third the error rate; the
//! rest is the kind's.

use super::{Geometry, RING_PAIR, Table};
use crate::bits::Bits;
use crate::format::{FormatError, Header};

impl<const RING: bool> Table<RING> {
    /// An empty table as the header says, or the one that was saved.
    pub fn open(header: &Header, body: Option<Bits>) -> Result<Table<RING>, FormatError> {
        let corrupt = |message: String| Err(FormatError::Corrupt(message));
        let geometry = Geometry::of(header);
        if let Err(message) = geometry.check() {
            return corrupt(message);
        }
        if geometry.ring != RING {
            return corrupt(format!("{} slots a pair of buckets", geometry.pair));
        }
        if header.lines_per_key != 2 || header.num_hashes != 2 {
            return corrupt(format!("{} buckets a key, must be 2", header.num_hashes));
        }
        if header.num_bits != geometry.num_bits() || header.nbytes != geometry.nbytes() {
            return corrupt(format!(
                "{} bits in {} bytes, expected {} in {}",
                header.num_bits,
                header.nbytes,
                geometry.num_bits(),
                geometry.nbytes()
            ));
        }
        let Some(body) = body else {
            return Table::empty(geometry).ok_or(FormatError::NoMemory(geometry.nbytes()));
        };
        let (entries, rate) = (header.extra[1], f64::from_bits(header.extra[2]));
        if entries > geometry.slots() {
            return corrupt(format!("{entries} entries in {} slots", geometry.slots()));
        }
        if !(0.0..=f64::MAX).contains(&rate) {
            return corrupt(format!("an error rate of {rate}"));
        }
        Ok(Table::over(body, geometry, entries, rate))
    }

    /// Writes the table's numbers into its kind's header.
    pub fn describe(&self, header: &mut Header) {
        self.geometry.describe(header);
        // A header may have said more than there were; what is saved can be opened.
        header.extra[1] = self.entries.min(self.geometry.slots());
        header.extra[2] = self.rate.to_bits();
    }
}

/// Where the bits of tag, stream and mark stand in the word whose lower part are the buckets.
const TAG: u32 = 48;
const STREAM: u32 = 54;
const MARK: u32 = 59;

impl Geometry {
    pub(super) fn of(header: &Header) -> Geometry {
        let word = header.extra[0];
        let bits = |from: u32, to: u32| (word >> from) as u32 & ((1 << (to - from)) - 1);
        Geometry {
            buckets: word & ((1 << TAG) - 1),
            pair: u32::from(header.layout),
            tag_bits: bits(TAG, STREAM),
            stream_bits: bits(STREAM, MARK),
            mark_bits: bits(MARK, 64),
            ring: u32::from(header.layout) == RING_PAIR,
        }
    }

    /// The numbers as one word; with `pair` it is all that there is to know.
    pub fn packed(&self) -> u64 {
        let Geometry { buckets, tag_bits, stream_bits, mark_bits, .. } = *self;
        let bits = |value: u32, at: u32| u64::from(value) << at;
        buckets | bits(tag_bits, TAG) | bits(stream_bits, STREAM) | bits(mark_bits, MARK)
    }

    fn describe(&self, header: &mut Header) {
        header.layout = self.pair as u8;
        header.lines_per_key = 2;
        header.num_hashes = 2;
        header.num_bits = self.num_bits();
        header.nbytes = self.nbytes();
        header.extra[0] = self.packed();
    }
}

//! A table in a file: its numbers in the header, its slots as they are in memory.
//!
//! `layout` is the number of slots of two buckets, `lines_per_key` the bits of a mark, `num_hashes`
//! the bits of a tag and, in its upper byte, of a stream; `num_bits` all bits of all slots. The first
//! three words of `extra` are the buckets, the entries and the error rate; the rest is the kind's.

use super::{Geometry, RING_PAIR, Table};
use crate::bits::Bits;
use crate::format::{FormatError, Header};

impl Table {
    /// An empty table as the header says, or the one that was saved.
    pub fn open(header: &Header, body: Option<Bits>) -> Result<Table, FormatError> {
        let corrupt = |message: String| Err(FormatError::Corrupt(message));
        let geometry = Geometry::of(header);
        if let Err(message) = geometry.check() {
            return corrupt(message);
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
            return match Table::empty(geometry) {
                Some(table) => Ok(table),
                None => corrupt(format!("{} bytes could not be had", geometry.nbytes())),
            };
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
        header.extra[1] = self.entries;
        header.extra[2] = self.rate.to_bits();
    }
}

impl Geometry {
    fn of(header: &Header) -> Geometry {
        Geometry {
            buckets: header.extra[0],
            pair: u32::from(header.layout),
            tag_bits: u32::from(header.num_hashes & 255),
            stream_bits: u32::from(header.num_hashes >> 8),
            mark_bits: u32::from(header.lines_per_key),
            ring: u32::from(header.layout) == RING_PAIR,
        }
    }

    pub fn describe(&self, header: &mut Header) {
        header.layout = self.pair as u8;
        header.lines_per_key = self.mark_bits as u8;
        header.num_hashes = (self.tag_bits | self.stream_bits << 8) as u16;
        header.num_bits = self.num_bits();
        header.nbytes = self.nbytes();
        header.extra[0] = self.buckets;
    }
}

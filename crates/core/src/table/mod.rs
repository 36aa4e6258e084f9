//! A table of fingerprints: two buckets of a few slots for each key, as in a cuckoo filter; what the growing,
//! the removing and the rotating kinds are made of.
//!
//! A hash is read as a **tag** (its low bits) and a **stream** (its bits from the top down). A key may
//! lie in the bucket that its stream names or in the one that `stream ^ partner(tag)` does. Either
//! stream serves as well as the other, so an entry need not know which one it lies under. A slot
//! holds, from the top, a mark, the tag, and a field: the bits of the stream that come after those
//! that name the bucket, a one that ends them, and zeros.
//!
//! **Growing** first gives the buckets more slots, one of every two at a time, from 9 a pair to 16;
//! then their number doubles. Steps are an eighth at most, so most slots are in use at any size. (One
//! bucket after the other, as in linear hashing, was tried: full buckets are then far from free
//! ones, and an entry took 10 times as long to place.) When the number doubles, an entry moves by the
//! next bit of its stream, which it then has one less of: the key is not needed. An entry that has
//! none left goes into both halves. An entry lets a share `2^(1 - known bits)` of all keys through,
//! whatever the table's size: the error rate is a sum over the entries, and only adding raises it.
//!
//! A table that is not to grow (a **ring**) has any even number of buckets, of four slots, and keeps
//! no stream bits, only the tag.

#[cfg(test)]
mod attacks;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod block;
mod entries;
mod geometry;
mod growth;
mod overflow;
mod saved;
mod search;
mod slots;
#[cfg(test)]
mod tests;

pub use block::{Added, Adder, Plan, add_each};
pub use geometry::{
    Geometry, LEAST_PAIR, MAX_LOAD, MAX_SLOT_BITS, MOST_BUCKETS, MOST_PAIR, MOST_STREAM_BITS,
    MOST_TAG_BITS, RING_PAIR,
};
pub use growth::{GROWTH, LARGE, MOST_GROWTH, colliding};

use self::search::Node;
use self::slots::Lanes;
use crate::bits::Bits;
use crate::kind::Refusal;
use crate::probe::mulhi;

pub struct Table<const RING: bool> {
    bits: Bits,
    geometry: Geometry,
    /// Entries, copies included.
    entries: u64,
    /// The chance that a key that was never added is found: the sum of the entries'.
    rate: f64,
    /// Is growing left to somebody who has the time, where it takes long?
    defer: bool,
    /// What the last search for room looked at, for the next one's use of the memory.
    nodes: Vec<Node>,
    // Made of the geometry, for speed.
    /// Entries at which it is time to grow.
    most_entries: u64,
    /// What a new entry adds to the error rate.
    fresh_weight: f64,
    slot_bits: u32,
    slot_mask: u64,
    tag_shift: u32,
    tag_mask: u64,
    field_mask: u64,
    /// How many bits of a stream name a bucket.
    level: u32,
    pair: u64,
    even: u64,
    pair_bits: u64,
    even_bits: u64,
    /// Slots that are looked at in one word; and masks for so many of them.
    together: u64,
    lanes: [Lanes; MOST_PAIR as usize / 2 + 1],
}

/// The two places a key may be in: a bucket, and what a slot there would hold, but for the mark.
#[derive(Clone, Copy)]
struct Places {
    buckets: [u64; 2],
    entries: [u64; 2],
}

/// What to XOR a stream with to get to the tag's other bucket. Its top bit is set: it is another.
#[inline(always)]
fn partner(tag: u64) -> u64 {
    (tag + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 << 63
}

#[inline(always)]
fn low(bits: u32) -> u64 {
    (1u64 << bits) - 1
}

impl<const RING: bool> Table<RING> {
    /// A table over this memory: zeros for an empty one, else with so many entries in it.
    pub fn over(bits: Bits, geometry: Geometry, entries: u64, rate: f64) -> Table<RING> {
        debug_assert!(bits.nbytes() as u64 >= geometry.nbytes() && geometry.ring == RING);
        let (width, tag_shift) = (geometry.slot_bits(), geometry.field_bits());
        let (tag_mask, field_mask) = (low(geometry.tag_bits), low(tag_shift));
        let compared = tag_mask << tag_shift | field_mask;
        let together = u64::from(57 / width).min(u64::from(MOST_PAIR) / 2);
        let lanes = |count: usize| {
            let ones = (0..count.min(together as usize) as u32).map(|i| 1 << (i * width)).sum();
            Lanes {
                ones,
                tops: ones * (compared ^ compared >> 1),
                fields: ones * field_mask,
                compared: ones * compared,
            }
        };
        Table {
            bits,
            geometry,
            entries,
            rate,
            defer: false,
            nodes: Vec::new(),
            most_entries: (MAX_LOAD * geometry.slots() as f64).ceil() as u64,
            fresh_weight: geometry.fresh_weight(),
            slot_bits: width,
            slot_mask: low(width),
            tag_shift,
            tag_mask,
            field_mask,
            level: geometry.buckets.ilog2(),
            pair: u64::from(geometry.pair),
            even: u64::from(geometry.pair.div_ceil(2)),
            pair_bits: u64::from(geometry.pair * width),
            even_bits: u64::from(geometry.pair.div_ceil(2) * width),
            together,
            lanes: std::array::from_fn(lanes),
        }
    }

    pub fn empty(geometry: Geometry) -> Option<Table<RING>> {
        Table::made(geometry, Bits::zeroed)
    }

    /// An empty table in memory of this sort.
    fn made(geometry: Geometry, zeroed: fn(usize) -> Option<Bits>) -> Option<Table<RING>> {
        geometry.check().ok()?;
        let bits = zeroed(usize::try_from(geometry.nbytes()).ok()?)?;
        Some(Table::over(bits, geometry, 0, 0.0))
    }

    /// Goes back to the size it was made with. A header may name any capacity: one that is larger
    /// than the table is now was not what it was made with.
    pub fn restart(&mut self, start: Geometry) -> Result<(), Refusal> {
        let smaller = start.nbytes() <= self.geometry.nbytes();
        let geometry = if smaller { start } else { self.geometry };
        let table = Table::empty(geometry).ok_or(Refusal::NoMemory(geometry.nbytes()))?;
        *self = Table { defer: self.defer, ..table };
        Ok(())
    }

    pub fn defer_growth(&mut self, defer: bool) {
        self.defer = defer;
    }

    /// Is work on all of it to be left to somebody who has the time?
    pub fn defers(&self) -> bool {
        self.defer && self.geometry.nbytes() >= LARGE
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub fn bits(&self) -> &Bits {
        &self.bits
    }

    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn rate(&self) -> f64 {
        self.rate
    }

    pub fn load(&self) -> f64 {
        self.entries as f64 / self.geometry.slots() as f64
    }

    pub fn clear(&mut self) {
        self.bits.clear();
        self.entries = 0;
        self.rate = 0.0;
    }

    // Where a key may be.

    #[inline(always)]
    fn places(&self, h: u64) -> Places {
        if RING {
            // No tag is 0: an empty slot is.
            let top = h >> (64 - self.geometry.tag_bits);
            let tag = top | u64::from(top == 0);
            let first = mulhi(h.rotate_left(self.geometry.tag_bits), self.geometry.buckets);
            return Places { buckets: [first, self.across(first, tag)], entries: [tag; 2] };
        }
        let tag = h & self.tag_mask;
        let other = h ^ partner(tag);
        Places {
            buckets: [h >> (64 - self.level), other >> (64 - self.level)],
            entries: [self.entry(tag, h << self.level), self.entry(tag, other << self.level)],
        }
    }

    /// What a slot holds for a new key: all that there is room for.
    #[inline(always)]
    fn entry(&self, tag: u64, rest: u64) -> u64 {
        let field = rest >> (63 - self.geometry.stream_bits) | 1;
        tag << self.tag_shift | field
    }

    /// The other bucket of a tag, in a ring. The sum of both is odd and their number even, so it is
    /// another one. Sums in steps of equal size would lead back to where they came from: entries
    /// could move among few buckets, and the fullest of such sets would refuse keys too early.
    #[inline(always)]
    fn across(&self, bucket: u64, tag: u64) -> u64 {
        let sum = mulhi(tag.wrapping_mul(0x9E37_79B9_7F4A_7C15), self.geometry.buckets) | 1;
        if sum >= bucket { sum - bucket } else { sum + self.geometry.buckets - bucket }
    }

    #[inline(always)]
    pub fn prefetch(&self, h: u64) {
        let buckets = self.places(h).buckets;
        self.prefetch_bucket(buckets[0]);
        self.prefetch_bucket(buckets[1]);
    }

    #[inline(always)]
    pub fn contains(&self, h: u64) -> bool {
        let Places { buckets: [a, b], entries } = self.places(h);
        let first = self.bucket_holds(self.first_bit(a), self.count(a), entries[0]);
        if self.slot_bits > 14 && first {
            return true;
        }
        first | self.bucket_holds(self.first_bit(b), self.count(b), entries[1])
    }

    /// Every slot that the key may be in, with what it holds.
    #[inline(always)]
    pub fn matches(&self, h: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let Places { buckets, entries } = self.places(h);
        buckets.into_iter().zip(entries).flat_map(move |(bucket, entry)| {
            self.spots(bucket).filter_map(move |spot| {
                let value = self.get(spot);
                let holds = self.differences(value, entry, &self.lanes[1]) == 0;
                holds.then_some((spot, value))
            })
        })
    }
}

//! How large a table is, and what its slots look like: the numbers, and which suit how many keys.

use crate::bits::LINE_BYTES;

use super::low;

/// Slots of two buckets, the even one and the odd one after it: a ring's, and the least and the most
/// of a table that grows.
pub const RING_PAIR: u32 = 8;
pub const LEAST_PAIR: u32 = 9;
pub const MOST_PAIR: u32 = 16;
/// A slot is read as 8 bytes from any bit on.
pub const MAX_SLOT_BITS: u32 = 56;
pub const MOST_BUCKETS: u64 = 1 << 40;
pub const MOST_TAG_BITS: u32 = 50;
pub const MOST_STREAM_BITS: u32 = 24;
/// Slots in use, of all: beyond it the search for a free one takes long. (The limit of two buckets of
/// four is 98%, of more slots higher.)
pub const MAX_LOAD: f64 = 0.955;
/// New entries from one doubling of the buckets to the next, four a bucket, each found by two
/// streams: what a doubling adds to the error rate if entries kept no bits.
const RATE_PER_DOUBLING: f64 = 2.0 * MAX_LOAD * MOST_PAIR as f64 / 4.0;
/// Which share of what is left of the error rate the entries up to the next doubling may take, by how
/// many entries there will be then. Small tables have wide slots, which cost little memory and leave
/// the error rate to the large ones: at 1% 17 bits up to half a million entries, 15 up to 8 M,
/// 13 to 14 from there to 128 M, and one more for every four times as many.
const SHARES: [(u64, f64); 4] =
    [(1 << 11, 1.0 / 32.0), (1 << 19, 1.0 / 64.0), (1 << 23, 1.0 / 12.0), (u64::MAX, 0.4)];
/// And of a new table, which may stay as large as it was made.
const FIRST_SHARES: [(u64, f64); 2] = [(1 << 17, 1.0 / 32.0), (u64::MAX, 0.4)];
/// Shorter tags lead to too few buckets to fill a ring: with 7 bits 4 M slots were refused a key at
/// 91% load, with 8 at 94%, with 9 at 96%. In small ones it is chance: of 1,000 with 64 slots, the
/// first was full at 83%, with 256 at 92%, with 1,000 at 94.5%.
const LEAST_RING_TAG: u32 = 8;
const RING_LOAD: f64 = 0.93;
/// The numbers that say where a table's entries are and what they look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// A power of two, at least 2, unless it is a ring.
    pub buckets: u64,
    /// Slots of two buckets; of an odd number the even bucket has one more.
    pub pair: u32,
    pub tag_bits: u32,
    /// Most bits of its stream that an entry keeps. A slot has one bit more, which says how many.
    pub stream_bits: u32,
    /// Bits of a slot that belong to whoever uses the table (a generation).
    pub mark_bits: u32,
    /// Fixed in size: tags only.
    pub ring: bool,
}

impl Geometry {
    pub fn slot_bits(&self) -> u32 {
        self.mark_bits + self.tag_bits + self.field_bits()
    }

    pub(super) fn field_bits(&self) -> u32 {
        if self.ring { 0 } else { self.stream_bits + 1 }
    }

    pub fn check(&self) -> Result<(), String> {
        let Geometry { buckets, pair, tag_bits, stream_bits, mark_bits, ring } = *self;
        let whole = if ring { buckets.is_multiple_of(2) } else { buckets.is_power_of_two() };
        if !(2..=MOST_BUCKETS).contains(&buckets) || !whole {
            let right = if ring { "even" } else { "a power of two" };
            return Err(format!("{buckets} buckets, must be {right}, from 2 to 2^40"));
        }
        let (pairs, tags, streams) = match ring {
            true => (RING_PAIR..=RING_PAIR, 2..=MOST_TAG_BITS, 0..=0),
            false => (LEAST_PAIR..=MOST_PAIR, 4..=28, 1..=MOST_STREAM_BITS),
        };
        if !pairs.contains(&pair) {
            return Err(format!("{pair} slots a pair of buckets, must be {pairs:?}"));
        }
        if !tags.contains(&tag_bits) {
            return Err(format!("tags of {tag_bits} bits, must be {tags:?}"));
        }
        if !streams.contains(&stream_bits) {
            return Err(format!("{stream_bits} bits of a stream, must be {streams:?}"));
        }
        if mark_bits > 8 || self.slot_bits() > MAX_SLOT_BITS {
            return Err(format!("a slot of {} bits, {mark_bits} of a mark", self.slot_bits()));
        }
        Ok(())
    }

    /// The size after this one, of a table that grows; its slots are to be planned.
    pub(super) fn next(self) -> Geometry {
        match self.pair {
            MOST_PAIR => Geometry { buckets: self.buckets * 2, pair: LEAST_PAIR, ..self },
            pair => Geometry { pair: pair + 1, ..self },
        }
    }

    /// The share of all keys that a new entry lets through.
    pub(super) fn fresh_weight(&self) -> f64 {
        if self.ring {
            return 2.0 / (self.buckets as f64 * low(self.tag_bits) as f64);
        }
        2f64.powi(1 - self.buckets.ilog2() as i32 - self.kept())
    }

    /// The most bits of a stream that a slot has room for, beside tag and mark.
    pub(super) fn most_stream_bits(&self) -> u32 {
        MOST_STREAM_BITS.min(MAX_SLOT_BITS - 1 - self.tag_bits - self.mark_bits)
    }

    /// Bytes of memory, in whole lines, with room for the last slot to be read as 8 bytes.
    pub fn nbytes(&self) -> u64 {
        (self.num_bits().div_ceil(8) + 8).next_multiple_of(LINE_BYTES as u64)
    }

    pub fn slots(&self) -> u64 {
        self.buckets.div_ceil(2).saturating_mul(self.pair.into())
    }

    pub fn num_bits(&self) -> u64 {
        self.slots().saturating_mul(self.slot_bits().into())
    }
}

/// The fewest bits of a stream for which the entries up to the next doubling take no more than their
/// share of what is `left` of the error rate with so many bits.
fn fewest_stream_bits(geometry: Geometry, shares: &[(u64, f64)], left: impl Fn(u32) -> f64) -> u32 {
    // Saturating: the capacity of a hostile header is any number.
    let entries = geometry.buckets.saturating_mul(u64::from(MOST_PAIR)) / 2;
    let share = shares.iter().find(|(most, _)| entries <= *most).map_or(0.0, |(_, share)| *share);
    let enough = |bits: &u32| {
        let wide = Geometry { stream_bits: *bits, ..geometry };
        RATE_PER_DOUBLING * 2f64.powi(-wide.kept()) <= share * left(*bits)
    };
    let most = geometry.most_stream_bits();
    (1..=most).find(enough).unwrap_or(most)
}

/// As many as a table's entries should keep from here on.
pub(super) fn stream_bits(next: Geometry, left: impl Fn(u32) -> f64) -> u32 {
    fewest_stream_bits(next, &SHARES, left)
}

impl Geometry {
    /// Bits of a hash that a new entry keeps in its slot.
    pub(super) fn kept(&self) -> i32 {
        (self.tag_bits + self.stream_bits) as i32
    }

    /// A table that is to grow from `capacity` entries on, however far.
    pub fn growing(capacity: u64, error_rate: f64) -> Geometry {
        let start = Geometry::growable(capacity, error_rate, 0);
        let stream_bits = fewest_stream_bits(start, &FIRST_SHARES, |_| error_rate);
        Geometry { stream_bits, ..start }
    }

    /// A table that is made for `capacity` entries and grows only if there are more.
    pub fn roomy(capacity: u64, error_rate: f64, mark_bits: u32) -> Geometry {
        let start = Geometry::growable(capacity, error_rate, mark_bits);
        let each = 2.0 * MAX_LOAD * start.slots() as f64 / start.buckets as f64;
        let fits = |bits: &u32| {
            let kept = Geometry { stream_bits: *bits, ..start }.kept();
            each * 2f64.powi(-kept) <= error_rate
        };
        let most = start.most_stream_bits();
        let stream_bits = (1..=most).find(fits).unwrap_or(most);
        Geometry { stream_bits, ..start }
    }

    /// Tags need a few bits to spread the entries of a bucket over others (with 5 instead of 6 the
    /// search gives up at up to 5% less load); the rest is better kept as stream, which growth uses.
    fn growable(capacity: u64, error_rate: f64, mark_bits: u32) -> Geometry {
        let tag_bits = ((1.0 / error_rate).log2().ceil() as u32).saturating_sub(2).clamp(6, 28);
        let slots = (capacity as f64 / MAX_LOAD).ceil() as u64;
        let pairs = slots.div_ceil(u64::from(MOST_PAIR)).next_power_of_two();
        let pair = slots.div_ceil(pairs).max(u64::from(LEAST_PAIR)) as u32;
        Geometry { buckets: 2 * pairs, pair, tag_bits, stream_bits: 1, mark_bits, ring: false }
    }

    /// A table of just this size: tags only, as short as the error rate allows.
    pub fn ring(capacity: u64, error_rate: f64) -> Geometry {
        let looks = f64::from(RING_PAIR) * MAX_LOAD;
        let fits = |bits: &u32| 1.0 - (1.0 - 1.0 / low(*bits) as f64).powf(looks) <= error_rate;
        let tag_bits = (LEAST_RING_TAG..=MOST_TAG_BITS).find(fits).unwrap_or(MOST_TAG_BITS);
        let load = if tag_bits == LEAST_RING_TAG { RING_LOAD } else { MAX_LOAD };
        let count = capacity as f64;
        let slots = (count / load).max((count + 1.25 * count.sqrt() + 4.0) / 0.97).ceil() as u64;
        let (buckets, pair) = (2 * slots.div_ceil(RING_PAIR.into()), RING_PAIR);
        Geometry { buckets, pair, tag_bits, stream_bits: 0, mark_bits: 0, ring: true }
    }
}

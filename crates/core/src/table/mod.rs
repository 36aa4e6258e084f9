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
mod block;
mod growth;
mod saved;
mod search;
#[cfg(test)]
mod tests;

pub use growth::{GROWTH, MOST_GROWTH, colliding};

use std::ops::Range;

use crate::bits::{Bits, LINE_BYTES};
use crate::probe::{mulhi, prefetch};

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

    fn field_bits(&self) -> u32 {
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

    /// The most bits of a stream that a slot has room for, beside tag and mark.
    fn most_stream_bits(&self) -> u32 {
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

pub struct Table<const RING: bool> {
    bits: Bits,
    geometry: Geometry,
    /// Entries, copies included.
    entries: u64,
    /// The chance that a key that was never added is found: the sum of the entries'.
    rate: f64,
    // Made of the geometry, for speed.
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

/// Masks over a few slots that lie side by side in a word.
#[derive(Clone, Copy, Default)]
struct Lanes {
    /// The lowest bit of each.
    ones: u64,
    /// The highest bit of each that is compared: below the mark.
    tops: u64,
    /// The field of each.
    fields: u64,
    /// Tag and field of each.
    compared: u64,
}

impl Lanes {
    /// Is one of them all zeros?
    #[inline(always)]
    fn any_zero(&self, word: u64) -> bool {
        word.wrapping_sub(self.ones) & !word & self.tops != 0
    }
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

    /// `None` if it cannot be had: a saved filter may name any capacity, which clearing goes back to.
    pub fn empty(geometry: Geometry) -> Option<Table<RING>> {
        geometry.check().ok()?;
        let bits = Bits::zeroed(usize::try_from(geometry.nbytes()).ok()?)?;
        Some(Table::over(bits, geometry, 0, 0.0))
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
    fn prefetch_bucket(&self, bucket: u64) {
        let bit = self.first_bit(bucket);
        prefetch(self.bits.as_ptr().wrapping_add((bit / 8) as usize));
    }

    // Slots, by their number in the table.

    #[inline(always)]
    fn first_bit(&self, bucket: u64) -> u64 {
        (bucket >> 1) * self.pair_bits + ((bucket & 1).wrapping_neg() & self.even_bits)
    }

    /// How many slots a bucket has.
    #[inline(always)]
    fn count(&self, bucket: u64) -> u64 {
        if bucket & 1 == 0 { self.even } else { self.pair - self.even }
    }

    #[inline(always)]
    fn spots(&self, bucket: u64) -> Range<u64> {
        let start = (bucket >> 1) * self.pair + (bucket & 1) * self.even;
        start..start + self.count(bucket)
    }

    #[inline(always)]
    pub fn get(&self, spot: u64) -> u64 {
        debug_assert!(spot < self.geometry.slots());
        self.read(spot * u64::from(self.slot_bits)) & self.slot_mask
    }

    #[inline(always)]
    pub fn put(&mut self, spot: u64, value: u64) {
        debug_assert!(spot < self.geometry.slots() && value <= self.slot_mask);
        self.write(spot * u64::from(self.slot_bits), self.slot_mask, value);
    }

    /// 57 bits or more from a slot's first bit on.
    #[inline(always)]
    fn read(&self, bit: u64) -> u64 {
        // SAFETY: the bit is a slot's, and the memory goes on for 8 bytes behind the last slot.
        let word =
            unsafe { self.bits.as_ptr().add((bit / 8) as usize).cast::<u64>().read_unaligned() };
        word >> (bit % 8)
    }

    /// Replaces the bits of a mask of at most 57 bits, from a slot's first bit on.
    #[inline(always)]
    fn write(&mut self, bit: u64, mask: u64, value: u64) {
        // SAFETY: as in `read`; whoever may write has the table to itself. One store of 8 bytes: a
        // killed process leaves the old value or the new one.
        unsafe {
            let at = self.bits.as_ptr().add((bit / 8) as usize).cast_mut().cast::<u64>();
            let others = at.read_unaligned() & !(mask << (bit % 8));
            at.write_unaligned(others | value << (bit % 8));
        }
    }

    /// Masks for so many slots: at most as many as are looked at in one word.
    #[inline(always)]
    fn lanes(&self, count: u64) -> &Lanes {
        debug_assert!(count < self.lanes.len() as u64);
        // SAFETY: no bucket has more slots than there are masks (`Geometry::check`).
        unsafe { self.lanes.get_unchecked(count as usize) }
    }

    /// The first empty slot of a bucket.
    #[inline(always)]
    fn free(&self, bucket: u64) -> Option<u64> {
        let Range { start: mut at, end } = self.spots(bucket);
        while at < end {
            let count = self.together.min(end - at);
            let lanes = self.lanes(count);
            let word = self.read(at * u64::from(self.slot_bits)) & lanes.compared;
            // Borrows may mark slots above an empty one, never below: the lowest is right.
            let empty = word.wrapping_sub(lanes.ones) & !word & lanes.tops;
            if empty != 0 {
                return Some(at + u64::from(empty.trailing_zeros() / self.slot_bits));
            }
            at += count;
        }
        None
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

    /// Does a bucket, by its first bit and its number of slots, hold the key of this entry?
    #[inline(always)]
    fn bucket_holds(&self, bit: u64, count: u64, entry: u64) -> bool {
        const HALF: u64 = RING_PAIR as u64 / 2;
        let width = u64::from(self.slot_bits);
        if self.slot_bits <= 14 {
            // Two words hold any bucket (a ring's, one): both are looked at, without a branch.
            let found = self.in_word(bit, HALF, entry);
            return found | (!RING && self.in_word(bit + HALF * width, count - HALF, entry));
        }
        let (mut at, mut left) = (bit, count);
        while left > 0 {
            let some = self.together.min(left);
            if self.in_word(at, some, entry) {
                return true;
            }
            (at, left) = (at + some * width, left - some);
        }
        false
    }

    /// Does one of so many slots, from this bit on, hold the key of this entry?
    #[inline(always)]
    fn in_word(&self, bit: u64, count: u64, entry: u64) -> bool {
        let lanes = self.lanes(count);
        let word = self.read(bit);
        lanes.any_zero(self.differences(word, entry, lanes))
    }

    /// In each slot, the bits in which it differs from the entry of a key; of its field only those
    /// above the one that ends it count. An empty slot differs.
    #[inline(always)]
    fn differences(&self, word: u64, entry: u64, lanes: &Lanes) -> u64 {
        let differs = (word ^ lanes.ones.wrapping_mul(entry)) & lanes.compared;
        if RING {
            return differs;
        }
        let fields = word & lanes.fields;
        let guards = lanes.ones << self.tag_shift;
        // One less: the bits up to and with the lowest one flip. In an empty field the guard does.
        let less = (fields | guards).wrapping_sub(lanes.ones);
        differs & !((fields ^ less) & lanes.fields) | guards & !less
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

    /// How many bits of its stream an entry keeps.
    #[inline(always)]
    fn kept(&self, value: u64) -> u32 {
        // Hostile bytes may have no one to end the field; they count as if they had.
        let field = value & self.field_mask | 1 << self.geometry.stream_bits;
        self.geometry.stream_bits - field.trailing_zeros()
    }

    /// The share of all keys that an entry lets through: by either stream, 2^(1 - known bits).
    #[inline(always)]
    fn weight(&self, value: u64) -> f64 {
        if RING {
            return 2.0 / (self.geometry.buckets as f64 * self.tag_mask as f64);
        }
        let known = self.geometry.tag_bits + self.level + self.kept(value);
        f64::from_bits(u64::from(1024 - known) << 52) // the power of two, by its exponent's bits
    }

    /// Adds an entry for the key, with this mark; false if no slot for it was found, and then
    /// nothing has changed.
    #[inline(always)]
    pub fn insert(&mut self, h: u64, mark: u64) -> bool {
        let Places { buckets, entries } = self.places(h);
        let mark = mark << self.mark_shift();
        self.place(buckets, [entries[0] | mark, entries[1] | mark])
    }

    /// Adds an entry for a key that is definitely new, where that takes no more than a look at its
    /// two buckets, a word each; false if it did not, and then nothing has changed.
    #[inline(always)]
    pub fn insert_new(&mut self, h: u64) -> bool {
        if !RING || self.slot_bits > 14 {
            return false;
        }
        let Places { buckets, entries } = self.places(h);
        let lanes = *self.lanes(u64::from(RING_PAIR) / 2);
        let [a, b] = [self.first_bit(buckets[0]), self.first_bit(buckets[1])];
        let [left, right] = [self.read(a) & lanes.compared, self.read(b) & lanes.compared];
        let tags = lanes.ones.wrapping_mul(entries[0]);
        if lanes.any_zero(left ^ tags) | lanes.any_zero(right ^ tags) {
            return false;
        }
        // The lowest empty slot of each; the emptier bucket is the one where it comes first.
        let empty = |word: u64| word.wrapping_sub(lanes.ones) & !word & lanes.tops;
        let [l, r] = [empty(left).trailing_zeros(), empty(right).trailing_zeros()];
        let (bit, top) = if r < l { (b, r) } else { (a, l) };
        if top == 64 {
            return false;
        }
        let at = bit + u64::from(top + 1 - self.slot_bits);
        self.write(at, self.slot_mask, entries[0]);
        self.entries += 1;
        self.rate += self.weight(entries[0]);
        true
    }

    /// Puts an entry into one of two buckets, as it looks in either: into the emptier one, so that
    /// few searches are needed later.
    #[inline(always)]
    fn place(&mut self, buckets: [u64; 2], entries: [u64; 2]) -> bool {
        let found = match (self.free(buckets[0]), self.free(buckets[1])) {
            (Some(a), Some(b)) => {
                let (taken, there) =
                    (a - self.spots(buckets[0]).start, self.spots(buckets[1]).start);
                Some(if b - there < taken { (1, b) } else { (0, a) })
            }
            (Some(a), None) => Some((0, a)),
            (None, Some(b)) => Some((1, b)),
            (None, None) => self.make_room(buckets),
        };
        let Some((which, spot)) = found else { return false };
        self.put(spot, entries[which]);
        self.entries += 1;
        self.rate += self.weight(entries[which]);
        true
    }

    /// Where the mark begins in a slot.
    pub fn mark_shift(&self) -> u32 {
        self.tag_shift + self.geometry.tag_bits
    }

    pub fn mark(&self, value: u64) -> u64 {
        value >> self.mark_shift()
    }

    pub fn set_mark(&mut self, spot: u64, mark: u64) {
        let value = self.get(spot) & low(self.mark_shift()) | mark << self.mark_shift();
        self.put(spot, value);
    }

    /// Takes out the entry of the key of which most is known. Whatever shorter entry also matches
    /// the key then stays, and covers whoever the longer one may have belonged to.
    pub fn remove(&mut self, h: u64) -> bool {
        let longest = self.matches(h).max_by_key(|(_, value)| self.kept(*value));
        if let Some((spot, _)) = longest {
            self.empty_slot(spot);
        }
        longest.is_some()
    }

    /// Empties every slot that `gone` says so of.
    pub fn sweep(&mut self, gone: impl Fn(u64) -> bool) {
        for spot in 0..self.geometry.slots() {
            let value = self.get(spot);
            if value != 0 && gone(value) {
                self.empty_slot(spot);
            }
        }
    }

    fn empty_slot(&mut self, spot: u64) {
        let weight = self.weight(self.get(spot));
        self.put(spot, 0);
        self.entries = self.entries.saturating_sub(1);
        self.rate = if self.entries == 0 { 0.0 } else { (self.rate - weight).max(0.0) };
    }

    /// Where no slot can be had though most are free, because somebody chose keys that collide: an
    /// entry of the same tag forgets the bits in which it differs from the key, and covers both. It
    /// takes the key's mark, which is the newer one.
    pub fn absorb(&mut self, h: u64, mark: u64) -> bool {
        let Places { buckets, entries } = self.places(h);
        let mut best = None;
        for (bucket, entry) in buckets.into_iter().zip(entries) {
            for spot in self.spots(bucket) {
                let value = self.get(spot);
                let differs = (value ^ entry) & low(self.mark_shift());
                if value & self.field_mask != 0 && differs >> self.tag_shift == 0 {
                    let equal = self.tag_shift - (64 - differs.leading_zeros());
                    best = best.max(Some((equal.min(self.kept(value)), spot, entry)));
                }
            }
        }
        let Some((common, spot, entry)) = best else { return false };
        let old = self.get(spot);
        let tag = old & low(self.mark_shift()) & !self.field_mask;
        let field = self.cut(entry & self.field_mask, common);
        let new = mark << self.mark_shift() | tag | field;
        self.rate += self.weight(new) - self.weight(old);
        self.put(spot, new);
        true
    }

    /// A field that keeps no more than so many bits.
    #[inline(always)]
    fn cut(&self, field: u64, most: u32) -> u64 {
        let drop = self.geometry.stream_bits - most.min(self.geometry.stream_bits);
        (field | 1 << drop) & !low(drop)
    }
}

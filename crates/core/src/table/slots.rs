//! The slots of a table, packed bit by bit, and a few of them looked at in one word.

use std::ops::Range;

use super::Table;
use super::geometry::RING_PAIR;
use crate::probe::prefetch;

/// Masks over a few slots that lie side by side in a word.
#[derive(Clone, Copy, Default)]
pub(super) struct Lanes {
    /// The lowest bit of each.
    pub(super) ones: u64,
    /// The highest bit of each that is compared: below the mark.
    pub(super) tops: u64,
    /// The field of each.
    pub(super) fields: u64,
    /// Tag and field of each.
    pub(super) compared: u64,
}

impl Lanes {
    /// Is one of them all zeros?
    #[inline(always)]
    pub(super) fn any_zero(&self, word: u64) -> bool {
        word.wrapping_sub(self.ones) & !word & self.tops != 0
    }
}

impl<const RING: bool> Table<RING> {
    #[inline(always)]
    pub(super) fn prefetch_bucket(&self, bucket: u64) {
        let bit = self.first_bit(bucket);
        prefetch(self.bits.as_ptr().wrapping_add((bit / 8) as usize));
    }

    // Slots, by their number in the table.

    #[inline(always)]
    pub(super) fn first_bit(&self, bucket: u64) -> u64 {
        (bucket >> 1) * self.pair_bits + ((bucket & 1).wrapping_neg() & self.even_bits)
    }

    /// How many slots a bucket has.
    #[inline(always)]
    pub(super) fn count(&self, bucket: u64) -> u64 {
        if bucket & 1 == 0 { self.even } else { self.pair - self.even }
    }

    #[inline(always)]
    pub(super) fn spots(&self, bucket: u64) -> Range<u64> {
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
    pub(super) fn read(&self, bit: u64) -> u64 {
        // SAFETY: the bit is a slot's, and the memory goes on for 8 bytes behind the last slot.
        let word =
            unsafe { self.bits.as_ptr().add((bit / 8) as usize).cast::<u64>().read_unaligned() };
        word >> (bit % 8)
    }

    /// Replaces the bits of a mask of at most 57 bits, from a slot's first bit on.
    #[inline(always)]
    pub(super) fn write(&mut self, bit: u64, mask: u64, value: u64) {
        // SAFETY: as in `read`; whoever may write has the table to itself. One store of 8 bytes: a
        // killed process leaves the old value or the new one.
        unsafe {
            let at = self.bits.as_ptr().add((bit / 8) as usize).cast::<u64>();
            let others = at.read_unaligned() & !(mask << (bit % 8));
            at.write_unaligned(others | value << (bit % 8));
        }
    }

    /// Masks for so many slots: at most as many as are looked at in one word.
    #[inline(always)]
    pub(super) fn lanes(&self, count: u64) -> &Lanes {
        debug_assert!(count < self.lanes.len() as u64);
        // SAFETY: no bucket has more slots than there are masks (`Geometry::check`).
        unsafe { self.lanes.get_unchecked(count as usize) }
    }

    /// The first empty slot of a bucket.
    #[inline(always)]
    pub(super) fn free(&self, bucket: u64) -> Option<u64> {
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

    /// Does a bucket, by its first bit and its number of slots, hold the key of this entry?
    #[inline(always)]
    pub(super) fn bucket_holds(&self, bit: u64, count: u64, entry: u64) -> bool {
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
    pub(super) fn in_word(&self, bit: u64, count: u64, entry: u64) -> bool {
        let lanes = self.lanes(count);
        let word = self.read(bit);
        lanes.any_zero(self.differences(word, entry, lanes))
    }

    /// In each slot, the bits in which it differs from the entry of a key; of its field only those
    /// above the one that ends it count. An empty slot differs.
    #[inline(always)]
    pub(super) fn differences(&self, word: u64, entry: u64, lanes: &Lanes) -> u64 {
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
}

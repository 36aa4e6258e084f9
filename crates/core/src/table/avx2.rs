//! The slots of a bucket in AVX2, each in a lane of 32 bits: all of them are compared at once, whatever
//! their width. `slots.rs` defines what they hold; this agrees with it bit for bit.

use std::arch::x86_64::*;

use super::Table;
use crate::probe::has_avx2;

/// A slot lies anywhere in the 32 bits from its first byte on.
const MOST_SLOT_BITS: u32 = 25;

/// What is the same for all buckets of a table.
#[derive(Clone, Copy)]
pub struct Lanes {
    start: *const u8,
    /// Where the last 16 bytes begin.
    last: u64,
    /// Bits of four slots.
    four: u64,
    /// Are eight slots within the 16 bytes from the first one's on, wherever in a byte it begins?
    short: bool,
    /// The first bits of four slots, twice.
    bits: __m256i,
    compared: __m256i,
    fields: __m256i,
    guards: __m256i,
}

impl<const RING: bool> Table<RING> {
    /// Can a table's buckets be looked at in this way, on this processor?
    #[inline(always)]
    pub(super) fn is_wide(&self) -> bool {
        // The four slots of a ring, if they fit into one word, are as fast in that.
        has_avx2() && self.slot_bits <= MOST_SLOT_BITS && !(RING && self.slot_bits <= 14)
    }

    /// And is that faster, for who only asks, than a word or two?
    #[inline(always)]
    pub(super) fn asks_wide(&self) -> bool {
        self.is_wide() && self.slot_bits > 14
    }
}

impl Lanes {
    /// # Safety
    /// AVX2; and for as long as it is used, the table is what it is now but for the slots.
    #[inline(always)]
    pub unsafe fn of<const RING: bool>(table: &Table<RING>) -> Lanes {
        let width = table.slot_bits as i32;
        let compared = (table.tag_mask << table.tag_shift | table.field_mask) as i32;
        let guard = if RING { 0 } else { 1 << table.tag_shift };
        // SAFETY: as promised above.
        unsafe {
            let steps = _mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3);
            Lanes {
                start: table.bits.as_ptr(),
                last: table.bits.nbytes() as u64 - 16,
                four: u64::from(4 * table.slot_bits),
                short: 8 * table.slot_bits + 7 <= 128,
                bits: _mm256_mullo_epi32(steps, _mm256_set1_epi32(width)),
                compared: _mm256_set1_epi32(compared),
                fields: _mm256_set1_epi32(table.field_mask as i32),
                guards: _mm256_set1_epi32(guard),
            }
        }
    }

    /// Tag and field of the eight slots from this bit on. Those behind the bucket are any.
    ///
    /// # Safety
    /// AVX2; a slot of the table begins at this bit.
    #[inline(always)]
    pub unsafe fn slots(&self, bit: u64) -> __m256i {
        // No byte behind the eighth slot's, which may be in a line that nobody asked for; and none
        // past the end: slots are then found further on in these bytes.
        let low = (bit / 8).min(self.last);
        let end = (bit + 2 * self.four).div_ceil(8);
        let high = if self.short { low } else { (end - 16).min(self.last) };
        let (low_bit, high_bit) = ((bit - 8 * low) as i32, (bit + self.four - 8 * high) as i32);
        // SAFETY: 16 bytes from `last` on are the table's; of slots behind the end, lanes hold any.
        unsafe {
            let low = _mm_loadu_si128(self.start.add(low as usize).cast());
            let high = _mm_loadu_si128(self.start.add(high as usize).cast());
            let bytes = _mm256_set_m128i(high, low);
            let first = _mm256_set_m128i(_mm_set1_epi32(high_bit), _mm_set1_epi32(low_bit));
            let bits = _mm256_add_epi32(first, self.bits);
            // The four bytes from a slot's first on, in its lane.
            let lowest = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
            let index = _mm256_srli_epi32::<3>(bits);
            let index = _mm256_shuffle_epi8(index, _mm256_set_m128i(lowest, lowest));
            let index = _mm256_add_epi8(index, _mm256_set1_epi32(0x0302_0100));
            let lanes = _mm256_shuffle_epi8(bytes, index);
            let shift = _mm256_and_si256(bits, _mm256_set1_epi32(7));
            _mm256_and_si256(_mm256_srlv_epi32(lanes, shift), self.compared)
        }
    }

    /// Which of the slots hold the key of this entry: a bit each. (`Table::differences` says how.)
    ///
    /// # Safety
    /// AVX2.
    #[inline(always)]
    pub unsafe fn holding(&self, slots: __m256i, entry: u64) -> u32 {
        // SAFETY: as promised above.
        unsafe {
            let entry = _mm256_set1_epi32(entry as i32);
            let differs = _mm256_and_si256(_mm256_xor_si256(slots, entry), self.compared);
            let fields = _mm256_and_si256(slots, self.fields);
            let one = _mm256_set1_epi32(1);
            let less = _mm256_sub_epi32(_mm256_or_si256(fields, self.guards), one);
            let ended = _mm256_and_si256(_mm256_xor_si256(fields, less), self.fields);
            let differs = _mm256_or_si256(
                _mm256_andnot_si256(ended, differs),
                _mm256_andnot_si256(less, self.guards),
            );
            zeros(differs)
        }
    }

    /// Which of the slots are empty.
    ///
    /// # Safety
    /// AVX2.
    #[inline(always)]
    pub unsafe fn empty(&self, slots: __m256i) -> u32 {
        // SAFETY: as promised above.
        unsafe { zeros(slots) }
    }
}

/// Which lanes are 0.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn zeros(lanes: __m256i) -> u32 {
    // SAFETY: as promised above.
    unsafe {
        let zero = _mm256_cmpeq_epi32(lanes, _mm256_setzero_si256());
        _mm256_movemask_ps(_mm256_castsi256_ps(zero)) as u32
    }
}

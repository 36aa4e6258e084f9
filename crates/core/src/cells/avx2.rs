//! A key's mask for a whole line at once, in AVX2. `Cells::mask` defines it; this agrees bit for bit.

use std::arch::x86_64::*;

use super::{Line, Rule};
use crate::probe::next;

/// A line with one bit set is a window of 64 bytes into one of these rows, which one by the bit's
/// place in its byte: the window that begins at byte 63 - i has the bit in its byte i.
#[repr(align(64))]
struct Windows([[u8; 128]; 8]);
static WINDOWS: Windows = {
    let mut rows = [[0; 128]; 8];
    let mut bit = 0;
    while bit < 8 {
        rows[bit][63] = 1 << bit;
        bit += 1;
    }
    Windows(rows)
};

/// # Safety
/// AVX2.
#[inline(always)]
pub unsafe fn mask<R: Rule>(pattern: u64, draws: usize) -> Line {
    let (mut lanes, mut left) = (pattern, draws);
    // SAFETY: as promised above; positions are below 512, so windows lie within WINDOWS.
    unsafe {
        let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        loop {
            let more = next(lanes);
            let starts = windows::<R>(lanes, more);
            for i in 0..left.min(8) {
                // Of either pattern the top lane comes first.
                let window = WINDOWS.0.as_ptr().cast::<u8>().add(usize::from(starts[i ^ 3]));
                low = _mm256_or_si256(low, _mm256_loadu_si256(window.cast()));
                high = _mm256_or_si256(high, _mm256_loadu_si256(window.add(32).cast()));
            }
            if left <= 8 {
                return std::mem::transmute::<[__m256i; 2], Line>([low, high]);
            }
            left -= 8;
            lanes = next(more);
        }
    }
}

/// Where the windows of eight cells begin, from two patterns.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn windows<R: Rule>(pattern: u64, next: u64) -> [u16; 8] {
    // SAFETY: as promised above.
    unsafe {
        let lanes = _mm_set_epi64x(next as i64, pattern as i64);
        let cell = _mm_mulhi_epu16(lanes, _mm_set1_epi16(R::CELLS as i16));
        let region = _mm_mulhi_epu16(lanes, _mm_set1_epi16(R::REGIONS as i16));
        let position = _mm_mullo_epi16(cell, _mm_set1_epi16(R::WIDTH as i16));
        let position = _mm_add_epi16(position, region);
        let row = _mm_slli_epi16::<7>(_mm_and_si128(position, _mm_set1_epi16(7)));
        let byte = _mm_srli_epi16::<3>(position);
        let starts = _mm_add_epi16(row, _mm_sub_epi16(_mm_set1_epi16(63), byte));
        std::mem::transmute::<__m128i, [u16; 8]>(starts)
    }
}

//! A key's mask for a whole line at once, and whether a line has all of its cells, in AVX2. `Cells::mask`
//! and `Rule::contains` define them; this agrees bit for bit.

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

/// By number of draws from two patterns: the lanes that they are in, of either the top one first.
static DRAWN: [u32; 9] = {
    let mut table = [0; 9];
    let mut draws = 0;
    while draws < 8 {
        table[draws + 1] = table[draws] | 1 << (draws ^ 3);
        draws += 1;
    }
    table
};

/// Is no cell of a key empty? Up to eight of them are taken out of the line at once; no mask is made.
///
/// # Safety
/// AVX2; 64 readable bytes at `line`.
#[inline(always)]
pub unsafe fn contains<R: Rule>(line: *const Line, pattern: u64, draws: usize) -> bool {
    let (mut lanes, mut left) = (pattern, draws);
    // SAFETY: as promised above.
    unsafe {
        let low = _mm256_loadu_si256(line.cast());
        let high = _mm256_loadu_si256(line.cast::<__m256i>().add(1));
        loop {
            let more = next(lanes);
            let at = _mm256_cvtepu16_epi32(positions::<R>(lanes, more));
            // Words of 32 bits: the permutation reads the low three bits of their number, and the
            // fourth, moved to the top, says which half of the line it is in.
            let word = _mm256_srli_epi32::<5>(at);
            let from_low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word));
            let from_high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word));
            let half = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(at));
            let words = _mm256_castps_si256(_mm256_blendv_ps(from_low, from_high, half));
            let cells = _mm256_srlv_epi32(words, _mm256_and_si256(at, _mm256_set1_epi32(31)));
            let cells = _mm256_and_si256(cells, _mm256_set1_epi32((1 << R::WIDTH) - 1));
            let empty = _mm256_cmpeq_epi32(cells, _mm256_setzero_si256());
            let empty = _mm256_movemask_ps(_mm256_castsi256_ps(empty)) as u32;
            if empty & DRAWN[left.min(8)] != 0 {
                return false;
            }
            if left <= 8 {
                return true;
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
        let position = positions::<R>(pattern, next);
        let row = _mm_slli_epi16::<7>(_mm_and_si128(position, _mm_set1_epi16(7)));
        let byte = _mm_srli_epi16::<3>(position);
        let starts = _mm_add_epi16(row, _mm_sub_epi16(_mm_set1_epi16(63), byte));
        std::mem::transmute::<__m128i, [u16; 8]>(starts)
    }
}

/// The first bits of eight cells, from two patterns.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn positions<R: Rule>(pattern: u64, next: u64) -> __m128i {
    // SAFETY: as promised above.
    unsafe {
        let lanes = _mm_set_epi64x(next as i64, pattern as i64);
        let cell = _mm_mulhi_epu16(lanes, _mm_set1_epi16(R::CELLS as i16));
        let region = _mm_mulhi_epu16(lanes, _mm_set1_epi16(R::REGIONS as i16));
        let position = _mm_mullo_epi16(cell, _mm_set1_epi16(R::WIDTH as i16));
        _mm_add_epi16(position, region)
    }
}

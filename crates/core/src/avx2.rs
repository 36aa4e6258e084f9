//! A whole line at once: the blocked layout's two inner loops in AVX2, eight positions a vector.
//! `probe.rs` defines the positions; these agree with it bit for bit.

use std::arch::x86_64::*;

use crate::probe::next;

/// How far the nine bits of each lane lie below the top of its half.
static CUTS: [[u32; 8]; 2] = [[0, 0, 9, 9, 18, 18, 0, 0], [9, 9, 18, 18, 0, 0, 9, 9]];
/// Eight ones, eight zeros: the eight from 8 - n on mark the first n lanes.
static LANES: [u32; 16] = [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0];
/// The first bit of each of the line's sixteen words.
static STARTS: [[u32; 8]; 2] = [
    [0, 32, 64, 96, 128, 160, 192, 224],
    [256, 288, 320, 352, 384, 416, 448, 480],
];

/// Positions 0 to 7 (`SECOND`: 8 to 15), each in the top nine bits of its lane.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn positions<const SECOND: bool>(pattern: u64, n: usize) -> __m256i {
    // SAFETY: as promised above; the load stays within CUTS.
    unsafe {
        let cuts = _mm256_loadu_si256(CUTS[usize::from(SECOND)].as_ptr().cast());
        let lanes = match SECOND {
            false if n <= 6 => _mm256_set1_epi64x(pattern as i64),
            false => _mm256_blend_epi32::<0b1100_0000>(
                _mm256_set1_epi64x(pattern as i64),
                _mm256_set1_epi64x(next(pattern) as i64),
            ),
            true => {
                let from = _mm256_set1_epi64x(next(pattern) as i64);
                let then = _mm256_set1_epi64x(next(next(pattern)) as i64);
                _mm256_blend_epi32::<0b1111_0000>(from, then)
            }
        };
        _mm256_sllv_epi32(lanes, cuts)
    }
}

/// Are the bits at the first `n` (1 to 8) positions set in the line's two halves?
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn eight(low: __m256i, high: __m256i, x: __m256i, n: usize) -> bool {
    // SAFETY: as promised above; the load stays within LANES.
    unsafe {
        let lanes = _mm256_loadu_si256(LANES.as_ptr().add(8 - n).cast());
        // The top bit picks the half of the line, three more the word, the next five the bit.
        let word = _mm256_srli_epi32::<28>(x);
        let from_low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word));
        let from_high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word));
        let words = _mm256_blendv_ps(from_low, from_high, _mm256_castsi256_ps(x));
        let shift = _mm256_srli_epi32::<27>(_mm256_slli_epi32::<4>(x));
        let bits = _mm256_sllv_epi32(lanes, shift);
        _mm256_testc_si256(_mm256_castps_si256(words), bits) != 0
    }
}

/// Are the key's `n` (1 to 16) bits all set?
///
/// # Safety
/// AVX2; 64 readable bytes at `line`.
#[inline(always)]
pub unsafe fn contains(line: *const u8, pattern: u64, n: usize) -> bool {
    // SAFETY: as promised above; the loads stay within the line.
    unsafe {
        let low = _mm256_loadu_si256(line.cast());
        let high = _mm256_loadu_si256(line.add(32).cast());
        eight(low, high, positions::<false>(pattern, n), n.min(8))
            && (n <= 8 || eight(low, high, positions::<true>(pattern, n), n - 8))
    }
}

/// Sets the key's `n` (1 to 16) bits; true if one of them was not set.
///
/// The mask is made in registers. Setting bit after bit in memory took 20 ns a key in cache, this
/// 6: whether a load meets the store before it is chance, and each wrong guess is a stall.
///
/// # Safety
/// AVX2; 64 bytes at `line` that nobody else writes. Others may read them: the hardware keeps each
/// aligned word whole, and a key half-written is not yet added.
#[inline(always)]
pub unsafe fn add(line: *mut u8, pattern: u64, n: usize) -> bool {
    // SAFETY: as promised above; `n` is at most the 16 positions stored.
    unsafe {
        let mut stored = [0i32; 16];
        let at = stored.as_mut_ptr().cast::<__m256i>();
        _mm256_storeu_si256(at, _mm256_srli_epi32::<23>(positions::<false>(pattern, n)));
        if n > 8 {
            let x = positions::<true>(pattern, n);
            _mm256_storeu_si256(at.add(1), _mm256_srli_epi32::<23>(x));
        }
        let one = _mm256_set1_epi32(1);
        let starts_low = _mm256_loadu_si256(STARTS[0].as_ptr().cast());
        let starts_high = _mm256_loadu_si256(STARTS[1].as_ptr().cast());
        let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for position in stored.get_unchecked(..n) {
            // A shift by 32 or more, or by less than 0, gives 0: only its own word gets the bit.
            let p = _mm256_set1_epi32(*position);
            let in_low = _mm256_sllv_epi32(one, _mm256_sub_epi32(p, starts_low));
            let in_high = _mm256_sllv_epi32(one, _mm256_sub_epi32(p, starts_high));
            low = _mm256_or_si256(low, in_low);
            high = _mm256_or_si256(high, in_high);
        }
        let (at_low, at_high) = (line.cast::<__m256i>(), line.add(32).cast::<__m256i>());
        let (old_low, old_high) = (_mm256_loadu_si256(at_low), _mm256_loadu_si256(at_high));
        _mm256_storeu_si256(at_low, _mm256_or_si256(old_low, low));
        _mm256_storeu_si256(at_high, _mm256_or_si256(old_high, high));
        _mm256_testc_si256(old_low, low) & _mm256_testc_si256(old_high, high) == 0
    }
}

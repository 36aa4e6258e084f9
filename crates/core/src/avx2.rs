//! A whole line at once: the blocked layout's two inner loops in AVX2. `probe.rs` defines the
//! positions; these agree with it bit for bit.

use std::arch::x86_64::*;

use crate::probe::next;

/// By number of bits in each half of the line: the lanes that count, from the top byte down.
static LANES: [[u32; 8]; 5] = [
    [0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 1, 0, 0, 0, 1],
    [0, 0, 1, 1, 0, 0, 1, 1],
    [0, 1, 1, 1, 0, 1, 1, 1],
    [1, 1, 1, 1, 1, 1, 1, 1],
];

/// Half a line with one bit set is a window of 32 bytes into this: the window that begins at word
/// `byte`, the word part of the byte reversed, has bit `byte >> 3` in word `byte & 7` and no other.
/// 1 KiB instead of the 8 that a table of all 256 would take from the first-level cache.
#[repr(align(64))]
struct Windows([u32; 33 * 8]);
static WINDOWS: Windows = {
    let mut words = [0; 33 * 8];
    let mut bit = 0;
    while bit < 32 {
        words[bit * 8 + 7] = 1 << bit;
        bit += 1;
    }
    Windows(words)
};
/// Reverses the word part of all eight bytes of a pattern.
const REVERSE: u64 = 0x0707_0707_0707_0707;

/// Are the key's bits all set, `each` (1 to 8) in either half? Code is compiled for just 3 or 4 in
/// each (`EACH`: the usual 1% and 0.1%) and for any number (0).
///
/// # Safety
/// AVX2; 64 readable bytes at `line`.
#[inline(always)]
pub unsafe fn contains<const EACH: usize>(line: *const u8, pattern: u64, each: usize) -> bool {
    // SAFETY: as promised above.
    unsafe {
        let each = if EACH > 0 { EACH } else { each };
        let low = _mm256_loadu_si256(line.cast());
        let high = _mm256_loadu_si256(line.add(32).cast());
        let first = eight(low, high, pattern, each.min(4));
        if each <= 4 {
            return first;
        }
        first && eight(low, high, next(pattern), each - 4)
    }
}

/// Are the bits of one pattern set? A lane a byte: its low three bits are the word, which is just
/// what the permutation reads, the high five the bit.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn eight(low: __m256i, high: __m256i, pattern: u64, each: usize) -> bool {
    // SAFETY: as promised above; `each` is at most 4.
    unsafe {
        let lanes = _mm256_loadu_si256(LANES.get_unchecked(each).as_ptr().cast());
        let bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(pattern as i64));
        let from_low = _mm256_permutevar8x32_epi32(low, bytes);
        let from_high = _mm256_permutevar8x32_epi32(high, bytes);
        let words = _mm256_blend_epi32::<0b1111_0000>(from_low, from_high);
        let bits = _mm256_sllv_epi32(lanes, _mm256_srli_epi32::<3>(bytes));
        _mm256_testc_si256(words, bits) != 0
    }
}

/// Sets the key's bits, `each` (1 to 8) in either half; true if one of them was not set.
///
/// The mask is made in registers, from loads that do not depend on each other. Setting bit after
/// bit in memory took three times as long: whether a load meets the store before it is chance, and
/// each wrong guess is a stall.
///
/// # Safety
/// AVX2; 64 bytes at `line` that nobody else writes. Others may read them meanwhile, which is an
/// assumption about the processor and not a promise of Rust's (`Bits` says why it holds): each
/// aligned word stays whole, and a key half-written is not yet added.
#[inline(always)]
pub unsafe fn add<const EACH: usize>(line: *mut u8, pattern: u64, each: usize) -> bool {
    // SAFETY: as promised above.
    unsafe {
        let each = if EACH > 0 { EACH } else { each };
        let (mut low, mut high) = mask(pattern, each.min(4));
        if each > 4 {
            let (more_low, more_high) = mask(next(pattern), each - 4);
            low = _mm256_or_si256(low, more_low);
            high = _mm256_or_si256(high, more_high);
        }
        let (at_low, at_high) = (line.cast::<__m256i>(), line.add(32).cast::<__m256i>());
        let (old_low, old_high) = (_mm256_loadu_si256(at_low), _mm256_loadu_si256(at_high));
        _mm256_storeu_si256(at_low, _mm256_or_si256(old_low, low));
        _mm256_storeu_si256(at_high, _mm256_or_si256(old_high, high));
        let missing_low = _mm256_andnot_si256(old_low, low);
        let missing = _mm256_or_si256(missing_low, _mm256_andnot_si256(old_high, high));
        _mm256_testz_si256(missing, missing) == 0
    }
}

/// The bits of one pattern in the two halves of a line.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn mask(pattern: u64, each: usize) -> (__m256i, __m256i) {
    let bytes = pattern ^ REVERSE;
    // SAFETY: as promised above.
    unsafe {
        let (mut low, mut high) = (window(bytes >> 24), window(bytes >> 56));
        if each > 1 {
            low = _mm256_or_si256(low, window(bytes >> 16));
            high = _mm256_or_si256(high, window(bytes >> 48));
        }
        if each > 2 {
            low = _mm256_or_si256(low, window(bytes >> 8));
            high = _mm256_or_si256(high, window(bytes >> 40));
        }
        if each > 3 {
            low = _mm256_or_si256(low, window(bytes));
            high = _mm256_or_si256(high, window(bytes >> 32));
        }
        (low, high)
    }
}

/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn window(byte: u64) -> __m256i {
    // SAFETY: a window begins at word 255 at the latest and ends within WINDOWS.
    unsafe { _mm256_loadu_si256(WINDOWS.0.as_ptr().add(byte as usize & 255).cast()) }
}

//! The hash of up to 16 characters at once, or 32 of Latin-1, where the processor has AVX-512 with
//! VBMI2: what it is of the bytes that `Unit::write` writes.
//!
//! Their UTF-8 is made in one register, without a branch on what they are, and most of it is hashed
//! there: who reads bytes that were just written one behind the other reads across these writes, and
//! waits until all of them have reached the cache. Of a CJK str of 15 characters it took 16 ns, and
//! takes 9. (In AVX2, which has nothing that leaves bytes out, it took longer than `Unit::write`.)

use std::arch::x86_64::*;

use crate::hash::KeyHasher;

/// Units that can be taken so, a whole text's in one register.
pub trait Narrow: Copy {
    /// The most of them.
    const UNITS: usize;

    /// UTF-8, zeros behind it, and how many bytes it is; None if a unit is not a character.
    ///
    /// # Safety
    /// As for `hash`.
    unsafe fn encode(units: &[Self]) -> Option<(__m512i, usize)>;
}

impl Narrow for u8 {
    const UNITS: usize = 32;

    #[inline]
    #[target_feature(enable = "avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    unsafe fn encode(units: &[u8]) -> Option<(__m512i, usize)> {
        let each = ((1u64 << units.len()) - 1) as u32;
        // SAFETY: as promised above; what has no bit is not read.
        let units = unsafe { _mm256_maskz_loadu_epi8(each, units.as_ptr().cast()) };
        let two = _mm256_movepi8_mask(units);
        let point = _mm512_cvtepu8_epi16(units);
        let set = |value: i16| _mm512_set1_epi16(value);
        let lead = _mm512_or_si512(_mm512_srli_epi16::<6>(point), set(0x80C0u16 as i16));
        let last = _mm512_and_si512(_mm512_slli_epi16::<8>(point), set(0x3F00));
        let bytes = _mm512_mask_mov_epi16(point, two, _mm512_or_si512(lead, last));
        // A bit for each byte that is there, of two for a unit.
        let used = _pdep_u64(each.into(), 0x5555_5555_5555_5555)
            | _pdep_u64(two.into(), 0xAAAA_AAAA_AAAA_AAAA);
        Some((_mm512_maskz_compress_epi8(used, bytes), used.count_ones() as usize))
    }
}

impl Narrow for u16 {
    const UNITS: usize = 16;

    #[inline]
    #[target_feature(enable = "avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    unsafe fn encode(units: &[u16]) -> Option<(__m512i, usize)> {
        let each = ((1u32 << units.len()) - 1) as u16;
        // SAFETY: as promised above; what has no bit is not read.
        let units = unsafe { _mm256_maskz_loadu_epi16(each, units.as_ptr().cast()) };
        let point = _mm512_cvtepu16_epi32(units);
        let set = |value: i32| _mm512_set1_epi32(value);
        let surrogate = _mm512_cmpeq_epi32_mask(_mm512_and_si512(point, set(0xF800)), set(0xD800));
        if surrogate != 0 {
            return None;
        }
        let two = _mm512_cmpgt_epi32_mask(point, set(0x7F));
        let three = _mm512_cmpgt_epi32_mask(point, set(0x7FF));
        // Lead, middle and last byte of three. Two are the middle one as their lead, and the last.
        let lead = _mm512_or_si512(_mm512_srli_epi32::<12>(point), set(0x80_80E0));
        let middle = _mm512_and_si512(_mm512_slli_epi32::<2>(point), set(0x3F00));
        let last = _mm512_and_si512(_mm512_slli_epi32::<16>(point), set(0x3F_0000));
        let as_three = _mm512_or_si512(_mm512_or_si512(lead, middle), last);
        let as_two = _mm512_or_si512(_mm512_srli_epi32::<8>(as_three), set(0x40));
        let bytes = _mm512_mask_mov_epi32(point, two, as_two);
        let bytes = _mm512_mask_mov_epi32(bytes, three, as_three);
        // A bit for each byte that is there, of four for a unit.
        let used = _pdep_u64(each.into(), 0x1111_1111_1111_1111)
            | _pdep_u64(two.into(), 0x2222_2222_2222_2222)
            | _pdep_u64(three.into(), 0x4444_4444_4444_4444);
        Some((_mm512_maskz_compress_epi8(used, bytes), used.count_ones() as usize))
    }
}

/// The hash of text; None if a unit is not a character.
///
/// # Safety
/// `has_avx512`; at most `UNITS` units.
#[target_feature(enable = "avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi2,popcnt")]
pub unsafe fn hash<U: Narrow>(units: &[U], hasher: &KeyHasher) -> Option<u64> {
    debug_assert!(units.len() <= U::UNITS);
    // SAFETY: as promised above.
    let (bytes, len) = unsafe { U::encode(units) }?;
    if let (17..=32, Some(words_hash)) = (len, hasher.words_hash()) {
        let from = _mm512_add_epi8(_mm512_set1_epi8(len as i8 - 16), COUNT);
        let last = _mm512_castsi512_si128(_mm512_permutexvar_epi8(from, bytes));
        let words = [_mm512_castsi512_si128(bytes), last]
            .map(|half| [_mm_cvtsi128_si64(half) as u64, _mm_extract_epi64::<1>(half) as u64]);
        return Some(words_hash.hash(words, len as u64));
    }
    // SAFETY: a register is as many bytes.
    let bytes = unsafe { std::mem::transmute::<__m512i, [u8; 64]>(bytes) };
    Some(hasher.hash_bytes(&bytes[..len.min(64)]))
}

const COUNT: __m512i = {
    let mut count = [0u8; 64];
    let mut i = 0;
    while i < 64 {
        count[i] = i as u8;
        i += 1;
    }
    // SAFETY: a register is as many bytes.
    unsafe { std::mem::transmute::<[u8; 64], __m512i>(count) }
};

//! Four keys at a time, in AVX2. `Packed::contains` defines the answers; this gives the same.

use std::arch::x86_64::*;

use super::packed::Packed;
use super::positions::REACH_BITS;
use crate::hash::IntHash;
use crate::loops::Keys;
use crate::probe::prefetch;

/// Fours between finding cells and reading them: so many keys are on their way from memory at once.
/// At a million keys 4 took 3.9 ns a key; 2, 8 and 16 took 4.2 to 4.9, on a busy machine.
const AHEAD: usize = 4;

/// From so many bytes on cells are asked for before they are read. Smaller filters are in the
/// second-level cache, where asking takes more time than it saves.
const PREFETCH_FROM: usize = 256 << 10;

/// A cell is read by a load of 64 bits at a multiple of 32.
pub const MAX_WIDTH: u32 = 32;

/// Four keys whose cells are found: the bit at which each begins, and the fingerprints.
#[derive(Clone, Copy)]
struct Four {
    bits: [[u64; 4]; 3],
    prints: __m256i,
}

/// The bits of a number as bytes.
static ANSWERS: [[u8; 4]; 16] = {
    let mut table = [[0; 4]; 16];
    let mut i = 0;
    while i < 64 {
        table[i / 4][i % 4] = ((i / 4) >> (i % 4)) as u8 & 1;
        i += 1;
    }
    table
};

/// Answers as many keys as make whole fours, and returns their number.
///
/// # Safety
/// AVX2, fewer than 2^32 cells, and `MAX_WIDTH`.
#[target_feature(enable = "avx2")]
pub unsafe fn contains(packed: &Packed, keys: &Keys<'_>, answers: &mut [u8]) -> usize {
    let large = packed.bits.nbytes() >= PREFETCH_FROM;
    // SAFETY: as promised by the caller.
    unsafe {
        match keys {
            Keys::Hashes(hashes) => {
                let same = |four: &[u64; 4]| load(four);
                match large {
                    true => run::<_, true>(packed, hashes, same, answers),
                    false => run::<_, false>(packed, hashes, same, answers),
                }
            }
            Keys::Ints(ints) => {
                let hashed = |four: &[[u8; 8]; 4]| hash(ints.hash, load(four));
                match large {
                    true => run::<_, true>(packed, ints.keys, hashed, answers),
                    false => run::<_, false>(packed, ints.keys, hashed, answers),
                }
            }
        }
    }
}

/// # Safety
/// As for `contains`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn run<K, const PREFETCH: bool>(
    packed: &Packed,
    keys: &[K],
    hash: impl Fn(&[K; 4]) -> __m256i,
    answers: &mut [u8],
) -> usize {
    let (positions, memory) = (&packed.positions, packed.bits.as_ptr());
    let all = |value: u64| _mm256_set1_epi64x(value as i64);
    // Known to be short, or the compiler multiplies by all 64 bits.
    let (starts, width) = (all(positions.starts & 0xFFFF_FFFF), all(u64::from(packed.width & 63)));
    let (reach, near, seed) = (all(positions.reach), all(positions.reach - 1), all(positions.seed));
    let mask = all(packed.mask());

    let find = |mut h: __m256i| {
        if positions.seed != 0 {
            h = remix(_mm256_xor_si256(h, seed));
        }
        // As `Positions::of`; the high half of a product is made of two products of 32 bits.
        let high = _mm256_srli_epi64::<32>(h);
        let carry = _mm256_srli_epi64::<32>(_mm256_mul_epu32(h, starts));
        let product = _mm256_add_epi64(_mm256_mul_epu32(high, starts), carry);
        let first = _mm256_srli_epi64::<32>(product);
        let after = _mm256_add_epi64(first, reach);
        let second = _mm256_add_epi64(after, _mm256_and_si256(h, near));
        let far = _mm256_and_si256(_mm256_srli_epi64::<{ REACH_BITS as i32 }>(h), near);
        let third = _mm256_add_epi64(_mm256_add_epi64(after, reach), far);
        let bits = [first, second, third].map(|cell| store(_mm256_mul_epu32(cell, width)));
        Four { bits, prints: _mm256_xor_si256(h, high) }
    };
    let ask = |four: &Four| {
        let mut sum = four.prints;
        for bits in &four.bits {
            // SAFETY: within cells, for which there is memory, and for a load at the last one.
            let cell = |bit: u64| unsafe {
                memory.cast::<u32>().add((bit >> 5) as usize).cast::<i64>().read_unaligned()
            };
            let cells =
                _mm256_setr_epi64x(cell(bits[0]), cell(bits[1]), cell(bits[2]), cell(bits[3]));
            let shifts = _mm256_and_si256(load(bits), all(31));
            sum = _mm256_xor_si256(sum, _mm256_srlv_epi64(cells, shifts));
        }
        let right = _mm256_cmpeq_epi64(_mm256_and_si256(sum, mask), _mm256_setzero_si256());
        ANSWERS[_mm256_movemask_pd(_mm256_castsi256_pd(right)) as usize]
    };

    let (keys, answers) = (keys.as_chunks().0, answers.as_chunks_mut().0);
    let count = keys.len().min(answers.len());
    let Some(first) = keys.first() else {
        return 0;
    };
    // Hashing, finding, asking memory and reading are each for other keys: none waits for another.
    let mut h = hash(first);
    let mut ring = [find(h); AHEAD];
    for i in 0..count + AHEAD {
        if i >= AHEAD {
            answers[i - AHEAD] = ask(&ring[i % AHEAD]);
        }
        if PREFETCH {
            let bits = ring[(i + AHEAD - 1) % AHEAD].bits;
            let bytes = bits.as_flattened().iter().map(|bit| (*bit >> 3) as usize);
            bytes.for_each(|byte| prefetch(memory.wrapping_add(byte)));
        }
        if i < count {
            ring[i % AHEAD] = find(h);
            h = hash(&keys[(i + 1).min(count - 1)]);
        }
    }
    4 * count
}

#[inline]
#[target_feature(enable = "avx2")]
fn load<K>(four: &[K; 4]) -> __m256i {
    const { assert!(size_of::<[K; 4]>() == 32) };
    // SAFETY: 32 bytes.
    unsafe { _mm256_loadu_si256(four.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(four: __m256i) -> [u64; 4] {
    let mut words = [0; 4];
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), four) };
    words
}

/// The low 64 bits of each product.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply(a: __m256i, factor: u64) -> __m256i {
    let (low, high) =
        (_mm256_set1_epi64x(factor as i64), _mm256_set1_epi64x((factor >> 32) as i64));
    let upper = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), low);
    let crossed = _mm256_add_epi64(_mm256_mul_epu32(a, high), upper);
    _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64::<32>(crossed))
}

/// `h ^ (h >> BY)`
#[inline]
#[target_feature(enable = "avx2")]
fn fold<const BY: i32>(h: __m256i) -> __m256i {
    _mm256_xor_si256(h, _mm256_srli_epi64::<BY>(h))
}

/// As `hash::remix`.
#[inline]
#[target_feature(enable = "avx2")]
fn remix(h: __m256i) -> __m256i {
    let h = multiply(fold::<33>(h), 0xFF51_AFD7_ED55_8CCD);
    fold::<33>(multiply(fold::<33>(h), 0xC4CE_B9FE_1A85_EC53))
}

/// As `IntHash::hash`.
#[inline]
#[target_feature(enable = "avx2")]
fn hash(ints: IntHash, keys: __m256i) -> __m256i {
    const PRIME_MX2: u64 = 0x9FB2_1C65_1E98_DF25;
    let swapped = _mm256_shuffle_epi32::<0b10_11_00_01>(keys);
    let h = _mm256_xor_si256(swapped, _mm256_set1_epi64x(ints.flip() as i64));
    let left49 = _mm256_or_si256(_mm256_slli_epi64::<49>(h), _mm256_srli_epi64::<15>(h));
    let left24 = _mm256_or_si256(_mm256_slli_epi64::<24>(h), _mm256_srli_epi64::<40>(h));
    let h = multiply(_mm256_xor_si256(h, _mm256_xor_si256(left49, left24)), PRIME_MX2);
    let added = _mm256_add_epi64(_mm256_srli_epi64::<35>(h), _mm256_set1_epi64x(8));
    fold::<28>(multiply(_mm256_xor_si256(h, added), PRIME_MX2))
}

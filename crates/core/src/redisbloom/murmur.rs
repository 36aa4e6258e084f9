//! MurmurHash64A, which all of RedisBloom's hashes are but those of filters from before version 2,
//! and MurmurHash2 of 32 bits, which those are.

pub const MULTIPLIER: u64 = 0xC6A4_A793_5BD1_E995;
const SHIFT: u32 = 47;

#[inline(always)]
pub fn murmur64a(data: &[u8], seed: u64) -> u64 {
    let mut h = seed ^ (data.len() as u64).wrapping_mul(MULTIPLIER);
    let (blocks, tail) = data.as_chunks::<8>();
    for block in blocks {
        let mut k = u64::from_le_bytes(*block).wrapping_mul(MULTIPLIER);
        k ^= k >> SHIFT;
        h = (h ^ k.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
        h = (h ^ rest).wrapping_mul(MULTIPLIER);
    }
    h ^= h >> SHIFT;
    h = h.wrapping_mul(MULTIPLIER);
    h ^ h >> SHIFT
}

const MULTIPLIER_32: u32 = 0x5BD1_E995;

pub fn murmur2(data: &[u8], seed: u32) -> u32 {
    let mut h = seed ^ data.len() as u32;
    let (blocks, tail) = data.as_chunks::<4>();
    for block in blocks {
        let mut k = u32::from_le_bytes(*block).wrapping_mul(MULTIPLIER_32);
        k ^= k >> 24;
        h = h.wrapping_mul(MULTIPLIER_32) ^ k.wrapping_mul(MULTIPLIER_32);
    }
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0, |rest, byte| rest << 8 | u32::from(*byte));
        h = (h ^ rest).wrapping_mul(MULTIPLIER_32);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(MULTIPLIER_32);
    h ^ h >> 15
}

//! MurmurHash64A, which all of RedisBloom's hashes are.

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

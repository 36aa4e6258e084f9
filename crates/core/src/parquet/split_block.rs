//! Split-block filters: blocks of 256 bits, eight words of 32, of which a value sets a bit each.
//! Values are hashed as XXH64 of their plain encoding (parquet-format's BloomFilter.md).

use xxhash_rust::xxh64::xxh64;

pub const BLOCK_BYTES: usize = 32;
/// What Arrow's reader takes at most.
pub const MAX_BYTES: usize = 128 << 20;

const SALTS: [u32; 8] = [
    0x47B6_137B,
    0x4497_4D91,
    0x8824_AD5B,
    0xA2B7_289D,
    0x7054_95C7,
    0x2DF1_424B,
    0x9EFC_4947,
    0x5C6B_FB31,
];

#[inline(always)]
pub fn hash(value: &[u8]) -> u64 {
    xxh64(value, 0)
}

/// Which of a filter's blocks a hash belongs to.
#[inline(always)]
pub fn block_of(hash: u64, blocks: u64) -> u64 {
    // 32 bits of the hash times fewer than 2³² blocks.
    (hash >> 32).wrapping_mul(blocks) >> 32
}

/// In each word of a block, the bit of a hash.
#[inline(always)]
fn masks(hash: u64) -> [u32; 8] {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// Has the block every bit of the hash?
pub fn contains(block: &[u8; BLOCK_BYTES], hash: u64) -> bool {
    words(block).zip(masks(hash)).all(|(word, mask)| word & mask != 0)
}

fn words(block: &[u8]) -> impl Iterator<Item = u32> {
    block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// A filter of these hashes, whose order is changed, and how many of them are distinct: as small as
/// the error rate allows, in the power of two of bytes that readers expect. None if there is no
/// memory for it.
pub fn build(hashes: &mut Vec<u64>, error_rate: f64) -> Option<(Vec<u8>, usize)> {
    // In order, so that the filter is gone through once, from its first block to its last.
    hashes.sort_unstable();
    hashes.dedup();
    let len = bytes_for(hashes.len(), error_rate);
    let mut bits = Vec::new();
    bits.try_reserve_exact(len).ok()?;
    bits.resize(len, 0u8);
    let blocks = bits.as_chunks_mut::<BLOCK_BYTES>().0;
    for hash in hashes.iter() {
        let block = &mut blocks[block_of(*hash, (len / BLOCK_BYTES) as u64) as usize];
        for (word, mask) in block.as_chunks_mut::<4>().0.iter_mut().zip(masks(*hash)) {
            *word = (u32::from_le_bytes(*word) | mask).to_le_bytes();
        }
    }
    Some((bits, hashes.len()))
}

/// How many bytes so many values need at this error rate: a power of two.
pub fn bytes_for(distinct: usize, error_rate: f64) -> usize {
    let mut bytes = BLOCK_BYTES;
    while bytes < MAX_BYTES && expected_error_rate(distinct, bytes) > error_rate {
        bytes *= 2;
    }
    bytes
}

/// How often a filter of so many bytes is wrong about a value that is none of these: blocks have
/// different numbers of values, as Poisson says, and a full one is wrong more often than an empty
/// one is right.
pub fn expected_error_rate(distinct: usize, bytes: usize) -> f64 {
    let load = distinct as f64 / (bytes / BLOCK_BYTES).max(1) as f64;
    if load > 500.0 {
        return 1.0;
    }
    let (mut share, mut clear, mut rate) = ((-load).exp(), 1.0f64, 0.0);
    for values in 1..1000 {
        share *= load / f64::from(values);
        clear *= 31.0 / 32.0;
        rate += share * (1.0 - clear).powi(8);
    }
    rate
}

/// How often this filter is wrong about a value that was not added, by the bits that it has.
pub fn error_rate(bits: &[u8]) -> f64 {
    let blocks = bits.as_chunks::<BLOCK_BYTES>().0;
    let sum: f64 = blocks
        .iter()
        .map(|block| words(block).map(|word| f64::from(word.count_ones()) / 32.0).product::<f64>())
        .sum();
    sum / blocks.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(bits: &[u8], hash: u64) -> bool {
        let blocks = bits.as_chunks::<BLOCK_BYTES>().0;
        contains(&blocks[block_of(hash, blocks.len() as u64) as usize], hash)
    }

    #[test]
    fn what_was_added_is_there_and_errors_are_as_allowed() {
        for (distinct, rate) in [(0, 0.01), (1, 0.01), (1000, 0.1), (20_000, 0.01), (5000, 1e-5)] {
            let value = |i: usize| hash(&(i as u64).to_le_bytes());
            let mut hashes: Vec<_> = (0..distinct).chain(0..distinct).map(value).collect();
            let (bits, counted) = build(&mut hashes, rate).unwrap();
            assert_eq!(counted, distinct);
            assert!(bits.len().is_power_of_two());
            assert!((0..distinct).all(|i| has(&bits, value(i))));
            let wrong = (distinct..distinct + 200_000).filter(|i| has(&bits, value(*i))).count();
            assert!(wrong as f64 / 200_000.0 <= rate * 1.15 + 2e-5, "{distinct} {rate} {wrong}");
            let told = error_rate(&bits);
            assert!((wrong as f64 / 200_000.0 - told).abs() < told * 0.2 + 1e-4, "{told} {wrong}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two_within_limits() {
        assert_eq!(bytes_for(0, 0.01), 32);
        assert_eq!(bytes_for(usize::MAX, 0.01), MAX_BYTES);
        // The power of two above 10.53 bits a value (what one percent takes).
        assert_eq!(bytes_for(100_000, 0.01), 131_072 * 2);
        assert_eq!(bytes_for(90_000, 0.01), 131_072);
    }

    /// XXH64's published answers.
    #[test]
    fn published_vectors() {
        assert_eq!(hash(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(hash(b"abc"), 0x44BC_2CF5_AD77_0999);
    }
}

//! Canonical bytes to 64 bits. The same key gives the same hash in every process and on every
//! machine; golden tests freeze it. Hashes are never folded to 32 bits on the way.

use siphasher::sip::SipHasher13;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::spark;

/// What kind of key the bytes came from. Each kind hashes under its own tag, so that the int 97
/// and the bytes `b"a\0\0\0\0\0\0\0"`, whose canonical bytes are the same, are different keys.
/// Bytes (and str) have tag 0: with seed 0 their hash is the plain, published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Domain {
    Bytes = 0,
    Int = 1,
    Tuple = 2,
    Uuid = 3,
    InstantUtc = 4,
    InstantNaive = 5,
}

impl Domain {
    /// Multiples of the golden ratio: far apart in every bit, so no tag can be cancelled by a
    /// first byte (FNV-1a) or a small seed.
    #[inline(always)]
    const fn tag(self) -> u64 {
        (self as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HashKind {
    Xxh3 = 1,
    Murmur3 = 2,
    Fnv1a = 3,
    SipHash = 4,
    /// Spark's, for its own filters alone: none of ours has it, so it has no name and no number in
    /// a file.
    Spark = 255,
}

impl HashKind {
    pub const ALL: [(HashKind, &'static str); 4] = [
        (HashKind::Xxh3, "xxh3"),
        (HashKind::Murmur3, "murmur3"),
        (HashKind::Fnv1a, "fnv1a"),
        (HashKind::SipHash, "siphash"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(k, _)| *k == self).map_or("spark", |(_, name)| name)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(k, _)| *k)
    }

    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.iter().find(|(k, _)| *k as u8 == id).map(|(k, _)| *k)
    }
}

/// A hash function with its seed. For siphash the 128 bits of the seed are the key; the others
/// use the low 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHasher {
    pub kind: HashKind,
    pub seed: u128,
}

impl KeyHasher {
    #[inline(always)]
    pub fn hash(&self, domain: Domain, bytes: &[u8]) -> u64 {
        let seed = self.seed as u64 ^ domain.tag();
        match self.kind {
            HashKind::Xxh3 => xxh3_64_with_seed(bytes, seed),
            HashKind::Murmur3 => murmur3(bytes, seed),
            HashKind::Fnv1a => fnv1a(bytes, seed),
            HashKind::SipHash => {
                SipHasher13::new_with_keys(seed, (self.seed >> 64) as u64).hash(bytes)
            }
            HashKind::Spark => spark::hash_bytes(bytes, self.seed as u32),
        }
    }

    #[inline(always)]
    pub fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        self.hash(Domain::Bytes, bytes)
    }

    /// An int that fits 64 signed bits is its 8 little-endian bytes. For xxh3 this is the hash of
    /// those bytes written out without the length dispatch.
    #[inline(always)]
    pub fn hash_i64(&self, value: i64) -> u64 {
        match self.kind {
            HashKind::Xxh3 => IntHash::new(self.seed as u64 ^ Domain::Int.tag()).hash(value),
            HashKind::Spark => spark::hash_long(value, self.seed as u32),
            _ => self.hash(Domain::Int, &value.to_le_bytes()),
        }
    }

    /// Hashes many ints. The hash function is chosen once, not for each: 2.9 ns a key became 1.6.
    #[inline(always)]
    pub fn hash_i64s(&self, values: impl Iterator<Item = i64>, out: &mut [u64]) {
        match self.kind {
            HashKind::Xxh3 => {
                let ints = IntHash::new(self.seed as u64 ^ Domain::Int.tag());
                out.iter_mut().zip(values).for_each(|(h, v)| *h = ints.hash(v));
            }
            _ => out.iter_mut().zip(values).for_each(|(h, v)| *h = self.hash_i64(v)),
        }
    }

    /// The hash of ints on its own, for loops that compile it in; xxh3 only.
    #[inline(always)]
    pub fn int_hash(&self) -> Option<IntHash> {
        let ints = IntHash::new(self.seed as u64 ^ Domain::Int.tag());
        (self.kind == HashKind::Xxh3).then_some(ints)
    }

    /// The hash of 17 to 32 bytes (or text) by their words, for who has them in registers; xxh3 only.
    #[inline(always)]
    pub(crate) fn words_hash(&self) -> Option<WordsHash> {
        (self.kind == HashKind::Xxh3).then_some(WordsHash { seed: self.seed as u64 })
    }

    /// A larger one has a ninth byte, which holds its sign.
    #[inline(always)]
    pub fn hash_u64(&self, value: u64) -> u64 {
        match i64::try_from(value) {
            Ok(small) => self.hash_i64(small),
            Err(_) => {
                let mut bytes = [0u8; 9];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                self.hash(Domain::Int, &bytes)
            }
        }
    }
}

/// XXH3-64 of exactly eight bytes (its "4 to 8" case): a bijection, so no two ints collide. What
/// depends on the seed alone is made once.
#[derive(Clone, Copy)]
pub struct IntHash {
    flip: u64,
}

impl IntHash {
    #[inline(always)]
    fn new(seed: u64) -> Self {
        const SECRET: u64 = 0x1CAD_21F7_2C81_017C ^ 0xDB97_9083_E96D_D4DE; // its bytes 8 to 24
        let seed = seed ^ (u64::from((seed as u32).swap_bytes()) << 32);
        IntHash { flip: SECRET.wrapping_sub(seed) }
    }

    /// What the seed turns the key with, for those who hash several keys at once.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn flip(self) -> u64 {
        self.flip
    }

    #[inline(always)]
    pub fn hash(self, value: i64) -> u64 {
        const PRIME_MX2: u64 = 0x9FB2_1C65_1E98_DF25;
        let mut h = (value as u64).rotate_left(32) ^ self.flip;
        h ^= h.rotate_left(49) ^ h.rotate_left(24);
        h = h.wrapping_mul(PRIME_MX2);
        h ^= (h >> 35).wrapping_add(8);
        h = h.wrapping_mul(PRIME_MX2);
        h ^ (h >> 28)
    }
}

/// XXH3-64 of 17 to 32 bytes.
pub(crate) struct WordsHash {
    seed: u64,
}

impl WordsHash {
    /// By the first two words of 8 bytes, and the last two.
    #[inline(always)]
    pub(crate) fn hash(self, [first, last]: [[u64; 2]; 2], len: u64) -> u64 {
        const FIRST: [u64; 2] = [0xBE4B_A423_396C_FEB8, 0x1CAD_21F7_2C81_017C];
        const LAST: [u64; 2] = [0xDB97_9083_E96D_D4DE, 0x1F67_B3B7_A4A4_4072];
        let mix = |words: [u64; 2], secret: [u64; 2]| {
            let low = words[0] ^ secret[0].wrapping_add(self.seed);
            let high = words[1] ^ secret[1].wrapping_sub(self.seed);
            let product = u128::from(low) * u128::from(high);
            product as u64 ^ (product >> 64) as u64
        };
        let start = len.wrapping_mul(0x9E37_79B1_85EB_CA87);
        let mut h = start.wrapping_add(mix(first, FIRST)).wrapping_add(mix(last, LAST));
        h ^= h >> 37;
        h = h.wrapping_mul(0x1656_6791_9E37_79F9);
        h ^ (h >> 32)
    }
}

/// Murmur's 64-bit finaliser: a bijection in which every input bit reaches every output bit.
#[inline(always)]
pub fn remix(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    h ^= h >> 33;
    h = h.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    h ^ (h >> 33)
}

/// The first 64 bits of MurmurHash3 x64 128; its seed taken as 64 bits instead of 32.
fn murmur3(bytes: &[u8], seed: u64) -> u64 {
    const C1: u64 = 0x87C3_7B91_1142_53D5;
    const C2: u64 = 0x4CF5_AD43_2745_937F;
    let word = |b: &[u8]| {
        let mut w = [0u8; 8];
        w[..b.len()].copy_from_slice(b);
        u64::from_le_bytes(w)
    };
    let scramble1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let scramble2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (mut h1, mut h2) = (seed, seed);
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        h1 ^= scramble1(word(&block[..8]));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= scramble2(word(&block[8..]));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let tail = blocks.remainder();
    let (low, high) = tail.split_at(tail.len().min(8));
    h2 ^= scramble2(word(high));
    h1 ^= scramble1(word(low));
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    remix(h1).wrapping_add(remix(h2))
}

/// FNV-1a 64, the seed folded into its offset basis, then remixed: on its own the high bits of
/// short keys hardly move, and the high bits choose the line.
fn fnv1a(bytes: &[u8], seed: u64) -> u64 {
    let start = 0xCBF2_9CE4_8422_2325 ^ seed;
    remix(bytes.iter().fold(start, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01B3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fast path for ints is the published XXH3 of their eight bytes.
    #[test]
    fn ints_take_the_published_hash() {
        for seed in [0u64, 1, 0xDEAD_BEEF, u64::MAX] {
            for v in [0i64, 1, -1, -2, 5, 1 << 40, i64::MIN, i64::MAX] {
                let slow = xxh3_64_with_seed(&v.to_le_bytes(), seed);
                assert_eq!(IntHash::new(seed).hash(v), slow);
            }
        }
    }

    /// So is that of 17 to 32 bytes by their words.
    #[test]
    fn words_take_the_published_hash() {
        let bytes: [u8; 32] = std::array::from_fn(|i| (i * 37 + 11) as u8);
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        for seed in [0u64, 1, 0xDEAD_BEEF, u64::MAX] {
            for len in 17..=32 {
                let words = [[word(0), word(8)], [word(len - 16), word(len - 8)]];
                let hash = WordsHash { seed }.hash(words, len as u64);
                assert_eq!(hash, xxh3_64_with_seed(&bytes[..len], seed));
            }
        }
    }

    /// Known answers of MurmurHash3_x64_128 (first half) and FNV-1a before its remix.
    #[test]
    fn published_vectors() {
        assert_eq!(murmur3(b"", 0), 0);
        assert_eq!(murmur3(b"hello", 0), 0xCBD8_A7B3_41BD_9B02);
        assert_eq!(
            murmur3(b"The quick brown fox jumps over the lazy dog", 0),
            0xE34B_BC7B_BC07_1B6C
        );
        assert_eq!(fnv1a(b"a", 0), remix(0xAF63_DC4C_8601_EC8C));
    }

    /// Unsigned and signed 64-bit ints of one value are one key.
    #[test]
    fn unsigned_agrees_with_signed() {
        for (kind, _) in HashKind::ALL {
            let hasher = KeyHasher { kind, seed: 7 };
            assert_eq!(hasher.hash_u64(99), hasher.hash_i64(99));
            assert_ne!(hasher.hash_u64(u64::MAX), hasher.hash_i64(-1));
        }
    }
}

//! Spark's own Bloom filter, `org.apache.spark.util.sketch.BloomFilter`, in both of its versions: the
//! same keys give the same bits.
//!
//! Its hash is Murmur3 of 32 bits, once from the seed and once from the first hash; here the two are
//! one number, the first in its upper half. Version 1 walks in 32 bits, so that more than 2³¹ bits
//! are never reached; version 2, which Spark makes since 4.1, in 64.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1 = 1,
    V2 = 2,
}

pub struct SparkFilter {
    version: Version,
    num_hashes: u32,
    words: Vec<u64>,
}

impl SparkFilter {
    /// An empty one; None if there is no word, or no memory for so many.
    pub fn new(version: Version, num_hashes: u32, num_words: usize) -> Option<Self> {
        let mut words = Vec::new();
        words.try_reserve_exact(num_words).ok()?;
        words.resize(num_words, 0);
        (num_words > 0).then_some(SparkFilter { version, num_hashes, words })
    }

    pub fn num_bits(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    pub fn bits_set(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Takes the words as Spark writes them, big-endian; false if they are not as many.
    pub fn load(&mut self, body: &[u8]) -> bool {
        let (words, rest) = body.as_chunks::<8>();
        let fits = rest.is_empty() && words.len() == self.words.len();
        if fits {
            self.words.iter_mut().zip(words).for_each(|(w, b)| *w = u64::from_be_bytes(*b));
        }
        fits
    }

    /// Writes the words as Spark does; `out` has 8 bytes for each.
    pub fn save(&self, out: &mut [u8]) {
        let (places, _) = out.as_chunks_mut::<8>();
        places.iter_mut().zip(&self.words).for_each(|(place, word)| *place = word.to_be_bytes());
    }

    /// Takes the other's bits as well; false if the two do not agree on where a key's bits are.
    pub fn merge(&mut self, other: &SparkFilter) -> bool {
        let alike = self.version == other.version
            && self.num_hashes == other.num_hashes
            && self.words.len() == other.words.len();
        if alike {
            self.words.iter_mut().zip(&other.words).for_each(|(mine, theirs)| *mine |= theirs);
        }
        alike
    }

    /// True if the key is definitely new.
    #[inline]
    pub fn add(&mut self, hashes: u64) -> bool {
        let mut new = false;
        for bit in places(self.version, self.num_hashes, hashes, self.num_bits()) {
            if let Some(word) = self.words.get_mut((bit / 64) as usize) {
                new |= *word >> (bit % 64) & 1 == 0;
                *word |= 1 << (bit % 64);
            }
        }
        new
    }

    /// False: definitely not there. True: maybe.
    #[inline]
    pub fn contains(&self, hashes: u64) -> bool {
        places(self.version, self.num_hashes, hashes, self.num_bits()).all(|bit| {
            let word = self.words.get((bit / 64) as usize);
            word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
        })
    }
}

/// Where a key's bits are.
#[inline(always)]
fn places(version: Version, k: u32, hashes: u64, num_bits: u64) -> impl Iterator<Item = u64> {
    let (h1, h2) = ((hashes >> 32) as i32, hashes as i32);
    let mut wide = i64::from(h1).wrapping_mul(i64::from(i32::MAX));
    let mut narrow = h1;
    (0..k).map(move |_| {
        let at = match version {
            Version::V1 => {
                narrow = narrow.wrapping_add(h2);
                i64::from(if narrow < 0 { !narrow } else { narrow })
            }
            Version::V2 => {
                wide = wide.wrapping_add(i64::from(h2));
                if wide < 0 { !wide } else { wide }
            }
        };
        at as u64 % num_bits
    })
}

/// Both hashes of a 64-bit integer.
#[inline(always)]
pub fn hash_long(value: i64, seed: u32) -> u64 {
    let once = |seed| {
        let h = mix(mix(seed, value as u32), (value as u64 >> 32) as u32);
        last_mix(h, 8)
    };
    let h1 = once(seed);
    u64::from(h1) << 32 | u64::from(once(h1))
}

/// Both hashes of bytes. Where Murmur3 mixes the up to three bytes behind the last four at once,
/// Spark mixes each of them as if it were four, with its sign.
pub fn hash_bytes(bytes: &[u8], seed: u32) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<4>();
    let once = |seed| {
        let h = blocks.iter().fold(seed, |h, block| mix(h, u32::from_le_bytes(*block)));
        let h = tail.iter().fold(h, |h, byte| mix(h, i32::from(*byte as i8) as u32));
        last_mix(h, bytes.len() as u32)
    };
    let h1 = once(seed);
    u64::from(h1) << 32 | u64::from(once(h1))
}

#[inline(always)]
fn mix(h: u32, k: u32) -> u32 {
    let k = k.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593);
    (h ^ k).rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64)
}

#[inline(always)]
fn last_mix(h: u32, len: u32) -> u32 {
    let mut h = h ^ len;
    h = (h ^ h >> 16).wrapping_mul(0x85EB_CA6B);
    h = (h ^ h >> 13).wrapping_mul(0xC2B2_AE35);
    h ^ h >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(version: Version) -> SparkFilter {
        let mut filter = SparkFilter::new(version, 7, 160).unwrap();
        (-500..500).for_each(|key| _ = filter.add(hash_long(key, 0)));
        filter
    }

    /// Of whole words, it is Murmur3 as everybody has it; the JVM's own answers are in the Python
    /// tests.
    #[test]
    fn whole_words_have_the_published_hash() {
        assert_eq!(hash_bytes(b"", 0) >> 32, 0);
        assert_eq!(hash_bytes(b"test", 0) >> 32, 0xBA6B_D213);
        assert_eq!(hash_bytes(&42i64.to_le_bytes(), 7), hash_long(42, 7));
    }

    #[test]
    fn no_key_is_lost_and_few_are_made_up() {
        for version in [Version::V1, Version::V2] {
            let filter = filled(version);
            assert!((-500..500).all(|key| filter.contains(hash_long(key, 0))));
            let wrong = (1000..11_000).filter(|key| filter.contains(hash_long(*key, 0))).count();
            assert!(wrong < 200, "{version:?}: {wrong} of 10,000");
        }
    }

    #[test]
    fn what_is_saved_is_loaded_and_merged() {
        let filter = filled(Version::V2);
        let mut body = vec![0; 160 * 8];
        filter.save(&mut body);
        let mut other = SparkFilter::new(Version::V2, 7, 160).unwrap();
        assert!(!other.load(&body[8..]) && !other.load(&body[1..]));
        assert!(other.load(&body));
        assert_eq!(other.bits_set(), filter.bits_set());
        let mut empty = SparkFilter::new(Version::V2, 7, 160).unwrap();
        assert!(empty.merge(&other) && empty.bits_set() == filter.bits_set());
        assert!(!empty.merge(&SparkFilter::new(Version::V1, 7, 160).unwrap()));
        assert!(!empty.merge(&SparkFilter::new(Version::V2, 6, 160).unwrap()));
        assert!(!empty.merge(&SparkFilter::new(Version::V2, 7, 161).unwrap()));
    }

    /// Without a word there would be nothing to divide by.
    #[test]
    fn there_is_no_filter_without_a_word() {
        assert!(SparkFilter::new(Version::V1, 1, 0).is_none());
        assert!(SparkFilter::new(Version::V1, 1, usize::MAX / 8).is_none());
    }
}

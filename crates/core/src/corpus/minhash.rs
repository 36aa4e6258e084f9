//! MinHash: a signature whose equal places are, of all places, the share of shingles that two texts
//! have in common (Broder 1997); and its bands as keys, so that texts which agree in one whole band
//! meet in a filter (LSHBloom).

use crate::hash::{KeyHasher, remix};

/// `bands` of `rows` places each.
#[derive(Clone, Debug)]
pub struct MinHash {
    rows: usize,
    /// Of each place the function that orders shingles: multiplier and addend, of 64 bits each, for
    /// shingles of 32 (Dietzfelbinger's strongly universal one).
    functions: Vec<(u64, u64)>,
}

impl MinHash {
    pub fn new(bands: usize, rows: usize) -> MinHash {
        let number = |n: usize| remix((n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let functions = (0..bands * rows).map(|n| (number(2 * n + 1) | 1, number(2 * n + 2)));
        MinHash { rows: rows.max(1), functions: functions.collect() }
    }

    /// The least value of each place, over all shingles.
    pub fn signature(&self, shingles: &[u64], signature: &mut Vec<u64>) {
        signature.clear();
        signature.resize(self.functions.len(), u64::from(u32::MAX));
        #[cfg(target_arch = "x86_64")]
        if crate::probe::has_avx2() {
            // SAFETY: the processor was just asked.
            unsafe { least_avx2(&self.functions, shingles, signature) };
            return;
        }
        least(&self.functions, shingles, signature);
    }

    /// A key for each band of a signature.
    pub fn keys(&self, signature: &[u64], hasher: &KeyHasher, keys: &mut Vec<u64>) {
        for (band, rows) in signature.chunks_exact(self.rows).enumerate() {
            let first = remix(band as u64 + 1);
            let value = rows.iter().fold(first, |sum, place| {
                remix(sum.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(*place + 1))
            });
            keys.push(hasher.hash_u64(value));
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn least_avx2(functions: &[(u64, u64)], shingles: &[u64], signature: &mut [u64]) {
    least(functions, shingles, signature);
}

/// A few places at a time stay in registers while all shingles pass: so each is read and written once.
#[inline(always)]
fn least(functions: &[(u64, u64)], shingles: &[u64], signature: &mut [u64]) {
    const LANES: usize = 8;
    for (functions, places) in functions.chunks(LANES).zip(signature.chunks_mut(LANES)) {
        let (mut low, mut high, mut add) = ([0u64; LANES], [0u64; LANES], [0u64; LANES]);
        for (lane, (multiplier, addend)) in functions.iter().enumerate() {
            low[lane] = multiplier & 0xffff_ffff;
            high[lane] = multiplier >> 32;
            add[lane] = *addend;
        }
        let mut best = [i64::from(u32::MAX); LANES];
        for shingle in shingles {
            let x = shingle >> 32;
            for lane in 0..LANES {
                // Products of 32 bits, of which there is a vector instruction.
                let product = (low[lane] * x).wrapping_add((high[lane] * x) << 32);
                let value = (product.wrapping_add(add[lane]) >> 32) as i64;
                best[lane] = best[lane].min(value);
            }
        }
        for (place, least) in places.iter_mut().zip(best) {
            *place = least as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKind;

    #[test]
    fn places_agree_as_often_as_shingles_are_shared() {
        let minhash = MinHash::new(64, 8);
        let shingles = |from: u64, to: u64| (from..to).map(remix).collect::<Vec<_>>();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (common, expected) in [(0, 0.0), (500, 1.0 / 3.0), (900, 9.0 / 11.0), (1000, 1.0)] {
            minhash.signature(&shingles(1, 1001), &mut a);
            minhash.signature(&shingles(1001 - common, 2001 - common), &mut b);
            let same = a.iter().zip(&b).filter(|(a, b)| a == b).count() as f64 / 512.0;
            // 512 places: a standard deviation is 0.02 at most.
            assert!((same - expected).abs() < 0.1, "{common}: {same}");
        }
    }

    #[test]
    fn vectors_and_numbers_agree() {
        let minhash = MinHash::new(3, 7);
        let shingles: Vec<_> = (0..1000).map(remix).collect();
        let mut fast = Vec::new();
        minhash.signature(&shingles, &mut fast);
        let slow = minhash.functions.iter().map(|(a, b)| {
            let value = |x: &u64| (a.wrapping_mul(x >> 32).wrapping_add(*b)) >> 32;
            shingles.iter().map(value).min().unwrap_or(0)
        });
        assert_eq!(fast, slow.collect::<Vec<_>>());
    }

    #[test]
    fn bands_are_keys_of_their_own() {
        let minhash = MinHash::new(4, 2);
        let hasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };
        let keys = |signature: &[u64]| {
            let mut keys = Vec::new();
            minhash.keys(signature, &hasher, &mut keys);
            keys
        };
        let first = keys(&[1, 2, 1, 2, 3, 4, 5, 6]);
        let second = keys(&[1, 2, 2, 1, 3, 4, 5, 7]);
        assert_eq!(first.len(), 4);
        assert_ne!(first[0], first[1], "the same values in another band are another key");
        assert_eq!(first[0], second[0]);
        assert_ne!(first[1], second[1]);
        assert_eq!(first[2], second[2]);
        assert_ne!(first[3], second[3]);
    }
}

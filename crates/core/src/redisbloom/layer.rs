//! One layer of a chain: a Bloom filter, and the numbers that follow from its capacity and its error
//! rate.

use std::sync::atomic::Ordering::Relaxed;

use crate::bits::Bits;
use crate::look::Look;
use crate::probe::prefetch;
use crate::shape::MAX_BITS;

/// The two constants as RedisBloom writes them: with more digits some numbers of hashes differ.
#[expect(clippy::approx_constant, reason = "as said above")]
const LN2: f64 = 0.693147180559945;
const LN2_SQUARED: f64 = 0.480453013918201;

/// The numbers of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    pub num_bits: u64,
    /// Keys that were new when they came.
    pub keys: u64,
    pub error_rate: f64,
    pub bits_per_key: f64,
    pub num_hashes: u32,
    pub capacity: u64,
}

impl Numbers {
    /// `None` if there can be no such layer.
    pub fn new(capacity: u64, error_rate: f64) -> Option<Numbers> {
        let sound = capacity > 0 && error_rate > 0.0 && error_rate < 1.0;
        let bits_per_key = -(error_rate.ln() / LN2_SQUARED);
        let num_hashes = (LN2 * bits_per_key).ceil() as u32;
        let num_bits = bits_of(capacity, bits_per_key, 64)?;
        let keys = 0;
        sound.then_some(Numbers { num_bits, keys, error_rate, bits_per_key, num_hashes, capacity })
    }

    pub fn nbytes(&self) -> u64 {
        self.num_bits / 8
    }
}

fn bits_of(capacity: u64, bits_per_key: f64, whole: u64) -> Option<u64> {
    let bits = capacity as f64 * bits_per_key;
    (bits <= MAX_BITS as f64).then(|| (bits as u64).max(1).next_multiple_of(whole))
}

pub struct Layer {
    pub numbers: Numbers,
    pub bits: Bits,
    nbytes: u64,
    /// The reciprocal of `nbytes`, in place of a division a probe.
    reciprocal: u64,
}

impl Layer {
    pub fn new(numbers: Numbers, bits: Bits) -> Layer {
        let nbytes = numbers.nbytes();
        Layer { numbers, bits, nbytes, reciprocal: u64::MAX / nbytes }
    }

    /// The word and the bit of `x % num_bits`. There are whole bytes, so the division is of 61 bits,
    /// for which the quotient by the reciprocal is right or one too small.
    #[inline(always)]
    pub fn place(&self, x: u64) -> (usize, u64) {
        let high = x >> 3;
        let quotient = ((u128::from(high) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = high - quotient * self.nbytes;
        let byte = if rest >= self.nbytes { rest - self.nbytes } else { rest };
        ((byte >> 3) as usize, 1 << ((byte & 7) << 3 | x & 7))
    }

    /// Asks for the memory that the key's bits are in, if it is more than caches hold.
    #[inline(always)]
    pub fn prefetch(&self, [start, step]: [u64; 2]) {
        if self.numbers.nbytes() < 1 << 20 {
            return;
        }
        let (words, mut x) = (self.bits.words().as_ptr(), start);
        for _ in 0..self.numbers.num_hashes {
            prefetch(words.wrapping_add(self.place(x).0).cast());
            x = x.wrapping_add(step);
        }
    }

    #[inline(always)]
    pub fn contains(&self, [start, step]: [u64; 2]) -> bool {
        let words = self.bits.words();
        let mut x = start;
        for _ in 0..self.numbers.num_hashes {
            let (word, bit) = self.place(x);
            if words[word].load(Relaxed) & bit == 0 {
                return false;
            }
            x = x.wrapping_add(step);
        }
        true
    }

    /// Sets the key's bits; true if one of them was clear.
    #[inline(always)]
    pub fn set(&mut self, [start, step]: [u64; 2]) -> bool {
        let words = self.bits.words();
        let (mut x, mut clear) = (start, 0);
        for _ in 0..self.numbers.num_hashes {
            let (word, bit) = self.place(x);
            let old = words[word].load(Relaxed);
            words[word].store(old | bit, Relaxed); // nobody else writes: the filter is ours
            clear |= !old & bit;
            x = x.wrapping_add(step);
        }
        clear != 0
    }

    pub fn fill_ratio(&self, look: Look) -> f64 {
        let (mut set, mut words) = (0u64, 0);
        for part in look.parts(self.bits.words()) {
            set += part.iter().map(|w| w.load(Relaxed).count_ones() as u64).sum::<u64>();
            words += part.len() as u64;
        }
        // Memory ends with a whole line, a filter need not.
        set as f64 / (64 * words).min(self.numbers.num_bits) as f64
    }
}

/// Do a layer's numbers follow from its capacity and its error rate? Logarithms of another machine
/// may differ in their last bit, and an older RedisBloom rounded bits up to whole bytes only.
pub fn is_sound(layer: &Numbers) -> bool {
    let Some(expected) = Numbers::new(layer.capacity, layer.error_rate) else { return false };
    let (per_key, bits) = (layer.bits_per_key, Some(layer.num_bits));
    (per_key - expected.bits_per_key).abs() <= 1e-15 * expected.bits_per_key
        && [8, 64].map(|whole| bits_of(layer.capacity, per_key, whole)).contains(&bits)
        && f64::from(layer.num_hashes) == (LN2 * per_key).ceil()
        && layer.keys <= layer.capacity
}

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

/// How a chain's layers are made and asked, as the bits of a dump's `options` say. What RedisBloom
/// makes since version 2.2 has `NO_ROUND` and `HASH_64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options(pub u32);

impl Options {
    /// Bits are not rounded up to a power of two.
    pub const NO_ROUND: u32 = 1;
    /// A layer's capacity is given as the power of two that its number of bits is.
    pub const CAPACITY_IS_POWER: u32 = 2;
    /// Keys are hashed to 64 bits, not to 32.
    pub const HASH_64: u32 = 4;
    /// There is only one layer.
    pub const NONSCALING: u32 = 8;
    pub const ALL: u32 = 15;

    pub fn has(self, option: u32) -> bool {
        self.0 & option != 0
    }
}

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
    /// The power of two to which the number of bits was rounded up; 0 if it was not.
    pub power: u8,
}

impl Numbers {
    /// `None` if there can be no such layer.
    pub fn new(capacity: u64, error_rate: f64, options: Options) -> Option<Numbers> {
        if capacity == 0 || !(error_rate > 0.0 && error_rate < 1.0) {
            return None;
        }
        let bits_per_key = -(error_rate.ln() / LN2_SQUARED);
        let (mut capacity, mut power) = (capacity, 0);
        let least = capacity as f64 * bits_per_key;
        let mut bits = least;
        if options.has(Options::CAPACITY_IS_POWER) {
            power = u8::try_from(capacity).ok().filter(|power| *power < 64)?;
            bits = 2f64.powi(power.into());
            capacity = (bits / bits_per_key) as u64;
        } else if !options.has(Options::NO_ROUND) {
            // The next power of two that is larger, and as many keys more as its bits are for.
            power = u8::try_from(least.log2().floor() as i64 + 1).ok().filter(|p| *p < 64)?;
            bits = 2f64.powi(power.into());
            capacity += ((bits - least).trunc() / bits_per_key) as u64;
        }
        if bits > MAX_BITS as f64 {
            return None;
        }
        let num_bits = (bits as u64).max(1).next_multiple_of(64);
        let num_hashes = hashes_of(bits_per_key);
        Some(Numbers { num_bits, keys: 0, error_rate, bits_per_key, num_hashes, capacity, power })
    }

    pub fn nbytes(&self) -> u64 {
        self.num_bits / 8
    }

    /// Can a layer that RedisBloom dumped have these numbers? It believes what it can read, and so
    /// do we: bits and hashes must fit each other, and no more keys be in than there is room for.
    pub fn is_sound(&self) -> bool {
        self.error_rate > 0.0
            && self.error_rate < 1.0
            && self.bits_per_key > 0.0
            && self.bits_per_key <= MOST_BITS_PER_KEY
            && self.num_hashes == hashes_of(self.bits_per_key)
            && self.num_bits > 0
            && self.num_bits <= MAX_BITS
            && self.num_bits.is_multiple_of(8)
            && self.power < 64
            && (self.power == 0 || self.num_bits >= 1 << self.power)
            && self.keys <= self.capacity
    }
}

/// More than the smallest error rate that there is asks for.
const MOST_BITS_PER_KEY: f64 = 1600.0;

fn hashes_of(bits_per_key: f64) -> u32 {
    (LN2 * bits_per_key).ceil() as u32
}

pub struct Layer {
    pub numbers: Numbers,
    pub bits: Bits,
    nbytes: u64,
    /// The bits of a hash that count, where the number of bits was rounded up to a power of two.
    mask: u64,
    /// The reciprocal of `nbytes`, in place of a division a probe.
    reciprocal: u64,
}

impl Layer {
    pub fn new(numbers: Numbers, bits: Bits) -> Layer {
        let nbytes = numbers.nbytes();
        let mask = if numbers.power == 0 { u64::MAX } else { (1 << numbers.power) - 1 };
        Layer { numbers, bits, nbytes, mask, reciprocal: u64::MAX / nbytes }
    }

    /// The word and the bit of `x % num_bits`. There are whole bytes, so the division is of 61 bits,
    /// for which the quotient by the reciprocal is right or one too small.
    #[inline(always)]
    pub fn place(&self, x: u64) -> (usize, u64) {
        let x = x & self.mask;
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

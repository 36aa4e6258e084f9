//! One layer of a chain: a Bloom filter, and the numbers that follow from its capacity and its error
//! rate.

use std::sync::atomic::Ordering::Relaxed;

use crate::bits::Bits;
use crate::probe::prefetch;
use crate::scan::Scan;
use crate::shape::MAX_BITS;

/// The two constants as RedisBloom writes them: with more digits some numbers of hashes differ.
#[expect(clippy::approx_constant, reason = "as said above")]
const LN2: f64 = 0.693147180559945;
const LN2_SQUARED: f64 = 0.480453013918201;

/// How a chain's layers are made and asked, as the bits of a dump's `options` say. RedisBloom 1 made
/// 0, version 2.0 `HASH_64`, and later ones `HASH_64` and `NO_ROUND`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options(pub u32);

impl Options {
    /// Bits are not rounded up to a power of two.
    pub const NO_ROUND: u32 = 1;
    /// Keys are hashed to 64 bits, not to 32.
    pub const HASH_64: u32 = 4;
    /// There is only one layer.
    pub const NONSCALING: u32 = 8;
    /// What the filters of some version have.
    pub const KNOWN: [u32; 5] = [0, 4, 5, 12, 13];

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
        let bits_per_key = bits_per_key(error_rate);
        let (mut capacity, mut power) = (capacity, 0);
        let mut bits = capacity as f64 * bits_per_key;
        if bits > MAX_BITS as f64 {
            return None;
        }
        if !options.has(Options::NO_ROUND) {
            // The next power of two that is larger, and as many keys more as its bits are for.
            power = (bits.log2().floor() as i32 + 1).try_into().ok()?;
            let rounded = 2f64.powi(power.into());
            capacity += ((rounded - bits).trunc() / bits_per_key) as u64;
            bits = rounded;
        }
        let num_bits = whole(bits, 64);
        let num_hashes = hashes_of(bits_per_key);
        Some(Numbers { num_bits, keys: 0, error_rate, bits_per_key, num_hashes, capacity, power })
    }

    pub fn nbytes(&self) -> u64 {
        self.num_bits / 8
    }

    /// Do the numbers of a dump follow from its capacity and its error rate? Logarithms of another
    /// machine may differ in their last bit, and an older RedisBloom rounded bits up to whole bytes
    /// only.
    pub fn is_sound(&self, options: Options) -> bool {
        let expected = bits_per_key(self.error_rate);
        let fits = if options.has(Options::NO_ROUND) {
            let bits = self.capacity as f64 * self.bits_per_key;
            self.power == 0 && [8, 64].map(|unit| whole(bits, unit)).contains(&self.num_bits)
        } else {
            let bits = 2f64.powi(self.power.into());
            let room = (bits / self.bits_per_key) as u64;
            self.power > 0 && self.num_bits == whole(bits, 64) && self.capacity.abs_diff(room) <= 1 // it was added up of two parts
        };
        self.error_rate > 0.0
            && self.error_rate < 1.0
            && (self.bits_per_key - expected).abs() <= 1e-15 * expected
            && self.num_hashes == hashes_of(self.bits_per_key)
            && self.num_bits <= MAX_BITS
            && fits
            && self.capacity > 0
            && self.keys <= self.capacity
    }
}

fn bits_per_key(error_rate: f64) -> f64 {
    -(error_rate.ln() / LN2_SQUARED)
}

fn hashes_of(bits_per_key: f64) -> u32 {
    (LN2 * bits_per_key).ceil() as u32
}

/// Bits in whole units; there is at least one.
fn whole(bits: f64, unit: u64) -> u64 {
    // More than there can be stays more than there can be.
    (bits.min(2f64.powi(62)) as u64).max(1).next_multiple_of(unit)
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

    pub fn fill_ratio(&self, scan: Scan) -> f64 {
        let (mut set, mut words) = (0u64, 0);
        for part in scan.parts(self.bits.words()) {
            set += part.iter().map(|w| w.load(Relaxed).count_ones() as u64).sum::<u64>();
            words += part.len() as u64;
        }
        // Memory ends with a whole line, a filter need not.
        set as f64 / (64 * words).min(self.numbers.num_bits) as f64
    }
}

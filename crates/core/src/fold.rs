//! Fewer bits, no key lost.
//!
//! A place is `mulhi(h, n)`: the interval of hashes [i, i + 1) * 2^64 / n. Whatever size m < n is
//! chosen, a place's interval touches at most two of the m new ones; a bit set in the old place is
//! set in each of them. Where m divides n it touches exactly one and the result is bit for bit the
//! filter that would have been built at size m.

use std::sync::atomic::Ordering::Relaxed;

use crate::bits::{Bits, LINE_BITS, WORDS_PER_LINE};
use crate::shape::{Layout, Shape};

/// Writes the bits of a filter of `from` into the empty bits of one with `to_bits` bits.
pub fn fold(source: &Bits, from: &Shape, target: &Bits, to_bits: u64) {
    let or = |word: usize, bits: u64| {
        let word = &target.words()[word];
        word.store(word.load(Relaxed) | bits, Relaxed);
    };
    match from.layout {
        Layout::Blocked => {
            let (old, new) = (from.num_bits / LINE_BITS, to_bits / LINE_BITS);
            for (i, line) in source.words().chunks_exact(WORDS_PER_LINE).enumerate() {
                let (first, last) = overlap(i as u64, old, new);
                for place in [first, last] {
                    for (j, word) in line.iter().enumerate() {
                        or(place as usize * WORDS_PER_LINE + j, word.load(Relaxed));
                    }
                }
            }
        }
        Layout::Classic => {
            for (i, word) in source.words().iter().enumerate() {
                let mut left = word.load(Relaxed);
                while left != 0 {
                    let p = i as u64 * 64 + u64::from(left.trailing_zeros());
                    left &= left - 1;
                    let (first, last) = overlap(p, from.num_bits, to_bits);
                    for place in [first, last] {
                        or((place >> 6) as usize, 1 << (place & 63));
                    }
                }
            }
        }
    }
}

/// The first and the last of `new` places whose interval meets that of place `i` of `old`.
fn overlap(i: u64, old: u64, new: u64) -> (u64, u64) {
    let scale = |x: u128| (x * u128::from(new) / u128::from(old)) as u64;
    let first = scale(u128::from(i));
    // The end is open: the last hash of place i is just below (i + 1) / old.
    let end = (u128::from(i) + 1) * u128::from(new);
    let last = ((end - 1) / u128::from(old)) as u64;
    (first, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::mulhi;

    /// Every hash's new place is one of those its old place is folded into.
    #[test]
    fn a_hash_keeps_its_place() {
        let mut h = 1u64;
        let (most, each) = if cfg!(miri) { (10, 2) } else { (300, 50) };
        for old in [1u64, 2, 7, 100, 1013, 65_537] {
            for new in 1..=old.min(most) {
                for _ in 0..each {
                    h = crate::hash::remix(h.wrapping_add(0x9E37_79B9_7F4A_7C15));
                    for h in [h, 0, u64::MAX, (u64::MAX / new).wrapping_mul(3)] {
                        let (first, last) = overlap(mulhi(h, old), old, new);
                        let place = mulhi(h, new);
                        assert!(place == first || place == last, "{h} {old} {new}");
                        assert!(last - first <= 1 && last < new);
                    }
                }
            }
        }
    }
}

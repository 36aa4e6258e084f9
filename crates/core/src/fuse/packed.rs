//! Fingerprints side by side in memory, each of as many bits as the error rate asks for.

use std::sync::atomic::Ordering::Relaxed;

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::positions::{Positions, fingerprint};
use crate::bits::{Bits, LINE_BYTES};
use crate::loops::Keys;
#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx2;

/// A cell may begin at any bit of a byte and is read by a load of 64 bits.
pub const MAX_WIDTH: u32 = 40;

/// Memory for cells of so many bits in all, with room for a load of 64 bits at the last.
pub fn nbytes(num_bits: u64) -> u64 {
    (num_bits / 8 + 8).next_multiple_of(LINE_BYTES as u64)
}

pub struct Packed {
    /// As many bytes as `nbytes` says for all cells of `positions`.
    pub bits: Bits,
    pub positions: Positions,
    pub width: u32,
}

impl Packed {
    #[inline(always)]
    pub fn mask(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// The byte in which a cell begins, and the bit of it.
    #[inline(always)]
    fn begins(&self, cell: usize) -> (*const u8, u64) {
        let bit = cell as u64 * u64::from(self.width);
        (self.bits.as_ptr().wrapping_add((bit >> 3) as usize), bit & 7)
    }

    /// The three cells of a mixed hash and its fingerprint, added without carry: low bits 0 if the
    /// key may be there.
    #[inline(always)]
    pub fn sum(&self, h: u64) -> u64 {
        self.positions.of(h).into_iter().fold(fingerprint(h), |sum, cell| {
            let (byte, bit) = self.begins(cell);
            // SAFETY: positions are cells, for which there is memory, and for a load at the last one.
            sum ^ unsafe { byte.cast::<u64>().read_unaligned() } >> bit
        })
    }

    #[inline(always)]
    pub fn contains(&self, h: u64) -> bool {
        self.sum(self.positions.mix(h)) & self.mask() == 0
    }

    /// Where the key's cells begin.
    #[inline(always)]
    pub fn addresses(&self, h: u64) -> [*const u8; 3] {
        self.positions.of(self.positions.mix(h)).map(|cell| self.begins(cell).0)
    }

    /// Sets a cell, still 0, so that the three of a mixed hash, of which it is one, come to its
    /// fingerprint and this value, added without carry.
    #[inline(always)]
    pub fn settle(&self, h: u64, cell: usize, value: u64) {
        let value = (self.sum(h) ^ value) & self.mask();
        let bit = cell as u64 * u64::from(self.width);
        let (words, word, shift) = (self.bits.words(), (bit >> 6) as usize, bit & 63);
        let put = |word: usize, value: u64| {
            words[word].store(words[word].load(Relaxed) | value, Relaxed);
        };
        put(word, value << shift);
        if shift + u64::from(self.width) > 64 {
            put(word + 1, value >> (64 - shift));
        }
    }

    /// An answer for each key.
    pub fn contains_each(&self, keys: Keys<'_>, answers: &mut [u8]) {
        let done = self.contains_most(&keys, answers);
        let rest = answers[done..].iter_mut();
        match keys {
            Keys::Hashes(hashes) => {
                rest.zip(&hashes[done..]).for_each(|(a, h)| *a = u8::from(self.contains(*h)));
            }
            Keys::Ints(ints) => {
                let hashes = ints.keys[done..].iter().map(|key| ints.hash(key));
                rest.zip(hashes).for_each(|(a, h)| *a = u8::from(self.contains(h)));
            }
        }
    }

    /// As many of them as vectors can take; how many that were.
    fn contains_most(&self, keys: &Keys<'_>, answers: &mut [u8]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.width <= avx2::MAX_WIDTH
            && u32::try_from(self.positions.cells()).is_ok()
            && has_avx2()
        {
            // SAFETY: all was just asked.
            return unsafe { avx2::contains(self, keys, answers) };
        }
        let _ = (keys, answers);
        0
    }
}

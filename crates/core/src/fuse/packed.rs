//! Fingerprints side by side, each of as many bits as the error rate asks for, and asking many keys
//! at once.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use super::places::{Places, REACH_BITS, fingerprint};
use crate::bits::{Bits, LINE_BYTES};
#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx2;

/// A cell may begin at any bit of a byte and is read in one load of at most 64 bits.
pub const MAX_WIDTH: u32 = 40;

/// Keys whose cells are found before any is read: the first is work for vectors, the second waits
/// for memory, and with this few at a time the two overlap. Of 16, 32, 64 and 256, 32 was fastest.
const TOGETHER: usize = 32;

/// How a cell is read; what is above its width is rubbish.
pub trait Cell {
    /// The byte in which a cell begins, and the bit of it.
    fn begins(cell: u64, width: u64) -> (u64, u64);

    /// # Safety
    /// `start` is readable for `nbytes`, and one of the cells begins there.
    unsafe fn read(start: *const u8, byte: u64, bit: u64) -> u64;
}

/// The cell is this integer.
pub struct Whole<T>(PhantomData<T>);

/// The cell lies within this integer, which begins at a byte.
pub struct Within<T>(PhantomData<T>);

macro_rules! cells {
    ($($int:ty),*) => {$(
        impl Cell for Whole<$int> {
            #[inline(always)]
            fn begins(cell: u64, _width: u64) -> (u64, u64) {
                (cell * size_of::<$int>() as u64, 0)
            }

            #[inline(always)]
            unsafe fn read(start: *const u8, byte: u64, _bit: u64) -> u64 {
                // SAFETY: as promised by the caller.
                u64::from(unsafe { start.add(byte as usize).cast::<$int>().read() })
            }
        }

        impl Cell for Within<$int> {
            #[inline(always)]
            fn begins(cell: u64, width: u64) -> (u64, u64) {
                let bit = cell * width;
                (bit >> 3, bit & 7)
            }

            #[inline(always)]
            unsafe fn read(start: *const u8, byte: u64, bit: u64) -> u64 {
                // SAFETY: as promised by the caller; `nbytes` leaves room for the integer.
                let int = unsafe { start.add(byte as usize).cast::<$int>().read_unaligned() };
                u64::from(int >> bit)
            }
        }
    )*};
}
cells!(u8, u16, u32, u64);

/// Calls `$self.$method` for the narrowest integer that holds a cell of its width.
macro_rules! by_width {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.width {
            8 => $self.$method::<Whole<u8>>($($argument),*),
            16 => $self.$method::<Whole<u16>>($($argument),*),
            32 => $self.$method::<Whole<u32>>($($argument),*),
            ..=9 => $self.$method::<Within<u16>>($($argument),*),
            10..=25 => $self.$method::<Within<u32>>($($argument),*),
            26.. => $self.$method::<Within<u64>>($($argument),*),
        }
    };
}

/// Memory for cells of so many bits in all, with room for a load of 64 bits at the last.
pub fn nbytes(num_bits: u64) -> u64 {
    (num_bits / 8 + 8).next_multiple_of(LINE_BYTES as u64)
}

pub struct Packed {
    /// As many bytes as `nbytes` says for all cells of `places`.
    pub bits: Bits,
    pub places: Places,
    pub width: u32,
}

impl Packed {
    #[inline(always)]
    fn mask(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// The three cells of a mixed hash and its fingerprint combined: low bits 0 if the key may be
    /// there.
    #[inline(always)]
    pub fn sum<C: Cell>(&self, h: u64) -> u64 {
        self.places.of(h).iter().fold(fingerprint(h), |sum, cell| {
            let (byte, bit) = C::begins(*cell as u64, u64::from(self.width));
            // SAFETY: the place is one of the cells, for which there is memory.
            sum ^ unsafe { C::read(self.bits.as_ptr(), byte, bit) }
        })
    }

    #[inline(always)]
    fn one<C: Cell>(&self, h: u64) -> bool {
        self.sum::<C>(self.places.mix(h)) & self.mask() == 0
    }

    #[inline(always)]
    pub fn contains(&self, h: u64) -> bool {
        by_width!(self.one(h))
    }

    /// Where the key's cells are in memory.
    #[inline(always)]
    pub fn addresses(&self, h: u64) -> [*const u8; 3] {
        let byte = |cell: usize| ((cell as u64 * u64::from(self.width)) >> 3) as usize;
        self.places.of(self.places.mix(h)).map(|cell| self.bits.as_ptr().wrapping_add(byte(cell)))
    }

    /// Sets cells, all still 0, for the keys that own them, so that each key's three come to its
    /// fingerprint: `keys` brings mixed hashes with the cell each owns, none of which is one of the
    /// three of a key that came before.
    pub fn settle(&self, keys: impl Iterator<Item = (u64, usize)>) {
        by_width!(self.settle_in(keys));
    }

    fn settle_in<C: Cell>(&self, keys: impl Iterator<Item = (u64, usize)>) {
        let words = self.bits.words();
        let put = |word: usize, value: u64| {
            words[word].store(words[word].load(Relaxed) | value, Relaxed);
        };
        for (h, cell) in keys {
            let value = self.sum::<C>(h) & self.mask();
            let bit = cell as u64 * u64::from(self.width);
            let (word, shift) = ((bit >> 6) as usize, bit & 63);
            put(word, value << shift);
            if shift + u64::from(self.width) > 64 {
                put(word + 1, value >> (64 - shift));
            }
        }
    }

    /// An answer for each hash.
    pub fn contains_each(&self, hashes: &[u64], answers: &mut [u8]) {
        by_width!(self.each(hashes, answers));
    }

    fn each<C: Cell>(&self, hashes: &[u64], answers: &mut [u8]) {
        let (mut groups, mut rest) = hashes.as_chunks();
        if self.places.cells() > u64::from(u32::MAX) {
            (groups, rest) = (&[], hashes); // too many for the multiplication in `groups`
        }
        let (first, last) = answers.split_at_mut(groups.len() * TOGETHER);
        self.groups_by_vectors::<C>(groups, first.as_chunks_mut().0);
        for (h, answer) in rest.iter().zip(last) {
            *answer = u8::from(self.one::<C>(*h));
        }
    }

    fn groups_by_vectors<C: Cell>(
        &self,
        groups: &[[u64; TOGETHER]],
        answers: &mut [[u8; TOGETHER]],
    ) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,bmi1,bmi2")]
            fn wide<C: Cell>(
                packed: &Packed,
                groups: &[[u64; TOGETHER]],
                answers: &mut [[u8; TOGETHER]],
            ) {
                packed.groups::<C>(groups, answers);
            }
            if has_avx2() {
                // SAFETY: the processor was just asked.
                return unsafe { wide::<C>(self, groups, answers) };
            }
        }
        self.groups::<C>(groups, answers);
    }

    /// Written for the compiler to turn into vectors: 64 bits in and out, no branches.
    #[inline(always)]
    fn groups<C: Cell>(&self, groups: &[[u64; TOGETHER]], answers: &mut [[u8; TOGETHER]]) {
        let (start, width, mask) = (self.bits.as_ptr(), u64::from(self.width), self.mask());
        let (starts, reach) = (u64::from(self.places.starts as u32), self.places.reach);
        let (mut bytes, mut bits) = ([[0u64; TOGETHER]; 3], [[0u64; TOGETHER]; 3]);
        let mut prints = [0u64; TOGETHER];
        for (group, answers) in groups.iter().zip(answers) {
            for (i, h) in group.iter().enumerate() {
                // As `Places::of`, but for the multiplication: vectors have none of 64 bits.
                let h = self.places.mix(*h);
                let (high, low) = (h >> 32, h & u64::from(u32::MAX));
                let first = (high * starts + ((low * starts) >> 32)) >> 32;
                let second = first + reach + (h & (reach - 1));
                let third = first + 2 * reach + (h >> REACH_BITS & (reach - 1));
                (bytes[0][i], bits[0][i]) = C::begins(first, width);
                (bytes[1][i], bits[1][i]) = C::begins(second, width);
                (bytes[2][i], bits[2][i]) = C::begins(third, width);
                prints[i] = fingerprint(h);
            }
            for (i, answer) in answers.iter_mut().enumerate() {
                let [a, b, c] = [0, 1, 2].map(|cell: usize| {
                    // SAFETY: as in `sum`.
                    unsafe { C::read(start, bytes[cell][i], bits[cell][i]) }
                });
                *answer = u8::from((a ^ b ^ c ^ prints[i]) & mask == 0);
            }
        }
    }
}

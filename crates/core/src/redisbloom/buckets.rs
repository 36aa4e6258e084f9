//! One layer of a cuckoo filter: buckets of fingerprints, and where a key's are.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::bits::Bits;
use crate::probe::prefetch;

pub const EMPTY: u8 = 0;

pub struct Layer {
    pub bits: Bits,
    pub buckets: u64,
}

/// What is looked for: a fingerprint in two buckets.
#[derive(Clone, Copy)]
pub struct Sought {
    pub fingerprint: u8,
    pub one: u64,
    pub other: u64,
}

/// From either bucket of a fingerprint to the other.
#[inline(always)]
pub fn partner(fingerprint: u8, bucket: u64) -> u64 {
    bucket ^ (u64::from(fingerprint) * 0x5BD1_E995)
}

impl Sought {
    #[inline(always)]
    pub fn new(h: u64) -> Sought {
        let fingerprint = (h % 255 + 1) as u8;
        Sought { fingerprint, one: h, other: partner(fingerprint, h) }
    }
}

impl Layer {
    /// The slots of a bucket; any hash leads to one, as the number of buckets is a power of two.
    #[inline(always)]
    pub fn bucket(&self, hash: u64, size: u16) -> &[AtomicU8] {
        let (start, nbytes) = (self.bits.as_ptr().cast::<AtomicU8>(), self.bits.nbytes());
        // SAFETY: the same memory byte by byte; who writes to it has the filter to itself.
        let slots = unsafe { std::slice::from_raw_parts(start, nbytes) };
        let first = (hash & (self.buckets - 1)) as usize * usize::from(size);
        &slots[first..first + usize::from(size)]
    }

    /// Asks for the memory of both buckets.
    #[inline(always)]
    pub fn prefetch(&self, sought: Sought, size: u16) {
        prefetch(self.bucket(sought.one, size).as_ptr().cast());
        prefetch(self.bucket(sought.other, size).as_ptr().cast());
    }

    /// The first slot of both buckets that holds this.
    #[inline(always)]
    pub fn find(&self, sought: Sought, size: u16, what: u8) -> Option<&AtomicU8> {
        let first = |hash| self.bucket(hash, size).iter().find(|slot| slot.load(Relaxed) == what);
        first(sought.one).or_else(|| first(sought.other))
    }
}

/// How many bytes of a word are not 0.
pub fn taken_bytes(word: u64) -> u32 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    ((((word & LOW) + LOW) | word) & !LOW).count_ones()
}

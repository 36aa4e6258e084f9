//! Where the three cells of a key are, and how many cells a number of keys needs.
//!
//! A key's hash chooses its first cell anywhere but near the end; the second lies one to two
//! reaches after it, the third two to three. So keys only ever meet their neighbours: cells can be
//! solved from both ends inwards, a wave that needs far fewer spare cells than positions chosen freely
//! (12% instead of 23%), and building goes through memory in order.

use crate::hash::remix;
use crate::probe::mulhi;

/// Bits of the hash for the distance to the second cell, and as many for the third.
pub const REACH_BITS: u32 = 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// How many cells can be a key's first.
    pub starts: u64,
    /// A power of two.
    pub reach: u64,
    /// Which hash of the hash is taken; 0: the hash itself.
    pub seed: u64,
}

impl Positions {
    /// For this many distinct keys; later attempts mix the hashes anew and have more room.
    ///
    /// Two keys with the same three cells block each other. A build has n / 2.2 / reach² such pairs
    /// to expect: with a reach from √8n on, at most one in 17 fails for that. A longer reach costs
    /// spare cells at the ends. The share of spare cells between them was found by trying: with it
    /// 14 of 200 builds of a million keys needed a second attempt.
    pub fn plan(count: u64, attempt: u64) -> Positions {
        let reach = (8 * count.max(1)).isqrt().next_power_of_two().min(1 << REACH_BITS);
        let spare = (0.092 + 1.6 / (reach as f64).sqrt()).min(0.135);
        let growth = 1.0 + 0.03 * (attempt / 4) as f64;
        let starts = count.max(1) as f64 * (1.0 + spare) * growth;
        Positions { starts: starts.ceil() as u64, reach, seed: attempt }
    }

    pub fn cells(&self) -> u64 {
        self.starts + 3 * self.reach
    }

    /// The hash that chooses cells and fingerprint.
    #[inline(always)]
    pub fn mix(&self, h: u64) -> u64 {
        if self.seed == 0 { h } else { remix(h ^ self.seed) }
    }

    /// What `mix` was given.
    pub fn unmix(&self, h: u64) -> u64 {
        if self.seed == 0 { h } else { unremix(h) ^ self.seed }
    }

    /// The cells of a mixed hash: all different, all below `cells()`, in ascending order.
    #[inline(always)]
    pub fn of(&self, h: u64) -> [usize; 3] {
        let (first, mask) = (mulhi(h, self.starts), self.reach - 1);
        let second = first + self.reach + (h & mask);
        let third = first + 2 * self.reach + (h >> REACH_BITS & mask);
        [first as usize, second as usize, third as usize]
    }
}

/// What the three cells of a mixed hash must come to, in its low bits. Each bit has one of the low
/// half: the high ones are the same for all keys of a neighbourhood, and would tell none apart.
#[inline(always)]
pub fn fingerprint(h: u64) -> u64 {
    h ^ (h >> 32)
}

/// The inverse of `remix`: its steps backwards, with the inverse factors.
fn unremix(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0x9CB4_B2F8_1293_37DB);
    h ^= h >> 33;
    h = h.wrapping_mul(0x4F74_430C_22A5_4005);
    h ^ (h >> 33)
}

//! Many questions at once: the places of a few keys are worked out, and asked for from memory, while
//! the few before them are looked at. Each is worked out once, where a ring of hashes does it twice.

use crate::batch::BLOCK;
use crate::kind::Keys;
#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx2;
use crate::probe::prefetch;

use super::{RING_PAIR, Table};

/// Keys in flight: two lines each, a fraction of the first-level cache.
const STEP: usize = 16;

/// The first bit of each bucket, and what a slot there would hold.
#[derive(Clone, Copy, Default)]
struct Plan {
    bits: [u64; 2],
    counts: [u64; 2],
    entries: [u64; 2],
}

impl<const RING: bool> Table<RING> {
    pub fn contains_each(&self, keys: Keys<'_>, answers: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,bmi1,bmi2")]
            fn fast<const RING: bool>(table: &Table<RING>, keys: Keys<'_>, answers: &mut [u8]) {
                table.all(keys, answers);
            }
            if has_avx2() {
                // SAFETY: the processor was just asked.
                return unsafe { fast(self, keys, answers) };
            }
        }
        self.all(keys, answers);
    }

    /// Ints are hashed a block at a time.
    #[inline(always)]
    fn all(&self, keys: Keys<'_>, answers: &mut [u8]) {
        let ints = match keys {
            Keys::Hashes(hashes) => return self.steps(hashes, answers),
            Keys::Ints(ints) => ints,
        };
        let mut hashes = [0; BLOCK];
        for (keys, answers) in ints.keys.chunks(BLOCK).zip(answers.chunks_mut(BLOCK)) {
            for (h, key) in hashes.iter_mut().zip(keys) {
                *h = ints.hash(key);
            }
            self.steps(&hashes[..keys.len()], answers);
        }
    }

    #[inline(always)]
    fn steps(&self, hashes: &[u64], answers: &mut [u8]) {
        let mut plans = [[Plan::default(); STEP]; 2];
        let mut later = hashes.chunks(STEP);
        self.plan(later.next().unwrap_or_default(), &mut plans[0]);
        for (step, answers) in answers.chunks_mut(STEP).enumerate() {
            self.plan(later.next().unwrap_or_default(), &mut plans[(step + 1) % 2]);
            for (answer, plan) in answers.iter_mut().zip(&plans[step % 2]) {
                *answer = u8::from(self.planned(plan));
            }
        }
    }

    #[inline(always)]
    fn plan(&self, hashes: &[u64], plans: &mut [Plan; STEP]) {
        for (plan, h) in plans.iter_mut().zip(hashes) {
            let places = self.places(*h);
            plan.entries[0] = places.entries[0];
            if !RING {
                plan.entries[1] = places.entries[1];
                plan.counts = [self.count(places.buckets[0]), self.count(places.buckets[1])];
            }
            for i in 0..2 {
                plan.bits[i] = self.first_bit(places.buckets[i]);
                prefetch(self.bits.as_ptr().wrapping_add((plan.bits[i] / 8) as usize));
            }
        }
    }

    #[inline(always)]
    fn planned(&self, plan: &Plan) -> bool {
        let Plan { bits, counts, entries } = *plan;
        // In a ring both places are alike.
        let counts = if RING { [u64::from(RING_PAIR) / 2; 2] } else { counts };
        let first = self.bucket_holds(bits[0], counts[0], entries[0]);
        if self.slot_bits > 14 && first {
            return true;
        }
        first | self.bucket_holds(bits[1], counts[1], entries[usize::from(!RING)])
    }
}

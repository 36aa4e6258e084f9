//! Many keys at once: the places of a few keys are worked out, and asked for from memory, while the few
//! before them are looked at. Each is worked out once, where a ring of hashes does it twice.

use crate::batch::BLOCK;
use crate::kind::{Keys, Refusal};
#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx2;
use crate::probe::prefetch;

#[cfg(target_arch = "x86_64")]
use super::avx2::Lanes;
use super::{RING_PAIR, Table};

/// Keys in flight: two lines each, a fraction of the first-level cache.
const STEP: usize = 16;

/// The first bit of each bucket, its slots, and what a slot there would hold.
#[derive(Clone, Copy, Default)]
pub struct Plan {
    bits: [u64; 2],
    counts: [u64; 2],
    entries: [u64; 2],
}

/// What became of a key that was to be added where that takes no more than a look at its buckets.
#[derive(Debug, PartialEq, Eq)]
pub enum Added {
    New,
    /// It may be there; nothing has changed.
    Found,
    /// It is not there, and there is no slot for it in either bucket.
    NoSlot,
    /// It takes more than a look to tell.
    Unknown,
}

/// Who adds keys to a table: what it does with each is its own.
pub trait Adder<const RING: bool> {
    fn table(&mut self) -> &mut Table<RING>;

    /// Adds a key whose places are worked out, true if it is definitely new.
    fn add_planned(&mut self, h: u64, plan: &Plan) -> Result<bool, Refusal>;
}

/// Adds keys in order: how many it took, and why no more.
pub fn add_each<const RING: bool, A: Adder<RING>>(
    adder: &mut A,
    hashes: &[u64],
    answers: &mut [u8],
) -> (usize, Result<(), Refusal>) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn fast<const RING: bool, A: Adder<RING>>(
            adder: &mut A,
            hashes: &[u64],
            answers: &mut [u8],
        ) -> (usize, Result<(), Refusal>) {
            add_steps(adder, hashes, answers)
        }
        if has_avx2() {
            // SAFETY: the processor was just asked.
            return unsafe { fast(adder, hashes, answers) };
        }
    }
    add_steps(adder, hashes, answers)
}

#[inline(always)]
fn add_steps<const RING: bool, A: Adder<RING>>(
    adder: &mut A,
    hashes: &[u64],
    answers: &mut [u8],
) -> (usize, Result<(), Refusal>) {
    let mut plans = [[Plan::default(); STEP]; 2];
    let mut geometry = adder.table().geometry;
    adder.table().plan(&hashes[..hashes.len().min(STEP)], &mut plans[0]);
    for (step, (keys, answers)) in hashes.chunks(STEP).zip(answers.chunks_mut(STEP)).enumerate() {
        let done = step * STEP;
        let later = hashes.get(done + STEP..).unwrap_or_default();
        let later = &later[..later.len().min(STEP)];
        let [even, odd] = &mut plans;
        let (now, next) = if step % 2 == 0 { (even, odd) } else { (odd, even) };
        adder.table().plan(later, next);
        for (i, (h, answer)) in keys.iter().zip(answers).enumerate() {
            match adder.add_planned(*h, &now[i]) {
                Ok(new) => *answer = u8::from(new),
                Err(refusal) => return (done + i, Err(refusal)),
            }
            if !RING && adder.table().geometry != geometry {
                // It has grown: all places are others.
                geometry = adder.table().geometry;
                adder.table().plan(keys, now);
                adder.table().plan(later, next);
            }
        }
    }
    (hashes.len(), Ok(()))
}

/// Who looks for keys: as a type, since a closure may not be inlined, and then AVX2 is lost.
trait Looker {
    fn holds(&self, plan: &Plan) -> bool;
}

impl<const RING: bool> Looker for Table<RING> {
    #[inline(always)]
    fn holds(&self, plan: &Plan) -> bool {
        let Plan { bits, counts, entries } = *plan;
        let first = self.bucket_holds(bits[0], counts[0], entries[0]);
        if self.slot_bits > 14 && first {
            return true;
        }
        first | self.bucket_holds(bits[1], counts[1], entries[1])
    }
}

impl<const RING: bool> Table<RING> {
    pub fn contains_each(&self, keys: Keys<'_>, answers: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,bmi1,bmi2")]
            fn fast<const RING: bool>(table: &Table<RING>, keys: Keys<'_>, answers: &mut [u8]) {
                if table.asks_wide() {
                    // SAFETY: the processor was asked, and nobody changes the table meanwhile.
                    return table.all(keys, answers, &unsafe { Lanes::of(table) });
                }
                table.all(keys, answers, table);
            }
            if has_avx2() {
                // SAFETY: the processor was just asked.
                return unsafe { fast(self, keys, answers) };
            }
        }
        self.all(keys, answers, self);
    }

    /// Ints are hashed a block at a time.
    #[inline(always)]
    fn all(&self, keys: Keys<'_>, answers: &mut [u8], looker: &impl Looker) {
        let ints = match keys {
            Keys::Hashes(hashes) => return self.steps(hashes, answers, looker),
            Keys::Ints(ints) => ints,
        };
        let mut hashes = [0; BLOCK];
        for (keys, answers) in ints.keys.chunks(BLOCK).zip(answers.chunks_mut(BLOCK)) {
            for (h, key) in hashes.iter_mut().zip(keys) {
                *h = ints.hash(key);
            }
            self.steps(&hashes[..keys.len()], answers, looker);
        }
    }

    #[inline(always)]
    fn steps(&self, hashes: &[u64], answers: &mut [u8], looker: &impl Looker) {
        let mut plans = [[Plan::default(); STEP]; 2];
        let mut later = hashes.chunks(STEP);
        self.plan(later.next().unwrap_or_default(), &mut plans[0]);
        for (step, answers) in answers.chunks_mut(STEP).enumerate() {
            self.plan(later.next().unwrap_or_default(), &mut plans[(step + 1) % 2]);
            for (answer, plan) in answers.iter_mut().zip(&plans[step % 2]) {
                *answer = u8::from(looker.holds(plan));
            }
        }
    }

    #[inline(always)]
    fn plan(&self, hashes: &[u64], plans: &mut [Plan; STEP]) {
        for (plan, h) in plans.iter_mut().zip(hashes) {
            let places = self.places(*h);
            plan.entries = places.entries;
            // In a ring all buckets have as many.
            plan.counts = [u64::from(RING_PAIR) / 2; 2];
            if !RING {
                plan.counts = [self.count(places.buckets[0]), self.count(places.buckets[1])];
            }
            for i in 0..2 {
                plan.bits[i] = self.first_bit(places.buckets[i]);
                let first = self.bits.as_ptr().wrapping_add((plan.bits[i] / 8) as usize);
                prefetch(first);
                if !RING {
                    // Every fourth bucket ends in the next line.
                    prefetch(first.wrapping_add(15));
                }
            }
        }
    }

    /// Adds a key that is not there, if one of its buckets has a free slot.
    #[inline(always)]
    pub fn add_planned(&mut self, plan: &Plan) -> Added {
        #[cfg(target_arch = "x86_64")]
        if self.is_wide() {
            // SAFETY: the processor was asked; a plan leads to buckets of its table.
            return unsafe { self.add_wide(plan) };
        }
        if RING && self.slot_bits <= 14 {
            return self.add_word(plan.bits, plan.entries[0]);
        }
        Added::Unknown
    }

    /// # Safety
    /// AVX2, and the plan is of this table.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn add_wide(&mut self, plan: &Plan) -> Added {
        // SAFETY: as promised above.
        let (found, free) = unsafe { Lanes::of(self).look(plan) };
        if found {
            return Added::Found;
        }
        // The lowest empty slot of each; the emptier bucket is the one where it comes first.
        let [a, b] = [free[0].trailing_zeros(), free[1].trailing_zeros()];
        let (which, slot) = if b < a { (1, b) } else { (0, a) };
        if slot == u32::BITS {
            return Added::NoSlot;
        }
        let at = plan.bits[which] + u64::from(slot * self.slot_bits);
        self.write(at, self.slot_mask, plan.entries[which]);
        self.entries += 1;
        self.rate += self.fresh_weight;
        Added::New
    }
}

#[cfg(target_arch = "x86_64")]
impl Looker for Lanes {
    #[inline(always)]
    fn holds(&self, plan: &Plan) -> bool {
        let Plan { bits, counts, entries } = *plan;
        // SAFETY: lanes are made where there is AVX2; the plan is of the same table.
        unsafe {
            let first = self.holding(self.slots(bits[0]), entries[0]) & own(counts[0]);
            let second = self.holding(self.slots(bits[1]), entries[1]) & own(counts[1]);
            first | second != 0
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes {
    /// Is the key there, and which slots of either bucket are empty?
    ///
    /// # Safety
    /// AVX2, and the plan is of this table.
    #[inline(always)]
    unsafe fn look(&self, plan: &Plan) -> (bool, [u32; 2]) {
        let Plan { bits, counts, entries } = *plan;
        // SAFETY: as promised above.
        unsafe {
            let (left, right) = (self.slots(bits[0]), self.slots(bits[1]));
            let first = self.holding(left, entries[0]) & own(counts[0]);
            let second = self.holding(right, entries[1]) & own(counts[1]);
            let empty = [self.empty(left) & own(counts[0]), self.empty(right) & own(counts[1])];
            (first | second != 0, empty)
        }
    }
}

/// The lanes of so many slots.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn own(count: u64) -> u32 {
    (1 << count) - 1
}

//! The filter behind CF: layers of buckets, each slot a fingerprint of 8 bits, from which keys can be
//! removed. A key has two buckets in every layer.

use std::sync::atomic::Ordering::Relaxed;

use super::buckets::{EMPTY, Layer, Sought, partner, taken_bytes};
use super::cuckoo_dump::{MOST_BYTES, Numbers};
use super::dump::{Layered, Malformed, lines};
use super::murmur::murmur64a;
use super::{Kept, beyond};
use crate::kind::{Fact, Refusal};
use crate::scan::{Figures, Scan};

/// Removals since the last compaction that set off another, as a share of the keys.
const COMPACT_FROM: f64 = 0.10;

pub struct Cuckoo {
    pub(super) numbers: Numbers,
    /// The oldest first; never empty.
    pub(super) layers: Vec<Layer>,
    pub(super) kept: Kept,
}

impl Cuckoo {
    /// The dump's header of an empty filter.
    pub fn plan_new(
        capacity: u64,
        bucket_size: u16,
        max_iterations: u16,
        expansion: u16,
    ) -> Result<Vec<u8>, Refusal> {
        let buckets = capacity.checked_div(bucket_size.into()).ok_or_else(beyond)?;
        let numbers = Numbers {
            buckets: buckets.checked_next_power_of_two().ok_or_else(beyond)?,
            bucket_size,
            max_iterations,
            expansion: match expansion {
                0 => 0,
                _ => expansion.checked_next_power_of_two().ok_or_else(beyond)?,
            },
            keys: 0,
            removed: 0,
        };
        numbers.layer(0).ok_or_else(beyond)?;
        Ok(numbers.dump(1))
    }

    /// An empty filter.
    pub fn new(
        capacity: u64,
        bucket_size: u16,
        max_iterations: u16,
        expansion: u16,
    ) -> Result<Cuckoo, Refusal> {
        let dump = Cuckoo::plan_new(capacity, bucket_size, max_iterations, expansion)?;
        Cuckoo::from_header(&dump, u64::MAX).map_err(|problem| match problem {
            Malformed::NoMemory(nbytes) => Refusal::NoMemory(nbytes),
            _ => beyond(),
        })
    }

    #[inline(always)]
    pub fn hash(key: &[u8]) -> u64 {
        murmur64a(key, 0)
    }

    #[inline(always)]
    pub fn contains(&self, h: u64) -> bool {
        let (sought, size) = (Sought::new(h), self.numbers.bucket_size);
        self.layers.iter().any(|layer| layer.find(sought, size, sought.fingerprint).is_some())
    }

    /// Asks for the memory of a key that is soon to be added.
    #[inline(always)]
    pub fn prefetch(&self, h: u64) {
        let newest = &self.layers[self.layers.len() - 1];
        newest.prefetch(Sought::new(h), self.numbers.bucket_size);
    }

    /// How often the key was added, at most.
    pub fn count(&self, h: u64) -> u64 {
        let (sought, size) = (Sought::new(h), self.numbers.bucket_size);
        let both = |layer| [(layer, sought.one), (layer, sought.other)];
        let slots = self.layers.iter().flat_map(both);
        let slots = slots.flat_map(|(layer, hash)| Layer::bucket(layer, hash, size));
        slots.filter(|slot| slot.load(Relaxed) == sought.fingerprint).count() as u64
    }

    /// Adds the key once more. RedisBloom stops at a number of layers *before* it adds: that is for
    /// the caller to do, as a command of many keys is stopped only there.
    pub fn add(&mut self, h: u64) -> Result<(), Refusal> {
        self.kept.change()?;
        let (sought, size) = (Sought::new(h), self.numbers.bucket_size);
        let free = self.layers.iter().rev().find_map(|layer| layer.find(sought, size, EMPTY));
        if let Some(slot) = free {
            slot.store(sought.fingerprint, Relaxed);
        } else if !self.kick_out(sought) {
            if self.numbers.expansion == 0 {
                return Err(Refusal::Full("Filter is full".into()));
            }
            self.grow()?; // its newest layer is empty
            return self.add(h);
        }
        self.numbers.keys = self.numbers.keys.saturating_add(1);
        Ok(())
    }

    /// Adds the key if it is definitely not there; true if so.
    pub fn add_new(&mut self, h: u64) -> Result<bool, Refusal> {
        if self.contains(h) {
            return Ok(false);
        }
        self.add(h).map(|()| true)
    }

    /// Makes room in the newest layer: fingerprints move to their other buckets, one after the
    /// other. False if that came to no end, and then all are back where they were.
    fn kick_out(&mut self, sought: Sought) -> bool {
        let Numbers { bucket_size, max_iterations, .. } = self.numbers;
        let newest = &self.layers[self.layers.len() - 1];
        let mut carried = sought.fingerprint;
        let mut bucket = sought.one & (newest.buckets - 1);
        let mut victim = 0;
        let swap = |bucket: u64, victim: u16, carried: u8| {
            let slot = &newest.bucket(bucket, bucket_size)[usize::from(victim)];
            let out = slot.load(Relaxed);
            slot.store(carried, Relaxed);
            out
        };
        for _ in 0..max_iterations {
            carried = swap(bucket, victim, carried);
            bucket = partner(carried, bucket) & (newest.buckets - 1);
            let mut slots = newest.bucket(bucket, bucket_size).iter();
            if let Some(slot) = slots.find(|slot| slot.load(Relaxed) == EMPTY) {
                slot.store(carried, Relaxed);
                return true;
            }
            victim = (victim + 1) % bucket_size;
        }
        for _ in 0..max_iterations {
            victim = (victim + bucket_size - 1) % bucket_size;
            bucket = partner(carried, bucket) & (newest.buckets - 1);
            carried = swap(bucket, victim, carried);
        }
        false
    }

    #[cold]
    fn grow(&mut self) -> Result<(), Refusal> {
        let count = self.layers.len() as u64;
        let (buckets, nbytes) = self.numbers.layer(count).ok_or_else(beyond)?;
        let whole = nbytes.saturating_add(self.parts().map(|(_, nbytes)| nbytes).sum());
        if whole > MOST_BYTES || count >= u64::from(u16::MAX) {
            return Err(beyond());
        }
        self.kept.defer(lines(nbytes))?;
        let bits = self.kept.layer(lines(nbytes))?;
        self.layers.push(Layer { bits, buckets });
        Ok(())
    }

    /// Returns the bytes of the next layer if this many keys may need it: a key can find no slot
    /// while two fifths of them are free. 0 if they cannot.
    pub fn next_bytes(&self, keys: u64) -> u64 {
        let slots: u64 = self.parts().map(|(_, nbytes)| nbytes).sum();
        let needed = self.numbers.keys.saturating_add(keys).saturating_mul(2);
        if self.numbers.expansion == 0 || needed <= slots {
            return 0;
        }
        self.numbers.layer(self.layers.len() as u64).map_or(0, |(_, nbytes)| lines(nbytes))
    }

    /// Takes one copy of the key out; false if it was definitely not there. When much was removed,
    /// the filter is compacted.
    pub fn remove(&mut self, h: u64) -> Result<bool, Refusal> {
        self.kept.change()?;
        let (sought, size) = (Sought::new(h), self.numbers.bucket_size);
        let mut layers = self.layers.iter().rev();
        let Some(slot) = layers.find_map(|layer| layer.find(sought, size, sought.fingerprint))
        else {
            return Ok(false);
        };
        slot.store(EMPTY, Relaxed);
        let Numbers { keys, removed, .. } = &mut self.numbers;
        (*keys, *removed) = (keys.saturating_sub(1), removed.saturating_add(1));
        if self.layers.len() > 1 && *removed as f64 > *keys as f64 * COMPACT_FROM {
            self.compact_layers(false);
        }
        Ok(true)
    }

    /// Moves fingerprints to older layers where there is room, and lets go of newer ones.
    pub fn compact(&mut self) -> Result<(), Refusal> {
        self.kept.change()?;
        self.compact_layers(true);
        Ok(())
    }

    /// If not `all`, up to the first layer that cannot be emptied: no older one can then go.
    fn compact_layers(&mut self, all: bool) {
        for number in (1..self.layers.len()).rev() {
            let emptied = self.empty_layer(number);
            if emptied && number == self.layers.len() - 1 {
                self.layers.pop();
            }
            if !emptied && !all {
                break;
            }
        }
        self.numbers.removed = 0;
    }

    /// Moves what it can to older layers; true if nothing is left.
    fn empty_layer(&self, number: usize) -> bool {
        let (size, layer) = (self.numbers.bucket_size, &self.layers[number]);
        let mut emptied = true;
        for one in 0..layer.buckets {
            for slot in layer.bucket(one, size) {
                let fingerprint = slot.load(Relaxed);
                if fingerprint == EMPTY {
                    continue;
                }
                // Older layers have no more buckets, so that this one tells theirs.
                let sought = Sought { fingerprint, one, other: partner(fingerprint, one) };
                let mut older = self.layers[..number].iter();
                match older.find_map(|layer| layer.find(sought, size, EMPTY)) {
                    Some(free) => {
                        free.store(fingerprint, Relaxed);
                        slot.store(EMPTY, Relaxed);
                    }
                    None => emptied = false,
                }
            }
        }
        emptied
    }

    pub fn clear(&mut self) -> Result<(), Refusal> {
        self.kept.change()?;
        self.layers.truncate(1);
        self.kept.drop_spare();
        self.layers[0].bits.clear();
        (self.numbers.keys, self.numbers.removed) = (0, 0);
        Ok(())
    }

    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Bytes, as CF.INFO counts them.
    pub fn size(&self) -> u64 {
        40 + self.parts().map(|(_, nbytes)| 16 + nbytes).sum::<u64>()
    }

    pub fn facts(&self) -> Vec<(&'static str, Fact)> {
        let Figures { error_rate, fill_ratio, .. } = self.figures(Scan::ALL);
        vec![
            ("estimated_count", Fact::Int(self.numbers.keys)),
            ("estimated_error_rate", Fact::Float(error_rate)),
            ("fill_ratio", Fact::Float(fill_ratio)),
        ]
    }

    pub fn figures(&self, scan: Scan) -> Figures {
        let (mut taken, mut total, mut clear) = (0.0, 0u64, 1.0);
        for (bits, nbytes) in self.parts() {
            let (mut full, mut words) = (0u64, 0);
            for part in scan.parts(bits.words()) {
                full += part.iter().map(|w| u64::from(taken_bytes(w.load(Relaxed)))).sum::<u64>();
                words += part.len() as u64;
            }
            let share = full as f64 / (8 * words).min(nbytes) as f64;
            (taken, total) = (taken + share * nbytes as f64, total + nbytes);
            clear *= (254.0f64 / 255.0).powf(2.0 * f64::from(self.numbers.bucket_size) * share);
        }
        let keys = self.numbers.keys as f64;
        Figures { count: keys, error_rate: 1.0 - clear, fill_ratio: taken / total as f64 }
    }
}

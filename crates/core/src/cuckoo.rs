//! The filter that removes at low error rates in little memory: a table of fingerprints in which a
//! key added twice has two entries.

use std::collections::HashSet;

use crate::bits::Bits;
use crate::format::{FormatError, Header};
use crate::kind::{AnyKind, Fact, Keys, Kind, Refusal, Removal};
use crate::table::{Added, Adder, GROWTH, Geometry, MOST_PAIR, Plan, RING_PAIR, Table, add_each};

/// Copies of one key: its two buckets have eight slots, and one is left for others. They are counted
/// by their fingerprint, which two keys may share; one that grows has room for the copies of both.
/// It is a limit, not a promise: two keys that share a bucket do not both have room for seven.
pub const MOST_COPIES: u64 = 7;
const MOST_COPIES_OF_TWO: u64 = 2 * MOST_COPIES;

/// A table of keys that each came once takes more; below it, copies are what fills buckets.
const EARLY: f64 = 0.8;
/// Copies need wide buckets: a growing table widens them at any load, and gets more of them from this
/// load on. Keys chosen to collide would have it grow for ever.
const LEAST_LOAD: f64 = 0.25;

struct Cuckoo<const RING: bool> {
    table: Table<RING>,
    made: Header,
    /// Keys in it, each as often as it was added.
    keys: u64,
    /// Of a filter that has each key once: hashes for which there was no slot, so that no key is
    /// refused. They are not saved: such a filter is for memory alone.
    beside: Option<HashSet<u64>>,
}

pub fn open(header: &Header, body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    if header.extra[4..] != [0; 2] {
        return Err(FormatError::Corrupt("figures that a cuckoo filter does not have".into()));
    }
    if u32::from(header.layout) == RING_PAIR {
        return Ok(Box::new(Cuckoo::<true>::open(header, body)?));
    }
    Ok(Box::new(Cuckoo::<false>::open(header, body)?))
}

impl<const RING: bool> Cuckoo<RING> {
    fn open(header: &Header, body: Option<Bits>) -> Result<Self, FormatError> {
        let table = Table::open(header, body)?;
        if table.geometry().mark_bits != 0 {
            return Err(FormatError::Corrupt("a cuckoo filter's slots have no marks".into()));
        }
        Ok(Cuckoo { table, made: *header, keys: header.extra[3], beside: None })
    }

    #[cold]
    fn full(&self, h: u64) -> Refusal {
        let Cuckoo { keys, made: Header { capacity, .. }, .. } = self;
        if RING && self.table.load() < EARLY {
            return self.full_of_copies(h);
        }
        let why = match RING {
            true => "make it larger, or with grow=True",
            false => {
                "copies or keys that collide fill their buckets; use a CountingBloomFilter for \
                 many copies, and hasher=\"siphash\" with a secret seed against chosen keys"
            }
        };
        Refusal::Full(format!("the filter is full: {keys} keys, made for {capacity}; {why}"))
    }

    /// A fixed filter whose other buckets have room. Keys with the same fingerprint cannot be told
    /// apart, so the message counts entries that match the refused key.
    fn full_of_copies(&self, h: u64) -> Refusal {
        let Cuckoo { keys, made: Header { capacity, .. }, .. } = self;
        let copies = match self.table.matches(h).count() {
            0 => "copies of other keys fill its buckets".into(),
            1 => "1 entry matches this key, and its buckets are full of copies".into(),
            count => format!("{count} entries match this key, and its buckets are full of copies"),
        };
        Refusal::Full(format!(
            "no room for this key at {keys} of {capacity}: {copies}; use grow=True for up to 4 \
             copies of every key, or a CountingBloomFilter"
        ))
    }
}

impl<const RING: bool> Cuckoo<RING>
where
    Cuckoo<RING>: Room,
{
    /// Adds a key that is not there; one that is stays as it is.
    fn add_once(&mut self, h: u64) -> Result<bool, Refusal> {
        if self.contains(h) {
            return Ok(false);
        }
        if !self.take(h)? {
            self.beside.get_or_insert_default().insert(h);
        }
        self.keys = self.keys.saturating_add(1);
        Ok(true)
    }

    #[inline(never)]
    fn add_with_care(&mut self, h: u64) -> Result<bool, Refusal> {
        let new = !self.table.contains(h);
        let most = if RING { MOST_COPIES } else { MOST_COPIES_OF_TWO };
        if !new && self.count(h) >= most {
            return Err(Refusal::Copies(format!(
                "{most} entries match this key, the most there can be: its copies, and those of keys \
                 with the same fingerprint; use a CountingBloomFilter for more copies"
            )));
        }
        if !self.take(h)? {
            return Err(self.full(h));
        }
        self.keys = self.keys.saturating_add(1);
        Ok(new)
    }
}

/// What tables that grow do, and those that do not.
trait Room {
    /// Adds an entry; false if there is no slot for it.
    fn take(&mut self, h: u64) -> Result<bool, Refusal>;
    fn left(&self) -> u64;
}

impl Room for Cuckoo<true> {
    #[inline(always)]
    fn take(&mut self, h: u64) -> Result<bool, Refusal> {
        Ok(self.table.insert(h, 0))
    }

    fn left(&self) -> u64 {
        u64::MAX // it does not grow
    }
}

impl Room for Cuckoo<false> {
    #[inline(always)]
    fn take(&mut self, h: u64) -> Result<bool, Refusal> {
        while self.table.is_full() || !self.table.insert(h, 0) {
            let widest = self.table.geometry().pair == MOST_PAIR;
            if widest && self.table.load() < LEAST_LOAD {
                return Ok(false);
            }
            self.table.grow(GROWTH, self.made.error_rate)?;
        }
        Ok(true)
    }

    fn left(&self) -> u64 {
        self.table.room()
    }
}

impl<const RING: bool> Adder<RING> for Cuckoo<RING>
where
    Cuckoo<RING>: Room,
{
    #[inline(always)]
    fn table(&mut self) -> &mut Table<RING> {
        &mut self.table
    }

    #[inline(always)]
    fn add_planned(&mut self, h: u64, plan: &Plan) -> Result<bool, Refusal> {
        if self.left() == 0 {
            return self.add_with_care(h);
        }
        match self.table.add_planned(plan) {
            Added::New => {}
            // What was looked at is not looked at again.
            Added::NoSlot if self.table.insert_crowded(h) => {}
            _ => return self.add_with_care(h),
        }
        self.keys = self.keys.saturating_add(1);
        Ok(true)
    }
}

impl<const RING: bool> Kind for Cuckoo<RING>
where
    Cuckoo<RING>: Room,
{
    fn room(&self) -> u64 {
        self.left()
    }

    #[inline(always)]
    fn prefetch(&self, h: u64) {
        self.table.prefetch(h);
    }

    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        self.table.contains(h) || self.beside.as_ref().is_some_and(|beside| beside.contains(&h))
    }

    fn contains_each(&self, keys: Keys<'_>, answers: &mut [u8]) -> bool {
        if self.beside.as_ref().is_some_and(|beside| !beside.is_empty()) {
            return false;
        }
        self.table.contains_each(keys, answers);
        true
    }

    #[inline(always)]
    fn add(&mut self, h: u64) -> Result<bool, Refusal> {
        if self.beside.is_some() {
            return self.add_once(h);
        }
        if self.table.insert_new(h) {
            self.keys = self.keys.saturating_add(1);
            return Ok(true);
        }
        self.add_with_care(h)
    }

    fn add_each(
        &mut self,
        hashes: &[u64],
        answers: &mut [u8],
    ) -> Option<(usize, Result<(), Refusal>)> {
        if self.beside.is_some() {
            return None;
        }
        Some(add_each(self, hashes, answers))
    }

    fn remove(&mut self, h: u64) -> Result<Removal, Refusal> {
        if !self.table.remove(h) {
            return Ok(Removal::Absent);
        }
        self.keys = self.keys.saturating_sub(1);
        Ok(Removal::Removed)
    }

    fn count(&self, h: u64) -> u64 {
        self.table.matches(h).count() as u64
    }

    fn defer_growth(&mut self, defer: bool) {
        self.table.defer_growth(defer);
    }

    fn clear(&mut self) -> Result<(), Refusal> {
        let Header { capacity, error_rate, .. } = self.made;
        let start = match RING {
            true => self.table.geometry(),
            false => Geometry::growing(capacity, error_rate),
        };
        self.table.restart(start)?;
        self.keys = 0;
        if let Some(beside) = &mut self.beside {
            beside.clear();
        }
        Ok(())
    }

    /// "once": from now on a key that is found is not added again, and none is refused.
    fn act(&mut self, what: &str, _value: f64) -> Result<Option<Fact>, Refusal> {
        if what != "once" {
            return Ok(None);
        }
        self.beside.get_or_insert_default();
        Ok(Some(Fact::Int(self.keys)))
    }

    fn header(&self) -> Header {
        let mut header = self.made;
        self.table.describe(&mut header);
        header.extra[3] = self.keys;
        header
    }

    fn sections(&self) -> Vec<Bits> {
        vec![self.table.bits().clone()]
    }

    fn facts(&self) -> Vec<(&'static str, Fact)> {
        vec![
            ("estimated_count", Fact::Int(self.keys)),
            ("estimated_error_rate", Fact::Float(self.table.rate().min(1.0))),
            ("fill_ratio", Fact::Float(self.table.load())),
            ("grow", Fact::Bool(!RING)),
            ("slot_bits", Fact::Int(self.table.geometry().slot_bits().into())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::format::{Header, KindId};
    use crate::hash::{HashKind, KeyHasher};
    use crate::kind::{Refusal, open};
    use crate::table::Geometry;

    fn header(geometry: Geometry, capacity: u64) -> Header {
        Header {
            kind: KindId::Cuckoo,
            layout: geometry.pair as u8,
            lines_per_key: 2,
            num_hashes: 2,
            num_bits: geometry.num_bits(),
            hasher: KeyHasher { kind: HashKind::Xxh3, seed: 0 },
            capacity,
            error_rate: 0.01,
            nbytes: geometry.nbytes(),
            extra: [geometry.packed(), 0, 0, 0, 0, 0],
            checksum: 0,
        }
    }

    fn keys(count: u64) -> impl Iterator<Item = u64> {
        let hasher = KeyHasher { kind: HashKind::Xxh3, seed: 7 };
        (0..count).map(move |n| hasher.hash_bytes(&n.to_le_bytes()))
    }

    /// How many entries a filter takes until it refuses one, at most ten times its capacity.
    fn taken(geometry: Geometry, capacity: u64, copies: u64) -> (u64, u64) {
        let mut kind = open(&header(geometry, capacity), None).unwrap();
        let mut adds = keys(10 * capacity / copies).flat_map(|h| (0..copies).map(move |_| h));
        let taken = adds.by_ref().take_while(|h| kind.add(*h).is_ok()).count() as u64;
        (taken, kind.header().nbytes)
    }

    /// One that grows takes a few copies of each key for ever, and at least the entries that it was
    /// made for of seven; its memory is bounded by what is in it.
    #[test]
    fn a_growing_filter_grows_for_copies() {
        for capacity in [100, 1000, 10_000] {
            for copies in [1, 2, 3, 5, 7] {
                let (taken, nbytes) = taken(Geometry::growing(capacity, 0.01), capacity, copies);
                let plain = Geometry::growing(taken.max(capacity), 0.01).nbytes();
                let least = if copies <= 5 { 10 * capacity / copies * copies } else { capacity };
                assert!(taken >= least, "{taken} entries of {copies} copies in {capacity}");
                assert!(nbytes <= 5 * plain, "{nbytes} bytes, without copies {plain}");
            }
        }
    }

    /// The first refusal that copies cause names the entries that match the key and what to use.
    #[test]
    fn a_filter_that_copies_fill_early_says_so() {
        for copies in [4, 5, 6, 7] {
            let mut kind = open(&header(Geometry::ring(100_000, 1e-6), 100_000), None).unwrap();
            let mut adds = keys(100_000).flat_map(|h| vec![h; copies]);
            let (h, refused) = adds.find_map(|h| kind.add(h).err().map(|why| (h, why))).unwrap();
            let Refusal::Full(why) = refused else { panic!("{refused:?}") };
            let count = match kind.count(h) {
                0 => "copies of other keys fill its buckets".into(),
                1 => "1 entry matches this key".into(),
                count => format!("{count} entries match this key"),
            };
            assert!(why.contains(&count), "{why}, not {count}");
            assert!(why.contains("use grow=True for up to 4 copies of every key"), "{why}");
            assert!(why.contains("CountingBloomFilter"), "{why}");
        }
    }

    /// Keys with one fingerprint count together, and the refusal does not blame the key alone.
    #[test]
    fn keys_with_one_fingerprint_count_together() {
        let mut kind = open(&header(Geometry::ring(1000, 0.01), 1000), None).unwrap();
        let first = keys(1).next().unwrap();
        let second = first ^ 1; // the tag is the highest bits, and the bucket the next ones
        for h in [first, second, first, second, first, second, first] {
            kind.add(h).unwrap();
        }
        let Err(Refusal::Copies(why)) = kind.add(second) else { panic!("an eighth entry") };
        assert!(why.contains("7 entries match this key"), "{why}");
        assert!(why.contains("keys with the same fingerprint"), "{why}");
    }

    /// What the page promises of one that does not grow: this share of its capacity, if every key
    /// is there so many times. From four copies on it promises nothing.
    #[test]
    fn a_fixed_filter_takes_up_to_three_copies_of_every_key() {
        for (copies, share) in [(1, 1.0), (2, 0.85), (3, 0.6)] {
            for (capacity, rate) in [(1000, 0.01), (10_000, 1e-6), (100_000, 0.1), (100_000, 0.01)]
            {
                let (taken, _) = taken(Geometry::ring(capacity, rate), capacity, copies);
                let least = share * capacity as f64 - copies as f64;
                assert!(taken as f64 >= least, "{taken} of {capacity}, {copies} copies, {rate}");
            }
        }
    }
}

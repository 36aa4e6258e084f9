//! The table beside a model: whatever is done to it, no entry is lost and its figures add up.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::batch::BLOCK;
use crate::budget::without_growth;
use crate::format::{Header, KindId};
use crate::hash::{HashKind, KeyHasher, remix};
use crate::kind::{AnyKind, open};
use crate::loops::{Ints, Keys};
use crate::rotating;
use crate::scalable::insert;

pub(super) const RATES: [f64; 6] = [0.5, 0.1, 0.01, 1e-3, 1e-6, 1e-9];

pub(super) fn hash(i: u64) -> u64 {
    remix(i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD6E8_FEB8_6659_FD93)
}

/// Entries and rate are those of the slots, and the geometry is one that could be saved.
fn adds_up<const RING: bool>(table: &Table<RING>) {
    let held = (0..table.geometry.slots()).map(|spot| table.get(spot)).filter(|value| *value != 0);
    let (entries, rate) = held.fold((0, 0.0), |(n, sum), value| (n + 1, sum + table.weight(value)));
    assert_eq!(table.entries, entries);
    assert!((table.rate - rate).abs() <= 1e-9 * rate, "{} is not {rate}", table.rate);
    assert_eq!(table.geometry.check(), Ok(()));
    assert!(table.bits.nbytes() as u64 >= table.geometry.nbytes());
}

/// From a few slots on, by the smallest steps and by the largest: no key is lost, and where the
/// limit was kept to from the start it holds.
#[test]
fn growing_loses_nothing() {
    for (rate, growth) in RATES.into_iter().flat_map(|rate| [(rate, GROWTH), (rate, MOST_GROWTH)]) {
        let mut table = Table::<false>::empty(Geometry::growing(7, rate)).unwrap();
        let mut slots = table.geometry.slots();
        for i in 0..6000 {
            insert(&mut table, hash(i), 0, growth, rate).unwrap();
            if table.geometry.slots() != slots || i == 5999 {
                slots = table.geometry.slots();
                assert!((0..=i).all(|i| table.contains(hash(i))), "lost at {rate} {growth}");
                assert!(table.rate <= rate);
                adds_up(&table);
            }
        }
        assert!(table.load() > 0.45);
    }
}

/// A table planned for a number of keys may grow past it, whatever its marks and its rate: also
/// where the rate is used up and slots become as wide as they can.
#[test]
fn outgrowing_a_plan_loses_nothing() {
    for step in 0..60 {
        let rate = 1e-9 * 1.035f64.powi(step);
        for generations in [1, 8, 254] {
            let start = rotating::geometry(3, rate, generations);
            let mut table = Table::<false>::empty(start).unwrap();
            for i in 0..300 {
                insert(&mut table, hash(i), i % 2, GROWTH, rate).unwrap();
            }
            assert!((0..300).all(|i| table.contains(hash(i))));
            adds_up(&table);
        }
    }
}

/// Random additions and removals, with growth between them, beside a count of each key.
#[test]
fn removing_takes_nothing_else() {
    for rate in [0.3, 0.01, 1e-4] {
        let mut table = Table::<false>::empty(Geometry::growing(5, rate)).unwrap();
        let mut model: HashMap<u64, usize> = HashMap::new();
        let mut held: Vec<u64> = Vec::new();
        for i in 0..20_000u64 {
            let dice = hash(!i);
            if !held.is_empty() && dice.is_multiple_of(3) {
                let h = held.swap_remove((dice >> 8) as usize % held.len());
                assert!(table.remove(h));
                *model.get_mut(&h).unwrap() -= 1;
            } else {
                let h = hash(dice % 5000);
                if model.get(&h) == Some(&7) || table.matches(h).count() >= 7 {
                    continue;
                }
                while table.is_full() || !table.insert(h, 0) {
                    table.grow(GROWTH, rate).unwrap();
                }
                *model.entry(h).or_default() += 1;
                held.push(h);
            }
            if i % 1000 == 999 {
                adds_up(&table);
                assert!(model.iter().all(|(h, count)| table.matches(*h).count() >= *count));
            }
        }
        assert!(held.drain(..).all(|h| table.remove(h)));
        adds_up(&table);
    }
}

/// A ring takes what it was made for, then refuses and changes nothing; emptied it is all zeros.
#[test]
fn a_ring_fills_up_and_empties() {
    for (capacity, rate) in [(1, 0.01), (9, 0.5), (500, 0.1), (3000, 0.01), (3000, 1e-9)] {
        let mut table = Table::<true>::empty(Geometry::ring(capacity, rate)).unwrap();
        let slots = |table: &Table<true>| -> Vec<u64> {
            (0..table.geometry.slots()).map(|spot| table.get(spot)).collect()
        };
        let (mut taken, mut before) = (Vec::new(), slots(&table));
        for h in (0..).map(hash) {
            if !table.insert(h, 0) {
                break;
            }
            taken.push(h);
            before = slots(&table);
        }
        assert_eq!(slots(&table), before);
        assert!(taken.len() as u64 >= capacity, "{} of {capacity}", taken.len());
        assert!(taken.iter().all(|h| table.contains(*h)));
        adds_up(&table);
        table.sweep(|_| true);
        assert_eq!((table.entries, table.rate), (0, 0.0));
        assert!(slots(&table).iter().all(|value| *value == 0));
    }
}

/// What is swept is gone, and nothing else.
#[test]
fn a_sweep_leaves_the_others() {
    let mut table = Table::<false>::empty(Geometry::roomy(2000, 1e-6, 4)).unwrap();
    for i in 0..2000 {
        assert!(table.insert(hash(i), i % 16));
    }
    let shift = table.mark_shift();
    table.sweep(|value| value >> shift < 5);
    assert!((0..2000).filter(|i| i % 16 >= 5).all(|i| table.contains(hash(i))));
    assert!((0..2000).filter(|i| i % 16 < 5 && table.contains(hash(*i))).count() < 3);
    adds_up(&table);
}

/// Whichever way a bucket is looked through, the answer is the same, for slots of every width.
#[test]
fn contains_agrees_with_matches() {
    let small = Geometry::growing(300, 0.1);
    let wide = |stream_bits| Geometry { tag_bits: 4, stream_bits, ..small };
    let growing = (1..=MOST_STREAM_BITS).map(wide);
    for geometry in growing.chain((LEAST_PAIR..=MOST_PAIR).map(|pair| Geometry { pair, ..small })) {
        answers_agree(Table::<false>::empty(geometry).unwrap());
    }
    for tag_bits in 2..=MOST_TAG_BITS {
        let geometry = Geometry { buckets: 38, tag_bits, ..Geometry::ring(1, 0.1) };
        answers_agree(Table::<true>::empty(geometry).unwrap());
    }
}

fn answers_agree<const RING: bool>(mut table: Table<RING>) {
    for i in 0..table.geometry.slots() {
        let (h, count) = (hash(i), table.matches(hash(i)).count());
        let taken = table.insert_new(h);
        assert!(!taken || count == 0);
        let more = taken || table.insert(h, 0);
        assert_eq!(table.matches(h).count(), count + usize::from(more));
    }
    let hasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };
    let ints: Vec<[u8; 8]> = (0..2000i64).map(i64::to_le_bytes).collect();
    let hashes: Vec<u64> = (0..2000).map(|i| if i % 2 == 0 { hash(i) } else { !hash(i) }).collect();
    for some in hashes.chunks(97).chain([&hashes[..0], &hashes[..16], &hashes[..33]]) {
        let mut answers = vec![9; some.len()];
        table.contains_each(Keys::Hashes(some), &mut answers);
        let found = |h: &u64| table.matches(*h).next().is_some();
        assert!(some.iter().zip(answers).all(|(h, a)| a == u8::from(found(h))));
        assert!(some.iter().all(|h| table.contains(*h) == found(h)));
    }
    let (keys, hash) = (&ints[..], hasher.int_hash().unwrap());
    let mut answers = vec![9; keys.len()];
    table.contains_each(Keys::Ints(Ints { keys, hash }), &mut answers);
    assert!((0..).zip(answers).all(|(i, a)| a == u8::from(table.contains(hasher.hash_i64(i)))));
    adds_up(&table);
}

/// A new filter of a kind, in a table of this size.
fn filter(kind: KindId, geometry: Geometry, capacity: u64, rate: f64) -> Box<dyn AnyKind> {
    let header = Header {
        kind,
        layout: geometry.pair as u8,
        lines_per_key: 2,
        num_hashes: 2,
        num_bits: geometry.num_bits(),
        hasher: KeyHasher { kind: HashKind::Xxh3, seed: 0 },
        capacity,
        error_rate: rate,
        nbytes: geometry.nbytes(),
        extra: [
            geometry.packed(),
            0,
            0,
            0,
            if kind == KindId::Scalable { GROWTH.to_bits() } else { 0 },
            0,
        ],
        checksum: 0,
    };
    open(&header, None).expect("a small table")
}

/// A batch leaves what its keys leave one after the other, bit for bit, and answers the same: also
/// across growth, with keys that come again, and where one of them is refused.
#[test]
fn batches_are_their_keys() {
    for rate in [0.3, 0.01, 1e-3, 1e-6, 1e-9] {
        let growing = Geometry::growing(20, rate);
        for (kind, geometry) in [
            (KindId::Scalable, growing),
            (KindId::Cuckoo, growing),
            (KindId::Cuckoo, Geometry::ring(900, rate)),
        ] {
            let [mut whole, mut single] = [0, 1].map(|_| filter(kind, geometry, 20, rate));
            let mut hashes: Vec<u64> = (0..3000).map(|i| hash(i * i % 1777)).collect();
            hashes.extend([hash(3); 9]);
            for some in hashes.chunks(701) {
                let mut answers = Vec::new();
                let mut left = some.chunks(BLOCK);
                let mut blocks = |block: &mut [u64; BLOCK]| {
                    let part = left.next().unwrap_or_default();
                    block[..part.len()].copy_from_slice(part);
                    Ok(part.len())
                };
                let ended = whole.add_all(&mut blocks, &mut |part| answers.extend_from_slice(part));
                let mut one_by_one = Vec::new();
                let refused = some.iter().map(|h| single.add(*h)).find_map(|done| match done {
                    Ok(new) => {
                        one_by_one.push(u8::from(new));
                        None
                    }
                    Err(refusal) => Some(refusal),
                });
                assert_eq!((ended.err(), answers), (refused, one_by_one));
            }
            assert_eq!(whole.header(), single.header());
            let bytes = |kind: &dyn AnyKind| -> Vec<u64> {
                let sections = kind.sections();
                sections
                    .iter()
                    .flat_map(|bits| bits.words().iter().map(|w| w.load(Relaxed)))
                    .collect()
            };
            assert!(bytes(&*whole) == bytes(&*single));
        }
    }
}

/// A full table of this size, of 16 slots a pair, and its keys.
fn full(buckets: u64) -> (Table<false>, Vec<u64>) {
    let geometry = Geometry { buckets, pair: MOST_PAIR, ..Geometry::growing(1000, 0.01) };
    let mut table = Table::<false>::empty(geometry).unwrap();
    let mut taken = Vec::new();
    for h in (0..).map(hash) {
        if table.is_full() {
            break;
        }
        assert!(table.insert(h, 0));
        taken.push(h);
    }
    (table, taken)
}

/// The table after this one, still empty.
fn doubled(table: &Table<false>) -> Table<false> {
    Table::empty(table.geometry.next()).unwrap()
}

/// What growth costs: every entry moves once, fewer than a tenth find their bucket full, and what is
/// kept of those takes a quarter of the table's memory at most. None of it depends on the clock.
#[test]
fn growth_moves_every_entry_once_and_few_twice() {
    let (mut table, keys) = full(1 << 14);
    let mut grown = doubled(&table);
    let overflow = table.move_into(&mut grown);
    let left = keys.len() as u64 - grown.entries;
    assert!(left > 0 && left < keys.len() as u64 / 10, "{left} of {}", keys.len());
    assert!(overflow.nbytes() as u64 <= grown.geometry.nbytes() / 4 + 65536);
    grown.settle(overflow);
    assert_eq!(grown.geometry, table.geometry.next());
    assert_eq!(grown.entries, keys.len() as u64);
    assert!(keys.iter().all(|h| grown.contains(*h)));
    adds_up(&grown);
}

/// A table of slots that hold anything, in memory large enough to be given back in pieces.
fn large() -> Table<false> {
    let small = Geometry::growing(1000, 0.01);
    let geometry = Geometry { buckets: 1 << 18, pair: MOST_PAIR, ..small };
    let table = Table::<false>::empty(geometry).unwrap();
    for (i, word) in (0..).zip(table.bits.words()) {
        word.store(hash(i), Relaxed);
    }
    let held = (0..geometry.slots()).filter(|spot| table.get(*spot) != 0).count() as u64;
    Table::over(table.bits, geometry, held, 0.0)
}

/// While a table moves, its memory goes; but not while somebody else has it, who then finds it as it
/// was. What comes of it is the same, byte for byte.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn growth_gives_memory_back_unless_it_is_shared() {
    const UNIT: usize = (1 << 20) / 8;
    let words = |bits: &Bits| bits.words().iter().map(|w| w.load(Relaxed)).collect::<Vec<_>>();
    for pair in [MOST_PAIR, MOST_PAIR - 1] {
        let [mut alone, mut shared] = [0, 1].map(|_| {
            let Table { bits, geometry, entries, .. } = large();
            Table::<false>::over(bits, Geometry { pair, ..geometry }, entries, 0.0)
        });
        let (clone, before) = (shared.bits.clone(), words(&shared.bits));
        let [mut first, mut second] = [doubled(&alone), doubled(&shared)];
        let _ = alone.move_into(&mut first);
        let _ = shared.move_into(&mut second);
        assert!(words(&first.bits) == words(&second.bits));
        assert!(words(&clone) == before);
        if cfg!(target_os = "linux") {
            assert!(alone.bits.words()[..3 * UNIT].iter().all(|word| word.load(Relaxed) == 0));
        }
    }
}

/// Sixteen copies of a key fill both of its buckets. Once the table they came from is gone, buckets
/// become larger until all have a slot, also where no filter may grow.
#[test]
fn copies_settle_in_larger_buckets() {
    let geometry = Geometry { buckets: 256, pair: MOST_PAIR, ..Geometry::growing(1000, 0.01) };
    let mut table = Table::<false>::empty(geometry).unwrap();
    let keys: Vec<u64> =
        (0..40).map(hash).filter(|h| (0..16).all(|_| table.insert(*h, 0))).collect();
    assert!(keys.len() > 10);
    let entries = table.entries;
    let mut grown = doubled(&table);
    let overflow = table.move_into(&mut grown);
    assert!(grown.entries < entries);
    without_growth(|| grown.settle(overflow));
    assert_eq!((grown.geometry.pair, grown.entries), (MOST_PAIR, entries));
    assert!(keys.iter().all(|h| grown.matches(*h).count() >= 16));
    adds_up(&grown);
}

/// Where the usual search gives up, in a table that is all but full, the thorough one finds room.
#[test]
fn a_way_is_cleared_where_the_search_gives_up() {
    let (mut table, mut keys) = full(1 << 12);
    let mut cleared = 0;
    for h in (1 << 32..).map(hash) {
        let Places { buckets, entries } = table.places(h);
        while !table.place(buckets, entries, table.fresh_weight) {
            table.clear_way(buckets);
            cleared += 1;
        }
        keys.push(h);
        if cleared == 5 {
            break;
        }
    }
    assert!(table.load() > 0.98);
    assert!(keys.iter().all(|h| table.contains(*h)));
    adds_up(&table);
}

//! The table beside a model: whatever is done to it, no entry is lost and its figures add up; and
//! what it does with keys that were chosen to collide, and with slots that hold anything at all.

use std::collections::HashMap;

use super::*;
use crate::format::{Header, KindId};
use crate::hash::{HashKind, KeyHasher, remix};
use crate::kind::{AnyKind, Removal, open};
use crate::rotating;
use crate::scalable::insert;

const RATES: [f64; 6] = [0.5, 0.1, 0.01, 1e-3, 1e-6, 1e-9];

fn hash(i: u64) -> u64 {
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
        let taken: Vec<u64> =
            (0..2 * capacity + 8).map(hash).filter(|h| table.insert(*h, 0)).collect();
        assert!(taken.len() as u64 >= capacity.min(4), "{} of {capacity}", taken.len());
        assert!(capacity < 500 || taken.len() as u64 >= capacity);
        assert!(taken.iter().all(|h| table.contains(*h)));
        adds_up(&table);
        let bytes = |table: &Table<true>| -> Vec<u64> {
            (0..table.geometry.slots()).map(|spot| table.get(spot)).collect()
        };
        let before = bytes(&table);
        let refused = (10_000_000..).map(hash).find(|h| !table.insert(*h, 0) || capacity < 500);
        if capacity >= 500 {
            assert!(!table.insert(refused.unwrap(), 0));
            assert!(before.iter().filter(|value| **value != 0).count() <= bytes(&table).len());
            assert!(taken.iter().all(|h| table.contains(*h)));
        }
        adds_up(&table);
        table.sweep(|_| true);
        assert_eq!((table.entries, table.rate), (0, 0.0));
        assert!(bytes(&table).iter().all(|value| *value == 0));
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
        let geometry = Geometry { buckets: 37, tag_bits, ..Geometry::ring(1, 0.1) };
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
    assert!((0..2000).map(hash).all(|h| table.contains(h) == (table.matches(h).count() > 0)));
    adds_up(&table);
}

fn header(kind: KindId, geometry: Geometry, error_rate: f64, own: [u64; 3]) -> Header {
    Header {
        kind,
        layout: geometry.pair as u8,
        lines_per_key: 2,
        num_hashes: 2,
        num_bits: geometry.num_bits(),
        hasher: KeyHasher { kind: HashKind::Xxh3, seed: 0 },
        capacity: 10,
        error_rate,
        nbytes: geometry.nbytes(),
        extra: [geometry.packed(), 0, 0, own[0], own[1], own[2]],
        checksum: 0,
    }
}

/// A header of each kind that has a table that grows.
fn headers(capacity: u64, rate: f64, growth: f64) -> [Header; 3] {
    let growing = Geometry::growing(capacity, rate);
    let marked = rotating::geometry(capacity, rate, 8);
    [
        header(KindId::Scalable, growing, rate, [0, growth.to_bits(), 0]),
        header(KindId::Cuckoo, growing, rate, [0; 3]),
        header(KindId::Rotating, marked, rate, [100f64.to_bits(), 0, 8]),
    ]
}

/// Keys that share the first bits of their streams, so that growing does not part them, and differ in
/// the next seven; in the four buckets that two tags lead to. Most have the first tag, the last the
/// second: they find no slot, nor an entry that could cover them too.
fn chosen(shared: u32) -> impl Iterator<Item = u64> {
    (0..200).map(move |i| {
        let parts = (hash(i) & low(7)) << (57 - shared);
        let around = if hash(i) & 128 == 0 { 0 } else { partner(2) };
        (parts ^ around) & !63 | if i < 160 { 1 } else { 2 }
    })
}

/// What cannot be taken is refused, what was taken is found, and memory stays within bounds.
#[test]
fn keys_chosen_to_collide() {
    for (shared, growth) in (0..20).flat_map(|shared| [(shared, GROWTH), (shared, MOST_GROWTH)]) {
        for mut header in headers(1000, 0.01, growth) {
            widen(&mut header);
            let mut kind = open(&header, None).unwrap();
            let taken: Vec<u64> = chosen(shared).filter(|h| kind.add(*h).is_ok()).collect();
            assert!(taken.iter().all(|h| kind.contains(*h)));
            assert!(taken.len() >= 7);
            let nbytes = kind.header().nbytes;
            assert!(nbytes <= 4 * header.nbytes, "{nbytes} of {:?}, {shared} shared", header.kind);
        }
    }
}

/// Lets entries keep 20 bits of their streams, as they do where the error rate is used up.
fn widen(header: &mut Header) {
    let wide = Geometry { stream_bits: 20, ..Geometry::of(header) };
    *header = Header { nbytes: wide.nbytes(), num_bits: wide.num_bits(), ..*header };
    header.extra[0] = wide.packed();
}

/// A key that shares an entry with an older one is as new as if it had its own.
#[test]
fn a_shared_entry_is_as_new_as_its_newest_key() {
    for shared in 0..20 {
        let [.., mut header] = headers(1000, 0.01, GROWTH);
        widen(&mut header);
        let mut kind = open(&header, None).unwrap();
        let mut keys = chosen(shared).filter(|h| h & 63 == 1);
        keys.by_ref().take(80).for_each(|h| drop(kind.add(h)));
        kind.tick(50.0).unwrap();
        let late: Vec<u64> = keys.filter(|h| kind.add(*h).is_ok()).collect();
        assert!(!late.is_empty());
        kind.tick(149.0).unwrap();
        assert!(late.iter().all(|h| kind.contains(*h)), "forgotten, {shared} shared");
    }
}

/// Every value of the kind's figures, and slots full of anything: no panic, no endless loop.
#[test]
fn hostile_slots_and_figures() {
    let words = [0, 1, 7, 1 << 40, u64::MAX, 1e300f64.to_bits(), f64::MIN_POSITIVE.to_bits()];
    let mut opened = 0;
    for round in 0..3000u64 {
        let dice = |i: u64| hash(round * 64 + i);
        let rate = RATES[dice(0) as usize % RATES.len()];
        let mut header = headers(10, rate, GROWTH)[dice(1) as usize % 3];
        for i in 1..6 {
            if dice(2 + i).is_multiple_of(4) {
                header.extra[i as usize] = words[dice(10 + i) as usize % words.len()];
            }
        }
        header.capacity =
            if dice(20).is_multiple_of(3) { words[dice(21) as usize % 5].max(1) } else { 10 };
        let body = Bits::zeroed(header.nbytes as usize).unwrap();
        for (i, word) in (0..).zip(body.words()) {
            let noise = if dice(22).is_multiple_of(5) { u64::MAX } else { dice(30 + i) };
            word.store(noise, std::sync::atomic::Ordering::Relaxed);
        }
        let Ok(mut kind) = open(&header, Some(body)) else { continue };
        opened += 1;
        use_up(&mut *kind, round);
    }
    assert!(opened > 1000);
}

fn use_up(kind: &mut dyn AnyKind, round: u64) {
    for now in [1.0, 1e6, -1e9, 1e11] {
        kind.tick(now).unwrap();
        for h in (0..60).map(|i| hash(round ^ i << 20)) {
            let taken = kind.add(h).is_ok();
            assert!(!taken || kind.contains(h));
            assert!(!taken || kind.count(h) > 0);
            let _ = kind.ask("generation", h);
            if now < 0.0 {
                assert_ne!(kind.remove(h), Ok(Removal::Kept));
            }
        }
        assert!(kind.facts().len() > 3);
        assert!(kind.header().nbytes < 1 << 16);
        let again = open(&kind.header(), Some(kind.sections()[0].clone()));
        assert!(again.is_ok(), "{:?} was saved and is refused", kind.header());
        let _ = kind.act("rotate", now);
    }
    if kind.clear().is_ok() {
        assert!(!kind.contains(5));
    }
}

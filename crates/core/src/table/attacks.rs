//! The table under attack: keys that were chosen to collide, and saved tables that hold anything at all.

use super::tests::{RATES, hash};
use super::*;
use crate::format::{Header, KindId};
use crate::hash::{HashKind, KeyHasher};
use crate::kind::{AnyKind, Removal, open};
use crate::rotating;

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
    for round in 0..1500u64 {
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
    assert!(opened > 500);
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
    let nbytes = kind.header().nbytes;
    kind.clear().unwrap();
    assert!(kind.header().nbytes <= nbytes && !kind.contains(5));
}

//! No key is lost for any number of keys, rates are as asked for, and hostile headers are refused.

use super::*;
use crate::hash::{HashKind, remix};
use crate::kind::Ints;

const HASHER: KeyHasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn hashes(count: u64, salt: u64) -> Vec<u64> {
    (0..count).map(|i| remix(i.wrapping_mul(GOLDEN) ^ salt)).collect()
}

fn made(hashes: &[u64], width: u32) -> StaticFilter {
    build(hashes.to_vec(), 0.5f64.powi(width as i32), HASHER).expect("can be built")
}

/// Answers one by one, and checks that a block gives the same.
fn answers(filter: &StaticFilter, hashes: &[u64]) -> Vec<bool> {
    let mut block = vec![9; hashes.len()];
    assert!(filter.contains_each(Keys::Hashes(hashes), &mut block));
    let single: Vec<bool> = hashes.iter().map(|h| filter.contains(*h)).collect();
    assert_eq!(block, single.iter().map(|a| u8::from(*a)).collect::<Vec<_>>());
    single
}

fn bytes(filter: &StaticFilter) -> Vec<u8> {
    let words = filter.packed.bits.words().iter();
    words.flat_map(|w| w.load(std::sync::atomic::Ordering::Relaxed).to_le_bytes()).collect()
}

/// Every key is found, however many there are and however wide the fingerprints.
#[test]
fn no_key_is_lost() {
    for count in (0..2000).chain([5000, 40_000, 300_000]) {
        let keys = hashes(count, count);
        let filter = made(&keys, count as u32 % MAX_WIDTH + 1);
        assert!(answers(&filter, &keys).iter().all(|a| *a), "{count} keys");
        assert_eq!(filter.count, count);
    }
}

/// Ints are found as their hashes are, in filters small and large.
#[test]
fn ints_are_their_hashes() {
    for count in [0, 1, 3, 4, 37, 1000, 300_000] {
        let keys: Vec<[u8; 8]> = (0..count).map(|i: i64| (i * 11 - 5).to_le_bytes()).collect();
        let ints = Ints { keys: &keys, hash: HASHER.int_hash().expect("xxh3") };
        let hashes: Vec<u64> = keys.iter().map(|key| ints.hash(key)).collect();
        let filter = made(&hashes[..keys.len() / 2], 9);
        let mut found = vec![9; keys.len()];
        filter.contains_ints(ints, &mut found);
        let expected = answers(&filter, &hashes).into_iter().map(u8::from);
        assert!(expected.eq(found.iter().copied()), "{count} keys");
        let fewer = found.len() / 3;
        filter.contains_ints(ints, &mut found[..fewer]);
    }
}

/// Hashes that are not spread at all are found too: those that share their leading or trailing
/// bits are mixed again.
#[test]
fn regular_hashes_are_found() {
    for count in [1, 2, 300, 20_000u64] {
        for spread in [1, 1 << 20, 1 << 40, GOLDEN] {
            let keys: Vec<u64> = (0..count).map(|i| i.wrapping_mul(spread)).collect();
            assert!(answers(&made(&keys, 9), &keys).iter().all(|a| *a), "{count}, {spread:#x}");
        }
    }
}

/// The bytes depend on which hashes there are, not on their order or number.
#[test]
fn order_and_copies_do_not_matter() {
    let keys = hashes(3000, 1);
    let filter = made(&keys, 13);
    let mut twice: Vec<u64> = keys.iter().rev().chain(&keys).copied().collect();
    twice.extend([keys[7]; 1000]);
    let again = made(&twice, 13);
    assert_eq!(filter.header(), again.header());
    assert_eq!(bytes(&filter), bytes(&again));
    assert_eq!(again.count, 3000);
}

/// Absent keys are taken for present ones as often as the width says, each bit of a fingerprint
/// counts, and a filter without keys holds none.
#[test]
fn absent_keys_err_by_chance() {
    let absent = hashes(1 << 20, 99);
    let share = |yes: usize| yes as f64 / absent.len() as f64;
    for (count, width) in [(1, 4), (100, 3), (10_000, 8), (10_000, 7), (200_000, 10)] {
        let filter = made(&hashes(count, 5), width);
        let found = share(answers(&filter, &absent).iter().filter(|a| **a).count());
        let expected = 0.5f64.powi(width as i32);
        let sigma = (expected / absent.len() as f64).sqrt();
        assert!((found - expected).abs() < 5.0 * sigma, "{count}, {width}: {found}");
    }
    let empty = made(&[], 1);
    assert!(!answers(&empty, &absent).contains(&true));
}

/// Of a wide fingerprint, too, every bit is right by chance for half of the absent keys.
#[test]
fn every_bit_tells_keys_apart() {
    let filter = made(&hashes(200_000, 5), MAX_WIDTH);
    let absent = hashes(1 << 18, 99);
    let mut right = [0u32; MAX_WIDTH as usize];
    for h in &absent {
        let sum = filter.packed.sum(*h);
        right.iter_mut().enumerate().for_each(|(i, n)| *n += u32::from(sum >> i & 1 == 0));
    }
    for (bit, right) in right.into_iter().enumerate() {
        let share = f64::from(right) / absent.len() as f64;
        assert!((share - 0.5).abs() < 0.006, "bit {bit}: {share}");
    }
}

/// A million keys take at most 1.13 bits for each bit of the fingerprint.
#[test]
fn a_million_keys_are_small() {
    for width in [8, 16, 32] {
        let filter = made(&hashes(1_000_000, 3), width);
        let share = filter.header().nbytes as f64 * 8.0 / 1e6 / f64::from(width);
        assert!(share <= 1.13, "{width}: {share}");
    }
}

/// The width is the least that keeps the error rate.
#[test]
fn width_follows_the_error_rate() {
    let cases = [(0.9, 1), (0.5, 1), (0.49, 2), (0.01, 7), (0.001, 10), (1e-9, 30), (1e-300, 40)];
    for (error_rate, expected) in cases {
        assert_eq!(width(error_rate), expected);
    }
}

/// A saved filter comes back the same; nothing can be added to it or taken out.
#[test]
fn saved_filters_open_again() {
    let keys = hashes(1000, 2);
    for width in [1, 7, 8, 9, 16, 25, 26, 32, 33, 40] {
        let filter = made(&keys, width);
        let mut again = open(&filter.header(), Some(filter.sections().remove(0))).expect("opens");
        assert_eq!(again.header(), filter.header());
        assert!(keys.iter().all(|h| again.contains(*h)));
        assert_eq!(again.add(1), Err(FIXED));
        assert_eq!(again.remove(keys[0]), Err(FIXED));
        assert_eq!(again.clear(), Err(FIXED));
    }
    let empty = open(&made(&[], 5).header(), None).expect("opens");
    assert!(!empty.contains(0));
}

/// A header with any field changed is refused or opens into a filter that can be asked.
#[test]
fn hostile_headers_do_no_harm() {
    let good = made(&hashes(500, 2), 9);
    let (head, body) = (good.header(), good.sections().remove(0));
    let mut state = 1u64;
    let mut opened = 0;
    for round in 0..100_000u64 {
        let mut next = || {
            state = remix(state.wrapping_add(GOLDEN));
            state
        };
        let mut bad = head;
        for _ in 0..=round % 3 {
            let field = next() % 11;
            let value = match next() % 4 {
                0 => next(),
                1 => 1 << (next() % 64),
                2 => next() % 70,
                _ => next() % 1000,
            };
            match field {
                0 => bad.layout = value as u8,
                1 => bad.lines_per_key = value as u8,
                2 => bad.num_hashes = value as u16,
                3 => bad.num_bits = value,
                4 => bad.nbytes = value,
                n => bad.extra[n as usize - 5] = value,
            }
        }
        let part = body.part(0, bad.nbytes as usize);
        if let Ok(filter) = crate::kind::open(&bad, part) {
            opened += 1;
            let asked = hashes(40, round);
            let mut some = [0; 40];
            assert!(filter.contains_each(Keys::Hashes(&asked), &mut some));
            asked.iter().zip(some).for_each(|(h, a)| assert_eq!(filter.contains(*h), a == 1));
        }
    }
    assert!(opened > 100, "{opened} opened");
}

/// Numbers of 8 bytes, for more than 2^32 cells, solve as those of 4 do.
#[test]
fn long_numbers_solve_as_short_ones() {
    let (keys, positions) = (hashes(20_000, 4), Positions::plan(20_000, 0));
    let short =
        build::solve::<u32>(&keys, positions, 11, |_| 0).expect("has memory").expect("solves");
    let long =
        build::solve::<u64>(&keys, positions, 11, |_| 0).expect("has memory").expect("solves");
    assert!(short.bits.is_subset_of(&long.bits) && long.bits.is_subset_of(&short.bits));
}

/// `unmix` takes back what `mix` did.
#[test]
fn mixing_can_be_undone() {
    for seed in [0, 1, 2, u64::MAX] {
        let positions = Positions { starts: 1, reach: 1, seed };
        hashes(100, 8).iter().for_each(|h| assert_eq!(positions.unmix(positions.mix(*h)), *h));
    }
}

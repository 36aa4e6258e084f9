//! Both sides are answered without error, however many there are; hostile headers do no harm.

use super::*;
use crate::hash::{HashKind, remix};
use crate::kind::Ints;

const HASHER: KeyHasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn hashes(from: u64, count: u64) -> Vec<u64> {
    let mut made: Vec<u64> = (from..from + count).map(|i| remix(i.wrapping_mul(GOLDEN))).collect();
    made.sort_unstable();
    made
}

fn made(members: u64, others: u64, width: u32, inverted: bool) -> Box<dyn AnyKind> {
    let choice = Choice { width, inverted, error_rate: 0.5 };
    let (header, body) =
        build(hashes(0, members), hashes(1 << 40, others), choice, HASHER).expect("can be built");
    open(&header, Some(body)).expect("opens")
}

/// Answers one by one, and checks that a block gives the same.
fn answers(set: &dyn AnyKind, hashes: &[u64]) -> Vec<bool> {
    let mut block = vec![9; hashes.len()];
    assert!(set.contains_each(Keys::Hashes(hashes), &mut block));
    let single: Vec<bool> = hashes.iter().map(|h| set.contains(*h)).collect();
    assert_eq!(block, single.iter().map(|a| u8::from(*a)).collect::<Vec<_>>());
    single
}

/// Members are all yes and non-members all no, of any numbers, widths and sides.
#[test]
fn no_answer_is_wrong() {
    let counts = [0, 1, 2, 3, 10, 100, 999, 40_000];
    for members in counts {
        for others in counts {
            for (width, inverted) in [(0, false), (0, true), (1, false), (6, true), (9, false)] {
                let set = made(members, others, width, inverted);
                assert!(answers(&*set, &hashes(0, members)).iter().all(|a| *a));
                assert!(!answers(&*set, &hashes(1 << 40, others)).contains(&true));
            }
        }
    }
}

/// Keys of neither side are taken for held ones as often as the set says.
#[test]
fn unknown_keys_err_by_chance() {
    let absent = hashes(1 << 50, 1 << 20);
    for (members, others, width, inverted) in
        [(1000, 100_000, 6, false), (1000, 1000, 0, false), (50_000, 500, 5, true), (0, 9, 3, true)]
    {
        let set = made(members, others, width, inverted);
        let expected = set
            .facts()
            .into_iter()
            .find_map(|fact| match fact {
                ("estimated_error_rate", Fact::Float(rate)) => Some(rate),
                _ => None,
            })
            .expect("is a fact");
        let yes = answers(&*set, &absent).iter().filter(|a| **a).count();
        let found = yes as f64 / absent.len() as f64;
        let sigma = (expected * (1.0 - expected) / absent.len() as f64).sqrt();
        assert!((found - expected).abs() <= 5.0 * sigma, "{width}: {found}, {expected}");
    }
}

/// Ints are found as their hashes are.
#[test]
fn ints_are_their_hashes() {
    let keys: Vec<[u8; 8]> = (0..5000).map(|i: i64| (i * 11 - 5).to_le_bytes()).collect();
    let ints = Ints { keys: &keys, hash: HASHER.int_hash().expect("xxh3") };
    let all: Vec<u64> = keys.iter().map(|key| ints.hash(key)).collect();
    let (mut members, mut others) = (all[..500].to_vec(), all[500..].to_vec());
    members.sort_unstable();
    others.sort_unstable();
    for width in [0, 4] {
        let choice = Choice { width, inverted: false, error_rate: 0.5 };
        let (header, body) =
            build(members.clone(), others.clone(), choice, HASHER).expect("can be built");
        let set = open(&header, Some(body)).expect("opens");
        let mut found = vec![9; keys.len()];
        set.contains_ints(ints, &mut found);
        assert!(found.iter().enumerate().all(|(i, answer)| (*answer == 1) == (i < 500)));
    }
}

/// What both sides have is counted.
#[test]
fn common_hashes_are_found() {
    assert_eq!(common(&[1, 3, 5, 9], &[0, 3, 4, 9, 10]), (2, Some(3)));
    assert_eq!(common(&[1, 2], &[3, 4]), (0, None));
    assert_eq!(common(&[], &[3, 4]), (0, None));
}

/// A hundred valid keys for each revoked one take at most 10.1 bits a revoked key; by theory 8.09.
#[test]
fn a_hundred_to_one_is_small() {
    let set = made(100_000, 1_000_000, 3, false);
    assert!(set.header().nbytes * 8 < 100_000 * 7);
    let set = made(20_000, 2_000_000, 6, false);
    assert!(set.header().nbytes as f64 * 8.0 / 20_000.0 < 10.4);
}

/// A saved set comes back the same; nothing can be added to it or taken out.
#[test]
fn saved_sets_open_again() {
    for (width, inverted) in [(0, false), (7, true)] {
        let mut set = made(300, 200, width, inverted);
        let again = open(&set.header(), set.sections().pop().filter(|_| width == 0));
        assert_eq!(again.is_ok(), width == 0, "the second level alone");
        assert_eq!(set.add(1), Err(FIXED));
        assert_eq!(set.remove(1), Err(FIXED));
        assert_eq!(set.clear(), Err(FIXED));
    }
    let empty = open(&made(0, 10, 3, false).header(), None).expect("opens");
    assert!(!empty.contains(0));
}

/// A header with any field changed is refused or opens into a set that can be asked.
#[test]
fn hostile_headers_do_no_harm() {
    let choice = Choice { width: 5, inverted: false, error_rate: 0.5 };
    let (head, body) =
        build(hashes(0, 300), hashes(1 << 40, 9000), choice, HASHER).expect("can be built");
    let (mut state, mut opened) = (1u64, 0);
    for round in 0..100_000u64 {
        let mut next = || {
            state = remix(state.wrapping_add(GOLDEN));
            state
        };
        let mut bad = head;
        for _ in 0..=round % 3 {
            let field = next() % 12;
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
                5 => bad.capacity = value,
                n => bad.extra[n as usize - 6] = value,
            }
        }
        let part = body.part(0, bad.nbytes as usize);
        if let Ok(set) = crate::kind::open(&bad, part) {
            opened += 1;
            let asked = hashes(round, 40);
            let mut some = [0; 40];
            assert!(set.contains_each(Keys::Hashes(&asked), &mut some));
            asked.iter().zip(some).for_each(|(h, a)| assert_eq!(set.contains(*h), a == 1));
        }
    }
    assert!(opened > 100, "{opened} opened");
}

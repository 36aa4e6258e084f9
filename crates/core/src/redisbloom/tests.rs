//! Both structures by themselves; the Python tests hold them beside a model written from the facts.

use super::chain::Chain;
use super::cuckoo::Cuckoo;
use super::dump::{Layered, Malformed};
use super::murmur64a;
use crate::bits::Bits;
use crate::budget::{with_deferred_growth, without_growth};
use crate::kind::Refusal;

fn key(i: u64) -> [u64; 2] {
    Chain::hashes(format!("key {i}").as_bytes(), true)
}

#[test]
fn the_hash_is_the_published_one() {
    // SMHasher's verification value: hashes of 0 to 255 bytes, hashed again.
    let bytes: Vec<u8> = (0..=255).collect();
    let hashes = (0..256).flat_map(|n| murmur64a(&bytes[..n], 256 - n as u64).to_le_bytes());
    let hashes: Vec<u8> = hashes.collect();
    assert_eq!(murmur64a(&hashes, 0) as u32, 0x1F0D_3804);
}

#[test]
fn sizes_are_those_of_info() {
    let chain = Chain::new(0.01, 100, 2).unwrap();
    assert_eq!(chain.size(), 240);
    assert_eq!(chain.layers()[0].numbers.num_hashes, 8);
    assert_eq!(Cuckoo::new(1000, 2, 20, 1).unwrap().size(), 1080);
}

/// A key that needs a large layer is refused without an effect until there is memory for it. The
/// layer is then the same as one that was added at once.
#[test]
fn a_large_layer_can_wait_for_its_memory() {
    let [mut plain, mut waiting] = [0, 1].map(|_| Cuckoo::new(1 << 14, 2, 20, 32).unwrap());
    let mut refused = 0;
    for i in 0..20_000u64 {
        let h = Cuckoo::hash(&i.to_le_bytes());
        plain.add(h).unwrap();
        let before = waiting.chunk(1);
        while let Err(refusal) = with_deferred_growth(|| waiting.add(h)) {
            assert_eq!((refusal, waiting.chunk(1) == before), (Refusal::Later, true));
            let nbytes = waiting.lacks(1).unwrap();
            waiting.spare(Bits::zeroed(nbytes as usize).unwrap());
            refused += 1;
        }
        assert_eq!(waiting.lacks(1), None);
    }
    assert_eq!((refused, waiting.layers().len()), (1, 2));
    let dump = |filter: &Cuckoo| {
        let chunks = std::iter::successors(Some(filter.chunk(0)), |(at, _)| {
            (*at != 0).then(|| filter.chunk(*at))
        });
        chunks.flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>()
    };
    assert!(dump(&plain) == dump(&waiting));
    // Where no filter may grow there is nothing to wait for.
    let mut full = Cuckoo::new(1 << 14, 2, 20, 32).unwrap();
    let add = |i: u64| without_growth(|| full.add(Cuckoo::hash(&i.to_le_bytes())));
    let refusal = (0..20_000).map(add).find_map(Result::err);
    assert!(matches!(refusal, Some(Refusal::NoMemory(_))));
    assert_eq!(full.lacks(1), None);
}

#[test]
fn remainders_are_exact() {
    for capacity in [1, 2, 6, 7, 100, 12_345, 1_000_003] {
        let chain = Chain::new(0.01, capacity, 2).unwrap();
        let layer = &chain.layers()[0];
        let bits = layer.numbers.num_bits;
        let edges = [0, 1, bits - 1, bits, bits + 1, u64::MAX - 1, u64::MAX];
        let near = (1..1000).flat_map(|n| [n * bits, (n * bits).wrapping_neg(), n << 54]);
        for x in near.flat_map(|x| [x.wrapping_sub(1), x]).chain(edges) {
            let (word, bit) = layer.place(x);
            assert_eq!(
                word as u64 * 64 + u64::from(bit.trailing_zeros()),
                x % bits,
                "{x} % {bits}"
            );
        }
    }
}

#[test]
fn a_chain_grows_and_forgets_nothing() {
    let mut chain = Chain::new(0.01, 10, 2).unwrap();
    let new = (0..1000).filter(|i| chain.add(key(*i)).unwrap()).count() as u64;
    assert_eq!(chain.keys(), new);
    assert!((0..1000).all(|i| chain.contains(key(i))));
    let capacities: Vec<u64> = chain.layers().iter().map(|l| l.numbers.capacity).collect();
    assert_eq!(capacities, [10, 20, 40, 80, 160, 320, 640]);
    let mut fixed = Chain::new(0.01, 10, 0).unwrap();
    let full = (0..100).find_map(|i| fixed.add(key(i)).err());
    assert_eq!(full, Some(Refusal::Full("non scaling filter is full".into())));
    assert_eq!((fixed.keys(), fixed.add(key(0))), (10, Ok(false)));
}

#[test]
fn a_dump_loads_in_pieces_of_any_size() {
    let mut chain = Chain::new(0.001, 50, 3).unwrap();
    (0..500).for_each(|i| assert!(chain.add(key(i)).is_ok()));
    let mut copy = Chain::from_header(&chain.chunk(0).1, u64::MAX).unwrap();
    let mut iterator = 1;
    loop {
        let (next, data) = chain.chunk(iterator);
        if next == 0 {
            break;
        }
        for (i, piece) in data.chunks(7).enumerate() {
            let end = iterator + (i * 7 + piece.len()) as i64;
            copy.load_chunk(end, piece).unwrap();
        }
        iterator = next;
    }
    assert!((0..500).all(|i| copy.contains(key(i))));
    assert_eq!(copy.load_chunk(0, b""), Err(Malformed::Iterator));
    assert_eq!(copy.load_chunk(1, b"x"), Err(Malformed::NoLayer));
    assert_eq!(copy.load_chunk(iterator + 1, b"x"), Err(Malformed::NoLayer));
    assert_eq!(copy.load_chunk(iterator, b"x"), Ok(()));
    assert_eq!(copy.load_chunk(iterator + 1, b"xx"), Err(Malformed::TooBig));
}

#[test]
fn a_header_is_weighed_before_memory_is_had() {
    let huge = Chain::plan_new(0.001, 1 << 30, 2, false).unwrap();
    assert!(matches!(Chain::from_header(&huge, 1 << 20), Err(Malformed::NoMemory(_))));
    let huge = Cuckoo::plan_new(1 << 40, 2, 20, 1).unwrap();
    assert!(matches!(Cuckoo::from_header(&huge, 1 << 20), Err(Malformed::NoMemory(_))));
}

#[test]
fn a_cuckoo_filter_grows_and_shrinks() {
    let mut filter = Cuckoo::new(16, 2, 20, 2).unwrap();
    let hash = |i: u64| Cuckoo::hash(&i.to_le_bytes());
    (0..500).for_each(|i| filter.add(hash(i)).unwrap());
    assert!((0..500).all(|i| filter.contains(hash(i))));
    let most = filter.layers().len();
    assert!(most > 3);
    assert!((0..500).all(|i| filter.remove(hash(i)).unwrap()));
    assert_eq!((filter.numbers().keys, filter.layers().len()), (0, 1));
    let mut fixed = Cuckoo::new(16, 2, 20, 0).unwrap();
    let taken = (0..100).take_while(|i| fixed.add(hash(*i)).is_ok()).count() as u64;
    assert!(taken <= 16 && (0..taken).all(|i| fixed.contains(hash(i))));
    assert_eq!(fixed.add(hash(0)), Err(Refusal::Full("Filter is full".into())));
}

/// All parts of a dump.
fn dump<T: Layered>(filter: &T) -> Vec<(i64, Vec<u8>)> {
    let mut parts = vec![filter.chunk(0)];
    while let Some((next, _)) = parts.last().filter(|(next, _)| *next != 0) {
        parts.push(filter.chunk(*next));
    }
    parts
}

#[test]
fn memory_to_spare_becomes_the_next_layer() {
    let make = || Chain::new(0.01, 10, 2).unwrap();
    let (mut with, mut without) = (make(), make());
    let mut spared = 0;
    for i in 0..1000 {
        if let Some(nbytes) = with.lacks(1) {
            spared += 1;
            with.spare(Bits::zeroed(nbytes as usize).unwrap());
            assert_eq!(with.lacks(1), None);
        }
        assert_eq!(with.add(key(i)), without.add(key(i)));
    }
    assert_eq!((spared, with.layers().len()), (6, 7));
    assert_eq!(dump(&with), dump(&without));
    // Of another size it is no use.
    with.spare(Bits::zeroed(64).unwrap());
    (1000..2000).for_each(|i| assert_eq!(with.add(key(i)), without.add(key(i))));
    assert_eq!(dump(&with), dump(&without));
    assert_eq!(Chain::new(0.01, 10, 0).unwrap().lacks(11), None);
}

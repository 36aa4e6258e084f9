//! Many keys through any kind of filter: batch.rs for those that are reached through `dyn Kind`. The
//! loops are compiled for each kind, so that a batch costs one virtual call and not one a key.

use std::convert::Infallible;

use crate::batch::{BLOCK, HashBlocks};
use crate::hash::IntHash;
use crate::kind::{Kind, Refusal, Removal};
#[cfg(target_arch = "x86_64")]
use crate::probe::{has_avx2, has_avx512};

/// Brings hashes, and never fails at it.
pub type Hashes<'a> = HashBlocks<'a, Infallible>;

/// Int64 keys that lie side by side, little-endian and not aligned, hashed in the loop that probes.
#[derive(Clone, Copy)]
pub struct Ints<'a> {
    pub keys: &'a [[u8; 8]],
    pub hash: IntHash,
}

impl Ints<'_> {
    #[inline(always)]
    pub fn hash(self, key: &[u8; 8]) -> u64 {
        self.hash.hash(i64::from_le_bytes(*key))
    }
}

/// Keys for `Kind::contains_each`.
pub enum Keys<'a> {
    Hashes(&'a [u64]),
    Ints(Ints<'a>),
}

/// `Kind` with its loops. `out` receives a byte for each key, in order; after a refusal the keys
/// before the one refused are in and answered, those after it are not.
pub trait AnyKind: Kind {
    fn contains_all(&self, blocks: &mut Hashes<'_>, out: &mut dyn FnMut(&[u8]));

    fn add_all(
        &mut self,
        blocks: &mut Hashes<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal>;

    /// Answers 1 where the key was removed.
    fn remove_all(
        &mut self,
        blocks: &mut Hashes<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal>;

    /// As many answers as there are keys, or fewer keys are taken.
    fn contains_ints(&self, ints: Ints<'_>, answers: &mut [u8]);

    fn add_ints(&mut self, ints: Ints<'_>, answers: &mut [u8]) -> Result<(), Refusal>;
}

/// What is done with each key, as a type: a closure may not be inlined, and then a key takes five
/// times as long.
trait One<K: Kind> {
    fn target(&self) -> &K;

    /// `WIDE`: AVX2 is there, and the loop is compiled for it.
    fn one<const WIDE: bool>(&mut self, h: u64) -> Result<bool, Refusal>;
}

struct Contains<'a, K>(&'a K);
impl<K: Kind> One<K> for Contains<'_, K> {
    #[inline(always)]
    fn target(&self) -> &K {
        self.0
    }

    #[inline(always)]
    fn one<const WIDE: bool>(&mut self, h: u64) -> Result<bool, Refusal> {
        #[cfg(target_arch = "x86_64")]
        if WIDE {
            // SAFETY: WIDE means that AVX2 is there.
            return Ok(unsafe { self.0.contains_wide(h) });
        }
        Ok(self.0.contains(h))
    }
}

struct Add<'a, K>(&'a mut K);
impl<K: Kind> One<K> for Add<'_, K> {
    #[inline(always)]
    fn target(&self) -> &K {
        self.0
    }

    #[inline(always)]
    fn one<const WIDE: bool>(&mut self, h: u64) -> Result<bool, Refusal> {
        #[cfg(target_arch = "x86_64")]
        if WIDE {
            // SAFETY: WIDE means that AVX2 is there.
            return unsafe { self.0.add_wide(h) };
        }
        self.0.add(h)
    }
}

struct Remove<'a, K>(&'a mut K);
impl<K: Kind> One<K> for Remove<'_, K> {
    #[inline(always)]
    fn target(&self) -> &K {
        self.0
    }

    #[inline(always)]
    fn one<const WIDE: bool>(&mut self, h: u64) -> Result<bool, Refusal> {
        Ok(self.0.remove(h)? == Removal::Removed)
    }
}

impl<K: Kind> AnyKind for K {
    fn contains_all(&self, blocks: &mut Hashes<'_>, out: &mut dyn FnMut(&[u8])) {
        if self.contains_each(Keys::Hashes(&[]), &mut []) {
            let (mut hashes, mut answers) = ([0; BLOCK], [0; BLOCK]);
            loop {
                let Ok(have) = blocks(&mut hashes);
                self.contains_each(Keys::Hashes(&hashes[..have]), &mut answers[..have]);
                out(&answers[..have]);
                if have < BLOCK {
                    return;
                }
            }
        }
        let _ = with_bmi(Blocks { op: Contains(self), blocks, out });
    }

    fn add_all(
        &mut self,
        blocks: &mut Hashes<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        if self.add_each(&[], &mut []).is_some() {
            let (mut hashes, mut answers) = ([0; BLOCK], [0; BLOCK]);
            loop {
                let Ok(have) = blocks(&mut hashes);
                let (done, result) = add_block(self, &hashes[..have], &mut answers[..have]);
                out(&answers[..done]);
                result?;
                if have < BLOCK {
                    return Ok(());
                }
            }
        }
        with_bmi(Blocks { op: Add(self), blocks, out })
    }

    fn remove_all(
        &mut self,
        blocks: &mut Hashes<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        with_bmi(Blocks { op: Remove(self), blocks, out })
    }

    fn contains_ints(&self, ints: Ints<'_>, answers: &mut [u8]) {
        if self.contains_each(Keys::Ints(ints), answers) {
            return;
        }
        let _ = with_bmi(Rows { op: Contains(self), ints, answers });
    }

    fn add_ints(&mut self, ints: Ints<'_>, answers: &mut [u8]) -> Result<(), Refusal> {
        if self.add_each(&[], &mut []).is_some() {
            let mut hashes = [0; BLOCK];
            for (keys, answers) in ints.keys.chunks(BLOCK).zip(answers.chunks_mut(BLOCK)) {
                for (h, key) in hashes.iter_mut().zip(keys) {
                    *h = ints.hash(key);
                }
                add_block(self, &hashes[..keys.len()], answers).1?;
            }
            return Ok(());
        }
        with_bmi(Rows { op: Add(self), ints, answers })
    }
}

/// Adds the keys of a block: how many it took, and why no more.
fn add_block(
    kind: &mut impl Kind,
    hashes: &[u64],
    answers: &mut [u8],
) -> (usize, Result<(), Refusal>) {
    if let Some(done) = kind.add_each(hashes, answers) {
        return done;
    }
    for (i, (h, answer)) in hashes.iter().zip(answers).enumerate() {
        match kind.add(*h) {
            Ok(new) => *answer = u8::from(new),
            Err(refusal) => return (i, Err(refusal)),
        }
    }
    (hashes.len(), Ok(()))
}

/// A loop, as a type: to be compiled twice.
trait Loop<K: Kind> {
    fn run<const WIDE: bool>(self) -> Result<(), Refusal>;
}

/// Runs a loop compiled for what this processor has: shifts and products without fixed registers
/// take a fifth off a table's questions.
#[inline(always)]
fn with_bmi<K: Kind>(work: impl Loop<K>) -> Result<(), Refusal> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn fast<K: Kind>(work: impl Loop<K>) -> Result<(), Refusal> {
            work.run::<true>()
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
        fn faster<K: Kind>(work: impl Loop<K>) -> Result<(), Refusal> {
            work.run::<true>()
        }
        if K::is_wide() && has_avx512() {
            // SAFETY: the processor was just asked.
            return unsafe { faster(work) };
        }
        if has_avx2() {
            // SAFETY: as above.
            return unsafe { fast(work) };
        }
    }
    work.run::<false>()
}

/// How many keys ahead to prefetch: untuned, as for the plain filter's ring.
const AHEAD: usize = 48;

/// Two blocks of hashes in turn, one probed while the next is asked for.
struct Blocks<'a, 'b, O> {
    op: O,
    blocks: &'a mut Hashes<'b>,
    out: &'a mut dyn FnMut(&[u8]),
}

impl<K: Kind, O: One<K>> Loop<K> for Blocks<'_, '_, O> {
    #[inline(always)]
    fn run<const WIDE: bool>(self) -> Result<(), Refusal> {
        let Blocks { mut op, blocks, out } = self;
        let mut ring = [[0u64; BLOCK]; 2];
        let mut answers = [0u8; BLOCK];
        let Ok(mut have) = blocks(&mut ring[0]);
        for h in &ring[0][..AHEAD] {
            op.target().prefetch(*h);
        }
        let mut turn = 0;
        while have > 0 {
            let Ok(next) = if have == BLOCK { blocks(&mut ring[1 - turn]) } else { Ok(0) };
            let flat = ring.as_flattened();
            for (i, h) in ring[turn][..have].iter().enumerate() {
                op.target().prefetch(flat[(turn * BLOCK + i + AHEAD) % (2 * BLOCK)]);
                match op.one::<WIDE>(*h) {
                    Ok(answer) => answers[i % BLOCK] = u8::from(answer),
                    Err(refusal) => {
                        out(&answers[..i]);
                        return Err(refusal);
                    }
                }
            }
            out(&answers[..have]);
            (have, turn) = (next, 1 - turn);
        }
        Ok(())
    }
}

/// A power of two, so that the ring needs one instruction; measured for the plain filter.
const RING: usize = 64;

/// As `run_indexed` of the plain filter: hashing fills the gaps of probing.
struct Rows<'a, O> {
    op: O,
    ints: Ints<'a>,
    answers: &'a mut [u8],
}

impl<K: Kind, O: One<K>> Loop<K> for Rows<'_, O> {
    #[inline(always)]
    fn run<const WIDE: bool>(self) -> Result<(), Refusal> {
        rows::<K, WIDE>(self.op, self.ints, self.answers)
    }
}

/// The answers as an argument of their own: the compiler then knows that writing them changes nothing
/// of the filter.
#[inline(always)]
fn rows<K: Kind, const WIDE: bool>(
    mut op: impl One<K>,
    ints: Ints<'_>,
    answers: &mut [u8],
) -> Result<(), Refusal> {
    let mut ring = [0u64; RING];
    for (slot, key) in ring.iter_mut().zip(ints.keys) {
        *slot = ints.hash(key);
        op.target().prefetch(*slot);
    }
    let later = ints.keys.get(RING..).unwrap_or_default();
    for (i, (answer, key)) in answers.iter_mut().zip(later).enumerate() {
        let later = ints.hash(key);
        op.target().prefetch(later);
        let h = std::mem::replace(&mut ring[i % RING], later);
        *answer = u8::from(op.one::<WIDE>(h)?);
    }
    let last = later.len()..ints.keys.len();
    for (i, answer) in last.clone().zip(answers.iter_mut().skip(last.start)) {
        *answer = u8::from(op.one::<WIDE>(ring[i % RING])?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::bits::Bits;
    use crate::format::{Header, KindId};
    use crate::hash::{HashKind, KeyHasher};
    use crate::kind::{Fact, open};

    /// A set of hashes that is full at some number of them.
    struct Exact(HashSet<u64>, usize);

    impl Kind for Exact {
        fn prefetch(&self, _h: u64) {}

        fn contains(&self, h: u64) -> bool {
            self.0.contains(&h)
        }

        fn add(&mut self, h: u64) -> Result<bool, Refusal> {
            if self.0.len() == self.1 {
                return Err(Refusal::Full("full".into()));
            }
            Ok(self.0.insert(h))
        }

        fn remove(&mut self, h: u64) -> Result<Removal, Refusal> {
            Ok(if self.0.remove(&h) { Removal::Removed } else { Removal::Absent })
        }

        fn clear(&mut self) -> Result<(), Refusal> {
            self.0.clear();
            Ok(())
        }

        fn header(&self) -> Header {
            header()
        }

        fn sections(&self) -> Vec<Bits> {
            Vec::new()
        }

        fn facts(&self) -> Vec<(&'static str, Fact)> {
            Vec::new()
        }
    }

    fn header() -> Header {
        Header {
            kind: KindId::Counting,
            layout: 0,
            lines_per_key: 0,
            num_hashes: 0,
            num_bits: 0,
            hasher: KeyHasher { kind: HashKind::Xxh3, seed: 0 },
            capacity: 1,
            error_rate: 0.5,
            nbytes: 64,
            extra: [0; 6],
            checksum: 0,
        }
    }

    fn filler(hashes: &[u64]) -> impl FnMut(&mut [u64; BLOCK]) -> Result<usize, Infallible> {
        let mut left = hashes.chunks(BLOCK);
        move |block| {
            let some = left.next().unwrap_or_default();
            block[..some.len()].copy_from_slice(some);
            Ok(some.len())
        }
    }

    /// Every number of keys around the sizes of block and ring is taken whole and in order.
    #[test]
    fn no_key_is_lost_or_moved() {
        for count in (0..140u64).chain(250..520).chain([1024, 1025]) {
            let hashes: Vec<u64> = (0..count).map(|i| i / 2 * 3).collect();
            let mut set = Exact(HashSet::new(), usize::MAX);
            let mut answers = Vec::new();
            let mut keep = |some: &[u8]| answers.extend_from_slice(some);
            set.add_all(&mut filler(&hashes), &mut keep).unwrap();
            let new: Vec<u8> = (0..count).map(|i| u8::from(i % 2 == 0)).collect();
            assert_eq!(answers, new);
            answers.clear();
            set.0.remove(&0);
            set.contains_all(&mut filler(&hashes), &mut |some| answers.extend_from_slice(some));
            assert!(answers.iter().enumerate().all(|(i, a)| *a == u8::from(i >= 2)));
            answers.clear();
            let mut keep = |some: &[u8]| answers.extend_from_slice(some);
            set.remove_all(&mut filler(&hashes), &mut keep).unwrap();
            assert!(
                answers.iter().zip(&new).enumerate().all(|(i, (a, n))| *a == *n * u8::from(i >= 2))
            );
            assert!(set.0.is_empty());
        }
    }

    /// Ints take the same way as their hashes do, whatever their number.
    #[test]
    fn ints_are_their_hashes() {
        let hasher = header().hasher;
        for count in (0..200i64).chain([1000]) {
            let keys: Vec<[u8; 8]> = (0..count).map(|i| (i % 70 - 7).to_le_bytes()).collect();
            let ints = Ints { keys: &keys, hash: hasher.int_hash().unwrap() };
            let mut set = Exact(HashSet::new(), usize::MAX);
            let mut answers = vec![9; keys.len()];
            set.add_ints(ints, &mut answers).unwrap();
            assert!(answers.iter().enumerate().all(|(i, a)| *a == u8::from(i < 70)));
            set.0.remove(&hasher.hash_i64(-7));
            set.contains_ints(ints, &mut answers);
            assert!(answers.iter().enumerate().all(|(i, a)| *a == u8::from(i % 70 != 0)));
        }
    }

    /// What stands before a refusal is in, and what stands after it is not.
    #[test]
    fn a_refusal_stops_where_it_comes() {
        let hashes: Vec<u64> = (0..1000).collect();
        for room in [0, 1, 255, 256, 257, 999] {
            let (mut set, mut answers) = (Exact(HashSet::new(), room), Vec::new());
            let mut keep = |some: &[u8]| answers.extend_from_slice(some);
            assert!(set.add_all(&mut filler(&hashes), &mut keep).is_err());
            assert_eq!((set.0.len(), answers.len()), (room, room));
            let keys: Vec<[u8; 8]> = (0..1000i64).map(i64::to_le_bytes).collect();
            let ints = Ints { keys: &keys, hash: header().hasher.int_hash().unwrap() };
            let mut set = Exact(HashSet::new(), room);
            assert!(set.add_ints(ints, &mut [0; 1000]).is_err());
            assert_eq!(set.0.len(), room);
        }
    }

    /// A body of another size than the header says is refused before any kind sees it.
    #[test]
    fn bodies_must_fit() {
        for (kind, _) in KindId::ALL {
            let body = Bits::zeroed(128);
            assert!(open(&Header { kind, ..header() }, body.clone()).is_err());
            assert!(open(&Header { kind, nbytes: 100, ..header() }, None).is_err());
        }
    }
}

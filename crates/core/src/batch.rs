//! Many keys in one pass: hash a block ahead, prefetch, probe.
//!
//! Hashes go through a ring of two blocks. While one block is probed, the lines of the keys
//! `AHEAD` further on are on their way from memory: 100 M keys take the time of touching their
//! lines, not the sum of as many cache misses.

use crate::bits::Bits;
use crate::probe::{Job, Probe, with_probe};
use crate::shape::{Layout, Shape};

pub const BLOCK: usize = 256;

/// Where hashes come from: fills the block from its start and returns how many; fewer than the
/// block holds means that it was the last.
pub type HashBlocks<'a, E> = dyn FnMut(&mut [u64; BLOCK]) -> Result<usize, E> + 'a;

/// What to do with each key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Contains,
    Add,
    /// Other writers may be at work on the same memory.
    AddAtomic,
}

/// An `Op` as a type, so that each loop is compiled for its own. A closure would do, were it sure to
/// be inlined: where it is not, AVX2 is lost and a key takes 100 ns.
pub(crate) trait One {
    fn one<P: Probe>(probe: &P, h: u64) -> bool;
}

pub(crate) struct Contains;
impl One for Contains {
    #[inline(always)]
    fn one<P: Probe>(probe: &P, h: u64) -> bool {
        probe.contains(h)
    }
}

pub(crate) struct Add<const ATOMIC: bool>;
impl<const ATOMIC: bool> One for Add<ATOMIC> {
    #[inline(always)]
    fn one<P: Probe>(probe: &P, h: u64) -> bool {
        probe.add::<ATOMIC>(h)
    }
}

struct Pass<'f, 'e, 'o, E> {
    op: Op,
    ahead: usize,
    blocks: &'f mut HashBlocks<'e, E>,
    out: &'o mut dyn FnMut(&[u8]),
}

impl<E> Job for Pass<'_, '_, '_, E> {
    type Output = Result<(), E>;

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) -> Self::Output {
        match self.op {
            Op::Contains => self.pass::<P, Contains>(probe),
            Op::Add => self.pass::<P, Add<false>>(probe),
            Op::AddAtomic => self.pass::<P, Add<true>>(probe),
        }
    }
}

impl<E> Pass<'_, '_, '_, E> {
    #[inline(always)]
    fn pass<P: Probe, O: One>(self, probe: &P) -> Result<(), E> {
        let mut ring = [[0u64; BLOCK]; 2];
        let mut answers = [0u8; BLOCK];
        let mut have = (self.blocks)(&mut ring[0])?;
        ring[0][..self.ahead].iter().for_each(|h| probe.prefetch(*h));
        loop {
            // An error in the block ahead is reported after this block is done.
            let next = if have == BLOCK { (self.blocks)(&mut ring[1]) } else { Ok(0) };
            let flat = ring.as_flattened();
            let later = &flat[self.ahead..];
            for ((h, later), answer) in flat[..have].iter().zip(later).zip(&mut answers) {
                probe.prefetch(*later);
                *answer = u8::from(O::one(probe, *h));
            }
            (self.out)(&answers[..have]);
            have = next?;
            if have == 0 {
                return Ok(());
            }
            ring.swap(0, 1);
        }
    }
}

/// Keys ahead in `run_indexed`: a power of two, so that the ring needs one instruction. An add at 60 M
/// keys took 14 ns with 16, 10.8 with 32, 10.2 with 64 and with 128.
const RING: usize = 64;

struct Indexed<'o, H> {
    op: Op,
    hash: H,
    answers: &'o mut [u8],
}

impl<H: Fn(usize) -> u64> Job for Indexed<'_, H> {
    type Output = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) {
        match self.op {
            Op::Contains => self.pass::<P, Contains>(probe),
            Op::Add => self.pass::<P, Add<false>>(probe),
            Op::AddAtomic => self.pass::<P, Add<true>>(probe),
        }
    }
}

impl<H: Fn(usize) -> u64> Indexed<'_, H> {
    #[inline(always)]
    fn pass<P: Probe, O: One>(self, probe: &P) {
        let mut ring = [0u64; RING];
        let len = self.answers.len();
        for (i, slot) in ring.iter_mut().enumerate().take(len) {
            *slot = (self.hash)(i);
            probe.prefetch(*slot);
        }
        let (most, last) = self.answers.split_at_mut(len.saturating_sub(RING));
        for (i, answer) in most.iter_mut().enumerate() {
            let later = (self.hash)(i + RING);
            probe.prefetch(later);
            let h = std::mem::replace(&mut ring[i % RING], later);
            *answer = u8::from(O::one(probe, h));
        }
        let done = most.len();
        for (i, answer) in last.iter_mut().enumerate() {
            *answer = u8::from(O::one(probe, ring[(done + i) % RING]));
        }
    }
}

/// As `run`, for keys `0..answers.len()` whose hash takes a few instructions, `hash(row)`: hashing
/// is compiled into the same loop as probing, which fills the gaps of one with the other's work.
/// For 64-bit ints it took 14 to 18% off in cache; anything longer was not tried.
pub fn run_indexed(
    bits: &Bits,
    shape: &Shape,
    op: Op,
    hash: impl Fn(usize) -> u64,
    answers: &mut [u8],
) {
    with_probe(bits, shape, Indexed { op, hash, answers });
}

/// How many keys ahead to prefetch. The classic layout asks for k lines a key, so fewer keys; neither
/// number was tuned (`RING` was).
pub(crate) fn ahead(shape: &Shape) -> usize {
    match shape.layout {
        Layout::Blocked => 48,
        Layout::Classic => 12,
    }
}

/// Runs `op` over all hashes that `blocks` brings; `out` receives one byte a key, in order.
pub fn run<E>(
    bits: &Bits,
    shape: &Shape,
    op: Op,
    blocks: &mut HashBlocks<'_, E>,
    out: &mut dyn FnMut(&[u8]),
) -> Result<(), E> {
    with_probe(bits, shape, Pass { op, ahead: ahead(shape), blocks, out })
}

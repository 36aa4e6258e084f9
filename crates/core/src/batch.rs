//! Many keys in one pass: hash a block ahead, prefetch, probe.
//!
//! Hashes go through a ring of two blocks. While one block is probed, the lines of the keys
//! `AHEAD` further on are on their way from memory: 100 M keys take the time of touching their
//! lines, not the sum of as many cache misses.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::bits::Bits;
use crate::probe::{Job, Probe, mulhi, with_probe};
use crate::shape::{Layout, Shape};

pub const BLOCK: usize = 256;

/// Where hashes come from: fills the block from its start and returns how many; fewer than the
/// block holds means that it was the last.
pub type Fill<'a, E> = dyn FnMut(&mut [u64; BLOCK]) -> Result<usize, E> + 'a;

/// What to do with each key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Contains,
    Add,
    /// Other writers may be at work on the same memory.
    AddAtomic,
}

struct Pass<'f, 'e, 'o, E> {
    op: Op,
    ahead: usize,
    fill: &'f mut Fill<'e, E>,
    out: &'o mut dyn FnMut(&[u8]),
}

impl<E> Job for Pass<'_, '_, '_, E> {
    type Output = Result<(), E>;

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) -> Self::Output {
        match self.op {
            Op::Contains => self.pass(probe, |h| probe.contains(h)),
            Op::Add => self.pass(probe, |h| probe.add::<false>(h)),
            Op::AddAtomic => self.pass(probe, |h| probe.add::<true>(h)),
        }
    }
}

impl<E> Pass<'_, '_, '_, E> {
    #[inline(always)]
    fn pass<P: Probe>(self, probe: &P, one: impl Fn(u64) -> bool) -> Result<(), E> {
        let mut ring = [[0u64; BLOCK]; 2];
        let mut answers = [0u8; BLOCK];
        let mut have = (self.fill)(&mut ring[0])?;
        ring[0][..self.ahead].iter().for_each(|h| probe.prefetch(*h));
        loop {
            // An error in the block ahead is reported after this block is done.
            let next = if have == BLOCK { (self.fill)(&mut ring[1]) } else { Ok(0) };
            let flat = ring.as_flattened();
            let later = &flat[self.ahead..];
            for ((h, later), answer) in flat[..have].iter().zip(later).zip(&mut answers) {
                probe.prefetch(*later);
                *answer = u8::from(one(*h));
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

/// How many keys ahead to prefetch. Measured on a filter of 124 MB: 16, 32, 64 within 5% of each
/// other for one line a key; the classic layout asks for k lines a key, so fewer keys.
fn ahead(shape: &Shape) -> usize {
    match shape.layout {
        Layout::Blocked => 48,
        Layout::Classic => 12,
    }
}

/// Runs `op` over all hashes that `fill` brings; `out` receives one byte a key, in order.
pub fn run<E>(
    bits: &Bits,
    shape: &Shape,
    op: Op,
    fill: &mut Fill<'_, E>,
    out: &mut dyn FnMut(&[u8]),
) -> Result<(), E> {
    with_probe(bits, shape, Pass { op, ahead: ahead(shape), fill, out })
}

/// Keys hashed between two meetings of the threads: long enough that meeting costs nothing, short
/// enough that the hashes stay in the second-level cache.
const STRIDE: usize = 1 << 15;

/// Hashes the keys from a row on; called by several threads at once.
pub type HashRows<'a> = dyn Fn(usize, &mut [u64]) + Sync + 'a;

/// Asks for keys `0..answers.len()` with several threads, each a run of rows.
pub fn contains_threads(
    bits: &Bits,
    shape: &Shape,
    threads: usize,
    hash: &HashRows<'_>,
    answers: &mut [u8],
) {
    let share = answers.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (me, mine) in answers.chunks_mut(share).enumerate() {
            scope.spawn(move || {
                let (mut row, mut left) = (me * share, mine.len());
                let mut fill = |block: &mut [u64; BLOCK]| {
                    let n = left.min(BLOCK);
                    hash(row, &mut block[..n]);
                    (row, left) = (row + n, left - n);
                    Ok::<usize, std::convert::Infallible>(n)
                };
                let mut done = 0;
                let _ = run(bits, shape, Op::Contains, &mut fill, &mut |some| {
                    mine[done..done + some.len()].copy_from_slice(some);
                    done += some.len();
                });
            });
        }
    });
}

/// Adds keys `0..answers.len()` with several threads.
///
/// Keys are dealt out by hash, not by row: equal keys meet in one thread, in order, so that a
/// duplicate is new once. With one line a key each thread also owns a range of lines and needs no
/// locked instruction.
pub fn add_threads(
    bits: &Bits,
    shape: &Shape,
    atomic: bool,
    threads: usize,
    hash: &HashRows<'_>,
    answers: &mut [u8],
) {
    let len = answers.len();
    let atomic = atomic || shape.lines_per_key != 1;
    let slots = if atomic { 1 << 32 } else { shape.num_bits / crate::bits::LINE_BITS };
    let hashes: Vec<AtomicU64> = (0..STRIDE.min(len)).map(|_| AtomicU64::new(0)).collect();
    // SAFETY: u8 and AtomicU8 have the same size and alignment, and the slice is borrowed mutably
    // for as long as the atomics are in use.
    let answers: &[AtomicU8] = unsafe { &*(std::ptr::from_mut(answers) as *const [AtomicU8]) };
    let (hashes, meet) = (&hashes[..], &Barrier::new(threads));
    std::thread::scope(|scope| {
        for me in 0..threads {
            let bound = |t: usize| (u128::from(slots) * t as u128 / threads as u128) as u64;
            let (low, high) = (bound(me), bound(me + 1));
            scope.spawn(move || {
                let mut mine: Vec<(u32, u64)> = vec![(0, 0); STRIDE];
                for from in (0..len).step_by(STRIDE) {
                    let rows = STRIDE.min(len - from);
                    hash_share(&hashes[..rows], from, me, threads, hash);
                    meet.wait();
                    let mut n = 0;
                    for (row, h) in hashes[..rows].iter().enumerate() {
                        let h = h.load(Relaxed);
                        let slot = mulhi(h, slots);
                        mine[n] = (row as u32, h); // kept only if n moves on: no branch to miss
                        n += usize::from(low <= slot && slot < high);
                    }
                    meet.wait(); // the hashes may be overwritten from here on
                    let answers = &answers[from..from + rows];
                    let job = Share { atomic, ahead: ahead(shape), mine: &mine[..n], answers };
                    with_probe(bits, shape, job);
                }
            });
        }
    });
}

fn hash_share(hashes: &[AtomicU64], from: usize, me: usize, threads: usize, hash: &HashRows<'_>) {
    let share = hashes.len().div_ceil(threads).max(1);
    let start = hashes.len().min(me * share);
    let mut block = [0u64; BLOCK];
    let mut row = from + start;
    for some in hashes[start..hashes.len().min(start + share)].chunks(BLOCK) {
        hash(row, &mut block[..some.len()]);
        some.iter().zip(&block).for_each(|(to, h)| to.store(*h, Relaxed));
        row += some.len();
    }
}

/// One thread's keys of a stride: (row, hash).
struct Share<'a> {
    atomic: bool,
    ahead: usize,
    mine: &'a [(u32, u64)],
    answers: &'a [AtomicU8],
}

impl Job for Share<'_> {
    type Output = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) {
        for (i, (row, h)) in self.mine.iter().enumerate() {
            if let Some((_, later)) = self.mine.get(i + self.ahead) {
                probe.prefetch(*later);
            }
            let new = if self.atomic { probe.add::<true>(*h) } else { probe.add::<false>(*h) };
            self.answers[*row as usize].store(u8::from(new), Relaxed);
        }
    }
}

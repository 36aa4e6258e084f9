//! Many keys in one pass: hash a block ahead, prefetch, probe.
//!
//! Hashes go through a ring of two blocks. While one block is probed, the lines of the keys
//! `AHEAD` further on are on their way from memory: 100 M keys take the time of touching their
//! lines, not the sum of as many cache misses.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::Builder;

use crate::bits::{Bits, LINE_BITS};
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

/// An `Op` as a type, so that each loop is compiled for its own. A closure would do, were it sure to
/// be inlined: where it is not, AVX2 is lost and a key takes 100 ns.
trait One {
    fn one<P: Probe>(probe: &P, h: u64) -> bool;
}

struct Contains;
impl One for Contains {
    #[inline(always)]
    fn one<P: Probe>(probe: &P, h: u64) -> bool {
        probe.contains(h)
    }
}

struct Add<const ATOMIC: bool>;
impl<const ATOMIC: bool> One for Add<ATOMIC> {
    #[inline(always)]
    fn one<P: Probe>(probe: &P, h: u64) -> bool {
        probe.add::<ATOMIC>(h)
    }
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
        let mut have = (self.fill)(&mut ring[0])?;
        ring[0][..self.ahead].iter().for_each(|h| probe.prefetch(*h));
        loop {
            // An error in the block ahead is reported after this block is done.
            let next = if have == BLOCK { (self.fill)(&mut ring[1]) } else { Ok(0) };
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

/// Keys ahead in `run_indexed`: a power of two, so that the ring needs one instruction.
const RING: usize = 32;

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
/// For 64-bit ints that saves a quarter; for anything longer it saves nothing.
pub fn run_indexed(
    bits: &Bits,
    shape: &Shape,
    op: Op,
    hash: impl Fn(usize) -> u64,
    answers: &mut [u8],
) {
    with_probe(bits, shape, Indexed { op, hash, answers });
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

/// Asks for keys `0..answers.len()` with up to so many threads: each takes the next rows that nobody
/// has, so that it does not matter how many threads could be had.
pub fn contains_threads(
    bits: &Bits,
    shape: &Shape,
    threads: usize,
    hash: &HashRows<'_>,
    answers: &mut [u8],
) {
    let strides = Mutex::new(answers.chunks_mut(STRIDE).enumerate());
    let next = || strides.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((stride, mine)) = next() {
            let (mut row, mut left) = (stride * STRIDE, mine.len());
            let mut fill = |block: &mut [u64; BLOCK]| {
                let n = left.min(BLOCK);
                hash(row, &mut block[..n]);
                (row, left) = (row + n, left - n);
                Ok::<usize, Infallible>(n)
            };
            let mut done = 0;
            let _ = run(bits, shape, Op::Contains, &mut fill, &mut |some| {
                mine[done..done + some.len()].copy_from_slice(some);
                done += some.len();
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let _ = Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// Adds keys `0..answers.len()` with up to so many threads.
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
    let rows = STRIDE.min(answers.len());
    let hashes: Vec<AtomicU64> = (0..rows).map(|_| AtomicU64::new(0)).collect();
    // SAFETY: u8 and AtomicU8 have the same size and alignment, and the slice is borrowed mutably
    // for as long as the atomics are in use.
    let answers: &[AtomicU8] = unsafe { &*(std::ptr::from_mut(answers) as *const [AtomicU8]) };
    let atomic = atomic || shape.lines_per_key != 1;
    let team = Team { bits, shape, atomic, hash, hashes, answers };
    // How many threads could be had is known only when all are started: until then they wait here.
    let (start, meet) = (RwLock::new(()), OnceLock::new());
    std::thread::scope(|scope| {
        let starting = start.write();
        let mut started = 1;
        for me in 1..threads {
            let (start, meet, team) = (&start, &meet, &team);
            let work = move || {
                drop(start.read());
                if let Some((threads, meet)) = meet.get() {
                    team.work(me, *threads, meet);
                }
            };
            match Builder::new().spawn_scoped(scope, work) {
                Ok(_) => started += 1,
                Err(_) => break,
            }
        }
        let (threads, meet) = meet.get_or_init(|| (started, Barrier::new(started)));
        drop(starting);
        team.work(0, *threads, meet);
    });
}

/// What the threads of `add_threads` share.
struct Team<'a> {
    bits: &'a Bits,
    shape: &'a Shape,
    atomic: bool,
    hash: &'a HashRows<'a>,
    hashes: Vec<AtomicU64>,
    answers: &'a [AtomicU8],
}

impl Team<'_> {
    fn work(&self, me: usize, threads: usize, meet: &Barrier) {
        let slots = if self.atomic { 1 << 32 } else { self.shape.num_bits / LINE_BITS };
        let bound = |t: usize| (u128::from(slots) * t as u128 / threads as u128) as u64;
        let (low, high) = (bound(me), bound(me + 1));
        let mut mine: Vec<(u32, u64)> = vec![(0, 0); STRIDE];
        for (stride, answers) in self.answers.chunks(STRIDE).enumerate() {
            let hashes = &self.hashes[..answers.len()];
            hash_share(hashes, stride * STRIDE, me, threads, self.hash);
            meet.wait();
            let mut n = 0;
            for (row, h) in hashes.iter().enumerate() {
                let h = h.load(Relaxed);
                let slot = mulhi(h, slots);
                mine[n] = (row as u32, h); // kept only if n moves on: no branch to miss
                n += usize::from(low <= slot && slot < high);
            }
            meet.wait(); // the hashes may be overwritten from here on
            let (atomic, ahead, mine) = (self.atomic, ahead(self.shape), &mine[..n]);
            with_probe(self.bits, self.shape, Share { atomic, ahead, mine, answers });
        }
    }
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

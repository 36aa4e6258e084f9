//! Many keys in one pass: hash a block ahead, prefetch, probe.
//!
//! Hashes go through a ring of two blocks. While one block is probed, the lines of the keys
//! `AHEAD` further on are on their way from memory: 100 M keys take the time of touching their
//! lines, not the sum of as many cache misses.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
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

/// Rows a thread takes at a time, and between two meetings of those that add: few enough that what
/// they deal to each other, 16 bytes a row, stays in the cache.
const STRIDE: usize = 1 << 16;

/// Hashes the keys from a row on; called by several threads at once.
pub type HashRows<'a> = dyn Fn(usize, &mut [u64]) + Sync + 'a;

/// Answers rows `0..answers.len()` with up to so many threads, `work(first row, its answers)`: each
/// takes the next rows that nobody has, so that it does not matter how many threads could be had.
pub fn share(threads: usize, answers: &mut [u8], work: &(dyn Fn(usize, &mut [u8]) + Sync)) {
    let strides = Mutex::new(answers.chunks_mut(STRIDE).enumerate());
    let next = || strides.lock().unwrap_or_else(PoisonError::into_inner).next();
    let take = || {
        while let Some((stride, mine)) = next() {
            work(stride * STRIDE, mine);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let _ = Builder::new().spawn_scoped(scope, take);
        }
        take();
    });
}

/// Adds keys `0..answers.len()` with up to so many threads.
///
/// All hash a part of the rows; then each adds, of all rows, the keys whose hashes are its own. Equal
/// keys meet in one thread, in order, so that a duplicate is new once; and with one line a key each
/// thread owns a range of lines and needs no locked instruction.
pub fn add_threads(
    bits: &Bits,
    shape: &Shape,
    atomic: bool,
    threads: usize,
    hash: &HashRows<'_>,
    answers: &mut [u8],
) {
    // SAFETY: u8 and AtomicU8 have the same size and alignment, and the slice is borrowed mutably
    // for as long as the atomics are in use.
    let answers: &[AtomicU8] = unsafe { &*(std::ptr::from_mut(answers) as *const [AtomicU8]) };
    let atomic = atomic || shape.lines_per_key != 1;
    // How many threads could be had is known only when all are started: until then they wait.
    let team = OnceLock::new();
    std::thread::scope(|scope| {
        let mut started = 1;
        for me in 1..threads {
            let team: &OnceLock<Team> = &team;
            let work = move || {
                spin_until(|| team.get().is_some());
                if let Some(team) = team.get() {
                    team.work(me);
                }
            };
            match Builder::new().spawn_scoped(scope, work) {
                Ok(_) => started += 1,
                Err(_) => break,
            }
        }
        let team = team.get_or_init(|| Team {
            bits,
            shape,
            atomic,
            hash,
            answers,
            hashes: (0..STRIDE).map(|_| AtomicU64::new(0)).collect(),
            news: (0..started).map(|_| RwLock::new(Box::new([0; STRIDE]))).collect(),
            meet: Meeting::of(started),
        });
        team.work(0);
    });
}

/// Waits without sleeping: to be woken takes longer than the wait, on a virtual machine up to 1 ms.
fn spin_until(done: impl Fn() -> bool) {
    let mut spins = 0;
    while !done() {
        spins += 1;
        if spins < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// A barrier that does not sleep: the threads meet every 0.2 ms.
struct Meeting {
    of: usize,
    here: AtomicUsize,
    held: AtomicUsize,
}

impl Meeting {
    fn of(of: usize) -> Self {
        Meeting { of, here: AtomicUsize::new(0), held: AtomicUsize::new(0) }
    }

    fn wait(&self) {
        let held = self.held.load(Acquire);
        if self.here.fetch_add(1, AcqRel) + 1 == self.of {
            self.here.store(0, Relaxed);
            self.held.fetch_add(1, Release);
        }
        spin_until(|| self.held.load(Acquire) != held);
    }
}

/// A byte for each row of a stride; of a fixed size, so that a row needs no check.
type News = Box<[u8; STRIDE]>;

/// What the threads of `add_threads` share.
struct Team<'a> {
    bits: &'a Bits,
    shape: &'a Shape,
    atomic: bool,
    hash: &'a HashRows<'a>,
    answers: &'a [AtomicU8],
    /// The hashes of the stride at hand.
    hashes: Vec<AtomicU64>,
    /// For each thread which rows of the stride it found new. Written straight into the answers,
    /// their lines would go back and forth between the threads: that cost more than all the rest.
    news: Vec<RwLock<News>>,
    meet: Meeting,
}

impl Team<'_> {
    fn work(&self, me: usize) {
        let mut mine: Vec<(u32, u64)> = vec![(0, 0); STRIDE];
        for (stride, answers) in self.answers.chunks(STRIDE).enumerate() {
            let share = answers.len().div_ceil(self.news.len());
            let rows = answers.len().min(me * share)..answers.len().min((me + 1) * share);
            self.hash(stride * STRIDE, rows.clone());
            self.meet.wait();
            let count = self.pick(me, answers.len(), &mut mine);
            self.add(me, &mine[..count]);
            self.meet.wait();
            self.answer(&answers[rows.clone()], rows);
        }
    }

    fn hash(&self, from: usize, rows: Range<usize>) {
        let mut block = [0u64; BLOCK];
        let mut row = from + rows.start;
        for some in self.hashes[rows].chunks(BLOCK) {
            (self.hash)(row, &mut block[..some.len()]);
            some.iter().zip(&block).for_each(|(to, h)| to.store(*h, Relaxed));
            row += some.len();
        }
    }

    /// Picks this thread's keys, with their rows, from the stride's; returns how many.
    fn pick(&self, me: usize, rows: usize, mine: &mut [(u32, u64)]) -> usize {
        let mine = &mut mine[..STRIDE];
        // A place is a line where a thread must own whole lines, else a part of all hashes.
        let places = if self.atomic { 1 << 32 } else { self.shape.num_bits / LINE_BITS };
        let bound = |t: usize| (u128::from(places) * t as u128 / self.news.len() as u128) as u64;
        let (first, count) = (bound(me), bound(me + 1) - bound(me));
        let mut n = 0;
        for (row, h) in self.hashes[..rows].iter().enumerate() {
            let h = h.load(Relaxed);
            mine[n % STRIDE] = (row as u32, h); // kept only if n moves on: no branch to miss
            n += usize::from(mulhi(h, places).wrapping_sub(first) < count);
        }
        n
    }

    fn add(&self, me: usize, mine: &[(u32, u64)]) {
        let mut news = self.news[me].write().unwrap_or_else(PoisonError::into_inner);
        news.fill(0);
        let (atomic, ahead) = (self.atomic, ahead(self.shape));
        with_probe(self.bits, self.shape, Share { atomic, ahead, mine, news: &mut news });
    }

    /// Writes what any thread found new in these rows. The first is copied without a look at what
    /// was there: a page that is read before it is written costs the kernel two faults and both
    /// processors an interrupt.
    fn answer(&self, answers: &[AtomicU8], rows: Range<usize>) {
        let (start, len) = (answers.as_ptr().cast_mut().cast::<u8>(), answers.len());
        // SAFETY: these rows are this thread's own: nobody else reads or writes them meanwhile.
        let answers = unsafe { std::slice::from_raw_parts_mut(start, len) };
        for (thread, news) in self.news.iter().enumerate() {
            let news = &news.read().unwrap_or_else(PoisonError::into_inner)[rows.clone()];
            if thread == 0 {
                answers.copy_from_slice(news);
            } else {
                answers.iter_mut().zip(news).for_each(|(answer, new)| *answer |= new);
            }
        }
    }
}

/// One thread's keys of a stride: (row, hash).
struct Share<'a> {
    atomic: bool,
    ahead: usize,
    mine: &'a [(u32, u64)],
    news: &'a mut [u8; STRIDE],
}

impl Job for Share<'_> {
    type Output = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) {
        if self.atomic {
            self.pass::<P, Add<true>>(probe)
        } else {
            self.pass::<P, Add<false>>(probe)
        }
    }
}

impl Share<'_> {
    #[inline(always)]
    fn pass<P: Probe, O: One>(self, probe: &P) {
        let later = self.mine.iter().skip(self.ahead).chain(self.mine.last().into_iter().cycle());
        for ((row, h), (_, later)) in self.mine.iter().zip(later) {
            probe.prefetch(*later);
            self.news[*row as usize % STRIDE] = u8::from(O::one(probe, *h));
        }
    }
}

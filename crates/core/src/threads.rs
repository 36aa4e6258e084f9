//! One batch on several threads: questions by rows, additions by hash.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::thread::Builder;

use crate::batch::{Add, BLOCK, One, ahead};
use crate::bits::{Bits, LINE_BITS};
use crate::probe::{Job, Probe, mulhi, with_probe};
use crate::shape::Shape;

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
    let (team, lost) = (OnceLock::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (team, lost): (&OnceLock<Team>, _) = (&team, &lost);
        let alarm = Alarm(lost);
        let mut started = 1;
        for me in 1..threads {
            let work = move || {
                let alarm = Alarm(lost);
                spin_until(|| team.get().is_some() || lost.load(Acquire));
                if let Some(team) = team.get() {
                    team.work(me);
                }
                std::mem::forget(alarm);
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
            meet: Meeting::of(started, lost),
        });
        team.work(0);
        std::mem::forget(alarm);
    });
}

/// Tells the others that a thread is lost, unless it is forgotten: it is dropped by a panic. Nobody
/// waits for a lost one, and the panic goes on in the caller when all have ended.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

/// Waits without sleeping: with locks that sleep, two threads at 1 M keys were no faster than one.
fn spin_until(done: impl Fn() -> bool) {
    let mut spins = 0;
    while !done() {
        spins += 1;
        if spins < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// A barrier that does not sleep: the threads meet every 0.2 ms.
struct Meeting<'a> {
    of: usize,
    here: AtomicUsize,
    held: AtomicUsize,
    /// Will one of them never come?
    lost: &'a AtomicBool,
}

impl<'a> Meeting<'a> {
    fn of(of: usize, lost: &'a AtomicBool) -> Self {
        Meeting { of, here: AtomicUsize::new(0), held: AtomicUsize::new(0), lost }
    }

    /// Waits for all of them; false if one is lost, and then nobody is to go on.
    fn wait(&self) -> bool {
        let held = self.held.load(Acquire);
        if self.here.fetch_add(1, AcqRel) + 1 == self.of {
            self.here.store(0, Relaxed);
            self.held.fetch_add(1, Release);
        }
        spin_until(|| self.held.load(Acquire) != held || self.lost.load(Acquire));
        !self.lost.load(Acquire)
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
    /// For each thread which rows of the stride it found new: written straight into the answers,
    /// their lines would go back and forth between the threads.
    news: Vec<RwLock<News>>,
    meet: Meeting<'a>,
}

impl Team<'_> {
    fn work(&self, me: usize) {
        let mut mine: Vec<(u32, u64)> = vec![(0, 0); STRIDE];
        for (stride, answers) in self.answers.chunks(STRIDE).enumerate() {
            let share = answers.len().div_ceil(self.news.len());
            let rows = answers.len().min(me * share)..answers.len().min((me + 1) * share);
            self.hash(stride * STRIDE, rows.clone());
            if !self.meet.wait() {
                return;
            }
            let count = self.pick(me, answers.len(), &mut mine);
            self.add(me, &mine[..count]);
            if !self.meet.wait() {
                return;
            }
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::shape::Layout;

    const KEYS: usize = if cfg!(miri) { STRIDE + 9 } else { 3 * STRIDE };

    fn shape() -> Shape {
        Shape { layout: Layout::Blocked, num_bits: 1 << 22, num_hashes: 6, lines_per_key: 1 }
    }

    /// Adds keys whose hashing panics at a row; whether the caller was told. A hang is a failure.
    fn told_of_a_panic(threads: usize, at: usize) -> bool {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let bits = Bits::zeroed(shape().nbytes() as usize).expect("half a megabyte");
            let hash = |from: usize, out: &mut [u64]| {
                assert!(!(from..from + out.len()).contains(&at), "a hash that goes wrong");
                out.iter_mut().zip(from as u64..).for_each(|(h, i)| *h = i << 40);
            };
            let mut answers = vec![0; KEYS];
            let add = || add_threads(&bits, &shape(), false, threads, &hash, &mut answers);
            let _ = tell.send(catch_unwind(AssertUnwindSafe(add)).is_err());
        });
        told.recv_timeout(Duration::from_secs(if cfg!(miri) { 6000 } else { 60 }))
            .expect("the others wait for ever")
    }

    /// Whichever thread panics, and in whichever stride: all end, and the caller learns of it.
    #[test]
    fn nobody_waits_for_a_thread_that_panicked() {
        for threads in [1, 2, 3, 7] {
            for at in [0, STRIDE - 1, STRIDE + STRIDE / 2, KEYS - 1].map(|at| at.min(KEYS - 1)) {
                assert!(told_of_a_panic(threads, at), "{threads} threads, row {at}");
            }
            assert!(!told_of_a_panic(threads, KEYS));
        }
    }

    /// A panic while rows are answered comes out too.
    #[test]
    fn questions_that_panic_are_told() {
        let mut answers = vec![0; KEYS];
        let work = |from: usize, _: &mut [u8]| assert!(from < STRIDE, "an answer that goes wrong");
        let ask = || share(3, &mut answers, &work);
        assert!(catch_unwind(AssertUnwindSafe(ask)).is_err());
    }
}

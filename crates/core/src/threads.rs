//! One batch on several threads: questions by rows, additions by hash.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::thread::Builder;

use crate::batch::{Add, BLOCK, One, ahead};
use crate::bits::{Bits, LINE_BITS};
use crate::probe::{Job, Probe, mulhi, with_probe};
use crate::shape::Shape;

/// Rows a thread takes at a time, and between two meetings of those that add: few enough that what
/// they deal to each other, 16 bytes a row, stays in the cache.
const STRIDE: usize = 1 << 16;
/// More than anybody may ask for.
pub const MOST_THREADS: usize = 64;

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

/// Adds keys `0..rows` with up to so many threads; `answers`, if they are wanted, has one for each.
///
/// All hash a part of the rows, and deal each key to the thread that its hash belongs to. Equal keys
/// meet in one thread, in order, so that a duplicate is new once; and with one line a key each thread
/// owns a range of lines and needs no locked instruction.
pub fn add_threads(
    bits: &Bits,
    shape: &Shape,
    atomic: bool,
    threads: usize,
    hash: &HashRows<'_>,
    rows: usize,
    answers: Option<&mut [u8]>,
) {
    debug_assert!(threads <= MOST_THREADS && answers.as_ref().is_none_or(|a| a.len() == rows));
    // SAFETY: u8 and AtomicU8 have the same size and alignment, and the slice is borrowed mutably
    // for as long as the atomics are in use.
    let answers: Option<&[AtomicU8]> =
        answers.map(|answers| unsafe { &*(std::ptr::from_mut(answers) as *const [AtomicU8]) });
    // With fewer lines than threads some would own none, and others share one.
    let few = shape.num_bits / LINE_BITS < threads as u64;
    let atomic = atomic || shape.lines_per_key != 1 || few;
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
        let team = team.get_or_init(|| {
            // A place is a line where a thread must own whole lines, else a part of all hashes.
            let places = if atomic { 1 << 32 } else { shape.num_bits / LINE_BITS };
            let bound = |t: usize| (u128::from(places) * t as u128 / started as u128) as u64;
            let hands = || (0..started * started).map(|_| RwLock::default()).collect();
            Team {
                bits,
                shape,
                atomic,
                hash,
                rows,
                answers,
                places,
                bounds: (1..=started).map(bound).collect(),
                dealt: [hands(), hands()],
                meet: Meeting::of(started, lost),
            }
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

/// What one thread dealt to another of a stride: keys, by row and hash, and which of them were new.
#[derive(Default)]
struct Hand {
    keys: Vec<(u32, u64)>,
    news: Vec<u8>,
}

/// What the threads of `add_threads` share.
struct Team<'a> {
    bits: &'a Bits,
    shape: &'a Shape,
    atomic: bool,
    hash: &'a HashRows<'a>,
    rows: usize,
    answers: Option<&'a [AtomicU8]>,
    places: u64,
    /// Where the places of each thread end.
    bounds: Vec<u64>,
    /// By dealer and then by who adds, for the stride at hand and the next one: a thread may be done
    /// with the one while others still add of the other.
    dealt: [Vec<RwLock<Hand>>; 2],
    meet: Meeting<'a>,
}

impl Team<'_> {
    fn work(&self, me: usize) {
        let threads = self.bounds.len();
        for (stride, from) in (0..self.rows).step_by(STRIDE).enumerate() {
            let len = STRIDE.min(self.rows - from);
            let share = len.div_ceil(threads);
            let rows = from + len.min(me * share)..from + len.min((me + 1) * share);
            let hands = &self.dealt[stride % 2];
            self.deal(&hands[me * threads..][..threads], rows.clone());
            if !self.meet.wait() {
                return;
            }
            for dealer in 0..threads {
                self.add(&mut write(&hands[dealer * threads + me]));
            }
            if let Some(answers) = self.answers {
                if !self.meet.wait() {
                    return;
                }
                self.answer(&hands[me * threads..][..threads], &answers[rows.clone()]);
            }
        }
    }

    /// Hashes rows, and gives each key to the thread that owns its place.
    fn deal(&self, hands: &[RwLock<Hand>], rows: Range<usize>) {
        let mut hands: Vec<_> = hands.iter().map(write).collect();
        // Room for all of them, so that a key needs no check of its own; kept for later strides.
        hands.iter_mut().for_each(|hand| hand.keys.resize(rows.len().max(1), (0, 0)));
        let mut counts = [0usize; MOST_THREADS];
        let last = rows.len().saturating_sub(1);
        let mut block = [0u64; BLOCK];
        for start in rows.clone().step_by(BLOCK) {
            let some = &mut block[..BLOCK.min(rows.end - start)];
            (self.hash)(start, some);
            for (row, h) in (start - rows.start..).zip(&*some) {
                // By hashes the threads' parts are equal; a line on the border is the later one's.
                let part = mulhi(*h, hands.len() as u64) as usize;
                let owner = part + usize::from(mulhi(*h, self.places) >= self.bounds[part]);
                let count = &mut counts[owner % MOST_THREADS];
                hands[owner].keys[(*count).min(last)] = (row as u32, *h);
                *count += 1;
            }
        }
        hands.iter_mut().zip(counts).for_each(|(hand, count)| hand.keys.truncate(count));
    }

    fn add(&self, hand: &mut Hand) {
        let Hand { keys, news } = hand;
        news.resize(keys.len(), 0);
        let (atomic, ahead) = (self.atomic, ahead(self.shape));
        with_probe(self.bits, self.shape, Share { atomic, ahead, keys, news });
    }

    /// Writes which of these rows were found new.
    fn answer(&self, hands: &[RwLock<Hand>], answers: &[AtomicU8]) {
        for hand in hands {
            let hand = hand.read().unwrap_or_else(PoisonError::into_inner);
            for ((row, _), new) in hand.keys.iter().zip(&hand.news) {
                answers[*row as usize].store(*new, Relaxed);
            }
        }
    }
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The keys that one thread adds for another.
struct Share<'a> {
    atomic: bool,
    ahead: usize,
    keys: &'a [(u32, u64)],
    news: &'a mut [u8],
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
        let later = self.keys.iter().skip(self.ahead).chain(self.keys.last().into_iter().cycle());
        for (((_, h), new), (_, later)) in self.keys.iter().zip(self.news).zip(later) {
            probe.prefetch(*later);
            *new = u8::from(O::one(probe, *h));
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
            let add = || {
                add_threads(&bits, &shape(), false, threads, &hash, KEYS, Some(&mut answers));
            };
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

    /// Several threads leave the bits of one and give its answers, in whatever order keys come again;
    /// and the same bits where no answers are wanted.
    #[test]
    fn threads_are_as_one() {
        let hash = |from: usize, out: &mut [u64]| {
            for (h, i) in out.iter_mut().zip(from as u64..) {
                *h = (i * i % 70_001).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            }
        };
        let (many, one_line) = (KEYS - 7, 512);
        for (rows, lines_per_key, num_bits) in [
            (0, 1, 1 << 22),
            (5, 1, 1 << 22),
            (many, 1, 1 << 22),
            (many, 2, 1 << 22),
            (many, 1, one_line),
            (many, 1, 5 * one_line),
        ] {
            let shape = Shape { lines_per_key, num_bits, num_hashes: 8, ..shape() };
            let bits = || Bits::zeroed(shape.nbytes() as usize).expect("half a megabyte");
            let (one, mut expected) = (bits(), vec![9; rows]);
            add_threads(&one, &shape, false, 1, &hash, rows, Some(&mut expected));
            let new = expected.iter().filter(|new| **new == 1).count();
            assert!(new <= 70_001 && (rows == 0 || new > 0));
            for threads in [2, 3, 7] {
                let ([several, silent], mut answers) = ([bits(), bits()], vec![9; rows]);
                add_threads(&several, &shape, false, threads, &hash, rows, Some(&mut answers));
                // Where threads share lines, which of two keys came first is chance.
                let owned = lines_per_key == 1 && num_bits > 7 * one_line;
                assert!(!owned || answers == expected, "{threads} threads, {rows} rows");
                assert!(answers.iter().all(|new| *new <= 1));
                add_threads(&silent, &shape, false, threads, &hash, rows, None);
                for other in [several, silent] {
                    assert!(one.is_subset_of(&other) && other.is_subset_of(&one));
                }
            }
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

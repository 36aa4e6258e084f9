//! Where a key's bits are, and setting and asking them.
//!
//! blocked: the line is the high bits of h scaled to the number of lines; the bits within it come
//! from the bytes of a pattern, all of which AVX2 (avx2.rs) reads at once. Two lines a key: the same again with a second hash.
//! classic: enhanced double hashing in 64 bits, scaled to the number of bits.
//!
//! Both scale by `mulhi`, never by a remainder: no power of two is needed, and a filter can be
//! folded to any smaller size (see fold.rs).

#[cfg(target_arch = "x86_64")]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(target_arch = "x86_64")]
use crate::avx2;
use crate::bits::{Bits, LINE_BITS, WORDS_PER_LINE};
use crate::hash::remix;
use crate::shape::{Layout, Shape};

/// A pattern is 64 bits, and each of its bytes one position: the low four bytes in the low half of
/// the line, the high four in the high half, the top byte of each first. Of a byte the low three
/// bits are the word of 32 bits, the high five the bit in it (avx2.rs shows why). Half a line each
/// instead of anywhere in it costs 0.06% more memory, halves the loads of an add and took 13% off
/// its time (6.5 to 5.6 ns in cache).
const PATTERN: u64 = 0xD6E8_FEB8_6659_FD93;
const PATTERN_START: u64 = 0x9E6C_63D0_876A_3F6B;
const NEXT_PATTERN: u64 = 0xA076_1D64_78BD_642F;

/// The pattern of a key's first eight positions. Its high half depends on every bit of the hash: the
/// high bits alone have already chosen the line. The start keeps the hash 0, which murmur3 gives the
/// empty key, from setting the same bit again and again.
#[inline(always)]
pub(crate) fn pattern(h: u64) -> u64 {
    h.wrapping_mul(PATTERN).wrapping_add(PATTERN_START)
}

/// The pattern of the next eight.
#[inline(always)]
pub(crate) fn next(pattern: u64) -> u64 {
    (pattern ^ (pattern >> 32)).wrapping_mul(NEXT_PATTERN)
}

/// Another hash of the same key: for its second line, or its step.
#[inline(always)]
pub(crate) fn second(h: u64) -> u64 {
    remix(h ^ PATTERN_START)
}

#[inline(always)]
pub fn mulhi(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// The bits of a key in its line, `each` of them in each half.
#[inline(always)]
pub(crate) fn in_line(h: u64, each: usize) -> impl Iterator<Item = u64> {
    let mut pattern = pattern(h);
    (0..each).flat_map(move |i| {
        if i == 4 {
            pattern = next(pattern);
        }
        let bytes = pattern >> (24 - 8 * (i & 3));
        [(0, bytes), (256, bytes >> 32)]
            .map(|(half, byte)| half + ((byte & 7) << 5) + ((byte & 255) >> 3))
    })
}

/// The bits of a key in the classic layout. Enhanced double hashing: the step itself grows by an even
/// amount, so that it stays odd and no step, however small or regular, sends the probes to the same
/// few bits.
#[inline(always)]
pub(crate) fn anywhere(h: u64, num_bits: u64, hashes: u32) -> impl Iterator<Item = u64> {
    const GROWTH: u64 = 0x9E37_79B9_7F4A_7C14;
    let (mut x, mut step) = (h, second(h) | 1);
    (1..=u64::from(hashes)).map(move |i| {
        let p = mulhi(x, num_bits);
        x = x.wrapping_add(step);
        step = step.wrapping_add(i.wrapping_mul(GROWTH));
        p
    })
}

/// A key's bits, in the order in which they are looked at; some may be the same.
pub fn positions(h: u64, shape: &Shape) -> Vec<u64> {
    let Shape { layout, num_bits, num_hashes, lines_per_key } = *shape;
    if layout == Layout::Classic {
        return anywhere(h, num_bits, num_hashes).collect();
    }
    let each = (num_hashes / lines_per_key / 2) as usize;
    let line = |h| {
        let first = mulhi(h, num_bits / LINE_BITS) * LINE_BITS;
        in_line(h, each).map(move |bit| first + bit)
    };
    [h, second(h)].into_iter().take(lines_per_key as usize).flat_map(line).collect()
}

#[inline(always)]
fn word_and_bit(p: u64) -> (usize, u64) {
    ((p >> 6) as usize, 1 << (p & 63))
}

/// One way of laying a key's bits. `ATOMIC` on the writers: other writers may be at work on the
/// same memory (another process on a mapped file, free-threaded Python); it costs a locked
/// instruction for each bit not yet set, so it is not the default.
pub trait Probe: Sync {
    fn prefetch(&self, h: u64);
    fn contains(&self, h: u64) -> bool;
    /// Sets the bits; true if one of them was not set, so that the key is definitely new.
    fn add<const ATOMIC: bool>(&self, h: u64) -> bool;
}

#[inline(always)]
fn set<const ATOMIC: bool>(word: &AtomicU64, bit: u64) -> bool {
    let old = word.load(Relaxed);
    if !ATOMIC {
        word.store(old | bit, Relaxed);
        return old & bit == 0;
    }
    old & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0
}

/// Asks for the line of memory at this address, which need not be readable.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above: a hint, which changes nothing but the cache.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{at}]",
            at = in(reg) at,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// The blocked layout: `LINES` a key, by `AVX2`, which only `with_blocked` may choose, and there with
/// code for just `EACH` bits in each half of a line (0: for any number).
pub struct Blocked<'a, const LINES: usize, const AVX2: bool, const EACH: usize> {
    words: &'a [AtomicU64],
    lines: u64,
    /// Bits of a key in each half of a line.
    each: usize,
}

impl<'a, const LINES: usize, const AVX2: bool, const EACH: usize> Blocked<'a, LINES, AVX2, EACH> {
    #[inline(always)]
    pub fn new(bits: &'a Bits, shape: &Shape) -> Self {
        let words = bits.words();
        let each = shape.num_hashes as usize / LINES / 2;
        Blocked { words, lines: (words.len() / WORDS_PER_LINE) as u64, each }
    }

    #[inline(always)]
    fn line(&self, h: u64) -> &'a [AtomicU64; WORDS_PER_LINE] {
        let start = mulhi(h, self.lines) as usize * WORDS_PER_LINE;
        // SAFETY: mulhi(h, n) < n, and `words` is `lines` whole lines.
        unsafe { &*self.words.as_ptr().add(start).cast() }
    }

    /// Word of 64 bits and bit in it of each of the key's positions.
    #[inline(always)]
    fn positions(&self, h: u64) -> impl Iterator<Item = (usize, u64)> {
        in_line(h, self.each).map(word_and_bit)
    }

    #[inline(always)]
    fn line_contains(&self, h: u64) -> bool {
        let line = self.line(h);
        #[cfg(target_arch = "x86_64")]
        if AVX2 {
            // SAFETY: AVX2 is only true where it was detected; the line is 64 aligned bytes.
            return unsafe { avx2::contains::<EACH>(line.as_ptr().cast(), pattern(h), self.each) };
        }
        self.positions(h).all(|(word, bit)| line[word].load(Relaxed) & bit != 0)
    }

    #[inline(always)]
    fn line_add<const ATOMIC: bool>(&self, h: u64) -> bool {
        let line = self.line(h);
        #[cfg(target_arch = "x86_64")]
        if AVX2 && !ATOMIC {
            // SAFETY: as in `line_contains`; not ATOMIC means that there is no other writer.
            return unsafe {
                avx2::add::<EACH>(line.as_ptr().cast_mut().cast(), pattern(h), self.each)
            };
        }
        self.positions(h).fold(false, |new, (word, bit)| set::<ATOMIC>(&line[word], bit) | new)
    }
}

impl<const LINES: usize, const AVX2: bool, const EACH: usize> Probe
    for Blocked<'_, LINES, AVX2, EACH>
{
    #[inline(always)]
    fn prefetch(&self, h: u64) {
        prefetch(self.line(h).as_ptr().cast());
        if LINES == 2 {
            prefetch(self.line(second(h)).as_ptr().cast());
        }
    }

    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        self.line_contains(h) && (LINES == 1 || self.line_contains(second(h)))
    }

    #[inline(always)]
    fn add<const ATOMIC: bool>(&self, h: u64) -> bool {
        let new = self.line_add::<ATOMIC>(h);
        if LINES == 1 { new } else { self.line_add::<ATOMIC>(second(h)) | new }
    }
}

/// The classic layout: k positions anywhere.
pub struct Classic<'a> {
    words: &'a [AtomicU64],
    num_bits: u64,
    hashes: u32,
}

impl<'a> Classic<'a> {
    #[inline(always)]
    pub fn new(bits: &'a Bits, shape: &Shape) -> Self {
        Classic { words: bits.words(), num_bits: shape.num_bits, hashes: shape.num_hashes }
    }

    #[inline(always)]
    fn positions(&self, h: u64) -> impl Iterator<Item = (usize, u64)> {
        anywhere(h, self.num_bits, self.hashes).map(word_and_bit)
    }
}

impl Probe for Classic<'_> {
    #[inline(always)]
    fn prefetch(&self, h: u64) {
        self.positions(h)
            .for_each(|(word, _)| prefetch(self.words.as_ptr().wrapping_add(word).cast()));
    }

    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        self.positions(h).all(|(word, bit)| self.words[word].load(Relaxed) & bit != 0)
    }

    #[inline(always)]
    fn add<const ATOMIC: bool>(&self, h: u64) -> bool {
        self.positions(h)
            .fold(false, |new, (word, bit)| set::<ATOMIC>(&self.words[word], bit) | new)
    }
}

/// Work that is the same for every way of probing, compiled once for each.
pub trait Job {
    type Output;
    fn run<P: Probe>(self, probe: &P) -> Self::Output;
}

/// Runs `job` with the probe that suits the shape and this processor.
#[inline(always)]
pub fn with_probe<J: Job>(bits: &Bits, shape: &Shape, job: J) -> J::Output {
    match (shape.layout, shape.lines_per_key) {
        (Layout::Classic, _) => job.run(&Classic::new(bits, shape)),
        (Layout::Blocked, 1) => with_blocked::<1, J>(bits, shape, job),
        (Layout::Blocked, _) => with_blocked::<2, J>(bits, shape, job),
    }
}

#[inline(always)]
fn with_blocked<const LINES: usize, J: Job>(bits: &Bits, shape: &Shape, job: J) -> J::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn run<const LINES: usize, const EACH: usize, J: Job>(
            bits: &Bits,
            shape: &Shape,
            job: J,
        ) -> J::Output {
            job.run(&Blocked::<LINES, true, EACH>::new(bits, shape))
        }
        if has_avx2() {
            // SAFETY: the processor was just asked.
            return unsafe {
                match shape.num_hashes as usize / LINES / 2 {
                    3 => run::<LINES, 3, J>(bits, shape, job),
                    4 => run::<LINES, 4, J>(bits, shape, job),
                    _ => run::<LINES, 0, J>(bits, shape, job),
                }
            };
        }
    }
    job.run(&Blocked::<LINES, false, 0>::new(bits, shape))
}

/// Has the processor all that any function here is compiled for: AVX2, BMI1, BMI2 and POPCNT?
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx2() -> bool {
    known_width() >= 1
}

/// And AVX-512 as processors have it since 2019 (Ice Lake) and 2022 (Zen 4), with VBMI2?
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx512() -> bool {
    known_width() >= 2
}

/// 0, 1 or 2: neither, the first, both. Asked once, not some look-ups in std's cache for every single
/// question.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn known_width() -> u8 {
    const UNKNOWN: u8 = u8::MAX;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    macro_rules! all {
        ($($feature:tt)*) => { $(std::is_x86_feature_detected!($feature))&&* };
    }
    #[cold]
    fn ask() -> u8 {
        let narrow = all!("avx2" "bmi1" "bmi2" "popcnt");
        let wide = all!("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vbmi" "avx512vbmi2");
        let found = u8::from(narrow) + u8::from(narrow && wide);
        KNOWN.store(found, Relaxed);
        found
    }
    match KNOWN.load(Relaxed) {
        UNKNOWN => ask(),
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One<const ATOMIC: bool>(u64);
    impl<const ATOMIC: bool> Job for One<ATOMIC> {
        type Output = (bool, bool, bool);

        fn run<P: Probe>(self, probe: &P) -> Self::Output {
            probe.prefetch(self.0);
            (probe.contains(self.0), probe.add::<ATOMIC>(self.0), probe.contains(self.0))
        }
    }

    fn same_bits<const LINES: usize>(each: u32) {
        let lines = 7;
        let num_hashes = each * 2 * LINES as u32;
        let shape = Shape {
            layout: Layout::Blocked,
            num_bits: lines * 512,
            num_hashes,
            lines_per_key: LINES as u32,
        };
        assert_eq!(shape.check(), Ok(()));
        let bits = || Bits::zeroed(shape.nbytes() as usize).expect("a few lines");
        let (fast, plain, locked) = (bits(), bits(), bits());
        let portable = Blocked::<LINES, false, 0>::new(&plain, &shape);
        let mut h = u64::from(each);
        for _ in 0..if cfg!(miri) { 3 } else { 40 } {
            h = remix(h.wrapping_add(0x9E37_79B9_7F4A_7C15));
            let expected = One::<false>(h).run(&portable);
            assert!(expected.2, "a key that was added is there");
            assert_eq!(with_probe(&fast, &shape, One::<false>(h)), expected);
            assert_eq!(with_probe(&locked, &shape, One::<true>(h)), expected);
            for other in [&fast, &locked] {
                assert!(other.is_subset_of(&plain) && plain.is_subset_of(other));
            }
        }
    }

    /// AVX2, portable code and locked instructions set the same bits and give the same answers.
    #[test]
    fn every_way_of_probing_agrees() {
        for each in 1..=8 {
            same_bits::<1>(each);
            same_bits::<2>(each);
        }
    }

    /// A key sets as many bits in either half of its line, whatever its hash.
    #[test]
    fn half_of_the_bits_in_each_half() {
        let shape =
            Shape { layout: Layout::Blocked, num_bits: 512, num_hashes: 16, lines_per_key: 1 };
        for h in [0, 1, u64::MAX, 0x0123_4567_89AB_CDEF] {
            let bits = Bits::zeroed(64).expect("a line");
            with_probe(&bits, &shape, One::<false>(h));
            let half = |words: &[AtomicU64]| -> u32 {
                words.iter().map(|w| w.load(Relaxed).count_ones()).sum()
            };
            let (low, high) = (half(&bits.words()[..4]), half(&bits.words()[4..]));
            assert!((6..=8).contains(&low) && (6..=8).contains(&high), "{h}: {low}, {high}");
        }
    }
}

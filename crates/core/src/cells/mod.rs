//! Lines of cells: counters (counting.rs), or bits in regions (deletable.rs). Here is where a key's
//! cells are, and all else that does not depend on what a cell is, which a `Rule` says.
//!
//! A key has one line or two, chosen as in the plain filter's blocked layout, and `draws` cells in
//! each. They come as a mask with the lowest bit of each cell set: a cell drawn twice is one cell.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod kind;
#[cfg(test)]
pub(crate) mod tests;

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use crate::bits::{Bits, LINE_BYTES, WORDS_PER_LINE};
use crate::format::{FormatError, Header};
use crate::kind::{Fact, Merge, Removal};
use crate::probe::{mulhi, next, pattern, second};
use crate::scan::Scan;
use crate::shape::MAX_HASHES_PER_LINE;

pub(crate) type Line = [u64; WORDS_PER_LINE];

/// What a cell is, and what becomes of a line when a key with this mask comes or goes.
pub(crate) trait Rule: Send + Sync + Sized + 'static {
    /// Cells in a line.
    const CELLS: u64;
    /// Bits of a cell.
    const WIDTH: u64;
    /// Regions of a line, each with a flag in the bit above its cells; 0 where there are none.
    const REGIONS: u64;

    /// Is none of the cells empty, which is to say 0?
    fn contains(line: &Line, mask: &Line) -> bool;

    /// True if one of the cells was empty.
    fn add(line: &mut Line, mask: &Line) -> bool;

    /// Of a key that is contained: true if one of the cells could be taken back.
    fn remove(line: &mut Line, mask: &Line) -> bool;

    fn count(line: &Line, mask: &Line) -> u64;

    fn merge(word: u64, other: u64, how: Merge) -> u64;

    /// Cells that are not empty.
    fn used(line: &Line) -> u64;

    /// What only this rule can tell.
    fn facts(cells: &Cells<Self>) -> Vec<(&'static str, Fact)>;
}

/// The draws of a key in its line: 16 bits each, which are scaled to the number of cells. Four come
/// from each pattern, the top ones first.
#[inline(always)]
pub(crate) fn drawn(h: u64, draws: usize) -> impl Iterator<Item = u64> {
    let mut lanes = pattern(h);
    (0..draws).map(move |i| {
        if i > 0 && i % 4 == 0 {
            lanes = next(lanes);
        }
        lanes = lanes.rotate_left(16);
        lanes & 0xFFFF
    })
}

/// `WIDE` in its functions: AVX2 is there, and the caller is compiled for it.
pub(crate) struct Cells<R> {
    bits: Bits,
    header: Header,
    lines: u64,
    two_lines: bool,
    /// Cells of a key in each of its lines, repeats included.
    draws: usize,
    rule: PhantomData<R>,
}

impl<R: Rule> Cells<R> {
    /// An empty filter or a saved one. `extra[0]` is the rule's, and checked already.
    pub(crate) fn open(header: &Header, body: Option<Bits>) -> Result<Self, FormatError> {
        let corrupt = |message: String| Err(FormatError::Corrupt(message));
        let (lines, hashes) = (u32::from(header.lines_per_key), u32::from(header.num_hashes));
        if lines != 1 && lines != 2 {
            return corrupt(format!("lines_per_key is {lines}, must be 1 or 2"));
        }
        if hashes == 0 || hashes % lines != 0 || hashes / lines > MAX_HASHES_PER_LINE {
            return corrupt(format!(
                "num_hashes is {hashes}, must be 1 to {MAX_HASHES_PER_LINE} for each line of a \
                 key, of which there are {lines}"
            ));
        }
        let (bits, bytes) = (header.num_bits, header.nbytes);
        if bytes == 0 || bytes % LINE_BYTES as u64 != 0 || bytes.checked_mul(8) != Some(bits) {
            return corrupt(format!(
                "{bits} bits in {bytes} bytes, must be the same in whole lines of {LINE_BYTES}"
            ));
        }
        if header.layout != 0 || header.extra[1..] != [0; 5] {
            return corrupt("a field that this kind of filter does not use is not 0".into());
        }
        let size = usize::try_from(bytes).map_err(|_| FormatError::NoMemory(bytes))?;
        let bits = match body {
            Some(body) => body,
            None => Bits::zeroed(size).ok_or(FormatError::NoMemory(bytes))?,
        };
        if bits.nbytes() != size {
            return corrupt(format!("{} bytes of cells, expected {bytes}", bits.nbytes()));
        }
        Ok(Cells {
            bits,
            header: *header,
            lines: bytes / LINE_BYTES as u64,
            two_lines: lines == 2,
            draws: (hashes / lines) as usize,
            rule: PhantomData,
        })
    }

    #[inline(always)]
    fn at(&self, h: u64) -> *mut Line {
        // mulhi(h, n) < n: within the memory.
        self.bits.as_ptr().cast::<Line>().wrapping_add(mulhi(h, self.lines) as usize)
    }

    #[inline(always)]
    fn line(&self, h: u64) -> Line {
        // SAFETY: within the memory, which nobody writes while `self` is borrowed.
        unsafe { self.at(h).read() }
    }

    #[inline(always)]
    fn mask<const WIDE: bool>(&self, h: u64) -> Line {
        #[cfg(target_arch = "x86_64")]
        if WIDE {
            // SAFETY: WIDE means that AVX2 is there.
            return unsafe { avx2::mask::<R>(pattern(h), self.draws) };
        }
        let mut mask = [0; WORDS_PER_LINE];
        for lane in drawn(h, self.draws) {
            let position = ((lane * R::CELLS) >> 16) * R::WIDTH + ((lane * R::REGIONS) >> 16);
            mask[position as usize / 64] |= 1 << (position % 64);
        }
        mask
    }

    // No closures on the way of a key: one that is not inlined loses AVX2, and a key takes 150 ns.

    #[inline(always)]
    fn contains<const WIDE: bool>(&self, h: u64) -> bool {
        self.line_contains::<WIDE>(h) && (!self.two_lines || self.line_contains::<WIDE>(second(h)))
    }

    #[inline(always)]
    fn line_contains<const WIDE: bool>(&self, h: u64) -> bool {
        #[cfg(target_arch = "x86_64")]
        if WIDE {
            // SAFETY: WIDE means that AVX2 is there; the line is within the memory.
            return unsafe { avx2::contains::<R>(self.at(h), pattern(h), self.draws) };
        }
        R::contains(&self.line(h), &self.mask::<WIDE>(h))
    }

    #[inline(always)]
    fn add<const WIDE: bool>(&mut self, h: u64) -> bool {
        self.change::<WIDE, true>(h)
    }

    #[inline(always)]
    fn remove<const WIDE: bool>(&mut self, h: u64) -> Removal {
        match self.contains::<WIDE>(h) {
            false => Removal::Absent,
            true if self.change::<WIDE, false>(h) => Removal::Removed,
            true => Removal::Kept,
        }
    }

    /// Adds the key or takes it out; true if that was true of one of its lines.
    #[inline(always)]
    fn change<const WIDE: bool, const ADD: bool>(&mut self, h: u64) -> bool {
        let (first, mut mask) = (self.at(h), self.mask::<WIDE>(h));
        if !self.two_lines {
            return self.line_change::<ADD>(first, &mask);
        }
        let h = second(h);
        let (other, more) = (self.at(h), self.mask::<WIDE>(h));
        if other == first {
            // Both are one line, where the key must not meet itself.
            mask.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
            return self.line_change::<ADD>(first, &mask);
        }
        self.line_change::<ADD>(first, &mask) | self.line_change::<ADD>(other, &more)
    }

    #[inline(always)]
    fn line_change<const ADD: bool>(&mut self, at: *mut Line, mask: &Line) -> bool {
        // SAFETY: `at` is within the memory, and `&mut self` keeps everybody else away.
        unsafe {
            let mut line = at.read();
            let answer = if ADD { R::add(&mut line, mask) } else { R::remove(&mut line, mask) };
            at.write(line);
            answer
        }
    }

    /// Draws of one key in each of its lines, and such lines: exponents of a key's chances.
    pub(crate) fn powers(&self) -> (i32, i32) {
        (self.draws as i32, if self.two_lines { 2 } else { 1 })
    }

    pub(crate) fn lines(&self, scan: Scan) -> impl Iterator<Item = Line> {
        let parts = scan.parts(self.bits.words());
        let words = parts.flat_map(|part| part.chunks_exact(WORDS_PER_LINE));
        words.map(|line| std::array::from_fn(|i| line[i].load(Relaxed)))
    }

    /// Visits of keys to these lines after which so many of their cells are used, on average. When
    /// all are, the last is taken for half used, so that the answer is finite.
    pub(crate) fn visits(&self, used: u64, lines: f64) -> f64 {
        let cells = lines * R::CELLS as f64;
        let empty = (cells - used as f64).max(0.5) / cells;
        let missed = (1.0 - 1.0 / R::CELLS as f64).powi(self.draws as i32);
        empty.ln() / ((missed - 1.0) / lines).ln_1p()
    }
}

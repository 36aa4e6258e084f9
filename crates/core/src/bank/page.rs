//! A page: cells of one range, packed. A cell is a number that stands for a key; what is kept of it
//! is its bucket, by position, and the rest, its tag.
//!
//! First come the marks: for each bucket a 0 for each of its cells, then a 1. Behind them lie the
//! tags in the same order. So a cell costs its tag and one bit, and a bucket one bit; Elias and Fano
//! wrote sorted numbers so. Unlike theirs, a page has room for more cells (packing.rs).

#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx2;
use crate::probe::mulhi;

/// No tag is wider, so that a tag never lies in more than two words.
const MAX_TAG_BITS: u32 = 57;

/// How pages of one size are laid out for a range of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Cells in the range: those of a page are 0 to `range` - 1.
    pub range: u64,
    pub tag_bits: u32,
    pub buckets: usize,
    /// Most cells that a page can hold.
    pub slots: usize,
    /// Words of marks; the tags begin with the word behind them.
    pub marks: usize,
    /// 2^64 / range, rounded down.
    inverse: u64,
    /// A 1 in each field of `tag_bits` of a word.
    ones: u64,
}

/// Where a cell is in its page, or would be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub slot: usize,
    pub mark: usize,
    pub there: bool,
}

impl Geometry {
    /// The one with the most slots; of these the one with the narrowest tags.
    pub fn new(range: u64, words: usize) -> Geometry {
        let inverse = u64::MAX / range;
        let mut best =
            Geometry { range, tag_bits: 0, buckets: 0, slots: 0, marks: 0, inverse, ones: 0 };
        for tag_bits in 0..=MAX_TAG_BITS {
            let buckets = range.div_ceil(1 << tag_bits) as usize;
            if buckets >= 64 * words {
                continue;
            }
            let mut slots = (64 * words - buckets) / (tag_bits as usize + 1);
            let marks = |slots: usize| (buckets + slots).div_ceil(64);
            while marks(slots) + (slots * tag_bits as usize).div_ceil(64) > words {
                slots -= 1;
            }
            if slots > best.slots {
                let ones =
                    (0..64).step_by(tag_bits.max(1) as usize).fold(0, |ones, at| ones | 1 << at);
                best = Geometry { tag_bits, buckets, slots, marks: marks(slots), ones, ..best };
            }
        }
        best
    }

    /// The page that a cell of the layer falls on, and the cell within it: a division, without one.
    #[inline(always)]
    pub fn page_of(&self, cell: u64) -> (u32, u64) {
        let page = mulhi(cell, self.inverse);
        let rest = cell - page * self.range;
        match rest < self.range {
            true => (page as u32, rest),
            false => (page as u32 + 1, rest - self.range),
        }
    }

    /// A cell's bucket and its tag.
    #[inline(always)]
    pub fn split(&self, cell: u64) -> (usize, u64) {
        ((cell >> self.tag_bits) as usize, cell & ((1 << self.tag_bits) - 1))
    }

    #[inline(always)]
    pub fn tag(&self, page: &[u64], slot: usize) -> u64 {
        match self.tag_bits as usize {
            0 => 0,
            bits => window(&page[self.marks..], slot * bits) & ((1 << bits) - 1),
        }
    }

    pub fn is_full(&self, page: &[u64]) -> bool {
        let last = self.buckets + self.slots - 1;
        page[last / 64] >> (last % 64) & 1 != 0
    }

    /// Words that a look for the cell will most likely touch, one a line.
    pub fn likely_words(&self, cell: u64) -> impl Iterator<Item = usize> + use<> {
        let share = |of: usize| (u128::from(cell) * of as u128 / u128::from(self.range)) as usize;
        // Most pages are most of the way full.
        let tags = self.slots * self.tag_bits as usize / 64;
        (0..=share(self.marks)).step_by(8).chain([self.marks + share(tags) * 7 / 8])
    }

    /// Is the cell there? As `find`, but it compares all of a bucket's tags at once: which of them
    /// is the first that is not smaller cannot be foretold, and each wrong guess costs as much as all
    /// the rest.
    #[inline(always)]
    pub fn contains<const FAST: bool>(&self, page: &[u64], cell: u64) -> Option<bool> {
        let (bucket, tag) = self.split(cell);
        let (marks, tags) = page.split_at(self.marks);
        let mark = match bucket {
            0 => 0,
            _ => select::<FAST>(marks, bucket - 1)? + 1,
        };
        let (slot, bits) = (mark - bucket, self.tag_bits as usize);
        if mark >= self.buckets + self.slots {
            return None;
        }
        let count = window(marks, mark).trailing_zeros() as usize;
        if bits == 0 || count * bits >= 64 || slot + count > self.slots {
            return self.find::<FAST>(page, cell).map(|position| position.there);
        }
        // A field of `bits` is 0 where a tag is equal; then taking 1 from each sets its high bit.
        let differ = window(tags, slot * bits) ^ self.ones.wrapping_mul(tag);
        let equal = differ.wrapping_sub(self.ones) & !differ & self.ones << (bits - 1);
        Some(equal & ((1 << (count * bits)) - 1) != 0)
    }

    #[inline(always)]
    fn contains_all<const FAST: bool>(
        &self,
        pages: &[&[u64]],
        cells: u64,
        hashes: &[u64],
        out: &mut [u8],
    ) -> Option<()> {
        for (h, answer) in hashes.iter().zip(out) {
            let (page, cell) = self.page_of(mulhi(*h, cells));
            *answer |= u8::from(self.contains::<FAST>(pages.get(page as usize)?, cell)?);
        }
        Some(())
    }

    /// `None` for marks that no page of ours has.
    #[inline(always)]
    pub fn find<const FAST: bool>(&self, page: &[u64], cell: u64) -> Option<Position> {
        let (bucket, tag) = self.split(cell);
        let mut mark = match bucket {
            0 => 0,
            _ => select::<FAST>(&page[..self.marks], bucket - 1)? + 1,
        };
        let mut slot = mark - bucket;
        // A bucket holds one cell or so.
        loop {
            if slot > self.slots {
                return None;
            }
            if page[mark / 64] >> (mark % 64) & 1 != 0 {
                return Some(Position { slot, mark, there: false });
            }
            if slot == self.slots {
                return None;
            }
            let found = self.tag(page, slot);
            if found >= tag {
                return Some(Position { slot, mark, there: found == tag });
            }
            (slot, mark) = (slot + 1, mark + 1);
        }
    }
}

/// The 64 bits from `at` on; zeros behind the last.
#[inline(always)]
fn window(words: &[u64], at: usize) -> u64 {
    let (first, shift) = (at / 64, at % 64);
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    word(first) >> shift | (word(first + 1) << 1) << (63 - shift)
}

/// The place of the `rank`th one, counted from 0.
#[inline(always)]
fn select<const FAST: bool>(marks: &[u64], rank: usize) -> Option<usize> {
    let mut left = rank;
    let (fours, rest) = marks.as_chunks::<4>();
    for (i, four) in fours.iter().enumerate() {
        let [a, b, c, d] = four.map(|word| word.count_ones() as usize);
        if left < a + b + c + d {
            // Which of the four cannot be foretold: no branch.
            let before = [a, a + b, a + b + c];
            let at = before.iter().filter(|ones| left >= **ones).count();
            let left = left - [0, a, a + b, a + b + c][at];
            return Some((4 * i + at) * 64 + select_in_word::<FAST>(four[at], left));
        }
        left -= a + b + c + d;
    }
    for (i, word) in rest.iter().enumerate() {
        let ones = word.count_ones() as usize;
        if left < ones {
            return Some((4 * fours.len() + i) * 64 + select_in_word::<FAST>(*word, left));
        }
        left -= ones;
    }
    None
}

#[inline(always)]
fn select_in_word<const FAST: bool>(mut word: u64, rank: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if FAST {
        // SAFETY: FAST is only true where BMI2 was detected.
        return unsafe { std::arch::x86_64::_pdep_u64(1 << rank, word) }.trailing_zeros() as usize;
    }
    for _ in 0..rank {
        word &= word - 1;
    }
    word.trailing_zeros() as usize
}

/// Compiled for processors with BMI2 and for others.
macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $answer:ty) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(geometry: &Geometry, $($arg: $type),*) -> Option<$answer> {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "popcnt,bmi1,bmi2")]
                fn fast(geometry: &Geometry, $($arg: $type),*) -> Option<$answer> {
                    geometry.$name::<true>($($arg),*)
                }
                if has_avx2() {
                    // SAFETY: the processor was just asked; none with AVX2 lacks POPCNT.
                    return unsafe { fast(geometry, $($arg),*) };
                }
            }
            geometry.$name::<false>($($arg),*)
        }
    };
}

dispatched! {
    /// Where the cell is, or belongs.
    find(page: &[u64], cell: u64) -> Position
}
dispatched! {
    /// Whether the cell is there.
    contains(page: &[u64], cell: u64) -> bool
}
dispatched! {
    /// Puts a 1 where the hash's cell, of as many as there are, is in one of the pages.
    contains_all(pages: &[&[u64]], cells: u64, hashes: &[u64], out: &mut [u8]) -> ()
}

//! A page: cells of one range, packed. A cell is a number that stands for a key; what is kept of it
//! is its bucket, by position, and the rest, its tag.
//!
//! First come the marks: for each bucket a 0 for each of its cells, then a 1. Behind them lie the
//! tags in the same order. So a cell costs its tag and one bit, and a bucket one bit; Elias and Fano
//! wrote sorted numbers so. Unlike theirs, a page has room for more cells, and inserting one moves
//! what is behind it up by one place.

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
    marks: usize,
    /// 2^64 / range, rounded down.
    inverse: u64,
    /// A 1 in each field of `tag_bits` of a word.
    ones: u64,
}

/// Where a cell is in its page, or would be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    slot: usize,
    mark: usize,
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

    #[inline(always)]
    fn split(&self, cell: u64) -> (usize, u64) {
        ((cell >> self.tag_bits) as usize, cell & ((1 << self.tag_bits) - 1))
    }

    #[inline(always)]
    fn tag(&self, page: &[u64], slot: usize) -> u64 {
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
    fn contains<const FAST: bool>(&self, page: &[u64], cell: u64) -> Option<bool> {
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
            return self.find::<FAST>(page, cell).map(|place| place.there);
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
    fn find<const FAST: bool>(&self, page: &[u64], cell: u64) -> Option<Place> {
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
                return Some(Place { slot, mark, there: false });
            }
            if slot == self.slots {
                return None;
            }
            let found = self.tag(page, slot);
            if found >= tag {
                return Some(Place { slot, mark, there: found == tag });
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
    find(page: &[u64], cell: u64) -> Place
}
dispatched! {
    /// Whether the cell is there.
    contains(page: &[u64], cell: u64) -> bool
}
dispatched! {
    /// Puts a 1 where the hash's cell, of as many as there are, is in one of the pages.
    contains_all(pages: &[&[u64]], cells: u64, hashes: &[u64], out: &mut [u8]) -> ()
}

/// Inserts a cell that is not there into a page that is not full, at the place that `find` gave.
pub fn insert(geometry: &Geometry, page: &mut [u64], place: Place, cell: u64) {
    let (marks, tags) = page.split_at_mut(geometry.marks);
    make_room(marks, place.mark, 1, 0);
    let bits = geometry.tag_bits;
    // A slot past the last one comes from marks that no page of ours has.
    if bits > 0 && place.slot < geometry.slots {
        make_room(tags, place.slot * bits as usize, bits, geometry.split(cell).1);
    }
}

/// Moves the bits from `at` on up by `width` and puts `value` there; the topmost bits are lost.
fn make_room(words: &mut [u64], at: usize, width: u32, value: u64) {
    let (first, shift) = (at / 64, at % 64);
    let below = (1 << shift) - 1;
    let (kept, moved) = (words[first] & below, words[first] & !below);
    for i in (first + 2..words.len()).rev() {
        words[i] = words[i] << width | words[i - 1] >> (64 - width);
    }
    if let Some(next) = words.get_mut(first + 1) {
        *next = *next << width | moved >> (64 - width);
        if shift + width as usize > 64 {
            *next |= value >> (64 - shift);
        }
    }
    words[first] = kept | moved << width | value << shift;
}

/// Writes a page that holds these cells, which are sorted; false if they are too many.
pub fn build(geometry: &Geometry, page: &mut [u64], cells: impl Iterator<Item = u64>) -> bool {
    page.fill(0);
    let (mut closed, mut slot) = (0, 0);
    let close = |page: &mut [u64], closed: &mut usize, to: usize, slot: usize| {
        while *closed < to {
            let place = *closed + slot;
            page[place / 64] |= 1 << (place % 64);
            *closed += 1;
        }
    };
    for cell in cells {
        if slot == geometry.slots {
            return false;
        }
        let (bucket, tag) = geometry.split(cell);
        close(page, &mut closed, bucket, slot);
        let at = geometry.marks * 64 + slot * geometry.tag_bits as usize;
        if tag > 0 {
            page[at / 64] |= tag << (at % 64);
            if at % 64 + geometry.tag_bits as usize > 64 {
                page[at / 64 + 1] |= tag >> (64 - at % 64);
            }
        }
        slot += 1;
    }
    close(page, &mut closed, geometry.buckets, slot);
    true
}

/// Appends the page's cells, each with `first` added: sorted, if the page is one of ours.
pub fn cells(geometry: &Geometry, page: &[u64], first: u64, out: &mut Vec<u64>) {
    let (mut bucket, mut slot) = (0, 0);
    for (i, word) in page[..geometry.marks].iter().enumerate() {
        for place in 0..64 {
            if bucket == geometry.buckets {
                return;
            }
            if word >> place & 1 != 0 {
                bucket += 1;
            } else if slot < geometry.slots && i * 64 + place < geometry.buckets + geometry.slots {
                let cell = (bucket as u64) << geometry.tag_bits | geometry.tag(page, slot);
                if cell < geometry.range {
                    out.push(first + cell);
                }
                slot += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hash::remix;

    fn cells_of(geometry: &Geometry, page: &[u64]) -> Vec<u64> {
        let mut out = Vec::new();
        cells(geometry, page, 0, &mut out);
        out
    }

    /// A page is a sorted set: filled one by one to the last slot, read back, and built anew.
    #[test]
    fn a_page_is_a_set() {
        for (range, words) in
            [(1, 8), (7, 8), (3000, 8), (100_000, 88), (1 << 44, 16), (1 << 60, 8)]
        {
            let geometry = Geometry::new(range, words);
            assert!(geometry.slots > 0, "{range} {words}");
            let mut page = vec![0; words];
            assert!(build(&geometry, &mut page, std::iter::empty()));
            let mut model = BTreeSet::new();
            for i in 0..20 * geometry.slots as u64 {
                let cell = ((u128::from(remix(i)) * u128::from(range)) >> 64) as u64;
                let place = find(&geometry, &page, cell).expect("a page of ours");
                assert_eq!(geometry.find::<false>(&page, cell), Some(place));
                assert_eq!(place.there, model.contains(&cell));
                assert_eq!(contains(&geometry, &page, cell), Some(place.there));
                assert_eq!(geometry.contains::<false>(&page, cell), Some(place.there));
                assert_eq!(geometry.is_full(&page), model.len() == geometry.slots);
                if !place.there && !geometry.is_full(&page) {
                    insert(&geometry, &mut page, place, cell);
                    model.insert(cell);
                    assert!(find(&geometry, &page, cell).is_some_and(|place| place.there));
                }
            }
            let found = cells_of(&geometry, &page);
            assert!(found.iter().eq(&model), "{range} {words}");
            let mut again = vec![u64::MAX; words];
            assert!(build(&geometry, &mut again, found.into_iter()));
            assert_eq!(again[..geometry.marks], page[..geometry.marks]);
            assert_eq!(cells_of(&geometry, &again), cells_of(&geometry, &page));
        }
    }

    /// Any words at all can be asked, changed and read without a panic.
    #[test]
    fn hostile_pages_do_no_harm() {
        let mut h = 1;
        for round in 0..2000u64 {
            let geometry = Geometry::new(1 << (round % 60), 8 + (round % 5) as usize * 8);
            let mut page: Vec<u64> = (0..8 + (round as usize % 5) * 8)
                .map(|_| {
                    h = remix(h + 1);
                    [0, u64::MAX, h, h & remix(h)][(round % 4) as usize]
                })
                .collect();
            for i in 0..20 {
                let cell = remix(i) % geometry.range;
                contains(&geometry, &page, cell);
                if let Some(place) = find(&geometry, &page, cell) {
                    insert(&geometry, &mut page, place, cell);
                }
            }
            assert!(cells_of(&geometry, &page).len() <= geometry.slots);
        }
    }

    /// The worked example: at 1% and 5,000 keys a user, seven pages of 14 lines, 10 bits a key.
    #[test]
    fn the_widths_that_suit() {
        let geometry = Geometry::new(833_334u64.div_ceil(7), 14 * 8);
        assert_eq!((geometry.tag_bits, geometry.buckets, geometry.slots), (7, 931, 777));
    }
}

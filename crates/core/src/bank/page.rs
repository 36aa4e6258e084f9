//! A page: cells of one range, packed. A cell is a number that stands for a key; what is kept of it
//! is its bucket, by position, and the rest, its tag.
//!
//! First come the marks: for each bucket a 0 for each of its cells, then a 1. Behind them lie the
//! tags in the same order. So a cell costs its tag and one bit, and a bucket one bit; Elias and Fano
//! wrote sorted numbers so. Unlike theirs, a page has room for more cells, and inserting one moves
//! what is behind it up by one place.

#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx2;

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
        let mut best = Geometry { range, tag_bits: 0, buckets: 0, slots: 0, marks: 0 };
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
                best = Geometry { range, tag_bits, buckets, slots, marks: marks(slots) };
            }
        }
        best
    }

    fn split(&self, cell: u64) -> (usize, u64) {
        ((cell >> self.tag_bits) as usize, cell & ((1 << self.tag_bits) - 1))
    }

    fn tag(&self, page: &[u64], slot: usize) -> u64 {
        if self.tag_bits == 0 {
            return 0;
        }
        let at = self.marks * 64 + slot * self.tag_bits as usize;
        let (word, shift) = (at / 64, at % 64);
        let low = page[word] >> shift;
        let high = if shift == 0 { 0 } else { page.get(word + 1).unwrap_or(&0) << (64 - shift) };
        (low | high) & ((1 << self.tag_bits) - 1)
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

    /// `None` for marks that no page of ours has.
    #[inline(always)]
    fn find<const FAST: bool>(&self, page: &[u64], cell: u64) -> Option<Place> {
        let (bucket, tag) = self.split(cell);
        let mut mark = match bucket {
            0 => 0,
            _ => select::<FAST>(&page[..self.marks], bucket - 1)? + 1,
        };
        let mut slot = mark - bucket;
        // A bucket holds one cell or so: a scan is as good as anything.
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

/// The place of the `rank`th one, counted from 0.
#[inline(always)]
fn select<const FAST: bool>(marks: &[u64], rank: usize) -> Option<usize> {
    let mut left = rank;
    for (i, word) in marks.iter().enumerate() {
        let ones = word.count_ones() as usize;
        if left < ones {
            return Some(i * 64 + select_in_word::<FAST>(*word, left));
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

pub fn find(geometry: &Geometry, page: &[u64], cell: u64) -> Option<Place> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "popcnt,bmi1,bmi2")]
        fn fast(geometry: &Geometry, page: &[u64], cell: u64) -> Option<Place> {
            geometry.find::<true>(page, cell)
        }
        if has_avx2() {
            // SAFETY: the processor was just asked; none with AVX2 lacks POPCNT.
            return unsafe { fast(geometry, page, cell) };
        }
    }
    geometry.find::<false>(page, cell)
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

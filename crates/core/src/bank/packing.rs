//! Writing pages: a cell that is inserted moves what is behind it up by one place.

use super::page::{Geometry, Position};

/// Inserts a cell that is not there into a page that is not full, at the place that `find` gave.
pub fn insert(geometry: &Geometry, page: &mut [u64], position: Position, cell: u64) {
    let (marks, tags) = page.split_at_mut(geometry.marks);
    make_room(marks, position.mark, 1, 0);
    let bits = geometry.tag_bits;
    // A slot past the last one comes from marks that no page of ours has.
    if bits > 0 && position.slot < geometry.slots {
        make_room(tags, position.slot * bits as usize, bits, geometry.split(cell).1);
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
    let bits = geometry.tag_bits as usize;
    let (marks, tags) = page.split_at_mut(geometry.marks);
    marks.fill(u64::MAX);
    tags.fill(0);
    let mut slot = 0;
    for cell in cells {
        if slot == geometry.slots {
            return false;
        }
        let (bucket, tag) = geometry.split(cell);
        let (mark, at) = (bucket + slot, slot * bits);
        marks[mark / 64] &= !(1 << (mark % 64));
        if bits > 0 {
            tags[at / 64] |= tag << (at % 64);
            if at % 64 + bits > 64 {
                tags[at / 64 + 1] |= tag >> (64 - at % 64);
            }
        }
        slot += 1;
    }
    // Behind the last bucket's 1 there are zeros.
    let end = geometry.buckets + slot;
    for (i, word) in marks.iter_mut().enumerate().skip(end / 64) {
        *word &= if i == end / 64 { (1 << (end % 64)) - 1 } else { 0 };
    }
    true
}

/// Appends the page's cells, each with `first` added: sorted, if the page is one of ours.
pub fn cells(geometry: &Geometry, page: &[u64], first: u64, out: &mut Vec<u64>) {
    let mut slot = 0;
    for (i, word) in page[..geometry.marks].iter().enumerate() {
        let mut zeros = !word;
        while zeros != 0 {
            // As many ones as buckets are before the mark, and as many zeros as slots.
            let bucket = i * 64 + zeros.trailing_zeros() as usize - slot;
            if bucket >= geometry.buckets || slot == geometry.slots {
                return;
            }
            let cell = (bucket as u64) << geometry.tag_bits | geometry.tag(page, slot);
            if cell < geometry.range {
                out.push(first + cell);
            }
            slot += 1;
            zeros &= zeros - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::page::{contains, find};
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
                let position = find(&geometry, &page, cell).expect("a page of ours");
                assert_eq!(geometry.find::<false>(&page, cell), Some(position));
                assert_eq!(position.there, model.contains(&cell));
                assert_eq!(contains(&geometry, &page, cell), Some(position.there));
                assert_eq!(geometry.contains::<false>(&page, cell), Some(position.there));
                assert_eq!(geometry.is_full(&page), model.len() == geometry.slots);
                if !position.there && !geometry.is_full(&page) {
                    insert(&geometry, &mut page, position, cell);
                    model.insert(cell);
                    assert!(find(&geometry, &page, cell).is_some_and(|position| position.there));
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
                if let Some(position) = find(&geometry, &page, cell) {
                    insert(&geometry, &mut page, position, cell);
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

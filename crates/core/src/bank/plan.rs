//! The numbers of a bank, and what follows from them: what a layer holds, and how its pages look.

use super::head::{MAX_PAGE_LINES, WORDS_PER_LINE};
use super::page::Geometry;
use crate::format::{FormatError, Header};

/// Of the error rate, what the first layer may use. With more, users of the size that was planned
/// take less memory and larger ones more: at 0.6, 5,000 keys at 1% take 10 bits each.
const FIRST_SHARE: f64 = 0.6;
/// Layer j is for 8^j times as many keys as layer 0 and has 20^j times as many cells: its share of
/// the error rate is 0.4^j times that of layer 0, which is 0.6: all of them together have no more than
/// the whole, however many there are.
const LAYER_GROWTH: u64 = 8;
const CELL_GROWTH: u64 = 20;
pub const MAX_LAYERS: usize = 8;
/// Hashes have 64 bits: with this many cells they are as good as used up.
const MAX_CELLS: u64 = 1 << 60;
/// Geometries that are made once: users of up to so many pages a layer.
const KNOWN_PAGES: u32 = 64;

/// Pages of a user who has as many keys as planned, at most: a record names them all.
const PAGES: std::ops::RangeInclusive<u32> = 1..=10;
/// Lines a page, where ten pages are not enough: 1 KiB, so that adding moves half of that at most.
const LARGE_PAGE: usize = 16;
/// How far above the mean, in standard deviations, the fullest page of a user may be before one more
/// is needed. Seven pages have all less than 2.5 in 96 users of 100.
const SPREAD: f64 = 2.5;

/// The lines of a page and the cells of the first layer that suit a bank: those for which a user with
/// `capacity` keys takes the least memory, a quarter of a page for users of other sizes counted in.
/// `None` if there are too many cells for hashes of 64 bits to fill.
pub fn suited(capacity: u64, error_rate: f64) -> Option<(u64, u64)> {
    let cells = (capacity as f64 / (FIRST_SHARE * error_rate)).ceil();
    if !(1.0..MAX_CELLS as f64 / (CELL_GROWTH * CELL_GROWTH) as f64).contains(&cells) {
        return None;
    }
    let cells = cells as u64;
    let holds = |pages: u32, lines: usize| {
        let mean = capacity as f64 / f64::from(pages);
        let most = mean + SPREAD * (mean * (1.0 - 1.0 / f64::from(pages))).sqrt();
        let range = cells.div_ceil(u64::from(pages));
        most <= Geometry::new(range, lines * WORDS_PER_LINE).slots as f64
    };
    let least = |pages| (1..=MAX_PAGE_LINES).find(|lines| holds(pages, *lines)).map(|l| (pages, l));
    let cost = |(pages, lines): &(u32, usize)| (4 * *pages as usize + 1) * lines;
    let best = PAGES.filter_map(least).min_by_key(cost);
    Some((best.map_or(LARGE_PAGE, |(_, lines)| lines) as u64, cells))
}

pub struct Plan {
    capacity: u64,
    cells: Vec<u64>,
    page_words: usize,
    known: Vec<Geometry>,
}

impl Plan {
    pub fn of(header: &Header) -> Result<Plan, FormatError> {
        let corrupt = |message: String| Err(FormatError::Corrupt(message));
        let [page_lines, cells, rest @ ..] = header.extra;
        if page_lines == 0 || page_lines > MAX_PAGE_LINES as u64 {
            return corrupt(format!("pages of {page_lines} lines, must be 1 to {MAX_PAGE_LINES}"));
        }
        if cells < header.capacity || cells > MAX_CELLS {
            let least = header.capacity;
            return corrupt(format!("{cells} cells, must be {least} to {MAX_CELLS}"));
        }
        let others = (header.layout, header.lines_per_key, header.num_hashes, header.num_bits);
        if rest != [0; 4] || others != (0, 0, 0, 0) {
            return corrupt("a field that a bank does not have is not 0".into());
        }
        let more = |cells: &u64| cells.checked_mul(CELL_GROWTH).filter(|cells| *cells <= MAX_CELLS);
        let cells: Vec<u64> = std::iter::successors(Some(cells), more).take(MAX_LAYERS).collect();
        let page_words = page_lines as usize * WORDS_PER_LINE;
        let mut plan = Plan { capacity: header.capacity, cells, page_words, known: Vec::new() };
        plan.known = (0..plan.layers())
            .flat_map(|layer| (1..=KNOWN_PAGES).map(move |pages| (layer, pages)))
            .map(|(layer, pages)| plan.make_geometry(layer, pages))
            .collect();
        Ok(plan)
    }

    pub fn layers(&self) -> usize {
        self.cells.len()
    }

    pub fn page_lines(&self) -> usize {
        self.page_words / WORDS_PER_LINE
    }

    /// Keys that layer takes before the next begins.
    pub fn capacity(&self, layer: usize) -> u64 {
        self.capacity.saturating_mul(LAYER_GROWTH.pow(layer as u32)).min(u64::from(u32::MAX))
    }

    pub fn cells(&self, layer: usize) -> u64 {
        self.cells[layer]
    }

    /// How the pages of that layer look if it has so many.
    pub fn geometry(&self, layer: usize, pages: u32) -> Geometry {
        match pages {
            1..=KNOWN_PAGES => self.known[layer * KNOWN_PAGES as usize + pages as usize - 1],
            _ => self.make_geometry(layer, pages),
        }
    }

    fn make_geometry(&self, layer: usize, pages: u32) -> Geometry {
        Geometry::new(self.cells[layer].div_ceil(u64::from(pages)), self.page_words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user of the planned size takes, in bits a key: near what a plain filter does.
    #[test]
    fn the_planned_size_is_cheap() {
        for (capacity, error_rate, most) in
            [(5000, 0.01, 10.3), (1000, 0.01, 10.8), (5000, 0.001, 14.0), (100, 0.01, 10.3)]
        {
            let (lines, cells) = suited(capacity, error_rate).expect("few cells");
            let words = lines as usize * WORDS_PER_LINE;
            let fits = |pages: &u32| {
                let mean = capacity as f64 / f64::from(*pages);
                let slots = Geometry::new(cells.div_ceil(u64::from(*pages)), words).slots;
                mean + 2.0 * mean.sqrt() * f64::from(u8::from(*pages > 1)) <= slots as f64
            };
            let pages = (1..100).find(fits).expect("enough pages");
            let bits = f64::from(pages) * lines as f64 * 512.0 / capacity as f64;
            assert!(bits <= most, "{capacity} at {error_rate}: {pages} x {lines}, {bits} bits");
        }
        assert_eq!(suited(5000, 1e-30), None);
    }
}

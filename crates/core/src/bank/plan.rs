//! The numbers of a bank, and what follows from them: what a layer holds, and how its pages look.

use super::head::{MAX_PAGE_LINES, WORDS_PER_LINE};
use super::page::Geometry;
use crate::format::{FormatError, Header};

/// Layer j is for 8^j times as many keys as layer 0 and has 20^j times as many cells: its share of
/// the error rate is 0.4^j times that of layer 0. Layer 0 has 0.6 of the whole: all of them together
/// have no more than 1, however many there are.
const LAYER_GROWTH: u64 = 8;
const CELL_GROWTH: u64 = 20;
pub const MAX_LAYERS: usize = 8;
/// Hashes have 64 bits: with this many cells they are as good as used up.
const MAX_CELLS: u64 = 1 << 60;
/// Geometries that are made once: users of up to so many pages a layer.
const KNOWN_PAGES: u32 = 64;

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

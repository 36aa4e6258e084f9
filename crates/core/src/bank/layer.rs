//! A layer of one user: its record, one line, and its pages. The newest layer takes new keys; the
//! older ones are full and never change.

use super::Trouble;
use super::head::WORDS_PER_LINE;
use super::packing;
use super::page;
use super::plan::Plan;
use super::space::Space;
use crate::probe::mulhi;

/// Roots in a record. Up to as many pages are named there; for more, the roots are pages of numbers
/// of pages, as many levels as it takes.
pub const ROOTS: usize = 10;
pub const MAX_PAGES: u32 = 1 << 24;

#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    pub user: u64,
    /// The record of the layer before; 0 for the first.
    pub prev: u32,
    pub layer: u8,
    pub pages: u32,
    pub count: u32,
    /// The flush to come when it was made.
    pub epoch: u32,
    pub roots: [u32; ROOTS],
}

impl Record {
    pub fn read(space: &Space, plan: &Plan, line: u32) -> Result<Record, Trouble> {
        let words = space.lines(line, 1)?;
        let half = |i: usize| (words[3 + i / 2] >> (32 * (i % 2))) as u32;
        let record = Record {
            user: words[0],
            prev: words[1] as u32,
            layer: (words[1] >> 56) as u8,
            pages: (words[1] >> 32) as u32 % MAX_PAGES,
            count: words[2] as u32,
            epoch: (words[2] >> 32) as u32,
            roots: std::array::from_fn(half),
        };
        let possible = 1..=space.words().len() / (space.page_lines * WORDS_PER_LINE);
        let layer_exists = usize::from(record.layer) < plan.layers();
        if !layer_exists || !possible.contains(&(record.pages as usize)) {
            return Err(Trouble::Corrupt(format!("line {line} is not a user's record")));
        }
        Ok(record)
    }

    pub fn write(&self, space: &mut Space, line: u32) -> Result<(), Trouble> {
        let words = space.lines_mut(line, 1)?;
        let packed = u64::from(self.layer) << 24 | u64::from(self.pages);
        words[0] = self.user;
        words[1] = u64::from(self.prev) | packed << 32;
        words[2] = u64::from(self.count) | u64::from(self.epoch) << 32;
        for (word, pair) in words[3..].iter_mut().zip(self.roots.chunks_exact(2)) {
            *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        Ok(())
    }

    /// One store, which leaves the epoch as it is.
    pub fn set_count(&self, space: &mut Space, line: u32, count: u32) {
        let packed = u64::from(count) | u64::from(self.epoch) << 32;
        space.publish(line as usize * WORDS_PER_LINE + 2, packed);
    }

    /// The layer before, which is one lower: a chain of records has an end.
    pub fn before(&self, space: &Space, plan: &Plan) -> Result<Option<Record>, Trouble> {
        if self.layer == 0 {
            return Ok(None);
        }
        let record = Record::read(space, plan, self.prev)?;
        if record.layer + 1 != self.layer || record.user != self.user {
            let message = format!("line {} is not the record before another", self.prev);
            return Err(Trouble::Corrupt(message));
        }
        Ok(Some(record))
    }

    /// The page of a cell, and the cell within it.
    pub fn locate(&self, plan: &Plan, h: u64) -> (page::Geometry, u32, u64) {
        let layer = usize::from(self.layer);
        let (cell, geometry) = (mulhi(h, plan.cells(layer)), plan.geometry(layer, self.pages));
        let (number, cell) = geometry.page_of(cell);
        (geometry, number, cell)
    }

    pub fn contains(&self, space: &Space, plan: &Plan, h: u64) -> Result<bool, Trouble> {
        let (geometry, number, cell) = self.locate(plan, h);
        let page = space.page(self.page(space, number)?)?;
        page::contains(&geometry, page, cell).ok_or_else(bad_marks)
    }

    /// The line of the page with that number.
    pub fn page(&self, space: &Space, number: u32) -> Result<u32, Trouble> {
        let fan = numbers_a_page(space);
        let (mut index, mut span) = (number as usize, span(fan, self.pages as usize));
        let mut line = *self.roots.get(index / span).ok_or_else(no_page)?;
        while span > 1 {
            index %= span;
            span /= fan;
            let word = space.page(line)?[index / span / 2];
            line = (word >> (32 * (index / span % 2))) as u32;
        }
        Ok(line)
    }

    /// Calls `each` with the line of every page, and of every page of numbers.
    pub fn all_pages(
        &self,
        space: &Space,
        mut each: impl FnMut(u32) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        for number in 0..self.pages {
            each(self.page(space, number)?)?;
        }
        self.index_pages(space, &mut each)
    }

    fn index_pages(
        &self,
        space: &Space,
        each: &mut impl FnMut(u32) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let (fan, pages) = (numbers_a_page(space), self.pages as usize);
        let mut below = span(fan, pages);
        let mut level: Vec<u32> = self.roots[..pages.div_ceil(below).min(ROOTS)].to_vec();
        while below > 1 {
            below /= fan;
            let (mut next, mut left) = (Vec::new(), pages.div_ceil(below));
            for line in level {
                each(line)?;
                let numbers = space.page(line)?.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]);
                next.extend(numbers.take(left));
                left = left.saturating_sub(fan);
            }
            level = next;
        }
        Ok(())
    }

    /// The layer's cells, sorted.
    pub fn cells(&self, space: &Space, plan: &Plan) -> Result<Vec<u64>, Trouble> {
        let geometry = plan.geometry(usize::from(self.layer), self.pages);
        let mut cells = Vec::with_capacity(self.count.min(1 << 20) as usize);
        for number in 0..self.pages {
            let first = u64::from(number) * geometry.range;
            let page = space.page(self.page(space, number)?)?;
            packing::cells(&geometry, page, first, &mut cells);
        }
        // Pages of ours are sorted and hold nothing beyond the last cell.
        let most = plan.cells(usize::from(self.layer));
        if !cells.is_sorted() || cells.last().is_some_and(|last| *last >= most) {
            return Err(bad_marks());
        }
        Ok(cells)
    }
}

pub fn numbers_a_page(space: &Space) -> usize {
    space.page_lines * WORDS_PER_LINE * 2
}

/// Pages below each root.
pub fn span(fan: usize, pages: usize) -> usize {
    let mut span = 1;
    while span * ROOTS < pages {
        span *= fan;
    }
    span
}

#[cold]
pub fn bad_marks() -> Trouble {
    Trouble::Corrupt("a page's marks are not a page's".into())
}

#[cold]
fn no_page() -> Trouble {
    Trouble::Corrupt("a record has fewer pages than it says".into())
}

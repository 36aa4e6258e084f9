//! What makes or replaces a layer. Nothing that the directory leads to is touched: the new layer is
//! written whole, then one store puts it in the old one's place.

use super::head::WORDS_PER_LINE;
use super::layer::{MAX_PAGES, ROOTS, Record, numbers_a_page, span};
use super::packing;
use super::page::Geometry;
use super::space::List;
use super::{Bank, Trouble};

impl Bank {
    /// Writes a layer with these cells, sorted, in `pages` pages or the fewest more that hold them;
    /// returns the line of its record.
    pub(super) fn write_layer(
        &mut self,
        record: Record,
        cells: &[u64],
        mut pages: u32,
    ) -> Result<u32, Trouble> {
        let layer = usize::from(record.layer);
        while !fits(&self.plan.geometry(layer, pages), cells) {
            pages += 1;
        }
        if pages >= MAX_PAGES {
            let message = "a user has as many keys as it can: more need a larger keys_per_filter";
            return Err(Trouble::Full(message.into()));
        }
        let geometry = self.plan.geometry(layer, pages);
        let mut made = Vec::with_capacity(pages as usize + 1);
        let written = self.write_pages(&geometry, cells, pages, &mut made).and_then(|roots| {
            let count = cells.len() as u32;
            let epoch = self.space.epoch;
            let line = self.space.take(List::Lines)?;
            Record { pages, count, epoch, roots, ..record }.write(&mut self.space, line)?;
            Ok(line)
        });
        if written.is_err() {
            for page in made {
                self.space.push(page, List::Pages)?;
            }
        }
        written
    }

    fn write_pages(
        &mut self,
        geometry: &Geometry,
        cells: &[u64],
        pages: u32,
        made: &mut Vec<u32>,
    ) -> Result<[u32; ROOTS], Trouble> {
        let mut left = cells;
        for number in 0..u64::from(pages) {
            let (first, line) = (number * geometry.range, self.space.take(List::Pages)?);
            made.push(line);
            let (mine, rest) = left.split_at(left.partition_point(|c| c - first < geometry.range));
            packing::build(geometry, self.space.page_mut(line)?, mine.iter().map(|c| c - first));
            left = rest;
        }
        // Pages of numbers, level by level, until the roots hold what is left.
        let fan = numbers_a_page(&self.space);
        let mut level = made.clone();
        let mut below = 1;
        while below < span(fan, pages as usize) {
            let mut above = Vec::with_capacity(level.len() / fan + 1);
            for numbers in level.chunks(fan) {
                let line = self.space.take(List::Pages)?;
                made.push(line);
                above.push(line);
                let words = self.space.page_mut(line)?;
                words.fill(0);
                for (i, number) in numbers.iter().enumerate() {
                    words[i / 2] |= u64::from(*number) << (32 * (i % 2));
                }
            }
            (level, below) = (above, below * fan);
        }
        let mut roots = [0; ROOTS];
        roots[..level.len()].copy_from_slice(&level);
        Ok(roots)
    }

    /// The same layer in new memory, with room for more if it is to grow.
    pub(super) fn replace_layer(
        &mut self,
        slot: usize,
        line: u32,
        record: &Record,
        pages: u32,
    ) -> Result<u32, Trouble> {
        let cells = record.cells(&self.space, &self.plan)?;
        let root = self.write_layer(*record, &cells, pages)?;
        super::directory::switch(&mut self.space, slot, root);
        let waiting = self.space.pending_lines();
        self.release(line, record)?;
        self.space.count_copied(self.space.pending_lines() - waiting);
        Ok(root)
    }

    /// Gives a layer's memory back.
    pub(super) fn release(&mut self, line: u32, record: &Record) -> Result<(), Trouble> {
        let mut lines = Vec::with_capacity(record.pages as usize + 1);
        record.all_pages(&self.space, |page| {
            lines.push(page);
            Ok(())
        })?;
        for page in lines {
            self.space.give_back(page, List::Pages, record.epoch)?;
        }
        self.space.give_back(line, List::Lines, record.epoch)
    }
}

/// Does no page get more cells than it has slots?
fn fits(geometry: &Geometry, cells: &[u64]) -> bool {
    let mut left = cells;
    let mut end = 0;
    while !left.is_empty() {
        end += geometry.range;
        let mine = left.partition_point(|cell| *cell < end);
        if mine > geometry.slots {
            return false;
        }
        left = &left[mine..];
    }
    true
}

const _: () = assert!(3 * 2 + ROOTS == 2 * WORDS_PER_LINE);

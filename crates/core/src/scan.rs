//! A scan of a filter's memory for its figures: of all of it, or of some pages, which tell how full
//! the whole is at a cost that does not grow with it. Hashes are spread evenly, so any part is like any other.

use std::sync::atomic::AtomicU64;

use crate::bits::WORDS_PER_LINE;
use crate::kind::Fact;

/// Lines that lie side by side: a page, which memory brings at once.
const WINDOW: usize = 64 * WORDS_PER_LINE;

/// How much memory to read, and where.
#[derive(Clone, Copy)]
pub struct Scan {
    /// At most so many pages of 4 KiB.
    pub pages: usize,
    /// Which ones.
    pub seed: u64,
}

impl Scan {
    pub const ALL: Scan = Scan { pages: usize::MAX, seed: 0 };

    /// The words to read: all of them, or pages at about even distances. Each part but the last of
    /// all begins and ends with a line.
    pub fn parts(self, words: &[AtomicU64]) -> impl Iterator<Item = &[AtomicU64]> {
        let whole = words.len() / WINDOW <= self.pages;
        let pages = if whole { 1 } else { self.pages };
        let step = words.len() / pages.max(1) / WORDS_PER_LINE * WORDS_PER_LINE;
        let seed = self.seed as usize;
        (0..pages).map(move |page| {
            if whole {
                return words;
            }
            let spare = (step - WINDOW) / WORDS_PER_LINE + 1;
            let place = seed.wrapping_mul(2 * page + 1) % spare * WORDS_PER_LINE;
            let start = page * step + place;
            &words[start..start + WINDOW]
        })
    }
}

/// How full a filter is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Distinct keys, estimated.
    pub count: f64,
    pub error_rate: f64,
    pub fill_ratio: f64,
}

impl Figures {
    /// From what a filter tells of itself.
    pub fn of(facts: &[(&'static str, Fact)]) -> Figures {
        let number = |name| {
            let found = facts.iter().find(|(known, _)| *known == name);
            match found.map(|(_, fact)| fact) {
                Some(Fact::Int(value)) => *value as f64,
                Some(Fact::Float(value)) => *value,
                _ => f64::NAN,
            }
        };
        Figures {
            count: number("estimated_count"),
            error_rate: number("estimated_error_rate"),
            fill_ratio: number("fill_ratio"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_lines_apart_and_within() {
        for lines in [0, 1, 63, 64, 65, 200, 6400, 100_003] {
            let words: Vec<AtomicU64> =
                (0..lines * WORDS_PER_LINE).map(|i| AtomicU64::new(i as u64)).collect();
            for (pages, seed) in [(1, 0), (16, 7), (16, u64::MAX), (usize::MAX, 1)] {
                let mut end = 0;
                let mut seen = 0;
                for part in (Scan { pages, seed }).parts(&words) {
                    let Some(first) = part.first() else { continue };
                    let start = first.load(std::sync::atomic::Ordering::Relaxed) as usize;
                    assert!(start >= end && start.is_multiple_of(WORDS_PER_LINE));
                    end = start + part.len();
                    seen += part.len();
                }
                assert!(end <= words.len());
                assert!(seen == words.len() || seen == pages * WINDOW, "{lines} {pages}: {seen}");
            }
        }
    }
}

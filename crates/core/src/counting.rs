//! Counters of 4 or 8 bits: a key adds one to each of its cells and takes one from each when it is
//! removed. A counter that reached its maximum no longer knows how many keys it stands for, so it
//! stays there for ever: it errs upwards, never downwards.

use crate::bits::{Bits, LINE_BITS, WORDS_PER_LINE};
use crate::cells::{Cells, Line, Rule};
use crate::format::{FormatError, Header};
use crate::kind::{AnyKind, Fact, Merge};
use crate::scan::Scan;

pub fn open(header: &Header, body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    match header.extra[0] {
        4 => Ok(Box::new(Cells::<Counters<4>>::open(header, body)?)),
        8 => Ok(Box::new(Cells::<Counters<8>>::open(header, body)?)),
        other => Err(FormatError::Corrupt(format!("counters of {other} bits, must be 4 or 8"))),
    }
}

/// Counters of `WIDTH` bits side by side.
struct Counters<const WIDTH: usize>;

impl<const WIDTH: usize> Counters<WIDTH> {
    const MAX: u64 = (1 << WIDTH) - 1;

    /// The lowest bit of each counter that is not 0; other bits are rubbish.
    #[inline(always)]
    fn not_zero(word: u64) -> u64 {
        let pairs = word | word >> 1;
        let fours = pairs | pairs >> 2;
        if WIDTH == 8 { fours | fours >> 4 } else { fours }
    }

    /// The lowest bit of each counter that is at its maximum; other bits are rubbish.
    #[inline(always)]
    fn full(word: u64) -> u64 {
        let pairs = word & word >> 1;
        let fours = pairs & pairs >> 2;
        if WIDTH == 8 { fours & fours >> 4 } else { fours }
    }

    fn values(word: u64) -> impl Iterator<Item = u64> {
        (0..64).step_by(WIDTH).map(move |shift| word >> shift & Self::MAX)
    }
}

impl<const WIDTH: usize> Rule for Counters<WIDTH> {
    const CELLS: u64 = LINE_BITS / WIDTH as u64;

    const WIDTH: u64 = WIDTH as u64;
    const REGIONS: u64 = 0;

    #[inline(always)]
    fn contains(line: &Line, mask: &Line) -> bool {
        let mut empty = 0;
        for i in 0..WORDS_PER_LINE {
            empty |= mask[i] & !Self::not_zero(line[i]);
        }
        empty == 0
    }

    #[inline(always)]
    fn add(line: &mut Line, mask: &Line) -> bool {
        let mut empty = 0;
        for (word, mask) in line.iter_mut().zip(mask) {
            empty |= mask & !Self::not_zero(*word);
            // No counter overflows into the next: full ones are left alone.
            *word = word.wrapping_add(mask & !Self::full(*word));
        }
        empty != 0
    }

    #[inline(always)]
    fn remove(line: &mut Line, mask: &Line) -> bool {
        let mut taken = 0;
        for (word, mask) in line.iter_mut().zip(mask) {
            let down = mask & !Self::full(*word) & Self::not_zero(*word);
            taken |= down;
            *word = word.wrapping_sub(down);
        }
        taken != 0
    }

    fn count(line: &Line, mask: &Line) -> u64 {
        let both = line.iter().zip(mask).flat_map(|(w, m)| Self::values(*w).zip(Self::values(*m)));
        both.filter(|(_, asked)| *asked != 0).map(|(value, _)| value).min().unwrap_or(0)
    }

    /// Of two filters together each key is there as often as in both (the union), or as often as in
    /// the one that has it less often (the intersection).
    fn merge(word: u64, other: u64, how: Merge) -> u64 {
        let pairs = Self::values(word).zip(Self::values(other));
        let merged = pairs.map(|(mine, theirs)| match how {
            Merge::Union => (mine + theirs).min(Self::MAX),
            Merge::Intersection => mine.min(theirs),
        });
        merged.enumerate().fold(0, |word, (i, value)| word | value << (i * WIDTH))
    }

    fn used(line: &Line) -> u64 {
        let ones = u64::MAX / Self::MAX;
        line.iter().map(|word| u64::from((Self::not_zero(*word) & ones).count_ones())).sum()
    }

    fn facts(cells: &Cells<Self>) -> Vec<(&'static str, Fact)> {
        let ones = u64::MAX / Self::MAX;
        let full = |word: u64| u64::from((Self::full(word) & ones).count_ones());
        let saturated =
            cells.lines(Scan::ALL).map(|line| line.into_iter().map(full).sum::<u64>()).sum();
        vec![
            ("counter_bits", Fact::Int(WIDTH as u64)),
            ("saturated_counters", Fact::Int(saturated)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::tests::{cells_of, fact, hashes, header};
    use crate::format::KindId;
    use crate::kind::{Removal, open};

    /// The counters of a filter, one u64 each.
    struct Model {
        header: Header,
        counters: Vec<u64>,
        max: u64,
    }

    impl Model {
        fn new(header: Header) -> Model {
            let bits = header.extra[0];
            let counters = vec![0; (header.num_bits / bits) as usize];
            Model { header, counters, max: (1 << bits) - 1 }
        }

        fn cells(&self, h: u64) -> Vec<usize> {
            let cells = 512 / self.header.extra[0];
            let found = cells_of(h, &self.header, cells).into_iter();
            found.map(|(line, cell)| line * cells as usize + cell as usize).collect()
        }

        fn count(&self, h: u64) -> u64 {
            self.cells(h).iter().map(|c| self.counters[*c]).min().unwrap_or(0)
        }

        fn add(&mut self, h: u64) -> bool {
            let new = self.count(h) == 0;
            for c in self.cells(h) {
                self.counters[c] = (self.counters[c] + 1).min(self.max);
            }
            new
        }

        fn remove(&mut self, h: u64) -> Removal {
            if self.count(h) == 0 {
                return Removal::Absent;
            }
            let cells = self.cells(h);
            let down: Vec<usize> =
                cells.into_iter().filter(|c| self.counters[*c] < self.max).collect();
            down.iter().for_each(|c| self.counters[*c] -= 1);
            if down.is_empty() { Removal::Kept } else { Removal::Removed }
        }

        fn words(&self) -> Vec<u64> {
            let bits = self.header.extra[0];
            let word = |counters: &[u64]| counters.iter().rev().fold(0, |w, c| w << bits | c);
            self.counters.chunks(64 / bits as usize).map(word).collect()
        }
    }

    fn words(filter: &dyn AnyKind) -> Vec<u64> {
        let sections = filter.sections();
        sections[0].words().iter().map(|w| w.load(std::sync::atomic::Ordering::Relaxed)).collect()
    }

    fn beside_the_model(bits: u64, per_key: u8, hashes_per_key: u16) {
        let header = header(KindId::Counting, bits, 3, per_key, hashes_per_key);
        let mut filter = open(&header, None).expect("an empty filter");
        let mut model = Model::new(header);
        let keys: Vec<u64> = hashes(bits).take(40).collect();
        for random in hashes(u64::from(hashes_per_key)).take(3000) {
            // Half of what is done is done to one key, which saturates its counters; keys that were
            // never added are removed too, and must not take counters below 0.
            let h = keys[if random >> 32 & 1 == 0 { 0 } else { random as usize % keys.len() }];
            match random >> 62 {
                0 => assert_eq!(filter.remove(h), Ok(model.remove(h))),
                _ => assert_eq!(filter.add(h), Ok(model.add(h))),
            }
            assert_eq!(filter.count(h), model.count(h));
            assert_eq!(filter.contains(h), model.count(h) > 0);
        }
        assert_eq!(words(&*filter), model.words());
        let full = model.counters.iter().filter(|c| **c == model.max).count();
        assert!(full > 0);
        assert_eq!(fact(&filter.facts(), "saturated_counters"), full as f64);
        let used = model.counters.iter().filter(|c| **c > 0).count();
        let fill = used as f64 / model.counters.len() as f64;
        assert_eq!(fact(&filter.facts(), "fill_ratio"), fill);
    }

    /// Through any adds and removes the memory is what one large counter a cell would give.
    #[test]
    fn as_the_model_says() {
        for bits in [4, 8] {
            for (per_key, hashes) in [(1, 1), (1, 4), (1, 7), (1, 16), (2, 6), (2, 10), (2, 32)] {
                beside_the_model(bits, per_key, hashes);
            }
        }
    }

    /// A union counts what both hold, an intersection the lesser; full counters stay full.
    #[test]
    fn merged_counters() {
        for bits in [4, 8] {
            let header = header(KindId::Counting, bits, 5, 2, 6);
            for how in [Merge::Union, Merge::Intersection] {
                let (mut one, mut two) = (Model::new(header), Model::new(header));
                let mut first = open(&header, None).expect("an empty filter");
                let mut second = open(&header, None).expect("an empty filter");
                for (i, h) in hashes(bits).take(2000).enumerate() {
                    let (filter, model) =
                        if i % 2 == 0 { (&mut first, &mut one) } else { (&mut second, &mut two) };
                    assert_eq!(filter.add(h), Ok(model.add(h)));
                }
                assert_eq!(first.merge(&*second, how), Ok(()));
                for (mine, theirs) in one.counters.iter_mut().zip(&two.counters) {
                    *mine = match how {
                        Merge::Union => (*mine + theirs).min(one.max),
                        Merge::Intersection => (*mine).min(*theirs),
                    };
                }
                assert_eq!(words(&*first), one.words());
            }
        }
    }

    /// How many keys there are, and how often it errs, is about what the counters tell.
    #[test]
    fn the_estimates_are_near() {
        for (bits, per_key, hashes_per_key) in [(4, 1, 6), (4, 2, 6), (8, 2, 8), (8, 1, 12)] {
            let header = header(KindId::Counting, bits, 500, per_key, hashes_per_key);
            let mut filter = open(&header, None).expect("an empty filter");
            let all: Vec<u64> = hashes(bits).take(80_000).collect();
            let (keys, others) = all.split_at(500 * 60 / bits as usize);
            keys.iter().for_each(|h| assert!(filter.add(*h).is_ok()));
            let facts = filter.facts();
            let (count, keys) = (fact(&facts, "estimated_count"), keys.len() as f64);
            assert!((count / keys - 1.0).abs() < 0.03, "{count} of {keys}");
            let wrong = others.iter().filter(|h| filter.contains(**h)).count() as f64;
            let expected = fact(&facts, "estimated_error_rate") * others.len() as f64;
            assert!((wrong - expected).abs() < 5.0 * expected.sqrt(), "{wrong}, {expected}");
        }
    }
}

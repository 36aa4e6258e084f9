//! Bits in regions, each with a flag that says that keys collided there. A bit in a region without
//! the flag belongs to one key alone, so that key can take it back; that is enough to be gone.
//!
//! A region is its bits and, above them, its flag: 4, 8, 16 or 32 bits in all. A key that finds one
//! of its bits set flags the region. Was the bit its own, because it is added a second time? Nobody
//! can tell, and taking it back would lose the other key, if there is one: the region is flagged.

use crate::bits::{Bits, LINE_BITS, WORDS_PER_LINE};
use crate::cells::{Cells, Line, Rule};
use crate::format::{FormatError, Header};
use crate::kind::{AnyKind, Fact, Merge};
use crate::scan::Scan;

pub fn open(header: &Header, body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    match header.extra[0] {
        128 => Ok(Box::new(Cells::<Regions<4>>::open(header, body)?)),
        64 => Ok(Box::new(Cells::<Regions<8>>::open(header, body)?)),
        32 => Ok(Box::new(Cells::<Regions<16>>::open(header, body)?)),
        16 => Ok(Box::new(Cells::<Regions<32>>::open(header, body)?)),
        other => Err(FormatError::Corrupt(format!(
            "{other} regions in a line, must be 16, 32, 64 or 128"
        ))),
    }
}

/// Regions of `SPAN` bits, flag included.
struct Regions<const SPAN: u64>;

impl<const SPAN: u64> Regions<SPAN> {
    /// The flag of every region in a word, and the lowest bit of every region.
    const FLAGS: u64 = Self::LOWEST << (SPAN - 1);
    const LOWEST: u64 = u64::MAX / ((1 << SPAN) - 1);

    /// The flags of the regions where one of these bits is.
    #[inline(always)]
    fn flags(bits: u64) -> u64 {
        // All bits but the flag, and one more, carry into the flag.
        bits.wrapping_add(Self::FLAGS - Self::LOWEST) & Self::FLAGS
    }

    /// The bits in regions without a flag.
    #[inline(always)]
    fn free(word: u64) -> u64 {
        let flags = word & Self::FLAGS;
        // A flag less the lowest bit is all bits below the flag.
        !(flags | (flags - (flags >> (SPAN - 1))))
    }
}

impl<const SPAN: u64> Rule for Regions<SPAN> {
    const CELLS: u64 = LINE_BITS - Self::REGIONS;

    const WIDTH: u64 = 1;
    const REGIONS: u64 = LINE_BITS / SPAN;

    #[inline(always)]
    fn contains(line: &Line, mask: &Line) -> bool {
        let mut empty = 0;
        for i in 0..WORDS_PER_LINE {
            empty |= mask[i] & !line[i];
        }
        empty == 0
    }

    #[inline(always)]
    fn add(line: &mut Line, mask: &Line) -> bool {
        let mut empty = 0;
        for (word, mask) in line.iter_mut().zip(mask) {
            empty |= mask & !*word;
            *word |= mask | Self::flags(*word & mask);
        }
        empty != 0
    }

    #[inline(always)]
    fn remove(line: &mut Line, mask: &Line) -> bool {
        let mut taken = 0;
        for (word, mask) in line.iter_mut().zip(mask) {
            let own = mask & *word & Self::free(*word);
            taken |= own;
            *word &= !own;
        }
        taken != 0
    }

    fn count(line: &Line, mask: &Line) -> u64 {
        u64::from(Self::contains(line, mask))
    }

    /// A bit that both have belonged to a key in each. In an intersection a bit is a key's own if
    /// it was so in either: keys that both hold were then at most one.
    fn merge(word: u64, other: u64, how: Merge) -> u64 {
        match how {
            Merge::Union => word | other | Self::flags(word & other & !Self::FLAGS),
            Merge::Intersection => word & other,
        }
    }

    fn used(line: &Line) -> u64 {
        line.iter().map(|word| u64::from((word & !Self::FLAGS).count_ones())).sum()
    }

    fn facts(cells: &Cells<Self>) -> Vec<(&'static str, Fact)> {
        let (draws, lines_per_key) = cells.powers();
        let (mut regions, mut collided, mut drawn, mut stuck) = (0, 0, 0.0, 0.0);
        for line in cells.lines(Scan::ALL) {
            let count = |of: fn(u64) -> u64| -> u64 {
                line.iter().map(|word| u64::from(of(*word).count_ones())).sum()
            };
            regions += Self::REGIONS;
            collided += count(|word| word & Self::FLAGS);
            // Of what keys drew in this line, so much is still one key's own.
            let here = cells.visits(Self::used(&line), 1.0) * f64::from(draws);
            let own = count(|word| word & Self::free(word) & !Self::FLAGS) as f64;
            drawn += here;
            stuck += if own < here { here * (1.0 - own / here).powi(draws) } else { 0.0 };
        }
        let stuck = if drawn > 0.0 { (stuck / drawn).powi(lines_per_key) } else { 0.0 };
        vec![
            ("regions", Fact::Int(regions)),
            ("collided_regions", Fact::Int(collided)),
            ("estimated_removable_share", Fact::Float(1.0 - stuck)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::tests::{cells_of, fact, hashes, header};
    use crate::format::KindId;
    use crate::kind::{Removal, open};

    /// The bits and flags of a filter, one byte each.
    struct Model {
        header: Header,
        bits: Vec<bool>,
        flags: Vec<bool>,
    }

    impl Model {
        fn regions(&self) -> usize {
            self.header.extra[0] as usize
        }

        /// Each of the key's bits, with its region.
        fn cells(&self, h: u64) -> Vec<(usize, usize)> {
            let cells = 512 - self.regions();
            let of = |(line, cell): (usize, u64)| {
                let region = cell as usize / (cells / self.regions());
                (line * cells + cell as usize, line * self.regions() + region)
            };
            cells_of(h, &self.header, cells as u64).into_iter().map(of).collect()
        }

        fn contains(&self, h: u64) -> bool {
            self.cells(h).iter().all(|(bit, _)| self.bits[*bit])
        }

        fn add(&mut self, h: u64) -> bool {
            let new = !self.contains(h);
            for (bit, region) in self.cells(h) {
                self.flags[region] |= self.bits[bit];
                self.bits[bit] = true;
            }
            new
        }

        fn remove(&mut self, h: u64) -> Removal {
            if !self.contains(h) {
                return Removal::Absent;
            }
            let cells = self.cells(h);
            let own = cells.iter().filter(|(_, region)| !self.flags[*region]);
            let own: Vec<usize> = own.map(|(bit, _)| *bit).collect();
            own.iter().for_each(|bit| self.bits[*bit] = false);
            if own.is_empty() { Removal::Kept } else { Removal::Removed }
        }

        fn bytes(&self) -> Vec<u8> {
            let (regions, cells) = (self.regions(), 512 - self.regions());
            let span = cells / regions;
            let mut bits = Vec::new();
            for (region, flag) in self.flags.iter().enumerate() {
                bits.extend_from_slice(&self.bits[region * span..(region + 1) * span]);
                bits.push(*flag);
            }
            let byte = |bits: &[bool]| bits.iter().rev().fold(0, |b, bit| b << 1 | u8::from(*bit));
            bits.chunks(8).map(byte).collect()
        }
    }

    fn beside_the_model(regions: u64, per_key: u8, hashes_per_key: u16) {
        let header = header(KindId::Deletable, regions, 3, per_key, hashes_per_key);
        let mut filter = open(&header, None).expect("an empty filter");
        let size = 3 * (512 - regions) as usize;
        let mut model =
            Model { header, bits: vec![false; size], flags: vec![false; 3 * regions as usize] };
        let keys: Vec<u64> = hashes(regions).take(40).collect();
        let mut held = vec![0; keys.len()];
        for (step, random) in hashes(u64::from(hashes_per_key)).take(400).enumerate() {
            let i = random as usize % if step < 200 { 20 } else { keys.len() };
            let h = keys[i];
            if random >> 63 == 0 {
                assert_eq!(filter.add(h), Ok(model.add(h)));
                held[i] += 1;
            } else if held[i] > 0 {
                let removable = filter.ask("removable", h);
                let removal = model.remove(h);
                assert_eq!(filter.remove(h), Ok(removal));
                assert_eq!(removable, Some(Fact::Bool(removal == Removal::Removed)));
                assert_ne!(removal, Removal::Absent);
                if removal == Removal::Removed {
                    held[i] -= 1;
                    assert!(!filter.contains(h), "a key that was taken out is gone");
                }
            } else {
                assert_eq!(filter.contains(h), model.contains(h));
            }
            for (key, times) in keys.iter().zip(&held) {
                assert!(*times == 0 || filter.contains(*key), "no key is lost");
            }
            let bytes: Vec<u8> = filter.sections()[0]
                .words()
                .iter()
                .flat_map(|w| w.load(std::sync::atomic::Ordering::Relaxed).to_le_bytes())
                .collect();
            assert_eq!(bytes, model.bytes());
        }
        let flags = model.flags.iter().filter(|f| **f).count();
        assert_eq!(fact(&filter.facts(), "collided_regions"), flags as f64);
        assert_eq!(fact(&filter.facts(), "regions"), model.flags.len() as f64);
    }

    /// Through any adds and removes the memory is what one byte a bit would give, and no key is lost.
    #[test]
    fn as_the_model_says() {
        for regions in [16, 32, 64, 128] {
            for (per_key, hashes) in [(1, 1), (1, 6), (1, 16), (2, 6), (2, 26)] {
                beside_the_model(regions, per_key, hashes);
            }
        }
    }

    /// A union loses no key of either, nor does removing one of its keys; an intersection loses none
    /// that both hold.
    #[test]
    fn merged_filters_lose_nothing() {
        for how in [Merge::Union, Merge::Intersection] {
            for regions in [16, 32, 64, 128] {
                let header = header(KindId::Deletable, regions, 15, 2, 6);
                let mut first = open(&header, None).expect("an empty filter");
                let mut second = open(&header, None).expect("an empty filter");
                let keys: Vec<u64> = hashes(regions).take(300).collect();
                keys[..200].iter().for_each(|h| assert!(first.add(*h).is_ok()));
                keys[100..].iter().for_each(|h| assert!(second.add(*h).is_ok()));
                assert_eq!(first.merge(&*second, how), Ok(()));
                let held = if how == Merge::Union { 0..300 } else { 100..200 };
                let mut left = keys[held].to_vec();
                assert!(left.iter().all(|h| first.contains(*h)));
                while let Some(h) = left.pop() {
                    assert_ne!(first.remove(h), Ok(Removal::Absent));
                    assert!(left.iter().all(|h| first.contains(*h)));
                }
            }
        }
    }

    /// The share of keys that can be removed, as told from the flags, is about the true one.
    #[test]
    fn the_removable_share_is_known() {
        for (regions, per_key, hashes_per_key) in [(64, 1, 6), (64, 2, 6), (128, 1, 9), (32, 1, 6)]
        {
            for keys in [8_000, 40_000] {
                let header = header(KindId::Deletable, regions, 1000, per_key, hashes_per_key);
                let mut filter = open(&header, None).expect("an empty filter");
                let keys: Vec<u64> = hashes(7).take(keys).collect();
                keys.iter().for_each(|h| assert!(filter.add(*h).is_ok()));
                let free = |h: &&u64| filter.ask("removable", **h) == Some(Fact::Bool(true));
                let share = keys.iter().filter(free).count() as f64 / keys.len() as f64;
                let told = fact(&filter.facts(), "estimated_removable_share");
                assert!((share - told).abs() < 0.02, "{regions}, {}: {share} {told}", keys.len());
            }
        }
    }
}

//! What every filter made of cells can do for the rest of the program.

use std::sync::atomic::Ordering::Relaxed;

use super::{Cells, Rule, drawn};
use crate::bits::Bits;
use crate::format::Header;
use crate::kind::{Fact, Kind, Merge, Refusal, Removal};
#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx2;
use crate::probe::{mulhi, prefetch, second};
use crate::scan::{Figures, Scan};

/// A function of `Cells` compiled once more for AVX2, and taken where the processor has it.
macro_rules! widest {
    ($cells:ident: $type:ty, $function:ident($h:ident) -> $output:ty) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,bmi1,bmi2")]
            fn wide<R: Rule>(cells: $type, h: u64) -> $output {
                cells.$function::<true>(h)
            }
            // SAFETY: the processor is asked first.
            if has_avx2() { unsafe { wide($cells, $h) } } else { $cells.$function::<false>($h) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        $cells.$function::<false>($h)
    }};
}

impl<R: Rule> Kind for Cells<R> {
    #[inline(always)]
    fn prefetch(&self, h: u64) {
        prefetch(self.at(h).cast());
        if self.two_lines {
            prefetch(self.at(second(h)).cast());
        }
    }

    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        widest!(self: &Cells<R>, contains(h) -> bool)
    }

    #[inline(always)]
    fn add(&mut self, h: u64) -> Result<bool, Refusal> {
        Ok(widest!(self: &mut Cells<R>, add(h) -> bool))
    }

    /// A line is one register, and three of its words meet in one instruction.
    #[cfg(target_arch = "x86_64")]
    fn is_wide() -> bool {
        true
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn contains_wide(&self, h: u64) -> bool {
        self.contains::<true>(h)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn add_wide(&mut self, h: u64) -> Result<bool, Refusal> {
        Ok(self.add::<true>(h))
    }

    #[inline(always)]
    fn remove(&mut self, h: u64) -> Result<Removal, Refusal> {
        Ok(widest!(self: &mut Cells<R>, remove(h) -> Removal))
    }

    fn count(&self, h: u64) -> u64 {
        let one = |h| R::count(&self.line(h), &self.mask::<false>(h));
        if self.two_lines { one(h).min(one(second(h))) } else { one(h) }
    }

    fn clear(&mut self) -> Result<(), Refusal> {
        self.bits.clear();
        Ok(())
    }

    fn merge(&mut self, other: &dyn Kind, how: Merge) -> Result<(), Refusal> {
        let shape = |h: &Header| (h.kind, h.num_bits, h.num_hashes, h.lines_per_key, h.extra);
        let sections = other.sections();
        let ([section], true) = (&sections[..], shape(&self.header) == shape(&other.header()))
        else {
            return Err(Refusal::Never(
                "only filters of the same shape can be merged: make both with the same parameters",
            ));
        };
        for (mine, theirs) in self.bits.words().iter().zip(section.words()) {
            mine.store(R::merge(mine.load(Relaxed), theirs.load(Relaxed), how), Relaxed);
        }
        Ok(())
    }

    fn header(&self) -> Header {
        self.header
    }

    fn sections(&self) -> Vec<Bits> {
        vec![self.bits.clone()]
    }

    fn facts(&self) -> Vec<(&'static str, Fact)> {
        let Figures { count, error_rate, fill_ratio } = self.figures(Scan::ALL);
        let mut facts = vec![
            ("estimated_count", Fact::Int(count.round() as u64)),
            ("estimated_error_rate", Fact::Float(error_rate)),
            ("fill_ratio", Fact::Float(fill_ratio)),
        ];
        facts.extend(R::facts(self));
        facts
    }

    fn figures(&self, scan: Scan) -> Figures {
        let (draws, lines_per_key) = self.powers();
        let (mut used, mut chance, mut seen) = (0, 0.0, 0u64);
        for line in self.lines(scan) {
            let here = R::used(&line);
            used += here;
            seen += 1;
            // A fuller line errs more often: the mean of the chances, not the chance of the mean.
            chance += (here as f64 / R::CELLS as f64).powi(draws);
        }
        let seen = seen as f64;
        let visits = self.visits(used, seen) * (self.lines as f64 / seen);
        Figures {
            count: visits / f64::from(lines_per_key),
            error_rate: (chance / seen).powi(lines_per_key),
            fill_ratio: used as f64 / (seen * R::CELLS as f64),
        }
    }

    fn positions(&self, h: u64) -> Vec<u64> {
        let line = |h| {
            let first = mulhi(h, self.lines) * R::CELLS;
            drawn(h, self.draws).map(move |lane| first + ((lane * R::CELLS) >> 16))
        };
        let lines = if self.two_lines { 2 } else { 1 };
        [h, second(h)].into_iter().take(lines).flat_map(line).collect()
    }

    /// "removable": would `remove` take this key out now?
    fn ask(&self, what: &str, h: u64) -> Option<Fact> {
        let one = |h| R::remove(&mut self.line(h), &self.mask::<false>(h));
        let removable = || one(h) || (self.two_lines && one(second(h)));
        (what == "removable").then(|| Fact::Bool(Kind::contains(self, h) && removable()))
    }
}

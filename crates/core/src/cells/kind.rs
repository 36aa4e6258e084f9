//! What every filter made of cells can do for the rest of the program.

use std::sync::atomic::Ordering::Relaxed;

use super::{Cells, Rule};
use crate::bits::Bits;
use crate::format::Header;
use crate::kind::{Fact, Kind, Merge, Refusal, Removal};
#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx2;
use crate::probe::{prefetch, second};

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
        let (draws, lines_per_key) = self.powers();
        let (mut used, mut chance) = (0, 0.0);
        for line in self.lines() {
            let here = R::used(&line);
            used += here;
            // A fuller line errs more often: the mean of the chances, not the chance of the mean.
            chance += (here as f64 / R::CELLS as f64).powi(draws);
        }
        let lines = self.lines as f64;
        let count = self.visits(used, lines) / f64::from(lines_per_key);
        let mut facts = vec![
            ("estimated_count", Fact::Int(count.round() as u64)),
            ("estimated_error_rate", Fact::Float((chance / lines).powi(lines_per_key))),
            ("fill_ratio", Fact::Float(used as f64 / (lines * R::CELLS as f64))),
        ];
        facts.extend(R::facts(self));
        facts
    }

    /// "removable": would `remove` take this key out now?
    fn ask(&self, what: &str, h: u64) -> Option<Fact> {
        let one = |h| R::remove(&mut self.line(h), &self.mask::<false>(h));
        let removable = || one(h) || (self.two_lines && one(second(h)));
        (what == "removable").then(|| Fact::Bool(Kind::contains(self, h) && removable()))
    }
}

//! Units and a filter: which were there, and those that were not go in.

use super::split::Unit;
use crate::batch::Op;
use crate::bits::Bits;
use crate::probe::{Job, Probe, with_probe};
use crate::shape::Shape;

/// Keys ahead that memory is asked for, as in `batch`.
const AHEAD: usize = 64;

struct Pass<'a> {
    keys: &'a [u64],
    units: &'a mut [Unit],
    op: Op,
}

impl Job for Pass<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) -> u64 {
        match self.op {
            Op::Contains => self.pass::<P, false, false>(probe),
            Op::Add => self.pass::<P, true, false>(probe),
            Op::AddAtomic => self.pass::<P, true, true>(probe),
        }
    }
}

impl Pass<'_> {
    #[inline(always)]
    fn pass<P: Probe, const ADD: bool, const ATOMIC: bool>(self, probe: &P) -> u64 {
        let Pass { keys, units, .. } = self;
        keys.iter().take(AHEAD).for_each(|key| probe.prefetch(*key));
        let (mut at, mut new) = (0, 0);
        for unit in units {
            let end = at + unit.keys as usize;
            let own = &keys[at..end];
            let ahead = |at: usize| (at + AHEAD).min(keys.len());
            keys[ahead(at)..ahead(end)].iter().for_each(|key| probe.prefetch(*key));
            at = end;
            if let ([key], true) = (own, ADD) {
                let fresh = probe.add::<ATOMIC>(*key);
                unit.seen = u32::from(!fresh);
                new += u64::from(fresh);
                continue;
            }
            // All are asked for before any is added: what a unit says twice, it has not seen before.
            unit.seen = own.iter().map(|key| u32::from(probe.contains(*key))).sum();
            if ADD && !unit.goes() {
                new += own.iter().map(|key| u64::from(probe.add::<ATOMIC>(*key))).sum::<u64>();
            }
        }
        new
    }
}

/// Asks for the keys of every unit, in order, and adds those of units that stay, if that is the
/// operation. Returns how many keys were added that were not there.
pub fn probe(bits: &Bits, shape: &Shape, keys: &[u64], units: &mut [Unit], op: Op) -> u64 {
    with_probe(bits, shape, Pass { keys, units, op })
}

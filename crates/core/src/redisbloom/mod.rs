//! RedisBloom's own two structures, bit for bit: the same keys in the same order give the same
//! memory, the same dump and the same answers. Theirs is the word *item* for our key, and *link* or
//! *sub-filter* for our layer.

mod buckets;
pub mod chain;
mod chain_dump;
pub mod cuckoo;
mod cuckoo_dump;
pub mod dump;
mod layer;
mod murmur;
#[cfg(test)]
mod tests;

use crate::bits::Bits;
use crate::budget;
use crate::kind::Refusal;
pub use chain::Chain;
pub use cuckoo::Cuckoo;
pub use murmur::murmur64a;

/// What both keep besides their layers.
pub struct Kept {
    /// The dump's header in whole lines, as a file holds it; brought up to date when it is asked for.
    pub head: Bits,
    /// How often the filter was written to: whoever saves sees whether it changed meanwhile.
    pub changes: u64,
    /// The memory must not be written: it is mapped.
    pub frozen: bool,
    /// Memory for the layer that comes next, if it was asked for ahead (`make_room`).
    pub spare: Option<Bits>,
    /// Bytes of the layer for which a key waits (`Refusal::Later`).
    wanted: Option<u64>,
}

/// Bytes of a layer: for a larger one a key may have to wait (`budget::with_deferred_growth`).
const LARGE: u64 = 256 << 10;

impl Kept {
    pub fn new(head: Bits, frozen: bool) -> Kept {
        Kept { head, changes: 0, frozen, spare: None, wanted: None }
    }

    /// Zeroed memory for a new layer: what was asked for ahead, if it is as large. What was not
    /// comes in small pages: the first thousand keys would wait for all of the large ones.
    fn layer(&mut self, nbytes: u64) -> Result<Bits, Refusal> {
        self.wanted = None;
        let spare = self.spare.take().filter(|bits| bits.nbytes() as u64 == nbytes);
        spare.or_else(|| Bits::zeroed_by_page(nbytes as usize)).ok_or(Refusal::NoMemory(nbytes))
    }

    /// Refuses a key, without an effect, until there is memory for a large layer.
    fn defer(&mut self, nbytes: u64) -> Result<(), Refusal> {
        if nbytes > LARGE && budget::defers_growth() && self.lacks(nbytes).is_some() {
            self.wanted = Some(nbytes);
            return Err(Refusal::Later);
        }
        Ok(())
    }

    /// Keeps no memory for a layer.
    fn drop_spare(&mut self) {
        (self.spare, self.wanted) = (None, None);
    }

    /// So many bytes, unless there are as many to spare.
    fn lacks(&self, nbytes: u64) -> Option<u64> {
        let spare = self.spare.as_ref().is_some_and(|bits| bits.nbytes() as u64 == nbytes);
        (!spare).then_some(nbytes)
    }

    /// To be called before every change.
    #[inline(always)]
    fn change(&mut self) -> Result<(), Refusal> {
        if self.frozen {
            return Err(Refusal::Never(
                "this filter is mapped read-only: load it without mmap to change it",
            ));
        }
        self.changes += 1;
        Ok(())
    }
}

/// More than there can be.
fn beyond() -> Refusal {
    Refusal::NoMemory(u64::MAX)
}

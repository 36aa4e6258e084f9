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
}

impl Kept {
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

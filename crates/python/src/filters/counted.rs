//! Filters of a server, whose native code works without the interpreter lock. Every filter that it
//! has is counted in at its gate (`AnyFilter::new`).

use bloomery_server::filter::Fault;

use crate::filters::gate::{BROKEN, Gate};

/// Lets `work` look.
#[inline(always)]
pub fn read<T: Send + Sync, R>(gate: &Gate<T>, work: impl FnOnce(&T) -> R) -> Result<R, Fault> {
    // SAFETY: the filter is counted in. The caller holds the interpreter lock, or is in a section.
    unsafe { gate.read_counted(work) }.ok_or_else(broken)
}

/// Lets `work` change the filter.
#[inline(always)]
pub fn write<T: Send + Sync, R>(
    gate: &Gate<T>,
    work: impl FnOnce(&mut T) -> R,
) -> Result<R, Fault> {
    // SAFETY: as above.
    unsafe { gate.write_counted(work) }.ok_or_else(broken)
}

#[cold]
fn broken() -> Fault {
    Fault::Broken(BROKEN.into())
}

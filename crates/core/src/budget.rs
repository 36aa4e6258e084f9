//! How much memory all filters of this process may have. It is asked for where memory is made, so
//! that whatever a filter grows, copies or loads is within it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::*};

static USED: AtomicU64 = AtomicU64::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// When filters may grow.
#[derive(Clone, Copy, PartialEq)]
enum Growth {
    Now,
    /// Small filters now. Large ones refuse the key (`Refusal::Later`) until they have the memory.
    Deferred,
    Never,
}

thread_local! {
    static GROWTH: Cell<Growth> = const { Cell::new(Growth::Now) };
}

fn with_growth<T>(growth: Growth, work: impl FnOnce() -> T) -> T {
    struct Reset(Growth);
    impl Drop for Reset {
        fn drop(&mut self) {
            GROWTH.set(self.0);
        }
    }
    let _reset = Reset(GROWTH.replace(growth));
    work()
}

/// Runs `work`, in which filters of this thread cannot grow.
pub fn without_growth<T>(work: impl FnOnce() -> T) -> T {
    with_growth(Growth::Never, work)
}

/// Runs `work`, in which no key waits for the memory of a large layer.
pub fn with_deferred_growth<T>(work: impl FnOnce() -> T) -> T {
    with_growth(Growth::Deferred, work)
}

/// Returns whether filters of this thread may grow.
pub fn may_grow() -> bool {
    GROWTH.get() != Growth::Never
}

/// Returns whether large filters of this thread must wait for memory before they grow.
pub fn defers_growth() -> bool {
    GROWTH.get() == Growth::Deferred
}

/// Bytes that are in use, until it is dropped.
pub struct Charge(u64);

impl Charge {
    /// `None` if that would be more than all filters together may have.
    pub fn take(bytes: u64) -> Option<Charge> {
        if !may_grow() {
            return None;
        }
        let within = |used: u64| used.checked_add(bytes).filter(|all| *all <= LIMIT.load(Relaxed));
        USED.fetch_update(Relaxed, Relaxed, within).ok().map(|_| Charge(bytes))
    }

    /// Also if it is more: for work that can neither be refused any more nor undone.
    pub fn force(bytes: u64) -> Charge {
        USED.fetch_add(bytes, Relaxed);
        Charge(bytes)
    }

    /// Both as one.
    pub fn merge(&mut self, mut other: Charge) {
        self.0 += std::mem::take(&mut other.0);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Relaxed);
    }
}

/// Bytes that all filters of this process have now; mapped files are not among them.
pub fn used() -> u64 {
    USED.load(Relaxed)
}

/// What all filters may have from now on; what they have already they keep.
pub fn set_limit(bytes: u64) {
    LIMIT.store(bytes, Relaxed);
}

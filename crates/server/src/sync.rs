//! The locks and flags with which workers and the control plane hand work to each other: those of
//! the standard library, or with the feature `shuttle` those of that crate.
//!
//! `tests/handover.rs` runs the hand-over in thousands of schedules. Shuttle fits better than loom:
//! loom tries every schedule, and two workers with four clients and a control plane have far too
//! many. Random schedules prove nothing, so the test also plants defects and must find them.
//!
//! Shuttle treats every ordering as SeqCst. The flags that wake threads and pass the role are
//! SeqCst; `Keyspace::inline` is Relaxed, so a worker reads it again under the lock of the batch.

#[cfg(not(feature = "shuttle"))]
pub use std::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicBool,
};

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicBool,
};

/// Defects that a test plants, to prove that it finds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// A woken thread clears the flag after it has taken its messages.
    LateClear,
    /// A worker that has released the role does not look for the next batch.
    NoSecondLook,
    /// The control plane does not try again after it has asked for the role.
    NoSecondTry,
    /// A worker releases the role before it has applied its batch.
    EarlyRelease,
}

#[cfg(not(feature = "shuttle"))]
#[inline(always)]
pub(crate) const fn has(_defect: Defect) -> bool {
    false
}

#[cfg(feature = "shuttle")]
pub(crate) fn has(defect: Defect) -> bool {
    PLANTED.get() == Some(defect)
}

#[cfg(feature = "shuttle")]
std::thread_local! {
    // All threads of a schedule are coroutines of the thread of its test.
    pub static PLANTED: std::cell::Cell<Option<Defect>> = const { std::cell::Cell::new(None) };
}

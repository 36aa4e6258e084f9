//! The gate before a filter whose memory moves: many may look, or one may change, and never both.
//!
//! With the interpreter lock held and nobody inside without it, whoever asks is alone: no lock is
//! taken, and the gate costs one load. Whoever is about to let go of the interpreter lock counts
//! itself in first, while it still holds it; from then on everybody takes the lock of the gate.
//! No Python code runs inside: it might let go of the interpreter lock, or come back to the gate.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;

pub struct Gate<T> {
    value: UnsafeCell<T>,
    /// How many are inside, or on their way, without the interpreter lock.
    detached: AtomicUsize,
    lock: RwLock<()>,
}

// SAFETY: the value is reached only as described above: by one that changes it, or by some that
// look.
unsafe impl<T: Send + Sync> Sync for Gate<T> {}

/// One that is counted in, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, AcqRel);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

impl<T: Send + Sync> Gate<T> {
    pub fn new(value: T) -> Self {
        // Without an interpreter lock nobody is ever alone: one is always counted in.
        let detached = AtomicUsize::new(usize::from(cfg!(Py_GIL_DISABLED)));
        Gate { value: UnsafeCell::new(value), detached, lock: RwLock::new(()) }
    }

    /// The value, for whoever has the gate to itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Lets `work` look; if it is `long`, without the interpreter lock.
    #[inline(always)]
    pub fn read<R: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&T) -> R + Send,
    ) -> R {
        if !long && self.detached.load(Acquire) == 0 {
            // SAFETY: alone, as said above.
            return work(unsafe { &*self.value.get() });
        }
        let counted = Counted::new(&self.detached);
        py.detach(move || {
            let _counted = counted;
            let _guard = self.lock.read().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: who changes it holds the lock for writing, or is alone.
            work(unsafe { &*self.value.get() })
        })
    }

    /// Lets `work` change the value.
    #[inline(always)]
    pub fn write<R: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut T) -> R + Send,
    ) -> R {
        if !long && self.detached.load(Acquire) == 0 {
            // SAFETY: alone, as said above.
            return work(unsafe { &mut *self.value.get() });
        }
        let counted = Counted::new(&self.detached);
        py.detach(move || {
            let _counted = counted;
            let _guard = self.lock.write().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the lock is held for writing.
            work(unsafe { &mut *self.value.get() })
        })
    }

    /// Lets `work` change the value while it looks at another's; `None` if they are the same. The
    /// locks are taken in the order of their addresses: two merges in opposite directions do not
    /// wait for each other.
    pub fn write_beside<R: Send>(
        &self,
        py: Python<'_>,
        other: &Gate<T>,
        work: impl FnOnce(&mut T, &T) -> R + Send,
    ) -> Option<R> {
        if std::ptr::eq(self, other) {
            return None;
        }
        let counted = (Counted::new(&self.detached), Counted::new(&other.detached));
        py.detach(move || {
            let _counted = counted;
            let theirs = || other.lock.read().unwrap_or_else(PoisonError::into_inner);
            let first = (&raw const *other < &raw const *self).then(theirs);
            let _mine = self.lock.write().unwrap_or_else(PoisonError::into_inner);
            let _theirs = first.unwrap_or_else(theirs);
            // SAFETY: this lock is held for writing, the other's for reading.
            Some(work(unsafe { &mut *self.value.get() }, unsafe { &*other.value.get() }))
        })
    }
}

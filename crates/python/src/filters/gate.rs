//! The gate before a filter whose memory moves: many may look, or one may change, and never both.
//!
//! With the interpreter lock held and nobody inside without it, whoever asks is alone: no lock is
//! taken, and the gate costs one load. Whoever is about to let go of the interpreter lock counts
//! itself in first, while it still holds it; from then on everybody takes the lock of the gate.
//! No Python code runs inside: it might let go of the interpreter lock, or come back to the gate.
//! Nor does anything wait for the interpreter lock there (see sections.rs).
//!
//! A change that panics leaves the value half changed, which would be a wrong "no" sooner or later:
//! from then on whoever asks gets an error.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;

use crate::errors::error;
use crate::filters::sections::detached;

/// Whether there is one. Work under it needs no section: a fork needs it too.
const INTERPRETER_LOCK: bool = !cfg!(Py_GIL_DISABLED);

pub struct Gate<T> {
    value: UnsafeCell<T>,
    /// How many are inside, or on their way, without the interpreter lock.
    detached: AtomicUsize,
    lock: RwLock<()>,
    /// Did a change panic? One more is counted in then, for ever, so that everybody takes the lock
    /// and looks.
    broken: AtomicBool,
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

/// A change under way: forgotten when it is done, so dropped only by a panic.
struct Change<'a, T>(&'a Gate<T>);

impl<T> Drop for Change<'_, T> {
    fn drop(&mut self) {
        self.0.broken.store(true, Release);
        self.0.detached.fetch_add(1, AcqRel);
    }
}

pub const BROKEN: &str = "an internal error stopped a change of this filter half-way, so its \
    answers can no longer be trusted: load it again from where it was saved, or build it anew";

#[cold]
fn broken(py: Python<'_>) -> PyErr {
    error(py, "CorruptData", BROKEN.into())
}

impl<T: Send + Sync> Gate<T> {
    pub fn new(value: T) -> Self {
        // Without an interpreter lock nobody is ever alone: one is always counted in.
        let detached = AtomicUsize::new(usize::from(cfg!(Py_GIL_DISABLED)));
        let broken = AtomicBool::new(false);
        Gate { value: UnsafeCell::new(value), detached, lock: RwLock::new(()), broken }
    }

    /// The value, for whoever has the gate to itself; None if it is broken.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        (!*self.broken.get_mut()).then(|| self.value.get_mut())
    }

    /// Lets `work` look; if it is `long`, without the interpreter lock.
    #[inline(always)]
    pub fn read<R: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&T) -> R + Send,
    ) -> PyResult<R> {
        if !long && self.detached.load(Acquire) == 0 {
            // SAFETY: alone, as said above.
            return Ok(work(unsafe { &*self.value.get() }));
        }
        if !long
            && INTERPRETER_LOCK
            && let Ok(_guard) = self.lock.try_read()
        {
            // SAFETY: who changes it holds the lock for writing: somebody is counted in.
            let done = self.is_whole().then(|| work(unsafe { &*self.value.get() }));
            return done.ok_or_else(|| broken(py));
        }
        let counted = Counted::new(&self.detached);
        let done = detached(py, move || {
            let _counted = counted;
            let _guard = self.lock.read().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: who changes it holds the lock for writing, or is alone.
            self.is_whole().then(|| work(unsafe { &*self.value.get() }))
        });
        done.ok_or_else(|| broken(py))
    }

    /// Lets `work` change the value if nobody is inside without the interpreter lock, else `None`:
    /// `write` with nothing around it, for the single key.
    #[inline(always)]
    pub fn write_alone<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let alone = self.detached.load(Acquire) == 0;
        // SAFETY: alone, as said above.
        alone.then(|| self.change(work, unsafe { &mut *self.value.get() }))
    }

    /// Lets `work` change the value.
    #[inline(always)]
    pub fn write<R: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut T) -> R + Send,
    ) -> PyResult<R> {
        if !long && self.detached.load(Acquire) == 0 {
            // SAFETY: alone, as said above.
            return Ok(self.change(work, unsafe { &mut *self.value.get() }));
        }
        if !long
            && INTERPRETER_LOCK
            && let Ok(_guard) = self.lock.try_write()
        {
            // SAFETY: the lock is held for writing, and somebody is counted in, so all take it.
            let change = || self.change(work, unsafe { &mut *self.value.get() });
            return self.is_whole().then(change).ok_or_else(|| broken(py));
        }
        let counted = Counted::new(&self.detached);
        let done = detached(py, move || {
            let _counted = counted;
            let _guard = self.lock.write().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the lock is held for writing.
            self.is_whole().then(|| self.change(work, unsafe { &mut *self.value.get() }))
        });
        done.ok_or_else(|| broken(py))
    }

    #[inline(always)]
    fn change<R>(&self, work: impl FnOnce(&mut T) -> R, value: &mut T) -> R {
        let change = Change(self);
        let result = work(value);
        std::mem::forget(change);
        result
    }

    /// Counts one in who comes without the interpreter lock, whenever it likes, until `count_out`.
    pub fn count_in(&self, _py: Python<'_>) {
        self.detached.fetch_add(1, AcqRel);
    }

    pub fn count_out(&self) {
        self.detached.fetch_sub(1, AcqRel);
    }

    /// Lets `work` change the value, without the interpreter lock; `None` if the value is broken.
    ///
    /// # Safety
    /// As for `read_counted`.
    pub unsafe fn write_counted<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _guard = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lock is held for writing: with one counted in, nobody is alone.
        self.is_whole().then(|| self.change(work, unsafe { &mut *self.value.get() }))
    }

    /// Lets `work` look, without the interpreter lock; `None` if the value is broken.
    ///
    /// # Safety
    /// The caller was counted in, and is in a section or holds the interpreter lock.
    pub unsafe fn read_counted<R>(&self, work: impl FnOnce(&T) -> R) -> Option<R> {
        let _guard = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: who changes it holds the lock for writing: with one counted in, nobody is alone.
        self.is_whole().then(|| work(unsafe { &*self.value.get() }))
    }

    fn is_whole(&self) -> bool {
        !self.broken.load(Acquire)
    }

    /// Lets `work` change the value while it looks at another's; `None` if they are the same. The
    /// locks are taken in the order of their addresses: two merges in opposite directions do not
    /// wait for each other.
    pub fn write_beside<R: Send>(
        &self,
        py: Python<'_>,
        other: &Gate<T>,
        work: impl FnOnce(&mut T, &T) -> R + Send,
    ) -> PyResult<Option<R>> {
        if std::ptr::eq(self, other) {
            return Ok(None);
        }
        let counted = (Counted::new(&self.detached), Counted::new(&other.detached));
        let done = detached(py, move || {
            let _counted = counted;
            let theirs = || other.lock.read().unwrap_or_else(PoisonError::into_inner);
            let first = (&raw const *other < &raw const *self).then(theirs);
            let _mine = self.lock.write().unwrap_or_else(PoisonError::into_inner);
            let _theirs = first.unwrap_or_else(theirs);
            if !self.is_whole() || !other.is_whole() {
                return None;
            }
            // SAFETY: this lock is held for writing, the other's for reading.
            let (mine, theirs) = unsafe { (&mut *self.value.get(), &*other.value.get()) };
            Some(self.change(|mine| work(mine, theirs), mine))
        });
        done.map(Some).ok_or_else(|| broken(py))
    }
}

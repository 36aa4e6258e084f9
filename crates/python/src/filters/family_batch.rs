//! Batches of any kind of filter but the plain one: questions share the filter, changes have it to
//! themselves.

use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::{AnyKind, Ints, Refusal};
use bloomery_core::loops::Hashes;
use bloomery_core::threads;
use pyo3::prelude::*;

use crate::filters::family::Family;
use crate::keys::batch::{Inside, Target, column_hashes, in_order};
use crate::keys::column::Column;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BatchOp {
    Contains,
    Add,
    Remove,
}

/// The filter and what a batch is to do with it.
pub struct Batch<'a> {
    pub filter: &'a Family,
    pub act: BatchOp,
}

impl Target for Batch<'_> {
    fn hasher(&self) -> KeyHasher {
        self.filter.hasher
    }

    fn asks(&self) -> bool {
        self.act == BatchOp::Contains
    }

    fn enter_once<T: Send>(
        &mut self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut dyn Inside) -> Result<T, Refusal> + Send,
    ) -> PyResult<Result<T, Refusal>> {
        let (Family { gate, hasher, .. }, act) = (self.filter, self.act);
        if act == BatchOp::Contains {
            let work = |kind: &dyn AnyKind| work(&mut Asking { kind, hasher });
            return gate.read(py, long, |state| work(&*state.kind));
        }
        self.filter.change_once(py, long, |kind| work(&mut Changing { kind, hasher, act }))
    }
}

impl Family {
    /// Lets `work` ask, without the interpreter lock; False if the filter is broken.
    ///
    /// # Safety
    /// The caller was counted in at the gate, and is in a section.
    pub unsafe fn ask_counted(&self, work: impl FnOnce(&mut dyn Inside)) -> bool {
        let ask = |kind: &dyn AnyKind| work(&mut Asking { kind, hasher: &self.hasher });
        // SAFETY: as promised above.
        unsafe { self.gate.read_counted(|state| ask(&*state.kind)) }.is_some()
    }
}

struct Asking<'a> {
    kind: &'a dyn AnyKind,
    hasher: &'a KeyHasher,
}

impl Asking<'_> {
    fn ask(&self, column: &Column, from: usize, answers: &mut [u8]) {
        if let Some(ints) = ints(column, self.hasher, from, answers.len()) {
            return self.kind.contains_ints(ints, answers);
        }
        let mut blocks = column_hashes(column, *self.hasher, from, answers.len());
        self.kind.contains_all(&mut blocks, &mut in_order(answers));
    }
}

impl Inside for Asking<'_> {
    fn hashes(
        &mut self,
        blocks: &mut Hashes<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        self.kind.contains_all(blocks, out);
        Ok(())
    }

    fn rows(&mut self, column: &Column, from: usize, answers: &mut [u8]) -> Result<(), Refusal> {
        self.ask(column, from, answers);
        Ok(())
    }

    fn shared(
        &mut self,
        column: &Column,
        from: usize,
        threads: usize,
        answers: &mut [u8],
    ) -> Result<(), Refusal> {
        threads::share(threads, answers, &|row, mine| self.ask(column, from + row, mine));
        Ok(())
    }
}

/// Adds or removes, one thread at a time: fingerprints move, and counters go up and down.
struct Changing<'a> {
    kind: &'a mut dyn AnyKind,
    hasher: &'a KeyHasher,
    act: BatchOp,
}

impl Inside for Changing<'_> {
    fn hashes(
        &mut self,
        blocks: &mut Hashes<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        match self.act {
            BatchOp::Remove => self.kind.remove_all(blocks, out),
            _ => self.kind.add_all(blocks, out),
        }
    }

    fn rows(&mut self, column: &Column, from: usize, answers: &mut [u8]) -> Result<(), Refusal> {
        match ints(column, self.hasher, from, answers.len()) {
            Some(ints) if self.act == BatchOp::Add => self.kind.add_ints(ints, answers),
            _ => {
                let mut blocks = column_hashes(column, *self.hasher, from, answers.len());
                self.hashes(&mut blocks, &mut in_order(answers))
            }
        }
    }
}

/// A column's keys as ints, where they lie side by side and the hasher has a loop for them.
fn ints<'a>(column: &'a Column, hasher: &KeyHasher, from: usize, count: usize) -> Option<Ints<'a>> {
    let keys = column.dense_i64()?.get(from..from + count)?;
    Some(Ints { keys, hash: hasher.int_hash()? })
}

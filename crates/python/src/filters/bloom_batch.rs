//! Batches of the plain Bloom filter: several threads may ask it, or add to it, at once.

use std::ops::Range;

use bloomery_core::batch::{Op, run, run_indexed};
use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::Refusal;
use bloomery_core::loops::Hashes;
use bloomery_core::threads;
use pyo3::prelude::*;

use crate::filters::bloom::Bloom;
use crate::keys::batch::{Inside, Target, column_hashes, in_order};
use crate::keys::column::Column;

/// The filter and what a batch is to do with it.
pub struct Batch<'a>(pub &'a Bloom, pub Op);

impl Target for Batch<'_> {
    fn hasher(&self) -> KeyHasher {
        self.0.hasher
    }

    fn asks(&self) -> bool {
        self.1 == Op::Contains
    }

    fn enter_once<T: Send>(
        &mut self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut dyn Inside) -> Result<T, Refusal> + Send,
    ) -> PyResult<Result<T, Refusal>> {
        let work = |filter: &Bloom, op: Op| work(&mut Batch(filter, op));
        match long {
            true => self.0.write_or_read_detached(py, self.1, work),
            false => self.0.write_or_read(py, self.1, work),
        }
    }
}

impl Inside for Batch<'_> {
    fn hashes(
        &mut self,
        blocks: &mut Hashes<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        let Ok(()) = run(&self.0.bits, &self.0.shape, self.1, blocks, out);
        Ok(())
    }

    fn rows(&mut self, column: &Column, from: usize, answers: &mut [u8]) -> Result<(), Refusal> {
        let Batch(Bloom { bits, shape, hasher, .. }, op) = *self;
        if let (Some(values), Some(hash)) = (column.dense_i64(), hasher.int_hash()) {
            let values = &values[from..from + answers.len()];
            // SAFETY: `run_indexed` asks for rows that have an answer; a check took 3% more time.
            let value = move |row: usize| unsafe { *values.get_unchecked(row) };
            let hash = move |row: usize| hash.hash(i64::from_le_bytes(value(row)));
            run_indexed(bits, shape, op, hash, answers);
            return Ok(());
        }
        let mut blocks = column_hashes(column, *hasher, from, answers.len());
        self.hashes(&mut blocks, &mut in_order(answers))
    }

    fn shared(
        &mut self,
        column: &Column,
        from: usize,
        threads: usize,
        answers: &mut [u8],
    ) -> Result<(), Refusal> {
        let Batch(filter @ Bloom { bits, shape, hasher, .. }, op) = *self;
        if op == Op::Contains {
            threads::share(threads, answers, &|row, mine| {
                let _ = Batch(filter, op).rows(column, from + row, mine);
            });
        } else {
            let hash = |row: usize, out: &mut [u64]| column.hash(hasher, from + row, out);
            let (atomic, rows) = (op == Op::AddAtomic, answers.len());
            threads::add_threads(bits, shape, atomic, threads, &hash, rows, Some(answers));
        }
        Ok(())
    }

    fn shared_unasked(
        &mut self,
        column: &Column,
        keys: Range<usize>,
        threads: usize,
    ) -> Result<bool, Refusal> {
        let Batch(Bloom { bits, shape, hasher, .. }, op) = *self;
        if op == Op::Contains {
            return Ok(false);
        }
        let hash = |row: usize, out: &mut [u64]| column.hash(hasher, keys.start + row, out);
        threads::add_threads(bits, shape, op == Op::AddAtomic, threads, &hash, keys.len(), None);
        Ok(true)
    }
}

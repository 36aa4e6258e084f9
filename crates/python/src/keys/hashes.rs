//! A batch's hashes and nothing else, for filters that need all of them before they start.

use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::Refusal;
use bloomery_core::loops;
use pyo3::prelude::*;

use crate::errors::too_many_rows;
use crate::keys::batch::{Inside, Options, Target, run};
use crate::keys::column::Column;
use crate::keys::lines::{self, LineKey};

/// Keeps the hash of every key it is given.
struct Hashes<'a> {
    hasher: KeyHasher,
    found: &'a mut Vec<u64>,
}

impl Target for Hashes<'_> {
    fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    fn expect(&mut self, py: Python<'_>, keys: usize) -> PyResult<()> {
        self.found.try_reserve(keys).map_err(|_| too_many_rows(py, keys))
    }

    fn enter_once<T: Send>(
        &mut self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut dyn Inside) -> Result<T, Refusal> + Send,
    ) -> PyResult<Result<T, Refusal>> {
        Ok(if long { py.detach(|| work(self)) } else { work(self) })
    }
}

impl Inside for Hashes<'_> {
    fn hashes(
        &mut self,
        blocks: &mut loops::Hashes<'_>,
        _out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        let mut block = [0; _];
        loop {
            let Ok(count) = blocks(&mut block);
            self.found.extend_from_slice(&block[..count]);
            if count < block.len() {
                return Ok(());
            }
        }
    }

    fn rows(&mut self, column: &Column, from: usize, answers: &mut [u8]) -> Result<(), Refusal> {
        let start = self.found.len();
        self.found.resize(start + answers.len(), 0);
        column.hash(&self.hasher, from, &mut self.found[start..]);
        Ok(())
    }
}

/// The hash of every key of the batch, in order, and whether its mask is to be an array; nulls are
/// skipped or refused.
pub fn hashes(
    keys: &Bound<'_, PyAny>,
    hasher: KeyHasher,
    skip_nulls: bool,
) -> PyResult<(Vec<u64>, bool)> {
    let mut found = Vec::new();
    let array = append_hashes(keys, hasher, skip_nulls, &mut found)?;
    Ok((found, array))
}

/// As `hashes`, behind those that were found before.
pub fn append_hashes(
    keys: &Bound<'_, PyAny>,
    hasher: KeyHasher,
    skip_nulls: bool,
    found: &mut Vec<u64>,
) -> PyResult<bool> {
    let mut target = Hashes { hasher, found };
    let mask = run(&mut target, keys, &Options { skip_nulls, threads: 1, mask: false })?;
    Ok(mask.array)
}

/// As `append_hashes`, of the lines of `data` or the part of each that `key` names; the bytes used.
pub fn append_line_hashes(
    data: &Bound<'_, PyAny>,
    hasher: KeyHasher,
    end: bool,
    key: Option<PyRefMut<'_, LineKey>>,
    found: &mut Vec<u64>,
) -> PyResult<usize> {
    let mut target = Hashes { hasher, found };
    let (_, used, ..) = lines::run(&mut target, data, end, true, key)?;
    Ok(used)
}

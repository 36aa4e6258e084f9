//! `ExactSet.build`: the keys of two sides are hashed, as they come, and the set is made of the
//! hashes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bloomery_core::exact::{self, Choice};
use bloomery_core::hash::{HashKind, KeyHasher};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{invalid, refused};
use crate::filters::memory::Memory;
use crate::keys::batch::{Options, Threads};
use crate::keys::hashes::{append_hashes, append_line_hashes};
use crate::keys::lines::LineKey;

/// The hashes of keys, 8 bytes each: of one side of an exact set.
#[pyclass(frozen, module = "bloomery._native")]
pub struct KeyHashes {
    hasher: KeyHasher,
    found: Mutex<Vec<u64>>,
}

impl KeyHashes {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found so far, taken out: nobody waits for the lock while keys are read, which may
    /// run Python.
    fn change<T>(&self, work: impl FnOnce(&mut Vec<u64>) -> PyResult<T>) -> PyResult<T> {
        let mut found = std::mem::take(&mut *self.lock());
        let done = work(&mut found);
        let mut place = self.lock();
        found.append(&mut place);
        *place = found;
        done
    }
}

#[pymethods]
impl KeyHashes {
    #[new]
    fn new(py: Python<'_>, hasher: &str, seed: u128) -> PyResult<KeyHashes> {
        let kind = HashKind::from_name(hasher)
            .ok_or_else(|| invalid(py, format!("hasher is {hasher:?}, which is not known")))?;
        Ok(KeyHashes { hasher: KeyHasher { kind, seed }, found: Mutex::new(Vec::new()) })
    }

    /// The keys of a batch.
    #[pyo3(signature = (keys, nulls="error"))]
    fn update(&self, keys: &Bound<'_, PyAny>, nulls: &str) -> PyResult<()> {
        let options = Options::new(keys.py(), nulls, Threads(1))?;
        self.change(|found| append_hashes(keys, self.hasher, options.skip_nulls, found).map(drop))
    }

    /// Each line of `data`, without its newline, or the part of it that `key` names; returns the
    /// bytes used, up to the last newline (all if `final`).
    #[pyo3(signature = (data, *, r#final=false, key=None))]
    fn add_lines(
        &self,
        data: &Bound<'_, PyAny>,
        r#final: bool,
        key: Option<PyRefMut<'_, LineKey>>,
    ) -> PyResult<usize> {
        self.change(|found| append_line_hashes(data, self.hasher, r#final, key, found))
    }

    /// Brings them into order, each once; how many there are.
    fn distinct(&self, py: Python<'_>) -> usize {
        py.detach(|| {
            let mut found = self.lock();
            found.sort_unstable();
            found.dedup();
            found.len()
        })
    }

    /// How many keys both have, and the hash of one of them; both were made `distinct`.
    fn common(&self, py: Python<'_>, other: &KeyHashes) -> (usize, Option<u64>) {
        py.detach(|| {
            let mine = std::mem::take(&mut *self.lock()); // one lock at a time: none waits for ever
            let found = exact::common(&mine, &other.lock());
            *self.lock() = mine;
            found
        })
    }

    /// Which of them, in the order in which they came, has this hash; before `distinct`.
    fn row_of(&self, hash: u64) -> Option<usize> {
        self.lock().iter().position(|found| *found == hash)
    }

    fn __len__(&self) -> usize {
        self.lock().len()
    }
}

/// The head and the memory of an exact set of these keys, which it uses up; both were made
/// `distinct` and have none in common. The first level has fingerprints of `width` bits (0: there
/// is none) of the members, or, `inverted`, of the non-members.
#[pyfunction]
pub fn build_exact<'py>(
    py: Python<'py>,
    members: &KeyHashes,
    non_members: &KeyHashes,
    width: u32,
    inverted: bool,
    error_rate: f64,
) -> PyResult<(Bound<'py, PyBytes>, Memory)> {
    let choice = Choice { width: width.min(exact::MAX_WIDTH), inverted, error_rate };
    let (head, body) = py
        .detach(|| {
            let one = std::mem::take(&mut *members.lock());
            let other = std::mem::take(&mut *non_members.lock());
            exact::build(one, other, choice, members.hasher)
        })
        .map_err(|refusal| refused(py, refusal))?;
    Ok((PyBytes::new(py, &head.encode()), Memory::new(body)))
}

/// How many bytes a static filter of so many distinct keys takes, by the bits of a fingerprint.
#[pyfunction]
pub fn static_nbytes(count: u64, width: u32) -> u64 {
    exact::level_nbytes(count, width)
}

//! Batches of a bank: keys, each of one user or of its own, as hashes.

use bloomery_core::bank::Users;
use bloomery_core::hash::KeyHasher;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString, PyTuple};

use crate::errors::invalid;
use crate::keys::hashes::hashes;
use crate::keys::key::hash_key;
use crate::keys::mask::Mask;

/// Below this many keys a batch is done before another thread could have taken over.
pub const DETACH_FROM: usize = 2048;

/// A batch, hashed.
pub struct Batch {
    users: Who,
    pub keys: Vec<u64>,
    array: bool,
}

enum Who {
    One(u64),
    Each(Vec<u64>),
}

impl Batch {
    /// Hashes users (one, or one for each key) and keys.
    pub fn new(
        users: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
        hasher: KeyHasher,
    ) -> PyResult<Self> {
        let (keys, array) = hashes(keys, hasher, false)?;
        let users = match is_one(users)? {
            true => Who::One(hash_key(users.as_borrowed(), &hasher)?),
            false => Who::Each(each_user(users, hasher, keys.len())?),
        };
        Ok(Batch { users, keys, array })
    }

    pub fn users(&self) -> Users<'_> {
        match &self.users {
            Who::One(user) => Users::One(*user),
            Who::Each(each) => Users::Each(each),
        }
    }

    pub fn long(&self) -> bool {
        self.keys.len() >= DETACH_FROM
    }

    pub fn answer<'py>(&self, py: Python<'py>, rows: Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
        Mask { rows, array: self.array }.into_python(py)
    }
}

fn each_user(users: &Bound<'_, PyAny>, hasher: KeyHasher, keys: usize) -> PyResult<Vec<u64>> {
    let (each, _) = hashes(users, hasher, false)?;
    if each.len() != keys {
        let message =
            format!("{} users for {keys} keys: give one user, or one for each", each.len());
        return Err(invalid(users.py(), message));
    }
    Ok(each)
}

/// Is it one user, and not a batch of them? What can be a key is one, a tuple too.
fn is_one(users: &Bound<'_, PyAny>) -> PyResult<bool> {
    let key = users.is_instance_of::<PyString>()
        || users.is_instance_of::<PyBytes>()
        || users.is_instance_of::<PyTuple>()
        || users.is_instance_of::<PyByteArray>()
        || (users.is_instance_of::<PyMemoryView>() && users.getattr("itemsize")?.eq(1)?);
    let batch = users.hasattr("__iter__")?
        || users.hasattr("__arrow_c_array__")?
        || users.hasattr("__arrow_c_stream__")?;
    Ok(key || !batch)
}

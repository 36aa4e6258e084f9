//! Filters whose memory lies in Redis, as Python uses them: a batch as bytes to send, and what the
//! client library has read as answers.

use std::sync::Mutex;

use bloomery_core::format::Header;
use bloomery_core::remote::{self, Doing};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{error, format, invalid};
use crate::keys::mask::Mask;
use crate::server::replay;

/// Where the cells of keys lie in strings of Redis.
#[pyclass(frozen, module = "bloomery._native")]
pub struct Places(remote::Places);

impl Places {
    fn commands(
        &self,
        py: Python<'_>,
        doing: Doing,
        hashes: &[u8],
        names: &Bound<'_, PyList>,
        script: &[u8],
    ) -> PyResult<Commands> {
        let (places, names) = (self.0, names.extract::<Vec<Vec<u8>>>()?);
        if names.len() != places.shards() {
            let (given, right) = (names.len(), places.shards());
            return Err(invalid(py, format!("{given} names for {right} shards")));
        }
        let hashes = replay::hashes(py, hashes)?;
        let made = py.detach(|| {
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let hashes = hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
            remote::Commands::new(places, doing, hashes, &names, script)
        });
        Ok(Commands(Mutex::new(made)))
    }
}

#[pymethods]
impl Places {
    #[new]
    fn new(py: Python<'_>, header: &[u8], shard_bytes: u64) -> PyResult<Self> {
        let read = || remote::Places::new(&Header::parse(header)?, shard_bytes);
        read().map(Places).map_err(|problem| format(py, problem))
    }

    /// The hash of each key of a batch, 8 bytes each, and whether its mask is to be an array.
    fn hashes<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, bool)> {
        let (hashes, array) = crate::keys::hashes::hashes(keys, self.0.header.hasher, false)?;
        let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        Ok((PyBytes::new(py, &bytes), array))
    }

    /// Commands that add keys by their hashes, to strings of these names, one a shard.
    fn add(&self, py: Python<'_>, hashes: &[u8], names: &Bound<'_, PyList>) -> PyResult<Commands> {
        self.commands(py, Doing::Add, hashes, names, b"")
    }

    /// Commands that ask for keys by their hashes.
    fn contains(
        &self,
        py: Python<'_>,
        hashes: &[u8],
        names: &Bound<'_, PyList>,
    ) -> PyResult<Commands> {
        self.commands(py, Doing::Contains, hashes, names, b"")
    }

    /// Commands that call a script of this SHA-1 for each key: KEYS[1] is the string, ARGV the width
    /// of a counter and then the offsets of the key's counters.
    fn remove(
        &self,
        py: Python<'_>,
        hashes: &[u8],
        names: &Bound<'_, PyList>,
        script: &[u8],
    ) -> PyResult<Commands> {
        self.commands(py, Doing::Remove, hashes, names, script)
    }

    /// How many strings there are.
    #[getter]
    fn shards(&self) -> usize {
        self.0.shards()
    }

    /// How long a shard's string is.
    fn shard_bytes(&self, shard: u64) -> u64 {
        self.0.bytes_of(shard)
    }
}

/// A batch on its way to Redis.
#[pyclass(frozen, module = "bloomery._native")]
pub struct Commands(Mutex<remote::Commands>);

impl Commands {
    fn lock<'a>(&'a self, py: Python<'a>) -> std::sync::MutexGuard<'a, remote::Commands> {
        self.0.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl Commands {
    /// For each shard that is asked: its number, what to send and how many replies there will be.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> Vec<(usize, Bound<'py, PyBytes>, usize)> {
        let commands = self.lock(py);
        let parts = commands.parts.iter().enumerate().filter(|(_, part)| part.replies() > 0);
        parts.map(|(i, part)| (i, PyBytes::new(py, &part.data), part.replies())).collect()
    }

    /// Takes a shard's replies, as many as were promised; how long its string is. CorruptData if they
    /// are not what such commands are answered with.
    fn feed(&self, py: Python<'_>, shard: usize, replies: &Bound<'_, PyList>) -> PyResult<u64> {
        let mut commands = self.lock(py);
        let expected = commands.parts.get(shard).map_or(0, |part| part.replies());
        let wrong = |what: &str| {
            let message = format!("Redis answered {what}, which is no answer to what was asked");
            error(py, "CorruptData", message)
        };
        if replies.len() != expected || expected == 0 {
            return Err(wrong(&format!("{} times instead of {expected}", replies.len())));
        }
        let mut replies = replies.iter();
        let length = replies.next().and_then(|reply| reply.extract::<u64>().ok());
        let length = length.ok_or_else(|| wrong("no length"))?;
        commands.skip(shard);
        let (by_line, whole) = (commands.by_line(), commands.bytes_of(shard));
        let mut values = Vec::new();
        for reply in replies {
            let right = if by_line {
                let line = reply.cast::<PyBytes>().map_err(|_| wrong("no bytes"))?;
                // Shorter where the string is, or where there is none: its length tells.
                commands.line(shard, line.as_bytes()) || length != whole
            } else {
                values.clear();
                match reply.cast::<PyList>() {
                    Ok(list) => {
                        for value in list.iter() {
                            values.push(value.extract::<i64>().map_err(|_| wrong("no number"))?);
                        }
                    }
                    Err(_) => values.push(reply.extract::<i64>().map_err(|_| wrong("no list"))?),
                }
                commands.numbers(shard, &values)
            };
            if !right {
                return Err(wrong("too little or too much"));
            }
        }
        Ok(length)
    }

    /// A byte for each key. Added: 1 where it is definitely new. Asked: 0 where it is definitely not
    /// there, else the least of its counters. Removed: what the script said.
    #[getter]
    fn answers<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock(py).answers)
    }
}

/// Answers, a byte for each key, as a list of bool or a NumPy array.
#[pyfunction]
pub fn mask<'py>(py: Python<'py>, answers: &[u8], array: bool) -> PyResult<Bound<'py, PyAny>> {
    let rows = answers.iter().map(|answer| u8::from(*answer != 0)).collect();
    Mask { rows, array }.into_python(py)
}

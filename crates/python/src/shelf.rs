//! The named filters of a server, as its hot path sees them, and what is to be logged of their
//! writes. Which filters there are, and all that is rare, is Python's (`service/`).

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use bloomery_core::kind::Refusal;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use crate::errors::invalid;
use crate::held::{Held, MOST_LAYERS};
use crate::run::Run;

/// As `storage/operations.py` numbers them.
pub const ADD: u8 = 1;
pub const REMOVE: u8 = 2;

/// A record is cut here, so that none becomes larger than a replay takes at once.
const MOST_RECORD: usize = 1 << 20;

/// Whose commands a filter answers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Bf,
    Cf,
}

pub struct Entry {
    id: u64,
    pub held: Held,
    pub door: Door,
    /// Keys that were new when they were added.
    items: u64,
    /// How many of those it takes at most.
    limit: u64,
    pub expires_at: f64,
    /// Not yet whole: it was announced and its bytes are coming.
    pub loading: bool,
    adds: u64,
    checks: u64,
    maybes: u64,
}

#[derive(Default)]
pub struct Names {
    entries: HashMap<Vec<u8>, Entry>,
    /// Whether any filter ever had an end; if not, nobody asks what time it is.
    pub timed: bool,
    log: Vec<(u64, u8, Vec<u8>)>,
    /// Why no write is taken now.
    pub refusing: bool,
    pub commands: u64,
    /// Room for hashes and answers, kept from one command to the next.
    pub hashes: Vec<u64>,
    pub answers: Vec<u8>,
    pub run: Run,
}

impl Names {
    #[inline(always)]
    pub fn get(&mut self, name: &[u8], now: f64) -> Option<&mut Entry> {
        self.entries.get_mut(name).filter(|entry| now < entry.expires_at)
    }

    /// Both at once, which the borrow checker does not see to be apart through `get`.
    #[inline(always)]
    pub fn split(&mut self, name: &[u8], now: f64) -> (Option<&mut Entry>, Work<'_>) {
        let Names { entries, log, hashes, answers, .. } = self;
        let entry = entries.get_mut(name).filter(|entry| now < entry.expires_at);
        hashes.clear();
        answers.clear();
        (entry, Work { log, hashes, answers })
    }
}

/// What a command needs beside the filter.
pub struct Work<'a> {
    log: &'a mut Vec<(u64, u8, Vec<u8>)>,
    pub hashes: &'a mut Vec<u64>,
    pub answers: &'a mut Vec<u8>,
}

impl Work<'_> {
    fn record(&mut self, id: u64, op: u8, width: usize, keep: impl Fn(u8) -> bool) {
        let fits = |(before, what, data): &&mut (u64, u8, Vec<u8>)| {
            (*before, *what) == (id, op) && data.len() < MOST_RECORD
        };
        if self.log.last_mut().filter(fits).is_none() {
            self.log.push((id, op, Vec::new()));
        }
        let Some((_, _, data)) = self.log.last_mut() else { return };
        for (hashes, answer) in self.hashes.chunks_exact(width).zip(self.answers.iter()) {
            if keep(*answer) {
                hashes.iter().for_each(|h| data.extend_from_slice(&h.to_le_bytes()));
            }
        }
        if data.is_empty() {
            self.log.pop();
        }
    }
}

impl Entry {
    /// Answers for the hashed keys.
    #[inline(always)]
    pub fn contains(&mut self, py: Python<'_>, work: &mut Work<'_>) -> PyResult<()> {
        self.held.contains(py, work.hashes, work.answers)?;
        self.checks += work.answers.len() as u64;
        self.maybes += work.answers.iter().map(|answer| u64::from(*answer)).sum::<u64>();
        Ok(())
    }

    /// Adds the hashed keys and notes them for the log; after a refusal, those before it are in.
    #[inline(always)]
    pub fn add(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        let result = if self.limit == u64::MAX {
            self.held.add(py, work.hashes, work.answers)
        } else {
            self.add_within(py, work)
        };
        let new = work.answers.iter().map(|answer| u64::from(*answer)).sum::<u64>();
        self.items += new;
        self.adds += work.answers.len() as u64;
        let always = self.held.every_add_counts();
        work.record(self.id, ADD, self.held.width(), |answer| always || answer == 1);
        result
    }

    /// A filter that is not to grow takes as many keys as it was made for.
    fn add_within(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        let width = self.held.width();
        let mut new = 0;
        for hashes in work.hashes.chunks_exact(width) {
            if self.items + new >= self.limit {
                self.held.contains(py, hashes, work.answers).map_err(failed)?;
                if work.answers.pop() == Some(0) {
                    return Err(Refusal::Full("non scaling filter is full".into()));
                }
                work.answers.push(0);
                continue;
            }
            self.held.add(py, hashes, work.answers)?;
            new += u64::from(work.answers.last() == Some(&1));
        }
        Ok(())
    }

    #[inline(always)]
    pub fn remove(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        let result = self.held.remove(py, work.hashes, work.answers);
        let gone = work.answers.iter().map(|answer| u64::from(*answer)).sum::<u64>();
        self.items = self.items.saturating_sub(gone);
        work.record(self.id, REMOVE, self.held.width(), |answer| answer == 1);
        result
    }
}

/// A clock that raised, say: there is no such thing in a server.
pub fn failed(problem: PyErr) -> Refusal {
    Refusal::Full(problem.to_string())
}

#[pyclass(frozen, module = "bloomery._native")]
#[derive(Default)]
pub struct Shelf {
    pub names: Mutex<Names>,
}

pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

type Outcome<'py> = (Bound<'py, PyBytes>, Option<(&'static str, String)>);

/// A refusal as Python tells it: the code of the error it would be, and the message.
fn told(refusal: Refusal) -> (&'static str, String) {
    match refusal {
        Refusal::Full(message) => ("filter-full", message),
        Refusal::NoMemory(nbytes) => ("not-enough-memory", format!("{nbytes} bytes")),
        Refusal::Never(message) => ("read-only-filter", message.into()),
    }
}

impl Shelf {
    /// Runs `work` on the filter of that name with its keys hashed; KeyError if there is none.
    fn with<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyList>,
        work: impl FnOnce(Python<'_>, &mut Entry, &mut Work<'_>) -> Result<(), Refusal>,
    ) -> PyResult<Outcome<'py>> {
        let py = name.py();
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        // Whether its time is over Python has decided, for the whole turn.
        let (entry, mut own) = names.split(name.as_bytes(), f64::NEG_INFINITY);
        let Some(entry) = entry else {
            return Err(pyo3::exceptions::PyKeyError::new_err(name.clone().unbind()));
        };
        for key in keys {
            entry.held.hash_any(&key, own.hashes)?;
        }
        let result = work(py, entry, &mut own);
        Ok((PyBytes::new(py, own.answers), result.err().map(told)))
    }
}

#[pymethods]
impl Shelf {
    #[new]
    fn new() -> Self {
        Shelf::default()
    }

    /// Gives a name to a filter, or to another in place of the one that had it.
    #[pyo3(signature = (name, filter, id, *, door="bf", items=0, limit=None, expires_at=None, loading=false))]
    #[expect(clippy::too_many_arguments, reason = "private: service/engine.py is the only caller")]
    fn put(
        &self,
        py: Python<'_>,
        name: &[u8],
        filter: &Bound<'_, PyAny>,
        id: u64,
        door: &str,
        items: u64,
        limit: Option<u64>,
        expires_at: Option<f64>,
        loading: bool,
    ) -> PyResult<()> {
        let held = Held::new(filter)
            .ok_or_else(|| invalid(py, "a filter of one of the kinds is needed".into()))?;
        let entry = Entry {
            id,
            held,
            door: if door == "cf" { Door::Cf } else { Door::Bf },
            items,
            limit: limit.unwrap_or(u64::MAX),
            expires_at: expires_at.unwrap_or(f64::INFINITY),
            loading,
            adds: 0,
            checks: 0,
            maybes: 0,
        };
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        names.timed |= expires_at.is_some();
        let before = names.entries.insert(name.to_vec(), entry);
        drop(names);
        drop(before); // may run Python code
        Ok(())
    }

    /// Takes a name away; False if there was none.
    fn drop(&self, py: Python<'_>, name: &[u8]) -> bool {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let before = names.entries.remove(name);
        drop(names);
        before.is_some()
    }

    /// Unix time from which on the filter is no more; None: never.
    #[pyo3(signature = (name, at))]
    fn expire(&self, py: Python<'_>, name: &[u8], at: Option<f64>) {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        names.timed |= at.is_some();
        if let Some(entry) = names.entries.get_mut(name) {
            entry.expires_at = at.unwrap_or(f64::INFINITY);
        }
    }

    /// Adds keys; a byte for each, 1 where it was definitely new. After a refusal (its code and
    /// message) there are fewer bytes than keys: those before it are in.
    fn add<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyList>,
    ) -> PyResult<Outcome<'py>> {
        self.with(name, keys, |py, entry, work| entry.add(py, work))
    }

    /// A byte for each key: 0 is definitely not there, 1 maybe.
    fn contains<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let asked = |py: Python<'_>, entry: &mut Entry, work: &mut Work<'_>| {
            entry.contains(py, work).map_err(failed)
        };
        Ok(self.with(name, keys, asked)?.0)
    }

    /// Takes one copy of each key out; a byte for each, 1 where there was one.
    fn remove<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyList>,
    ) -> PyResult<Outcome<'py>> {
        self.with(name, keys, |py, entry, work| entry.remove(py, work))
    }

    /// How often the key was added, at most.
    fn count(&self, name: &Bound<'_, PyBytes>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        let mut count = 0;
        let keys = PyList::new(name.py(), [key])?;
        self.with(name, &keys, |py, entry, work| {
            count = entry.held.count(py, work.hashes).map_err(failed)?;
            Ok(())
        })?;
        Ok(count)
    }

    /// (items, adds, checks, maybes) of a filter since it was put; None if there is none.
    fn figures(&self, py: Python<'_>, name: &[u8]) -> Option<(u64, u64, u64, u64)> {
        let names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let entry = names.entries.get(name)?;
        Some((entry.items, entry.adds, entry.checks, entry.maybes))
    }

    /// Notes an operation for the log, behind the writes that came before it.
    fn note(&self, py: Python<'_>, id: u64, op: u8, data: &[u8]) {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        names.log.push((id, op, data.to_vec()));
    }

    /// What is to be logged, in order, and no more from now on.
    fn take_log<'py>(&self, py: Python<'py>) -> Vec<(u64, u8, Bound<'py, PyBytes>)> {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let log = std::mem::take(&mut names.log);
        log.into_iter().map(|(id, op, data)| (id, op, PyBytes::new(py, &data))).collect()
    }

    /// While true, the native path takes no writes: they go to Python, which says why.
    #[setter]
    fn set_refusing(&self, py: Python<'_>, refusing: bool) {
        self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner()).refusing = refusing;
    }

    #[getter]
    fn refusing(&self, py: Python<'_>) -> bool {
        self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner()).refusing
    }

    /// Layers that a cuckoo filter of RedisBloom's may have, before it takes no more keys.
    #[setter]
    fn set_most_layers(&self, layers: usize) {
        MOST_LAYERS.store(layers, Relaxed);
    }

    #[getter]
    fn most_layers(&self) -> usize {
        MOST_LAYERS.load(Relaxed)
    }

    /// Commands that were answered without Python.
    #[getter]
    fn commands(&self, py: Python<'_>) -> u64 {
        self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner()).commands
    }
}

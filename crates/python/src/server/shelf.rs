//! The named filters of a server, as its hot path sees them, and what is to be logged of their
//! writes. Python decides which filters there are: only `State` (service/domain/state.py) puts and
//! drops them. All that is rare is Python's too.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bloomery_core::kind::Refusal;
use bloomery_core::scan::{Figures, Scan};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{LATER, error, invalid};
use crate::server::any_filter::{AnyFilter, MOST_LAYERS};
use crate::server::histogram::Histogram;
use crate::server::names::{
    ADD, ADD_NEW, CommandFamily, Entry, Names, Noted, REMOVE, Work, failed,
};
use crate::server::replay;

#[pyclass(frozen, module = "bloomery._native")]
pub struct Shelf {
    pub names: Mutex<Names>,
    /// Of commands, from the arrival of a chunk until its replies are taken.
    #[pyo3(get)]
    pub latency: Py<Histogram>,
}

/// Room for so many keys is kept from one batch to the next.
const KEEP: usize = 1 << 16;

/// What `Shelf.sample` returns.
type Sample = (u64, u64, u64, u64, f64, f64, f64, usize, Option<u64>);

/// Pages of a filter that a sample looks at: 64 KiB, some 10 microseconds.
const PAGES: usize = 16;

type Outcome<'py> = (Bound<'py, PyBytes>, Option<(&'static str, String)>);

/// Raises what an answer cannot be given for: a filter that broke, say.
fn unless_refused(py: Python<'_>, refusal: Option<(&'static str, String)>) -> PyResult<()> {
    match refusal {
        None => Ok(()),
        Some((_, message)) => Err(error(py, "CorruptData", message)),
    }
}

/// A refusal as Python has it: the code of the error that it would be, and the message.
fn code_and_message(refusal: Refusal) -> (&'static str, String) {
    match refusal {
        Refusal::Full(message) => ("filter-full", message),
        Refusal::Copies(message) => ("too-many-copies", message),
        Refusal::NoMemory(nbytes) => ("not-enough-memory", format!("{nbytes} bytes")),
        Refusal::Never(message) => ("read-only-filter", message.into()),
        Refusal::Later => ("error", LATER.into()),
    }
}

impl Shelf {
    /// Runs `work` on the filter of that name with its keys hashed; KeyError if there is none. Hashing
    /// may run Python code, which may use the shelf: nothing is locked then, and if the name has
    /// another filter afterwards the keys are hashed for that one.
    fn with<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
        work: impl FnOnce(Python<'_>, &mut Entry, &mut Work<'_>) -> Result<(), Refusal>,
    ) -> PyResult<Outcome<'py>> {
        let py = name.py();
        let mut hashed: Option<AnyFilter> = None;
        let mut hashes = Vec::new();
        loop {
            let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
            let (entry, mut own) = names.split(name.as_bytes());
            let Some(entry) = entry else {
                return Err(pyo3::exceptions::PyKeyError::new_err(name.clone().unbind()));
            };
            if hashed.as_ref().is_some_and(|filter| filter.is(&entry.filter)) {
                *own.hashes = hashes;
                let result = work(py, entry, &mut own);
                let outcome = (PyBytes::new(py, own.answers), result.err().map(code_and_message));
                own.hashes.shrink_to(KEEP); // of a large batch
                own.answers.shrink_to(KEEP);
                return Ok(outcome);
            }
            let filter = entry.filter.clone_ref(py);
            hashes = std::mem::take(own.hashes);
            drop(names);
            filter.hash_all(keys, &mut hashes)?;
            hashed = Some(filter);
        }
    }

    /// Runs `work` on the filter of that name with keys that are hashed, as a log has them; KeyError
    /// if there is none.
    fn with_hashes<'py, T>(
        &self,
        name: &Bound<'py, PyBytes>,
        op: u8,
        data: &[u8],
        work: impl FnOnce(&mut Entry, &mut Work<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let py = name.py();
        check_op(py, op)?;
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let (entry, mut own) = names.split(name.as_bytes());
        let Some(entry) = entry else {
            return Err(pyo3::exceptions::PyKeyError::new_err(name.clone().unbind()));
        };
        let hashes = match entry.filter.width() {
            2 => replay::pairs(py, data)?.as_flattened(),
            _ => replay::hashes(py, data)?,
        };
        own.hashes.extend(hashes.iter().map(|hash| u64::from_le_bytes(*hash)));
        let done = work(entry, &mut own);
        own.hashes.shrink_to(KEEP);
        own.answers.shrink_to(KEEP);
        done
    }
}

/// Those that are done with hashes.
fn check_op(py: Python<'_>, op: u8) -> PyResult<()> {
    if matches!(op, ADD | REMOVE | ADD_NEW) {
        return Ok(());
    }
    Err(invalid(py, format!("operation {op} is not done with hashes")))
}

#[pymethods]
impl Shelf {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let latency = Py::new(py, Histogram::default())?;
        Ok(Shelf { names: Mutex::default(), latency })
    }

    /// Gives a name to a filter, or to another in place of the one that had it.
    #[pyo3(signature = (
        name, filter, id, *, family="bf", items=0, limit=None, full="full", threshold=None, loading=false,
        followed=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "private: service/engine.py is the only caller")]
    fn put(
        &self,
        py: Python<'_>,
        name: &[u8],
        filter: &Bound<'_, PyAny>,
        id: u64,
        family: &str,
        items: u64,
        limit: Option<u64>,
        full: &str,
        threshold: Option<u64>,
        loading: bool,
        followed: bool,
    ) -> PyResult<()> {
        let filter = AnyFilter::new(filter)
            .ok_or_else(|| invalid(py, "a filter of one of the kinds is needed".into()))?;
        let entry = Entry {
            id,
            filter,
            family: if family == "cf" { CommandFamily::Cf } else { CommandFamily::Bf },
            items,
            limit: limit.unwrap_or(u64::MAX),
            full: full.to_owned(),
            threshold: threshold.unwrap_or(u64::MAX),
            loading,
            followed,
            starved: None,
            adds: 0,
            checks: 0,
            maybes: 0,
        };
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let before = names.entries.insert(name.to_vec(), entry);
        if let Some(before) = before.as_ref().filter(|before| before.id == id)
            && let Some(entry) = names.entries.get_mut(name)
        {
            (entry.adds, entry.checks, entry.maybes) = (before.adds, before.checks, before.maybes);
        }
        drop(names);
        drop(before); // may run Python code
        Ok(())
    }

    /// How many names there are.
    fn __len__(&self, py: Python<'_>) -> usize {
        self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner()).entries.len()
    }

    /// Takes a name away; False if there was none.
    fn drop(&self, py: Python<'_>, name: &[u8]) -> bool {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let before = names.entries.remove(name);
        drop(names);
        before.is_some()
    }

    /// Adds keys; a byte for each, 1 where it was definitely new, 2 where there was no memory for it
    /// (it is not in). After a refusal (its code and
    /// message) there are fewer bytes than keys: those before it are in. `more`: they are a further
    /// part of one command, and how often the filter has grown was looked at before.
    #[pyo3(signature = (name, keys, more=false))]
    fn add<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
        more: bool,
    ) -> PyResult<Outcome<'py>> {
        self.with(name, keys, |py, entry, work| match more {
            true => entry.add_more(py, work),
            false => entry.add(py, work),
        })
    }

    /// Adds those keys that are definitely not there: a byte for each, 1 added, 0 maybe there, 2 no
    /// room. How often the filter has grown is for the caller to look at.
    fn add_new<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Outcome<'py>> {
        self.with(name, keys, |py, entry, work| entry.add_new(py, work))
    }

    /// A byte for each key: 0 is definitely not there, 1 maybe.
    fn contains<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let asked = |py: Python<'_>, entry: &mut Entry, work: &mut Work<'_>| {
            entry.contains(py, work).map_err(failed)
        };
        let (answers, refusal) = self.with(name, keys, asked)?;
        unless_refused(name.py(), refusal)?;
        Ok(answers)
    }

    /// Takes one copy of each key out; a byte for each, 1 where there was one.
    fn remove<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Outcome<'py>> {
        self.with(name, keys, |py, entry, work| entry.remove(py, work))
    }

    /// How often the key was added, at most.
    fn count(&self, name: &Bound<'_, PyBytes>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        let mut count = 0;
        let keys = PyList::new(name.py(), [key])?;
        let (_, refusal) = self.with(name, &keys, |py, entry, work| {
            count = entry.filter.count(py, work.hashes).map_err(failed)?;
            Ok(())
        })?;
        unless_refused(name.py(), refusal)?;
        Ok(count)
    }

    /// (items, adds, checks, maybes) of a filter since it was put; None if there is none.
    fn figures(&self, py: Python<'_>, name: &[u8]) -> Option<(u64, u64, u64, u64)> {
        let names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let entry = names.entries.get(name)?;
        Some((entry.items, entry.adds, entry.checks, entry.maybes))
    }

    /// Notes an operation for the log, behind the writes that came before it; its place there.
    fn note(&self, py: Python<'_>, id: u64, op: u8, data: Py<PyBytes>) -> usize {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        names.log.push((id, op, Noted::Given(data)));
        names.log.len() - 1
    }

    /// Notes keys for the log, to be added or removed when a shared log has them (`apply`). Returns
    /// the record's place in the log, that of the first key in the record, and how many keys.
    fn defer<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
        op: u8,
    ) -> PyResult<(usize, usize, usize)> {
        check_op(name.py(), op)?;
        let mut place = (0, 0, 0);
        self.with(name, keys, |_, entry, work| {
            let width = entry.filter.width();
            let (record, first) = work.defer(entry.id, op, width);
            place = (record, first, work.hashes.len() / width);
            Ok(())
        })?;
        Ok(place)
    }

    /// Adds or removes keys by their hashes, as a shared log has them: a byte for each, 1 where it
    /// was new (or there), 3 where it was refused, and the first refusal. Nothing is noted for the
    /// log, and how often the filter has grown is not looked at. It raises what only this node can
    /// have met: that there is no memory, say.
    fn apply<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        op: u8,
        data: &[u8],
    ) -> PyResult<Outcome<'py>> {
        let py = name.py();
        self.with_hashes(name, op, data, |entry, work| {
            if entry.loading {
                return Err(invalid(py, "the filter is still being loaded".into()));
            }
            let first = entry.apply(py, op, work)?;
            Ok((PyBytes::new(py, work.answers), first.map(code_and_message)))
        })
    }

    /// The answers that `apply` would give, if it would change nothing; else None. Those keys count
    /// as no checks.
    fn unchanged<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        op: u8,
        data: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = name.py();
        self.with_hashes(name, op, data, |entry, work| {
            let unchanged = entry.is_unchanged_by(py, op, work)?;
            Ok(unchanged.then(|| PyBytes::new(py, &vec![0; work.answers.len()])))
        })
    }

    /// What is to be logged, in order, and no more from now on.
    fn take_log<'py>(&self, py: Python<'py>) -> Vec<(u64, u8, Bound<'py, PyBytes>)> {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let log = std::mem::take(&mut names.log);
        names.turn += 1;
        let given = |noted| match noted {
            Noted::Hashes(data) => PyBytes::new(py, &data),
            Noted::Given(data) => data.into_bound(py),
        };
        log.into_iter().map(|(id, op, noted)| (id, op, given(noted))).collect()
    }

    /// Numbers of the filters that have reached their threshold, each once.
    fn take_reached(&self, py: Python<'_>) -> Vec<u64> {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        std::mem::take(&mut names.reached)
    }

    /// (items, adds, checks, maybes, fill ratio, estimated error rate, estimated count, bytes, hits)
    /// of a filter: how full it is from a look at a part of it, and how many of so many random keys,
    /// which nobody added, may be there; those count as no checks. None if there is none, or it is
    /// not yet whole.
    fn sample(
        &self,
        py: Python<'_>,
        name: &[u8],
        probes: usize,
        seed: u64,
    ) -> PyResult<Option<Sample>> {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        if names.is_locked(name) {
            return Ok(None);
        }
        let (entry, work) = names.split(name);
        let Some(entry) = entry.filter(|entry| !entry.loading) else { return Ok(None) };
        let Figures { count, error_rate, fill_ratio } =
            entry.filter.figures(py, Scan { pages: PAGES, seed })?;
        let hits = entry.filter.probe(py, probes, seed, work.hashes, work.answers)?;
        Ok(Some((
            entry.items,
            entry.adds,
            entry.checks,
            entry.maybes,
            fill_ratio,
            error_rate,
            if count.is_nan() { entry.items as f64 } else { count },
            entry.filter.nbytes(py)?,
            hits,
        )))
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

    /// While true, the native path does nothing: Python sees every command.
    #[setter]
    fn set_bypassed(&self, py: Python<'_>, bypassed: bool) {
        self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner()).bypassed = bypassed;
    }

    #[getter]
    fn bypassed(&self, py: Python<'_>) -> bool {
        self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner()).bypassed
    }

    /// While true, clients' usual writes are noted for the log and not done, nor answered: that is
    /// when a shared log has them (`apply`, and `Session.answer`).
    #[setter]
    fn set_deferring(&self, py: Python<'_>, deferring: bool) {
        self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner()).deferring = deferring;
    }

    #[getter]
    fn deferring(&self, py: Python<'_>) -> bool {
        self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner()).deferring
    }

    /// Would adding so many keys have a filter grow for long?
    fn needs_room(&self, py: Python<'_>, name: &[u8], keys: usize) -> bool {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        names.get(name).is_some_and(|entry| entry.needs_room(py, keys))
    }

    /// Remembers that there was no memory for a filter to grow.
    fn starve(&self, py: Python<'_>, name: &[u8]) {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        if let Some(entry) = names.get(name) {
            entry.starved = Some(Instant::now());
        }
    }

    /// While true, commands about this name go to Python, and wait there: a thread or a transaction
    /// works on its filter.
    fn set_locked(&self, py: Python<'_>, name: &[u8], locked: bool) {
        let mut names = self.names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        if locked {
            names.locked.insert(name.to_vec());
        } else {
            names.locked.remove(name);
        }
    }

    /// The hash of each key, 8 bytes each, as this filter has them.
    fn hashes<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut found = Vec::new();
        self.with(name, keys, |_, _, work| {
            found = work.hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
            Ok(())
        })?;
        Ok(PyBytes::new(name.py(), &found))
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

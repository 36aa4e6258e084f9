//! The named filters of a server as native code sees them, and the records of their writes. Python
//! decides which filters exist: only `State` (service/domain/state.py) puts and drops them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bloomery_core::kind::Refusal;
use bloomery_core::scan::{Figures, Scan};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{LATER, error, invalid};
use crate::server::any_filter::{AnyFilter, MOST_LAYERS};
use crate::server::apply::Applied;
use crate::server::histogram::Histogram;
use crate::server::names::{
    ADD_IN_PLACE, ADD_NEW_IN_PLACE, CommandFamily, Data, Entry, Names, REMOVE, Record, Work,
    failed, has_keys, split_name,
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
            let mut names = self.lock(py);
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

    fn lock<'a>(&'a self, py: Python<'a>) -> MutexGuard<'a, Names> {
        self.names.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Reads the hashes of a record for a filter.
fn read_hashes(
    py: Python<'_>,
    filter: &AnyFilter,
    data: &[u8],
    out: &mut Vec<u64>,
) -> PyResult<()> {
    let hashes = match filter.width() {
        2 => replay::pairs(py, data)?.as_flattened(),
        _ => replay::hashes(py, data)?,
    };
    out.clear();
    out.extend(hashes.iter().map(|hash| u64::from_le_bytes(*hash)));
    Ok(())
}

/// Splits the data of a record; CorruptData if its name is truncated.
fn named<'a>(py: Python<'_>, data: &'a [u8]) -> PyResult<(&'a [u8], &'a [u8])> {
    let truncated = || error(py, "CorruptData", "a record is truncated in its name".into());
    split_name(data).ok_or_else(truncated)
}

/// The outcome of a record for Python.
fn outcome<'py>(py: Python<'py>, applied: Applied) -> Outcome<'py> {
    (PyBytes::new(py, &applied.answers), applied.refusal.map(code_and_message))
}

/// Refuses operations that have no hashes.
fn check_op(py: Python<'_>, op: u8) -> PyResult<()> {
    if has_keys(op) {
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
            adds: 0,
            checks: 0,
            maybes: 0,
        };
        let mut names = self.lock(py);
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
        self.lock(py).entries.len()
    }

    /// Takes a name away; False if there was none.
    fn drop(&self, py: Python<'_>, name: &[u8]) -> bool {
        let mut names = self.lock(py);
        let before = names.entries.remove(name);
        drop(names);
        before.is_some()
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
        let names = self.lock(py);
        let entry = names.entries.get(name)?;
        Some((entry.items, entry.adds, entry.checks, entry.maybes))
    }

    /// Notes a record for the log; returns its index in the batch.
    fn note(&self, py: Python<'_>, id: u64, op: u8, data: Py<PyBytes>) -> usize {
        let mut names = self.lock(py);
        names.log.push(Record { id, op, data: Data::Given(data) });
        names.log.len() - 1
    }

    /// Notes keys for the log, to be added or removed when the log has them. Returns how many there
    /// are, the index of the record, and of the first key in it. The record is None if all keys are
    /// present and need none (`exclusive`).
    fn note_keys<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
        op: u8,
    ) -> PyResult<(usize, Option<(usize, usize)>)> {
        check_op(name.py(), op)?;
        let present_is_enough = self.lock(name.py()).present_is_enough(op);
        let mut noted = (0, None);
        let (_, refusal) = self.with(name, keys, |py, entry, work| {
            let width = entry.filter.width();
            noted.0 = work.hashes.len() / width;
            if present_is_enough && entry.is_unchanged_by(py, op, work.hashes).map_err(failed)? {
                entry.adds += noted.0 as u64;
            } else {
                noted.1 = Some(work.note(entry.id, op, name.as_bytes(), width, |_| true));
            }
            Ok(())
        })?;
        unless_refused(name.py(), refusal)?;
        self.lock(name.py()).removes |= op == REMOVE;
        Ok(noted)
    }

    /// Applies records of keys, from the first without a result on, and appends the results: the
    /// answers (1 where the key was new, or was removed; 3 where it was refused) with the first
    /// refusal, or None if another command changed the name first. Returns True if all records are
    /// applied, False if the time is over, and None if the next record is for Python.
    fn apply<'py>(
        &self,
        records: &Bound<'py, PyList>,
        results: &Bound<'py, PyList>,
        seconds: f64,
    ) -> PyResult<Option<bool>> {
        let py = records.py();
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while results.len() < records.len() {
            let record = records.get_item(results.len())?;
            let (id, op, data): (u64, u8, Bound<'py, PyBytes>) = record.extract()?;
            if !has_keys(op) {
                return Ok(None);
            }
            let (name, keys) = named(py, data.as_bytes())?;
            let mut names = self.lock(py);
            // What `apply` has started it also ends: `apply_one` has other records meanwhile.
            let started = names.partial.take();
            let starts = started.is_none();
            if starts && names.busy.contains(name) {
                return Ok(None);
            }
            let mut hashes = std::mem::take(&mut names.hashes);
            let mut applied = started.unwrap_or_default();
            let (entry, work) = names.split(name);
            let Some(entry) = entry.filter(|entry| entry.id == id) else {
                drop(names);
                results.append(py.None())?;
                continue;
            };
            read_hashes(py, &entry.filter, keys, &mut hashes)?;
            let width = entry.filter.width();
            let left = hashes.len() / width - applied.answers.len();
            let grows = op != REMOVE && entry.filter.needs_room(py, left);
            if starts && (entry.loading || entry.followed || grows) {
                return Ok(None);
            }
            let chunk = entry.filter.keys_per_look(py) * width;
            let mut late = false;
            for some in hashes[applied.answers.len() * width..].chunks(chunk) {
                if late {
                    names.partial = Some(applied);
                    return Ok(Some(false));
                }
                entry.apply(py, op, some, &mut applied, work.reached)?;
                late = Instant::now() >= until;
            }
            hashes.shrink_to(KEEP);
            names.hashes = hashes;
            drop(names);
            results.append(outcome(py, applied))?;
            if late && results.len() < records.len() {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }

    /// Applies one record of keys, however long it takes; from any thread, if the name is locked.
    /// Returns a result as `apply` appends it. An error is this process's own, such as too little
    /// memory; the keys before it are applied.
    fn apply_one<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        op: u8,
        data: &Bound<'py, PyBytes>,
    ) -> PyResult<Option<Outcome<'py>>> {
        check_op(py, op)?;
        let (name, keys) = named(py, data.as_bytes())?;
        let mut applied = Applied::default();
        let mut copy = match self.lock(py).get(name).filter(|entry| entry.id == id) {
            Some(entry) => entry.counters(py),
            None => return Ok(None),
        };
        if copy.loading {
            return Err(invalid(py, "the filter is still being loaded".into()));
        }
        let (mut hashes, mut reached) = (Vec::new(), Vec::new());
        read_hashes(py, &copy.filter, keys, &mut hashes)?;
        if !matches!(op, ADD_IN_PLACE | ADD_NEW_IN_PLACE) {
            copy.filter.make_room(py, hashes.len() / copy.filter.width())?;
        }
        let done = copy.apply(py, op, &hashes, &mut applied, &mut reached);
        let mut names = self.lock(py);
        if let Some(entry) = names.get(name).filter(|entry| entry.id == id) {
            (entry.items, entry.threshold) = (copy.items, copy.threshold);
            entry.adds += copy.adds;
        }
        names.reached.append(&mut reached);
        drop(names);
        done?;
        Ok(Some(outcome(py, applied)))
    }

    /// Returns the answers that `apply_one` would give if it would change nothing; else None. The
    /// keys do not count as checks.
    fn unchanged<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        op: u8,
        data: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        check_op(py, op)?;
        let (name, keys) = named(py, data)?;
        let mut names = self.lock(py);
        let (entry, work) = names.split(name);
        let Some(entry) = entry.filter(|entry| entry.id == id) else { return Ok(None) };
        read_hashes(py, &entry.filter, keys, work.hashes)?;
        let count = work.hashes.len() / entry.filter.width();
        let unchanged = entry.is_unchanged_by(py, op, work.hashes)?;
        Ok(unchanged.then(|| PyBytes::new(py, &vec![0; count])))
    }

    /// Takes the records of this batch, and starts the next.
    fn take_log<'py>(&self, py: Python<'py>) -> Vec<(u64, u8, Bound<'py, PyBytes>)> {
        let mut names = self.lock(py);
        let log = std::mem::take(&mut names.log);
        names.removes = false;
        names.batch += 1;
        let given = |data| match data {
            Data::Keys(data, _) => PyBytes::new(py, &data),
            Data::Given(data) => data.into_bound(py),
        };
        log.into_iter().map(|Record { id, op, data }| (id, op, given(data))).collect()
    }

    /// Returns whether adding this many keys makes a large filter grow, which takes long.
    fn needs_room(&self, py: Python<'_>, name: &[u8], keys: usize) -> bool {
        self.lock(py).get(name).is_some_and(|entry| entry.filter.needs_room(py, keys))
    }

    /// Returns whether there is memory for this many more keys in a filter.
    fn has_memory(&self, py: Python<'_>, name: &[u8], keys: usize) -> bool {
        let mut names = self.lock(py);
        let limit = names.memory_limit;
        names.get(name).is_none_or(|entry| entry.has_memory(py, keys, limit))
    }

    /// Numbers of the filters that have reached their threshold, each once.
    fn take_reached(&self, py: Python<'_>) -> Vec<u64> {
        let mut names = self.lock(py);
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
        let mut names = self.lock(py);
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
        self.lock(py).refusing = refusing;
    }

    #[getter]
    fn refusing(&self, py: Python<'_>) -> bool {
        self.lock(py).refusing
    }

    /// While true, the native path does nothing: Python sees every command.
    #[setter]
    fn set_bypassed(&self, py: Python<'_>, bypassed: bool) {
        self.lock(py).bypassed = bypassed;
    }

    #[getter]
    fn bypassed(&self, py: Python<'_>) -> bool {
        self.lock(py).bypassed
    }

    /// While true, no other process writes the log: adding a key that is present needs no record.
    #[setter]
    fn set_exclusive(&self, py: Python<'_>, exclusive: bool) {
        self.lock(py).exclusive = exclusive;
    }

    #[getter]
    fn exclusive(&self, py: Python<'_>) -> bool {
        self.lock(py).exclusive
    }

    /// Bytes that all filters together may use; None: no limit.
    #[setter]
    fn set_memory_limit(&self, py: Python<'_>, limit: Option<u64>) {
        self.lock(py).memory_limit = limit.unwrap_or(u64::MAX);
    }

    #[getter]
    fn memory_limit(&self, py: Python<'_>) -> Option<u64> {
        Some(self.lock(py).memory_limit).filter(|limit| *limit < u64::MAX)
    }

    /// While true, a thread applies a record to this name: `apply` leaves its records to Python.
    fn set_busy(&self, py: Python<'_>, name: &[u8], busy: bool) {
        let mut names = self.lock(py);
        if busy {
            names.busy.insert(name.to_vec());
        } else {
            names.busy.remove(name);
        }
    }

    /// While true, commands about this name go to Python, and wait there: a thread or a transaction
    /// works on its filter.
    fn set_locked(&self, py: Python<'_>, name: &[u8], locked: bool) {
        let mut names = self.lock(py);
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
        self.lock(py).commands
    }
}

//! The keyspace of a server as Python calls it. Python decides which filters exist: only `State`
//! (service/domain/state.py) puts and drops them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bloomery_core::scan::{Figures, Scan};
use bloomery_server::apply::{Outcome, Progress, read_hashes};
use bloomery_server::keyspace::{
    CommandFamily, Counters, Data, Entry, Keyspace, Payload, Record, has_keys, split_name,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{error, invalid};
use crate::filters::sections::{detached, section};
use crate::server::any_filter::{AnyFilter, MOST_LAYERS, raise};
use crate::server::histogram::Histogram;
use crate::server::outcomes::{Answers, answers};
use crate::server::workers::Waiters;

#[pyclass(frozen, module = "bloomery._native")]
pub struct Shelf {
    pub keyspace: Arc<Keyspace>,
}

/// What `Shelf.sample` returns.
type Sample = (u64, u64, u64, u64, f64, f64, f64, usize, Option<u64>);

/// A record as Python has it.
pub type PyRecord<'py> = (u64, u8, Bound<'py, PyBytes>);

pub fn py_record(py: Python<'_>, record: Record) -> PyRecord<'_> {
    let data = match record.data {
        Data::Keys(data, _) => PyBytes::new(py, &data),
        Data::Given(payload) => {
            let any: Box<dyn std::any::Any> = payload;
            match any.downcast::<Given>() {
                Ok(given) => given.object.into_bound(py),
                Err(_) => PyBytes::new(py, b""), // `note` alone makes them
            }
        }
    };
    (record.id, record.op, data)
}

/// Pages of a filter that a sample looks at: 64 KiB, some 10 microseconds.
const PAGES: usize = 16;

/// Bytes that Python gave.
struct Given {
    object: Py<PyBytes>,
    start: *const u8,
    len: usize,
}

// SAFETY: bytes never change, and the object keeps them in memory.
unsafe impl Send for Given {}
// SAFETY: as above.
unsafe impl Sync for Given {}

impl Given {
    fn new(object: Bound<'_, PyBytes>) -> Self {
        let bytes = object.as_bytes();
        Given { start: bytes.as_ptr(), len: bytes.len(), object: object.unbind() }
    }
}

impl Payload for Given {
    fn bytes(&self) -> &[u8] {
        // SAFETY: they are those of the object.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

fn filter_of(entry: &Entry) -> PyResult<&AnyFilter> {
    let filter = entry.filter.as_any().downcast_ref();
    filter.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("not a filter of the library"))
}

impl Shelf {
    fn entry(&self, name: &[u8]) -> Option<Arc<Entry>> {
        self.keyspace.names().get(name).cloned()
    }

    /// Hashes keys for the filter of a name; KeyError if there is none. Hashing may run Python code,
    /// which may use the shelf: if the name has another filter afterwards, the keys are hashed again.
    fn hash(
        &self,
        name: &Bound<'_, PyBytes>,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<(Arc<Entry>, Vec<u64>)> {
        let missing = || pyo3::exceptions::PyKeyError::new_err(name.clone().unbind());
        let mut hashes = Vec::new();
        loop {
            let entry = self.entry(name.as_bytes()).ok_or_else(missing)?;
            hashes.clear();
            filter_of(&entry)?.hash_all(keys, &mut hashes)?;
            let now = self.entry(name.as_bytes()).ok_or_else(missing)?;
            if filter_of(&now)?.is(filter_of(&entry)?) {
                return Ok((now, hashes));
            }
        }
    }
}

/// Reads the hashes of a record for a filter.
fn hashes_of(py: Python<'_>, entry: &Entry, data: &[u8]) -> PyResult<Vec<u64>> {
    let (width, mut hashes) = (entry.filter.width(), Vec::new());
    if !read_hashes(width, data, &mut hashes) {
        let message = format!("{} bytes are no hashes of {} bytes each", data.len(), 8 * width);
        return Err(invalid(py, message));
    }
    Ok(hashes)
}

/// Splits the data of a record; CorruptData if its name is truncated.
fn named<'a>(py: Python<'_>, data: &'a [u8]) -> PyResult<(&'a [u8], &'a [u8])> {
    let truncated = || error(py, "CorruptData", "a record is truncated in its name".into());
    split_name(data).ok_or_else(truncated)
}

/// A time of `time.monotonic`. If this thread has to wait between the two clocks, it is earlier, and
/// never later.
fn instant(py: Python<'_>, at: f64) -> PyResult<Instant> {
    let now = Instant::now();
    let monotonic: f64 = py.import("time")?.call_method0("monotonic")?.extract()?;
    let after = (at - monotonic).clamp(0.0, f64::from(u32::MAX));
    Ok(now + Duration::from_secs_f64(after))
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
    fn new() -> Self {
        Shelf { keyspace: Arc::default() }
    }

    /// The latency of commands, from the arrival of a chunk until its replies are sent.
    #[getter]
    fn latency(&self) -> Histogram {
        Histogram::of_commands(self.keyspace.clone())
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
        let before = self.entry(name).filter(|before| before.id == id);
        let counters =
            before.map_or_else(Arc::<Counters>::default, |before| before.counters.clone());
        counters.items.store(items, Relaxed);
        counters.threshold.store(threshold.unwrap_or(u64::MAX), Relaxed);
        let entry = Arc::new(Entry {
            id,
            filter: Arc::new(filter),
            family: if family == "cf" { CommandFamily::Cf } else { CommandFamily::Bf },
            limit: limit.unwrap_or(u64::MAX),
            full: full.to_owned(),
            loading,
            followed,
            counters,
        });
        let before = self.keyspace.names_mut().entries.insert(name.to_vec(), entry);
        drop(before); // when nothing is locked: it may run Python code
        Ok(())
    }

    /// How many names there are.
    fn __len__(&self) -> usize {
        self.keyspace.names().entries.len()
    }

    /// Takes a name away; False if there was none.
    fn drop(&self, name: &[u8]) -> bool {
        let before = self.keyspace.names_mut().entries.remove(name);
        before.is_some()
    }

    /// A byte for each key: 0 is definitely not there, 1 maybe.
    fn contains<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (py, (entry, hashes)) = (name.py(), self.hash(name, keys)?);
        let _section = section(py);
        let mut answers = Vec::with_capacity(hashes.len());
        entry.contains(&hashes, &mut answers).map_err(|fault| raise(py, fault))?;
        Ok(PyBytes::new(py, &answers))
    }

    /// How often the key was added, at most.
    fn count(&self, name: &Bound<'_, PyBytes>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = name.py();
        let (entry, hashes) = self.hash(name, PyList::new(py, [key])?.as_any())?;
        let _section = section(py);
        entry.filter.count(&hashes).map_err(|fault| raise(py, fault))
    }

    /// (items, adds, checks, maybes) of a filter since it was put; None if there is none.
    fn figures(&self, name: &[u8]) -> Option<(u64, u64, u64, u64)> {
        Some(self.entry(name)?.counters.read())
    }

    /// Appends a record to the next batch; returns its index.
    fn note(&self, id: u64, op: u8, data: Bound<'_, PyBytes>) -> usize {
        let data = Data::Given(Box::new(Given::new(data)));
        let mut pending = self.keyspace.pending();
        pending.records.push(Record { id, op, data });
        pending.control = true;
        pending.records.len() - 1
    }

    /// Appends keys to the next batch, to be added or removed when the log has them. Returns how many
    /// there are, the index of the record, and of the first key in it. The record is None if all
    /// keys are present and need none (`exclusive`).
    fn note_keys<'py>(
        &self,
        name: &Bound<'py, PyBytes>,
        keys: &Bound<'py, PyAny>,
        op: u8,
    ) -> PyResult<(usize, Option<(usize, usize)>)> {
        let py = name.py();
        check_op(py, op)?;
        let (entry, hashes) = self.hash(name, keys)?;
        let _section = section(py);
        let (keyspace, width) = (&self.keyspace, entry.filter.width());
        let count = hashes.len() / width;
        let needs_no_record =
            keyspace.exclusive.load(Relaxed) && keyspace.pending().needs_no_record(op);
        if needs_no_record
            && entry.is_unchanged_by(op, &hashes).map_err(|fault| raise(py, fault))?
        {
            entry.count_known(count);
            return Ok((count, None));
        }
        let what = (entry.id, op, name.as_bytes());
        let mut pending = keyspace.pending();
        pending.control = true;
        Ok((count, Some(pending.append(what, &hashes, width, |_| true))))
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
        let left = records.iter().skip(results.len()).map(|record| record.extract());
        let left = left.collect::<PyResult<Vec<(u64, u8, Bound<'py, PyBytes>)>>>()?;
        let mut outcomes = Vec::with_capacity(left.len());
        let done = {
            let _section = section(py);
            let each = left.iter().map(|(id, op, data)| (*id, *op, data.as_bytes()));
            let names = self.keyspace.names();
            self.keyspace.apply(&names, each, &mut outcomes, Some(until))
        };
        for outcome in outcomes {
            match outcome {
                Outcome::Keys(applied) => results.append(answers(py, applied))?,
                _ => results.append(py.None())?,
            }
        }
        match done.map_err(|fault| raise(py, fault))? {
            Progress::Done => Ok(Some(true)),
            Progress::Late => Ok(Some(false)),
            Progress::Control => Ok(None),
        }
    }

    /// Applies one record of keys, or the rest of it, however long it takes; from any thread, if the
    /// name is locked.
    /// Returns a result as `apply` appends it. An error is this process's own, such as too little
    /// memory; the keys before it are applied.
    fn apply_one<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        op: u8,
        data: &Bound<'py, PyBytes>,
    ) -> PyResult<Option<Answers<'py>>> {
        check_op(py, op)?;
        let (name, keys) = named(py, data.as_bytes())?;
        let Some(entry) = self.entry(name).filter(|entry| entry.id == id) else { return Ok(None) };
        if entry.loading {
            return Err(invalid(py, "the filter is still being loaded".into()));
        }
        let hashes = hashes_of(py, &entry, keys)?;
        let count = hashes.len() / entry.filter.width();
        let grows = entry.filter.needs_room(count);
        let keyspace = &self.keyspace;
        let work = move || {
            let mut applied = keyspace.take_begun(id).unwrap_or_default();
            entry.apply_all(keyspace, op, &hashes, &mut applied)?;
            Ok(applied)
        };
        // Others wait while it holds the interpreter lock, which takes long only if it grows.
        let done = if grows { detached(py, work) } else { work() };
        Ok(Some(answers(py, done.map_err(|fault| raise(py, fault))?)))
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
        let Some(entry) = self.entry(name).filter(|entry| entry.id == id) else { return Ok(None) };
        let hashes = hashes_of(py, &entry, keys)?;
        let _section = section(py);
        let count = hashes.len() / entry.filter.width();
        let unchanged = entry.is_unchanged_by(op, &hashes).map_err(|fault| raise(py, fault))?;
        Ok(unchanged.then(|| PyBytes::new(py, &vec![0; count])))
    }

    /// Takes the records of this batch, with the clients that wait for it, and starts the next.
    fn take_log<'py>(&self, py: Python<'py>) -> (Vec<PyRecord<'py>>, Waiters) {
        let batch = self.keyspace.take();
        let records = batch.records.into_iter().map(|record| py_record(py, record)).collect();
        (records, Waiters(batch.waiters))
    }

    /// Takes the role of the sequencer. False: a worker has it, and wakes Python when it is free.
    fn begin_batch(&self) -> bool {
        self.keyspace.role.take_or_want()
    }

    /// Releases the role of the sequencer.
    fn end_batch(&self) {
        self.keyspace.role.release();
    }

    /// Whether a batch is on its way.
    #[getter]
    fn sequencing(&self) -> bool {
        self.keyspace.role.is_taken()
    }

    /// Whether workers may write and apply short batches.
    #[getter]
    fn inline(&self) -> bool {
        self.keyspace.inline.load(Relaxed)
    }

    #[setter]
    fn set_inline(&self, inline: bool) {
        self.keyspace.inline.store(inline, Relaxed);
    }

    /// Sets the time of records that workers write: the seconds now, and how many pass per second.
    fn set_clock(&self, now: f64, rate: f64) {
        self.keyspace.clock.set(now, rate);
    }

    /// The time of the last batch that a worker wrote.
    #[getter]
    fn last_at(&self) -> f64 {
        self.keyspace.clock.last()
    }

    /// The latency of batches that workers wrote and applied.
    #[getter]
    fn batch_latency(&self) -> Histogram {
        Histogram::of_batches(self.keyspace.clone())
    }

    /// Returns whether adding this many keys makes a large filter grow, which takes long.
    fn needs_room(&self, name: &[u8], keys: usize) -> bool {
        self.entry(name).is_some_and(|entry| entry.filter.needs_room(keys))
    }

    /// Returns whether there is memory for this many more keys in a filter.
    fn has_memory(&self, name: &[u8], keys: usize) -> bool {
        self.entry(name).is_none_or(|entry| self.keyspace.has_memory(&entry, keys))
    }

    /// Numbers of the filters that have reached their threshold, each once.
    fn take_reached(&self) -> Vec<u64> {
        std::mem::take(&mut *self.keyspace.reached())
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
        let entry = {
            let names = self.keyspace.names();
            names.get(name).filter(|entry| !entry.loading && !names.is_locked(name)).cloned()
        };
        let Some(entry) = entry else { return Ok(None) };
        let filter = filter_of(&entry)?;
        let scan = Scan { pages: PAGES, seed };
        let Figures { count, error_rate, fill_ratio } = filter.figures(py, scan)?;
        let hits = filter.probe(py, probes, seed, &mut Vec::new(), &mut Vec::new())?;
        let (items, adds, checks, maybes) = entry.counters.read();
        let count = if count.is_nan() { items as f64 } else { count };
        let nbytes = filter.nbytes(py)?;
        Ok(Some((items, adds, checks, maybes, fill_ratio, error_rate, count, nbytes, hits)))
    }

    /// While true, native code accepts no writes: they go to Python, which says why.
    #[setter]
    fn set_refusing(&self, refusing: bool) {
        self.keyspace.refusing.store(refusing, Relaxed);
    }

    #[getter]
    fn refusing(&self) -> bool {
        self.keyspace.refusing.load(Relaxed)
    }

    /// While true, Python handles every command.
    #[setter]
    fn set_bypassed(&self, bypassed: bool) {
        self.keyspace.bypassed.store(bypassed, Relaxed);
    }

    #[getter]
    fn bypassed(&self) -> bool {
        self.keyspace.bypassed.load(Relaxed)
    }

    /// Python handles every command from a time of `time.monotonic` on: a filter expires or rotates.
    /// None: never.
    fn set_due(&self, py: Python<'_>, at: Option<f64>) -> PyResult<()> {
        self.keyspace.set_due(at.map(|at| instant(py, at)).transpose()?);
        Ok(())
    }

    /// As `set_due`, when the copy of a node is too old.
    fn set_stale(&self, py: Python<'_>, at: Option<f64>) -> PyResult<()> {
        self.keyspace.set_stale(at.map(|at| instant(py, at)).transpose()?);
        Ok(())
    }

    /// Whether the next batch has records.
    #[getter]
    fn pending(&self) -> bool {
        !self.keyspace.pending().records.is_empty()
    }

    /// While true, no other process writes the log: adding a key that is present needs no record.
    #[setter]
    fn set_exclusive(&self, exclusive: bool) {
        self.keyspace.exclusive.store(exclusive, Relaxed);
    }

    #[getter]
    fn exclusive(&self) -> bool {
        self.keyspace.exclusive.load(Relaxed)
    }

    /// Bytes that all filters together may use; None: no limit.
    #[setter]
    fn set_memory_limit(&self, limit: Option<u64>) {
        self.keyspace.memory_limit.store(limit.unwrap_or(u64::MAX), Relaxed);
    }

    /// Bytes that one filter may grow to; None: no limit.
    #[setter]
    fn set_filter_limit(&self, limit: Option<u64>) {
        self.keyspace.filter_limit.store(limit.unwrap_or(u64::MAX), Relaxed);
    }

    #[getter]
    fn filter_limit(&self) -> Option<u64> {
        Some(self.keyspace.filter_limit.load(Relaxed)).filter(|limit| *limit < u64::MAX)
    }

    #[getter]
    fn memory_limit(&self) -> Option<u64> {
        Some(self.keyspace.memory_limit.load(Relaxed)).filter(|limit| *limit < u64::MAX)
    }

    /// While true, a thread applies a record to this name: `apply` leaves its records to Python.
    fn set_busy(&self, name: &[u8], busy: bool) {
        let mut names = self.keyspace.names_mut();
        if busy {
            names.busy.insert(name.to_vec());
        } else {
            names.busy.remove(name);
        }
    }

    /// While true, commands about this name go to Python, and wait there: a thread or a transaction
    /// works on its filter.
    fn set_locked(&self, name: &[u8], locked: bool) {
        let mut names = self.keyspace.names_mut();
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
        let (_, hashes) = self.hash(name, keys)?;
        let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        Ok(PyBytes::new(name.py(), &bytes))
    }

    /// Layers that a RedisBloom cuckoo filter may have before it accepts no more keys.
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
    fn commands(&self) -> u64 {
        self.keyspace.commands.load(Relaxed)
    }

    /// Reads that were answered without Python: of filters that exist, and of filters that do not.
    #[getter]
    fn hits_and_misses(&self) -> (u64, u64) {
        (self.keyspace.hits.load(Relaxed), self.keyspace.misses.load(Relaxed))
    }
}

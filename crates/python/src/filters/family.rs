//! The native half of every filter but the plain one: what a `Kind` of the core can do, as Python
//! calls it. Everything else about them is Python (`filters/filter.py`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bloomery_core::bits::Bits;
use bloomery_core::format::{Header, KindId};
use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::{self, AnyKind, Fact, Merge, Refusal, Removal};
use bloomery_core::rotating::MOST_TIME;
use bloomery_server::filter::Fault;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyMemoryView};
use pyo3::{PyTraverseError, PyVisit, ffi};

use crate::errors::{self, error, invalid, no_memory, refused};
use crate::filters::counted;
use crate::filters::family_batch::{Batch, BatchOp};
use crate::filters::gate::Gate;
use crate::filters::memory::{Memory, Section};
use crate::filters::slots::{OneKey, RemoveKey};
use crate::filters::time::Time;
use crate::keys::batch::{self, Options, Threads};
use crate::keys::buffer::BufferView;
use crate::keys::key::hash_key;
use crate::keys::lines::{self, LineKey, Lines};
use crate::server::replay;

/// What stands behind the gate.
pub struct State {
    pub kind: Box<dyn AnyKind>,
    /// How often it was written to: whoever saves sees whether it changed meanwhile.
    changes: u64,
}

#[pyclass(subclass, frozen, module = "bloomery._native", name = "Filter")]
pub struct Family {
    pub gate: Gate<State>,
    pub hasher: KeyHasher,
    id: KindId,
    read_only: bool,
    /// Does it want to be told the time?
    pub timed: bool,
    clock: Mutex<Clock>,
}

/// What tells a filter the time.
enum Clock {
    Machine,
    /// Native code reads it without the interpreter lock.
    Shared(Py<Time>),
    Python(Py<PyAny>),
}

fn machine_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64())
}

impl OneKey for Family {
    #[inline(always)]
    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline(always)]
    fn contains(&self, py: Python<'_>, h: u64) -> PyResult<bool> {
        self.pass_time(py)?;
        self.gate.read(py, false, |state| state.kind.contains(h))
    }

    #[inline(always)]
    fn add(&self, py: Python<'_>, h: u64) -> PyResult<bool> {
        self.pass_time(py)?;
        if !self.read_only
            && let Some(Ok(new)) = self.gate.write_alone(py, |state| {
                state.changes += 1;
                state.kind.add(h)
            })
        {
            return Ok(new);
        }
        self.add_with_care(py, h)
    }
}

impl RemoveKey for Family {
    fn remove(&self, py: Python<'_>, h: u64) -> PyResult<Option<bool>> {
        self.pass_time(py)?;
        Ok(match self.change(py, false, |kind| kind.remove(h))? {
            Removal::Absent => None,
            Removal::Removed => Some(true),
            Removal::Kept => Some(false),
        })
    }
}

impl Family {
    /// What was refused has changed nothing, and is refused again.
    #[cold]
    #[inline(never)]
    fn add_with_care(&self, py: Python<'_>, h: u64) -> PyResult<bool> {
        self.change(py, false, |kind| kind.add(h))
    }

    /// Lets `work` write, and raises what it refuses. A table that has to grow, where that takes
    /// long, grows without the interpreter lock: `work` is then called again, and is to go on where
    /// it stopped.
    #[inline(always)]
    pub fn change<T: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnMut(&mut dyn AnyKind) -> Result<T, Refusal> + Send,
    ) -> PyResult<T> {
        self.check_writable(py)?;
        self.try_change(py, long, work)?.map_err(|refusal| refused(py, refusal))
    }

    /// As `change`, with the refusal as it is.
    #[inline(always)]
    pub fn try_change<T: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        mut work: impl FnMut(&mut dyn AnyKind) -> Result<T, Refusal> + Send,
    ) -> PyResult<Result<T, Refusal>> {
        match self.write(py, long, &mut work)? {
            Err(Refusal::Later) => self.write_long(py, work),
            done => Ok(done),
        }
    }

    /// As `change`, with `Refusal::Later` as it is.
    #[inline(always)]
    pub fn change_once<T: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut dyn AnyKind) -> Result<T, Refusal> + Send,
    ) -> PyResult<Result<T, Refusal>> {
        self.check_writable(py)?;
        self.write(py, long, work)
    }

    #[inline(always)]
    fn write<T: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut dyn AnyKind) -> Result<T, Refusal> + Send,
    ) -> PyResult<Result<T, Refusal>> {
        if long {
            return self.write_long(py, work);
        }
        self.gate.write(py, false, |state| {
            state.changes += 1;
            work(&mut *state.kind)
        })
    }

    /// Without the interpreter lock, and so with time to grow.
    #[cold]
    fn write_long<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn AnyKind) -> Result<T, Refusal> + Send,
    ) -> PyResult<Result<T, Refusal>> {
        self.gate.write(py, true, |state| {
            state.changes += 1;
            state.kind.defer_growth(false);
            let done = work(&mut *state.kind);
            state.kind.defer_growth(true);
            done
        })
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub fn kind_id(&self) -> KindId {
        self.id
    }

    fn check_writable(&self, py: Python<'_>) -> PyResult<()> {
        if self.read_only {
            let message = "this filter is mapped read-only: load it without mmap to change it";
            return Err(error(py, "ReadOnlyFilter", message.into()));
        }
        Ok(())
    }

    /// Lets a filter that forgets by time do so.
    #[inline(always)]
    pub fn pass_time(&self, py: Python<'_>) -> PyResult<()> {
        if self.timed { self.tick(py) } else { Ok(()) }
    }

    /// Unix time, by the filter's clock.
    fn now(&self, py: Python<'_>) -> PyResult<f64> {
        // The clock may be Python code that sets another, so nothing is locked while it runs.
        let now: f64 = match self._clock(py) {
            Some(clock) => clock.call0(py)?.extract(py)?,
            None => machine_time(),
        };
        if now.is_nan() || now.abs() > MOST_TIME {
            return Err(invalid(py, format!("the clock says {now}, must be seconds since 1970")));
        }
        Ok(now)
    }

    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        let now = self.now(py)?;
        if self.gate.read(py, false, |state| now >= state.kind.due())? {
            let tick = |kind: &mut dyn AnyKind| match now >= kind.due() {
                true => kind.tick(now),
                false => Ok(()), // another thread came first
            };
            let done = self.write_long(py, tick)?; // of what is read-only too, if it said that it can
            done.map_err(|refusal| refused(py, refusal))?;
        }
        Ok(())
    }

    /// As `pass_time`, for the server.
    #[inline(always)]
    pub fn pass_time_counted(&self) -> Result<(), Fault> {
        if self.timed { self.tick_counted() } else { Ok(()) }
    }

    fn tick_counted(&self) -> Result<(), Fault> {
        let place = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match &*place {
            Clock::Machine => machine_time(),
            Clock::Shared(time) => time.get().seconds(),
            // No server sets one.
            Clock::Python(_) => {
                drop(place);
                let now = Python::attach(|py| self.now(py));
                now.map_err(|problem| Fault::Broken(problem.to_string()))?
            }
        };
        if counted::read(&self.gate, |state| now >= state.kind.due())? {
            let done = self.change_counted(|kind| kind.tick(now))?;
            done.map_err(|refusal| Fault::Broken(format!("{refusal:?}")))?;
        }
        Ok(())
    }

    /// Lets `work` write for the server, with time to grow.
    #[inline(always)]
    pub fn change_counted<T>(
        &self,
        work: impl FnOnce(&mut dyn AnyKind) -> Result<T, Refusal>,
    ) -> Result<Result<T, Refusal>, Fault> {
        counted::write(&self.gate, |state| {
            state.changes += 1;
            state.kind.defer_growth(false);
            let done = work(&mut *state.kind);
            state.kind.defer_growth(true);
            done
        })
    }

    /// The filter for a batch, the time passed.
    fn batch(&self, py: Python<'_>, act: BatchOp) -> PyResult<Batch<'_>> {
        self.pass_time(py)?;
        Ok(Batch { filter: self, act })
    }

    fn replay(&self, py: Python<'_>, data: &[u8], remove: bool) -> PyResult<u64> {
        let (mut left, mut changed) = (replay::hashes(py, data)?, 0);
        self.pass_time(py)?;
        self.change(py, left.len() >= replay::LONG, |kind| {
            replay::change(kind, remove, &mut left, &mut changed)
        })?;
        Ok(changed)
    }

    fn header(&self, py: Python<'_>) -> PyResult<Header> {
        self.gate.read(py, false, |state| state.kind.header())
    }
}

pub fn to_python<'py>(py: Python<'py>, fact: Fact) -> PyResult<Bound<'py, PyAny>> {
    Ok(match fact {
        Fact::Int(value) => value.into_pyobject(py)?.into_any(),
        Fact::Float(value) => value.into_pyobject(py)?.into_any(),
        Fact::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
    })
}

/// Memory of somebody else's, a mapped file's. A filter that moves on to other memory lets go of it
/// behind its gate, where nothing may wait for the interpreter lock: it is held by a memoryview,
/// which PyO3 lets go of later if need be.
pub fn borrow(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    offset: usize,
    writable: bool,
) -> PyResult<Bits> {
    let flags = if writable { ffi::PyBUF_WRITABLE } else { ffi::PyBUF_SIMPLE };
    let held = BufferView::get(object, flags)
        .ok_or_else(|| invalid(py, "body must be a contiguous buffer".into()))?;
    let owner = Arc::new(PyMemoryView::from(object)?.unbind());
    let start = held.start().cast_mut().wrapping_add(offset);
    let bits = held.nbytes().checked_sub(offset).and_then(|nbytes| {
        // SAFETY: within the buffer, which the memoryview keeps alive and in place; it can be
        // written if that was asked for.
        unsafe { Bits::borrowed(start, nbytes, owner) }
    });
    bits.ok_or_else(|| invalid(py, "body must be aligned to 64 bytes, in whole lines".into()))
}

#[pymethods]
impl Family {
    /// An empty filter as the header describes it; with a `body`, the filter that was saved: a
    /// `Memory`, which becomes the filter's own, or any other buffer, which is only read unless
    /// `writable`: then nobody else may write it, for what the filter holds moves.
    #[new]
    #[pyo3(signature = (header, body=None, offset=0, writable=false))]
    fn new(
        py: Python<'_>,
        header: &[u8],
        body: Option<&Bound<'_, PyAny>>,
        offset: usize,
        writable: bool,
    ) -> PyResult<Family> {
        let header = Header::parse(header).map_err(|problem| errors::format(py, problem))?;
        let (bits, read_only) = match body.map(|body| (body, body.cast::<Memory>())) {
            None => (None, false),
            Some((_, Ok(memory))) => (Some(memory.get().take(py)?), false),
            Some((buffer, Err(_))) => (Some(borrow(py, buffer, offset, writable)?), !writable),
        };
        let kind = py.detach(|| kind::open(&header, bits));
        let mut kind = kind.map_err(|problem| errors::format(py, problem))?;
        kind.defer_growth(true);
        Ok(Family {
            timed: (!read_only || kind.freeze()) && kind.due().is_finite(),
            gate: Gate::new(State { kind, changes: 0 }),
            hasher: header.hasher,
            id: header.kind,
            read_only,
            clock: Mutex::new(Clock::Machine),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Not to be had means that somebody is just reading it, so the filter is in use.
        let Ok(clock) = self.clock.try_lock() else { return Ok(()) };
        match &*clock {
            Clock::Machine => Ok(()),
            Clock::Shared(time) => visit.call(time),
            Clock::Python(clock) => visit.call(clock),
        }
    }

    fn __clear__(&self) {
        self._set_clock(None);
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.contains(key.py(), hash_key(key.as_borrowed(), &self.hasher)?)
    }

    /// Add every key; a mask that is True where a key is definitely new.
    ///
    /// A list or iterable gives a list of bool, a NumPy array or Arrow column a NumPy array.
    /// `nulls="skip"` leaves nulls out (their row is False). One thread adds, whatever `threads`
    /// says: it is there so that all filters are called alike.
    #[pyo3(signature = (keys, *, nulls="error", threads=Threads(1)))]
    #[pyo3(text_signature = "($self, keys, *, nulls='error', threads=1)")]
    fn add_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        nulls: &str,
        threads: Threads,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = Options::new(keys.py(), nulls, threads)?;
        batch::run(&mut self.batch(keys.py(), BatchOp::Add)?, keys, &options)?
            .into_python(keys.py())
    }

    /// Ask for every key: False is certain, True is maybe. `threads` splits a column.
    #[pyo3(signature = (keys, *, nulls="error", threads=Threads(1)))]
    #[pyo3(text_signature = "($self, keys, *, nulls='error', threads=1)")]
    fn contains_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        nulls: &str,
        threads: Threads,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, options) = (keys.py(), Options::new(keys.py(), nulls, threads)?);
        batch::run(&mut self.batch(py, BatchOp::Contains)?, keys, &options)?.into_python(py)
    }

    /// Add every key and say nothing about which were new.
    #[pyo3(signature = (keys, *, nulls="error", threads=Threads(1)))]
    #[pyo3(text_signature = "($self, keys, *, nulls='error', threads=1)")]
    fn update(&self, keys: &Bound<'_, PyAny>, nulls: &str, threads: Threads) -> PyResult<()> {
        let options = Options { mask: false, ..Options::new(keys.py(), nulls, threads)? };
        batch::run(&mut self.batch(keys.py(), BatchOp::Add)?, keys, &options).map(drop)
    }

    /// Add each line of `data`, without its newline.
    ///
    /// Returns the lines that were definitely new, each with a newline; the number of bytes used,
    /// up to the last newline (all if `final`); the lines seen; and the lines that were new.
    /// With a `key` a line is known by that part of it; lines without one are kept and not added.
    #[pyo3(signature = (data, *, r#final=false, key=None))]
    fn add_lines<'py>(
        &self,
        data: &Bound<'py, PyAny>,
        r#final: bool,
        key: Option<PyRefMut<'_, LineKey>>,
    ) -> PyResult<Lines<'py>> {
        lines::run(&mut self.batch(data.py(), BatchOp::Add)?, data, r#final, true, key)
    }

    /// As `add_lines`, but asks: keeps the lines that may be there (`invert`: that are not).
    #[pyo3(signature = (data, *, r#final=false, invert=false, key=None))]
    fn contains_lines<'py>(
        &self,
        data: &Bound<'py, PyAny>,
        r#final: bool,
        invert: bool,
        key: Option<PyRefMut<'_, LineKey>>,
    ) -> PyResult<Lines<'py>> {
        lines::run(&mut self.batch(data.py(), BatchOp::Contains)?, data, r#final, !invert, key)
    }

    /// The key's 64-bit hash in this filter, the same in every process and on every machine.
    fn hash_of(&self, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        hash_key(key.as_borrowed(), &self.hasher)
    }

    /// The numbers of the key's cells; of kinds that have none, nothing.
    fn _positions(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        let h = self.hash_of(key)?;
        self.gate.read(key.py(), false, |state| state.kind.positions(h))
    }

    /// A mask that is True where a key was removed.
    #[pyo3(signature = (keys, nulls="error"))]
    fn _remove_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        nulls: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, options) = (keys.py(), Options::new(keys.py(), nulls, Threads(1))?);
        batch::run(&mut self.batch(py, BatchOp::Remove)?, keys, &options)?.into_python(py)
    }

    /// As `add_lines`: the lines that were removed.
    #[pyo3(signature = (data, r#final=false))]
    fn _remove_lines<'py>(&self, data: &Bound<'py, PyAny>, r#final: bool) -> PyResult<Lines<'py>> {
        lines::run(&mut self.batch(data.py(), BatchOp::Remove)?, data, r#final, true, None)
    }

    /// Adds hashes as a log kept them; how many were new.
    fn _add_hashes(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        self.replay(py, data, false)
    }

    /// Takes them out again; how many were there.
    fn _remove_hashes(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        self.replay(py, data, true)
    }

    /// Does it still live in this buffer, which it was opened over?
    fn _shares(&self, buffer: &Bound<'_, PyAny>, offset: usize) -> PyResult<bool> {
        let sections = self.gate.read(buffer.py(), false, |state| state.kind.sections())?;
        replay::shares(buffer, offset, &sections)
    }

    /// Unix time at which time next changes it.
    fn _due(&self, py: Python<'_>) -> PyResult<f64> {
        self.gate.read(py, false, |state| state.kind.due())
    }

    fn _count(&self, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (py, h) = (key.py(), hash_key(key.as_borrowed(), &self.hasher)?);
        self.pass_time(py)?;
        self.gate.read(py, false, |state| state.kind.count(h))
    }

    fn _ask<'py>(
        &self,
        what: &str,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, h) = (key.py(), hash_key(key.as_borrowed(), &self.hasher)?);
        self.pass_time(py)?;
        let fact = self.gate.read(py, false, |state| state.kind.ask(what, h))?;
        fact.map(|fact| to_python(py, fact)).transpose()
    }

    #[pyo3(signature = (what, value=0.0))]
    fn _act<'py>(
        &self,
        py: Python<'py>,
        what: &str,
        value: f64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.pass_time(py)?;
        let fact = self.change(py, true, |kind| kind.act(what, value))?;
        fact.map(|fact| to_python(py, fact)).transpose()
    }

    /// Takes another filter in. What must be equal in both is for the caller to compare.
    fn _merge(&self, py: Python<'_>, other: &Family, intersection: bool) -> PyResult<()> {
        self.check_writable(py)?;
        if (self.id, self.hasher) != (other.id, other.hasher) {
            return Err(invalid(py, "both must be of one kind, hasher and seed".into()));
        }
        let how = if intersection { Merge::Intersection } else { Merge::Union };
        let merged = self.gate.write_beside(py, &other.gate, |mine, theirs| {
            mine.changes += 1;
            mine.kind.merge(&*theirs.kind, how)
        });
        match merged? {
            None => Err(invalid(py, "a filter cannot be merged into itself".into())),
            Some(Err(Refusal::Never(message))) => {
                Err(error(py, "IncompatibleFilters", message.into()))
            }
            Some(done) => done.map_err(|refusal| refused(py, refusal)),
        }
    }

    fn _clear(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, true, |kind| kind.clear())
    }

    /// Panics where a batch does its work, or a single key: for tests of what happens then.
    #[pyo3(signature = (long, /))]
    fn _panic(&self, py: Python<'_>, long: bool) -> PyResult<()> {
        self.change(py, long, |_| panic!("a panic that a test asked for"))
    }

    /// Who tells the time, in seconds since 1970; None: the machine.
    fn _time(&self, py: Python<'_>) -> PyResult<f64> {
        self.now(py)
    }

    fn _clock(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let place = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        match &*place {
            Clock::Machine => None,
            Clock::Shared(time) => Some(time.clone_ref(py).into_any()),
            Clock::Python(clock) => Some(clock.clone_ref(py)),
        }
    }

    fn _set_clock(&self, clock: Option<&Bound<'_, PyAny>>) {
        let clock = match clock {
            None => Clock::Machine,
            Some(clock) => match clock.cast::<Time>() {
                Ok(time) => Clock::Shared(time.clone().unbind()),
                Err(_) => Clock::Python(clock.clone().unbind()),
            },
        };
        let mut place = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, clock);
        drop(place);
        drop(before); // may run Python code
    }

    fn _facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.pass_time(py)?;
        let facts = PyDict::new(py);
        for (name, fact) in self.gate.read(py, true, |state| state.kind.facts())? {
            facts.set_item(name, to_python(py, fact)?)?;
        }
        Ok(facts)
    }

    fn _header<'py>(&self, py: Python<'py>, checksum: u64) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &Header { checksum, ..self.header(py)? }.encode()))
    }

    fn _sections(&self, py: Python<'_>) -> PyResult<Vec<Section>> {
        let sections = self.gate.read(py, false, |state| state.kind.sections())?;
        Ok(sections.into_iter().map(Section).collect())
    }

    /// How often it was written to: header and sections belong together if it is still the same.
    fn _changes(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.read(py, false, |state| state.changes)
    }

    /// Header and body of a copy, made while nobody writes.
    fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Memory)> {
        let (header, body) = self.gate.read(py, true, |state| {
            let header = state.kind.header();
            let copy = || {
                let whole = Bits::zeroed(header.nbytes as usize)?;
                let mut offset = 0;
                for section in state.kind.sections() {
                    whole.part(offset, section.nbytes())?.or_with(&section);
                    offset += section.nbytes();
                }
                whole.part(0, header.nbytes as usize)
            };
            (header, copy())
        })?;
        let body = body.ok_or_else(|| no_memory(py, header.nbytes))?;
        Ok((PyBytes::new(py, &header.encode()), Memory::new(body)))
    }

    #[getter]
    fn _kind(&self) -> &'static str {
        self.id.name()
    }

    /// How many distinct keys it is made for.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.header(py)?.capacity)
    }

    /// The share of absent keys that may be answered with a maybe.
    #[getter]
    fn error_rate(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.header(py)?.error_rate)
    }

    /// The hash function.
    #[getter]
    fn hasher(&self) -> &'static str {
        self.hasher.kind.name()
    }

    /// The hash function's seed; for siphash its key.
    #[getter]
    fn seed(&self) -> u128 {
        self.hasher.seed
    }

    /// The number of bits, m; 0 where that has no meaning.
    #[getter]
    fn num_bits(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.header(py)?.num_bits)
    }

    /// The number of places a key takes, k; 0 where that has no meaning.
    #[getter]
    fn num_hashes(&self, py: Python<'_>) -> PyResult<u16> {
        Ok(self.header(py)?.num_hashes)
    }

    /// How many lines of 64 bytes a key touches; 0 where that has no meaning.
    #[getter]
    fn lines_per_key(&self, py: Python<'_>) -> PyResult<u8> {
        Ok(self.header(py)?.lines_per_key)
    }

    #[getter]
    fn _extra(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64, u64)> {
        Ok(self.header(py)?.extra.into())
    }

    /// Bytes of memory.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.header(py)?.nbytes)
    }

    /// True if it is mapped from a file.
    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }
}

//! The native half of `bloomery.BloomFilter`: one key, many keys, and the bits as a buffer.
//! Everything else about a filter is Python (`filters/bloom.py`).

use std::os::raw::c_int;
use std::sync::atomic::{AtomicU8, Ordering::*};
use std::sync::{Mutex, PoisonError};

use bloomery_core::batch::{Op, run};
use bloomery_core::bits::{Bits, LINE_BITS};
use bloomery_core::fold::fold;
use bloomery_core::format::{Header, KindId};
use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::Refusal;
use bloomery_core::probe::{Job, Probe, positions, with_probe};
use bloomery_core::scan::{Figures, Scan};
use bloomery_core::shape::{Layout, Shape};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{invalid, no_memory, read_only};
use crate::filters::bloom_batch::Batch;
use crate::filters::memory::{Memory, fill_view};
use crate::filters::sections::detached;
use crate::filters::slots::OneKey;
use crate::keys::batch::{self, Options, Threads};
use crate::keys::buffer::BufferView;
use crate::keys::key::{hash_key, hasher_of};
use crate::keys::lines::{self, LineKey, Lines};
use crate::server::any_filter::blocks_of;
use crate::server::replay;

/// What stands between a single-key write and the bits; 0 means nothing.
const READ_ONLY: u8 = 1;
/// A batch is writing without the interpreter lock and without locked instructions.
const BUSY: u8 = 2;
/// Every write is a locked instruction: the memory is shared with other processes, or there is no
/// interpreter lock.
const ATOMIC: u8 = 4;

/// From so many bytes on memory is asked for without the interpreter lock: the kernel clears it.
const ZEROED_LONG: usize = 1 << 20;

#[pyclass(subclass, frozen, module = "bloomery._native", name = "BloomFilter")]
pub struct Bloom {
    pub bits: Bits,
    pub shape: Shape,
    pub hasher: KeyHasher,
    capacity: u64,
    error_rate: f64,
    gate: AtomicU8,
    writer: Mutex<()>,
}

/// A batch that keeps the gate closed until it is dropped; also by a panic, after which some of its
/// bits are set and some are not, as after any batch that stopped half-way.
struct Busy<'a>(&'a AtomicU8);

impl<'a> Busy<'a> {
    fn new(gate: &'a AtomicU8) -> Self {
        gate.fetch_or(BUSY, AcqRel);
        Busy(gate)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!BUSY, AcqRel);
    }
}

/// One key's question or addition.
struct One<const ADD: bool, const ATOMIC: bool>(u64);

impl<const ADD: bool, const ATOMIC: bool> Job for One<ADD, ATOMIC> {
    type Output = bool;

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) -> bool {
        if ADD { probe.add::<ATOMIC>(self.0) } else { probe.contains(self.0) }
    }
}

impl Bloom {
    #[cold]
    fn add_with_care(&self, py: Python<'_>, h: u64) -> PyResult<bool> {
        self.write_or_read(py, Op::Add, |filter, op| match op {
            Op::AddAtomic => with_probe(&filter.bits, &filter.shape, One::<true, true>(h)),
            _ => with_probe(&filter.bits, &filter.shape, One::<true, false>(h)),
        })
    }

    /// Runs `work` with the interpreter lock held; if it writes, when no batch does.
    pub fn write_or_read<T>(
        &self,
        py: Python<'_>,
        op: Op,
        work: impl FnOnce(&Bloom, Op) -> T,
    ) -> PyResult<T> {
        if op == Op::Contains {
            return Ok(work(self, op));
        }
        let gate = self.gate.load(Acquire);
        if gate & READ_ONLY != 0 {
            return Err(read_only(py));
        }
        if gate & ATOMIC != 0 {
            return Ok(work(self, Op::AddAtomic));
        }
        while self.gate.load(Acquire) & BUSY != 0 {
            detached(py, || drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        Ok(work(self, Op::Add))
    }

    /// Runs `work` without the interpreter lock. A writer closes the gate while it still holds the
    /// lock, so that no single write can be under way beside it.
    pub fn write_or_read_detached<T: Send>(
        &self,
        py: Python<'_>,
        op: Op,
        work: impl FnOnce(&Bloom, Op) -> T + Send,
    ) -> PyResult<T> {
        let op = match op {
            Op::Contains => Op::Contains,
            _ => self.write_or_read(py, op, |_, op| op)?,
        };
        if op != Op::Add {
            return Ok(py.detach(|| work(self, op)));
        }
        let busy = Busy::new(&self.gate);
        Ok(detached(py, move || {
            let _guard = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let _busy = busy;
            work(self, op)
        }))
    }

    /// Bits set, of how many, and the estimated error rate that they make: of a blocked filter from
    /// each line's fill, of a classic one from that of all bits.
    fn fill(&self, scan: Scan) -> (u64, u64, f64) {
        let Shape { layout, num_bits, num_hashes, lines_per_key } = self.shape;
        let each = num_hashes / 2 / lines_per_key.max(1);
        let (set, lines, chance) = self.bits.fill(each, scan);
        let bits = (lines * LINE_BITS).min(num_bits);
        let rate = match layout {
            Layout::Blocked => chance.powi(lines_per_key as i32),
            Layout::Classic => (set as f64 / bits as f64).powi(num_hashes as i32),
        };
        (set, bits, rate)
    }

    /// How full it is; how many keys that makes is asked of `sizing`.
    pub fn figures(&self, scan: Scan) -> Figures {
        let (set, bits, error_rate) = self.fill(scan);
        Figures { count: f64::NAN, error_rate, fill_ratio: set as f64 / bits as f64 }
    }

    /// A byte for each hash.
    pub fn contains_hashes(&self, hashes: &[u64], answers: &mut Vec<u8>) {
        let mut out = |some: &[u8]| answers.extend_from_slice(some);
        let Ok(()) = run(&self.bits, &self.shape, Op::Contains, &mut blocks_of(hashes), &mut out);
    }

    /// Adds hashed keys for the server, the only writer of its filters.
    #[inline(always)]
    pub fn add_hashes(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Result<(), Refusal> {
        let gate = self.gate.load(Acquire);
        if gate & READ_ONLY != 0 {
            return Err(Refusal::Never("this filter is read-only"));
        }
        let _guard = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let op = if gate & ATOMIC == 0 { Op::Add } else { Op::AddAtomic };
        let mut out = |some: &[u8]| answers.extend_from_slice(some);
        let Ok(()) = run(&self.bits, &self.shape, op, &mut blocks_of(hashes), &mut out);
        Ok(())
    }

    /// Whether the filter may contain a hashed key.
    #[inline(always)]
    pub fn contains_hash(&self, h: u64) -> bool {
        with_probe(&self.bits, &self.shape, One::<false, false>(h))
    }

    fn header(&self, checksum: u64) -> Header {
        let Shape { layout, num_bits, num_hashes, lines_per_key } = self.shape;
        Header {
            kind: KindId::Bloom,
            layout: layout as u8,
            lines_per_key: lines_per_key as u8,
            num_hashes: num_hashes as u16,
            num_bits,
            hasher: self.hasher,
            capacity: self.capacity,
            error_rate: self.error_rate,
            nbytes: self.shape.nbytes(),
            extra: [0; 6],
            checksum,
        }
    }
}

impl OneKey for Bloom {
    #[inline(always)]
    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline(always)]
    fn contains(&self, _py: Python<'_>, h: u64) -> PyResult<bool> {
        Ok(self.contains_hash(h))
    }

    /// Adds one key with the interpreter lock held, which keeps other single writers out.
    #[inline(always)]
    fn add(&self, py: Python<'_>, h: u64) -> PyResult<bool> {
        if self.gate.load(Acquire) != 0 {
            return self.add_with_care(py, h);
        }
        Ok(with_probe(&self.bits, &self.shape, One::<true, false>(h)))
    }
}

/// The numbers of a filter as Python passes them.
pub fn shape(
    py: Python<'_>,
    layout: &str,
    num_bits: u64,
    num_hashes: u32,
    lines_per_key: u32,
) -> PyResult<Shape> {
    let Some(layout) = Layout::from_name(layout) else {
        let message = format!("layout is {layout:?}, must be 'blocked' or 'classic'");
        return Err(invalid(py, message));
    };
    let shape = Shape { layout, num_bits, num_hashes, lines_per_key };
    shape.check().map_err(|message| invalid(py, message))?;
    Ok(shape)
}

fn check_room(py: Python<'_>, found: usize, offset: usize, nbytes: usize) -> PyResult<()> {
    if found.checked_sub(offset) == Some(nbytes) {
        return Ok(());
    }
    Err(invalid(py, format!("memory must have {nbytes} bytes after the offset")))
}

#[pymethods]
impl Bloom {
    /// `memory`: what to use in place of new memory: a `Memory`, which becomes the filter's own, or
    /// an aligned buffer, such as a mapped file's.
    #[new]
    #[pyo3(signature = (capacity, error_rate, layout, num_bits, num_hashes, lines_per_key, hasher,
                        seed, memory=None, offset=0))]
    #[expect(clippy::too_many_arguments, reason = "private: filters/bloom.py is the only caller")]
    fn new(
        py: Python<'_>,
        capacity: u64,
        error_rate: f64,
        layout: &str,
        num_bits: u64,
        num_hashes: u32,
        lines_per_key: u32,
        hasher: &str,
        seed: u128,
        memory: Option<&Bound<'_, PyAny>>,
        offset: usize,
    ) -> PyResult<Bloom> {
        let shape = shape(py, layout, num_bits, num_hashes, lines_per_key)?;
        let hasher = hasher_of(py, hasher, seed)?;
        let nbytes = shape.nbytes() as usize;
        let own = if cfg!(Py_GIL_DISABLED) { ATOMIC } else { 0 };
        let (bits, gate) = match memory.map(|object| (object, object.cast::<Memory>())) {
            None if nbytes < ZEROED_LONG => (Bits::zeroed(nbytes), own),
            None => (py.detach(|| Bits::zeroed(nbytes)), own),
            Some((_, Ok(memory))) => {
                let bits = memory.get().take(py)?;
                check_room(py, bits.nbytes(), 0, nbytes)?;
                (Some(bits), own)
            }
            Some((object, Err(_))) => {
                let held = BufferView::get(object, ffi::PyBUF_SIMPLE)
                    .ok_or_else(|| invalid(py, "memory must be a contiguous buffer".into()))?;
                let gate = if held.read_only() { READ_ONLY } else { ATOMIC };
                check_room(py, held.nbytes(), offset, nbytes)?;
                let start = held.start().cast_mut().wrapping_add(offset);
                // SAFETY: `held` keeps the buffer alive and in place; the gate holds off writes
                // if it is read-only.
                (unsafe { Bits::borrowed(start, nbytes, std::sync::Arc::new(held)) }, gate)
            }
        };
        let Some(bits) = bits else {
            return Err(no_memory(py, nbytes as u64));
        };
        Ok(Bloom {
            bits,
            shape,
            hasher,
            capacity,
            error_rate,
            gate: AtomicU8::new(gate),
            writer: Mutex::new(()),
        })
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.contains(key.py(), hash_key(key.as_borrowed(), &self.hasher)?)
    }

    /// Add every key; a mask that is True where a key is definitely new.
    ///
    /// A list or iterable gives a list of bool, a NumPy array or Arrow column a NumPy array. A key
    /// that stands twice in the batch is new once. `nulls="skip"` leaves nulls out (their row is
    /// False). Columns are taken without the interpreter lock; `threads` splits them.
    #[pyo3(signature = (keys, *, nulls="error", threads=Threads(1)))]
    #[pyo3(text_signature = "($self, keys, *, nulls='error', threads=1)")]
    fn add_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        nulls: &str,
        threads: Threads,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = Options::new(keys.py(), nulls, threads)?;
        batch::run(&mut Batch(self, Op::Add), keys, &options)?.into_python(keys.py())
    }

    /// Ask for every key: False is certain, True is maybe. The mask is as for `add_many`.
    #[pyo3(signature = (keys, *, nulls="error", threads=Threads(1)))]
    #[pyo3(text_signature = "($self, keys, *, nulls='error', threads=1)")]
    fn contains_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        nulls: &str,
        threads: Threads,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = Options::new(keys.py(), nulls, threads)?;
        batch::run(&mut Batch(self, Op::Contains), keys, &options)?.into_python(keys.py())
    }

    /// Add every key and say nothing about which were new.
    #[pyo3(signature = (keys, *, nulls="error", threads=Threads(1)))]
    #[pyo3(text_signature = "($self, keys, *, nulls='error', threads=1)")]
    fn update(&self, keys: &Bound<'_, PyAny>, nulls: &str, threads: Threads) -> PyResult<()> {
        let options = Options { mask: false, ..Options::new(keys.py(), nulls, threads)? };
        batch::run(&mut Batch(self, Op::Add), keys, &options).map(drop)
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
        lines::run(&mut Batch(self, Op::Add), data, r#final, true, key)
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
        lines::run(&mut Batch(self, Op::Contains), data, r#final, !invert, key)
    }

    /// Adds hashes as a log kept them; how many were new.
    fn _add_hashes(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        let hashes = replay::hashes(py, data)?;
        let work = |filter: &Bloom, op: Op| {
            let mut new = 0;
            let mut out = |answers: &[u8]| new += replay::yes(answers);
            let Ok(()) =
                run(&filter.bits, &filter.shape, op, &mut replay::filler(hashes), &mut out);
            new
        };
        match hashes.len() >= replay::LONG {
            true => self.write_or_read_detached(py, Op::Add, work),
            false => self.write_or_read(py, Op::Add, work),
        }
    }

    /// Are its bits in this buffer, which it was opened over?
    fn _shares(&self, buffer: &Bound<'_, PyAny>, offset: usize) -> PyResult<bool> {
        replay::shares(buffer, offset, std::slice::from_ref(&self.bits))
    }

    /// The key's 64-bit hash in this filter, the same in every process and on every machine.
    fn hash_of(&self, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        hash_key(key.as_borrowed(), &self.hasher)
    }

    /// Where the key's bits are: `num_hashes` numbers, of which some may be equal.
    fn positions(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        Ok(positions(self.hash_of(key)?, &self.shape))
    }

    /// How many distinct keys it is made for.
    #[getter]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The share of absent keys that may be answered with a maybe, at full capacity.
    #[getter]
    fn error_rate(&self) -> f64 {
        self.error_rate
    }

    /// `blocked` or `classic`.
    #[getter]
    fn layout(&self) -> &'static str {
        self.shape.layout.name()
    }

    /// The number of bits, m.
    #[getter]
    fn num_bits(&self) -> u64 {
        self.shape.num_bits
    }

    /// The number of bits a key sets, k.
    #[getter]
    fn num_hashes(&self) -> u32 {
        self.shape.num_hashes
    }

    /// How many lines of 64 bytes a key touches; 0 in the classic layout.
    #[getter]
    fn lines_per_key(&self) -> u32 {
        self.shape.lines_per_key
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

    /// Bytes of memory for the bits.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bits.nbytes()
    }

    /// True if it is mapped from a file without `writable`.
    #[getter]
    fn read_only(&self) -> bool {
        self.gate.load(Relaxed) & READ_ONLY != 0
    }

    fn _header<'py>(&self, py: Python<'py>, checksum: u64) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.header(checksum).encode())
    }

    /// The number of bits set, and the estimated error rate that they make.
    fn _fill(&self, py: Python<'_>) -> (u64, f64) {
        let (set, _, rate) = py.detach(|| self.fill(Scan::ALL));
        (set, rate)
    }

    /// Panics where a batch does its work, or a single key: for tests of what happens then.
    #[pyo3(signature = (long, /))]
    fn _panic(&self, py: Python<'_>, long: bool) -> PyResult<()> {
        let work = |_: &Bloom, _| panic!("a panic that a test asked for");
        match long {
            true => self.write_or_read_detached(py, Op::Add, work),
            false => self.write_or_read(py, Op::Add, work),
        }
    }

    fn _padding_is_clear(&self) -> bool {
        self.bits.padding_is_clear(self.shape.num_bits)
    }

    fn _clear(&self, py: Python<'_>) -> PyResult<()> {
        self.write_or_read_detached(py, Op::Add, |filter, _| filter.bits.clear())
    }

    fn _or(&self, py: Python<'_>, other: &Bloom) -> PyResult<()> {
        self.write_or_read_detached(py, Op::Add, |filter, _| filter.bits.or_with(&other.bits))
    }

    fn _and(&self, py: Python<'_>, other: &Bloom) -> PyResult<()> {
        self.write_or_read_detached(py, Op::Add, |filter, _| filter.bits.and_with(&other.bits))
    }

    fn _is_subset(&self, py: Python<'_>, other: &Bloom) -> bool {
        py.detach(|| self.bits.is_subset_of(&other.bits))
    }

    /// Folds the bits of `other`, which has more of them, into this empty filter.
    fn _fold_from(&self, py: Python<'_>, other: &Bloom) -> PyResult<()> {
        self.write_or_read_detached(py, Op::Add, |filter, _| {
            fold(&other.bits, &other.shape, &filter.bits, filter.shape.num_bits);
        })
    }

    /// The bits, read-only.
    ///
    /// # Safety
    /// Called by the interpreter with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the filter keeps its bits, and the view the filter.
        unsafe { fill_view(slf.as_any(), &slf.get().bits, view, flags) }
    }
}

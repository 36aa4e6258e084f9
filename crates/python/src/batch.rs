//! Many keys in one call: finds the door a batch comes through, and what its mask looks like.

use std::convert::Infallible;

use bloomery_core::batch::BLOCK;
use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::Refusal;
use bloomery_core::loops::Hashes;
use bloomery_core::probe::prefetch;
use pyo3::Borrowed;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyList, PyMemoryView, PyString, PyTuple};
use pyo3::{ffi, intern};

use crate::arrow;
use crate::buffer::{Array, Held, column};
use crate::column::Column;
use crate::errors::{error, invalid, null_error, refused};
use crate::key::hash_key;
use crate::mask::Mask;
use crate::sections::{fork_waits, give_turn};

/// Below this many rows a batch is done before another thread could have taken over.
const DETACH_FROM: usize = 2048;
pub const MAX_THREADS: usize = 64;

/// A number of threads, 1 to 64; anything else is one clear error.
pub struct Threads(pub usize);

impl<'py> FromPyObject<'_, 'py> for Threads {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Threads> {
        match object.extract::<usize>() {
            Ok(threads @ 1..=MAX_THREADS) => Ok(Threads(threads)),
            _ => {
                let message = format!("threads is {}, must be 1 to {MAX_THREADS}", object.repr()?);
                Err(invalid(object.py(), message))
            }
        }
    }
}

/// How a batch is to be taken.
pub struct Options {
    pub skip_nulls: bool,
    pub threads: usize,
    /// Are the answers wanted?
    pub mask: bool,
}

impl Options {
    pub fn new(py: Python<'_>, nulls: &str, threads: Threads) -> PyResult<Options> {
        let skip_nulls = match nulls {
            "error" => false,
            "skip" => true,
            _ => {
                return Err(invalid(py, format!("nulls is {nulls:?}, must be 'error' or 'skip'")));
            }
        };
        Ok(Options { skip_nulls, threads: threads.0, mask: true })
    }
}

/// What takes the keys of a batch: a filter and what it is to do with each.
pub trait Target {
    fn hasher(&self) -> KeyHasher;

    /// Runs `work` where the filter may be touched, and no Python code with it; if it is `long`,
    /// without the interpreter lock.
    fn enter_once<T: Send>(
        &mut self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut dyn Inside) -> Result<T, Refusal> + Send,
    ) -> PyResult<Result<T, Refusal>>;

    /// As `enter_once`, and raises what was refused. `work` is called again, and is to go on where it
    /// stopped, if it was told to do the rest later: a large table has to grow first, or a fork waits.
    #[inline(always)]
    fn enter<T: Send>(
        &mut self,
        py: Python<'_>,
        mut long: bool,
        mut work: impl FnMut(&mut dyn Inside) -> Result<T, Refusal> + Send,
    ) -> PyResult<T> {
        loop {
            match self.enter_once(py, long, &mut work)? {
                Err(Refusal::Later) => long = true,
                done => return done.map_err(|refusal| refused(py, refusal)),
            }
            give_turn(py)?;
        }
    }
}

/// A target that may be touched.
pub trait Inside {
    /// Takes all hashes that `fill` brings; `out` receives one byte a key, in order.
    fn hashes(&mut self, fill: &mut Hashes<'_>, out: &mut dyn FnMut(&[u8])) -> Result<(), Refusal>;

    /// The column's keys from the `from`th on, as many as there are answers.
    fn rows(&mut self, column: &Column, from: usize, answers: &mut [u8]) -> Result<(), Refusal>;

    /// As `rows`, with more than one thread if it can.
    fn shared(
        &mut self,
        column: &Column,
        from: usize,
        _threads: usize,
        answers: &mut [u8],
    ) -> Result<(), Refusal> {
        self.rows(column, from, answers)
    }
}

/// Takes every key of the batch, through whichever door it comes.
pub fn run(target: &mut impl Target, keys: &Bound<'_, PyAny>, options: &Options) -> PyResult<Mask> {
    let py = keys.py();
    let hasher = &target.hasher();
    if let Ok(list) = keys.cast_exact::<PyList>() {
        return objects(target, options, list.len(), |i| hash_item(list, i, hasher));
    }
    if let Ok(tuple) = keys.cast_exact::<PyTuple>() {
        let hash = |key: Bound<'_, PyAny>| hash_object(key.as_borrowed(), hasher);
        return objects(target, options, tuple.len(), |i| tuple.get_item(i).ok().map(hash));
    }
    if keys.is_instance_of::<PyString>()
        || keys.is_instance_of::<PyBytes>()
        || keys.is_instance_of::<PyByteArray>()
        || (keys.is_instance_of::<PyMemoryView>() && keys.getattr("itemsize")?.eq(1)?)
    {
        let name = keys.get_type().name()?;
        let message = format!("one {name} is not a batch of keys: pass [key], or use add(key)");
        return Err(error(py, "UnsupportedBatch", message));
    }
    if keys.get_type().name()? == "MaskedArray" {
        let message = "a masked array is not a batch of keys: use .compressed(), which leaves \
                       masked rows out";
        return Err(error(py, "UnsupportedBatch", message.into()));
    }
    let mut mask = Mask { rows: Vec::new(), array: true };
    if keys.hasattr(intern!(py, "__arrow_c_stream__"))?
        || keys.hasattr(intern!(py, "__arrow_c_array__"))?
    {
        arrow::each_chunk(keys, hasher, options.skip_nulls, &mut |chunk| {
            rows(py, target, &chunk, options, &mut mask.rows)
        })?;
        return Ok(mask);
    }
    if let Some(held) = Held::get(keys, ffi::PyBUF_RECORDS_RO) {
        if let Array::Column(column, _held) = column(keys, held)? {
            rows(py, target, &column, options, &mut mask.rows)?;
            return Ok(mask);
        }
        let mut found = run(target, &keys.call_method0("tolist")?, options)?;
        found.array = true;
        return Ok(found);
    }
    if let Ok(dtype) = keys.getattr("dtype") {
        return array_without_buffer(target, keys, &dtype, options);
    }
    let iterator = match PyIterator::from_object(keys) {
        Err(problem) if !problem.is_instance_of::<PyTypeError>(py) => return Err(problem),
        found => found.ok(),
    };
    let Some(mut iterator) = iterator else {
        let name = keys.get_type().fully_qualified_name()?;
        let message = format!(
            "{name} is not a batch of keys: pass a list or other iterable, a NumPy array, or an \
             Arrow, Polars, DuckDB or pandas column"
        );
        return Err(error(py, "UnsupportedBatch", message));
    };
    let expected = match keys.len() {
        Err(problem) if !problem.is_instance_of::<PyException>(py) => return Err(problem),
        found => found.unwrap_or(0), // only a hint
    };
    let hash = |key: PyResult<Bound<'_, PyAny>>| hash_object(key?.as_borrowed(), hasher);
    objects(target, options, expected, |_| iterator.next().map(hash))
}

/// How many items ahead to fetch: their objects lie anywhere in memory.
const ITEMS_AHEAD: usize = 16;

/// The hash of a list's item, if it has that many (a key's own code may shorten the list).
#[inline(always)]
fn hash_item(list: &Bound<'_, PyList>, i: usize, hasher: &KeyHasher) -> Option<PyResult<Hashed>> {
    if cfg!(Py_GIL_DISABLED) {
        return list.get_item(i).ok().map(|key| hash_object(key.as_borrowed(), hasher));
    }
    if i >= list.len() {
        return None;
    }
    // SAFETY: within the list, and the interpreter lock is held: the item is there until Python
    // code runs, and `hash_key` takes a reference of its own before it runs any.
    unsafe {
        if i + ITEMS_AHEAD < list.len() {
            let ahead = (i + ITEMS_AHEAD) as ffi::Py_ssize_t;
            prefetch(ffi::PyList_GET_ITEM(list.as_ptr(), ahead).cast());
        }
        let item = ffi::PyList_GET_ITEM(list.as_ptr(), i as ffi::Py_ssize_t);
        Some(hash_object(Borrowed::from_ptr(list.py(), item), hasher))
    }
}

/// pandas before 3.0, and NumPy types without a buffer: variable-width str can be listed, what is
/// neither int nor text (dates, say, which would become ints of some unit) is refused.
fn array_without_buffer(
    target: &mut impl Target,
    keys: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    options: &Options,
) -> PyResult<Mask> {
    let array = keys.call_method0("__array__")?;
    let kind: String = dtype.getattr("kind").and_then(|k| k.extract()).unwrap_or_default();
    let mut mask = if kind == "T" {
        run(target, &array.call_method0("tolist")?, options)?
    } else if Held::get(&array, ffi::PyBUF_RECORDS_RO).is_some() {
        run(target, &array, options)?
    } else {
        let message = format!(
            "an array of dtype {dtype} is not a batch of keys: use .astype('int64') or .astype(str)"
        );
        return Err(error(keys.py(), "UnsupportedBatch", message));
    };
    mask.array = true;
    Ok(mask)
}

/// Objects hashed before their bits are touched.
const OBJECTS: usize = 4096;

/// Python objects, one by one: the interpreter lock is needed to read each. All of a chunk's hashes
/// are made before the first of its bits is set: hashing may run Python code, which may let another
/// thread's batch start writing, and `enter` looks out for that once, at its start. Between two
/// chunks other threads have a turn.
#[inline(always)]
fn objects(
    target: &mut impl Target,
    options: &Options,
    expected: usize,
    mut hash: impl FnMut(usize) -> Option<PyResult<Hashed>>,
) -> PyResult<Mask> {
    // SAFETY: called from a method, so attached.
    let py = unsafe { Python::assume_attached() };
    // A length is only a hint: it may be a lie.
    let expected = expected.min(1 << 20);
    let mut mask = Mask { rows: Vec::with_capacity(expected), array: false };
    let mut hashes = Vec::with_capacity(OBJECTS.min(expected.max(1)));
    let mut nulls = Vec::new();
    let mut row = 0;
    loop {
        hashes.clear();
        let mut stopped = None;
        while hashes.len() < OBJECTS {
            match hash(row) {
                Some(Ok(Hashed::Key(h))) => hashes.push(h),
                Some(Ok(Hashed::Null)) if options.skip_nulls => nulls.push(row),
                Some(Ok(Hashed::Null)) => stopped = Some(Err(null_error(py, row))),
                Some(Err(problem)) => stopped = Some(Err(problem)),
                None => stopped = Some(Ok(())),
            }
            if stopped.is_some() {
                break;
            }
            row += 1;
        }
        let before = mask.rows.len();
        target.enter(py, false, |inside| {
            let mut left = hashes[mask.rows.len() - before..].chunks(BLOCK);
            let mut fill = |block: &mut [u64; BLOCK]| {
                let some = left.next().unwrap_or_default();
                block[..some.len()].copy_from_slice(some);
                Ok(some.len())
            };
            inside.hashes(&mut fill, &mut |answers| mask.rows.extend_from_slice(answers))
        })?;
        if let Some(end) = stopped {
            end?;
            mask.leave_out(&nulls);
            return Ok(mask);
        }
        give_turn(py)?;
    }
}

/// A key's hash, or the None that stands where there is none.
enum Hashed {
    Key(u64),
    Null,
}

#[inline(always)]
fn hash_object(key: Borrowed<'_, '_, PyAny>, hasher: &KeyHasher) -> PyResult<Hashed> {
    if key.is_none() {
        return Ok(Hashed::Null);
    }
    hash_key(key, hasher).map(Hashed::Key)
}

/// Rows between two looks whether a fork waits, by one thread and by several: a few milliseconds.
const ROWS: usize = 1 << 17;
const SHARED_ROWS: usize = 1 << 22;

/// Where there is no answer yet.
const NO_ANSWER: u8 = u8::MAX;

/// A column: the interpreter lock is released while it is hashed and probed.
fn rows(
    py: Python<'_>,
    target: &mut impl Target,
    column: &Column,
    options: &Options,
    mask: &mut Vec<u8>,
) -> PyResult<()> {
    let long = column.keys() >= DETACH_FROM;
    if !options.mask && options.threads == 1 {
        // The same few answers' memory over and over, not a page fault every 4096 rows.
        let (mut answers, mut done) = ([0u8; 8192], 0);
        return target.enter(py, long, |inside| {
            while done < column.keys() {
                let count = answers.len().min(column.keys() - done);
                take(inside, column, &mut done, &mut answers[..count])?;
            }
            Ok(())
        });
    }
    let start = mask.len();
    if start == 0 {
        *mask = vec![0; column.keys()]; // zeroed by the kernel, not touched twice
    } else {
        mask.resize(start + column.keys(), 0);
    }
    let answers = &mut mask[start..];
    // Starting a thread is not worth it for fewer keys than this each (a guess, not a measurement).
    let alone = options.threads == 1 || answers.len() < options.threads * 16_384;
    let mut done = 0;
    target.enter(py, long, |inside| {
        while done < answers.len() {
            let left = &mut answers[done..];
            let count = left.len().min(if alone { ROWS } else { SHARED_ROWS });
            if alone {
                take(inside, column, &mut done, &mut left[..count])?;
            } else {
                inside.shared(column, done, options.threads, &mut left[..count])?;
                done += count;
                stop_for_a_fork()?;
            }
        }
        Ok(())
    })?;
    if let Some(valid) = &column.valid {
        let found = mask.split_off(start);
        mask.resize(start + column.len, 0);
        valid.iter().zip(found).for_each(|(row, answer)| mask[start + row] = answer);
    }
    Ok(())
}

/// Takes as many of a column's keys as there are answers, from the `done`th on, and counts them. Few
/// are taken with the interpreter lock held, where they may be told to go on later.
fn take(
    inside: &mut dyn Inside,
    column: &Column,
    done: &mut usize,
    answers: &mut [u8],
) -> Result<(), Refusal> {
    if answers.len() < DETACH_FROM {
        answers.fill(NO_ANSWER);
    }
    let result = inside.rows(column, *done, answers);
    if matches!(result, Err(Refusal::Later)) {
        *done += answers.iter().take_while(|answer| **answer != NO_ANSWER).count();
        return result;
    }
    *done += answers.len();
    result?;
    stop_for_a_fork()
}

fn stop_for_a_fork() -> Result<(), Refusal> {
    if fork_waits() { Err(Refusal::Later) } else { Ok(()) }
}

/// Brings the hashes of so many of a column's keys, from the `from`th on.
pub fn column_hashes(
    column: &Column,
    hasher: KeyHasher,
    from: usize,
    count: usize,
) -> impl FnMut(&mut [u64; BLOCK]) -> Result<usize, Infallible> {
    let (mut at, end) = (from, from + count);
    move |block| {
        let n = BLOCK.min(end - at);
        column.hash(&hasher, at, &mut block[..n]);
        at += n;
        Ok(n)
    }
}

/// Copies answers, as they come, one behind the other.
pub fn in_order(answers: &mut [u8]) -> impl FnMut(&[u8]) {
    let mut done = 0;
    move |some| {
        answers[done..done + some.len()].copy_from_slice(some);
        done += some.len();
    }
}

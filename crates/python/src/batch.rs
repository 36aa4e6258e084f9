//! Many keys in one call: finds the door a batch comes through, and what its mask looks like.

use std::convert::Infallible;

use bloomery_core::batch::{self, BLOCK, Op};
use bloomery_core::hash::KeyHasher;
use bloomery_core::probe::prefetch;
use bloomery_core::threads;
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyList, PyMemoryView, PyString, PyTuple};
use pyo3::{ffi, intern};

use crate::arrow;
use crate::bloom::Bloom;
use crate::buffer::{Array, Held, column};
use crate::column::Column;
use crate::errors::{error, invalid, null_error};
use crate::key::hash_key;
use crate::mask::Mask;

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
    pub op: Op,
    pub skip_nulls: bool,
    pub threads: usize,
    /// Are the answers wanted?
    pub mask: bool,
}

impl Options {
    pub fn new(py: Python<'_>, op: Op, nulls: &str, threads: Threads) -> PyResult<Options> {
        let skip_nulls = match nulls {
            "error" => false,
            "skip" => true,
            _ => {
                return Err(invalid(py, format!("nulls is {nulls:?}, must be 'error' or 'skip'")));
            }
        };
        Ok(Options { op, skip_nulls, threads: threads.0, mask: true })
    }
}

/// Takes every key of the batch, through whichever door it comes.
pub fn run(filter: &Bloom, keys: &Bound<'_, PyAny>, options: &Options) -> PyResult<Mask> {
    let py = keys.py();
    let hasher = &filter.hasher;
    if let Ok(list) = keys.cast_exact::<PyList>() {
        return objects(filter, options, list.len(), |i| hash_item(list, i, hasher));
    }
    if let Ok(tuple) = keys.cast_exact::<PyTuple>() {
        let hash = |key: Bound<'_, PyAny>| hash_object(key.as_borrowed(), hasher);
        return objects(filter, options, tuple.len(), |i| tuple.get_item(i).ok().map(hash));
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
        arrow::each_chunk(keys, &filter.hasher, options.skip_nulls, &mut |chunk| {
            rows(py, filter, &chunk, options, &mut mask.rows)
        })?;
        return Ok(mask);
    }
    if let Some(held) = Held::get(keys, ffi::PyBUF_RECORDS_RO) {
        if let Array::Column(column, _held) = column(keys, held)? {
            rows(py, filter, &column, options, &mut mask.rows)?;
            return Ok(mask);
        }
        let mut found = run(filter, &keys.call_method0("tolist")?, options)?;
        found.array = true;
        return Ok(found);
    }
    if let Ok(dtype) = keys.getattr("dtype") {
        return array_without_buffer(filter, keys, &dtype, options);
    }
    let Ok(iterator) = PyIterator::from_object(keys) else {
        let name = keys.get_type().fully_qualified_name()?;
        let message = format!(
            "{name} is not a batch of keys: pass a list or other iterable, a NumPy array, or an \
             Arrow, Polars, DuckDB or pandas column"
        );
        return Err(error(py, "UnsupportedBatch", message));
    };
    let mut iterator = iterator;
    let hash = |key: PyResult<Bound<'_, PyAny>>| hash_object(key?.as_borrowed(), hasher);
    objects(filter, options, keys.len().unwrap_or(0), |_| iterator.next().map(hash))
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
    filter: &Bloom,
    keys: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    options: &Options,
) -> PyResult<Mask> {
    let array = keys.call_method0("__array__")?;
    let kind: String = dtype.getattr("kind").and_then(|k| k.extract()).unwrap_or_default();
    let mut mask = if kind == "T" {
        run(filter, &array.call_method0("tolist")?, options)?
    } else if Held::get(&array, ffi::PyBUF_RECORDS_RO).is_some() {
        run(filter, &array, options)?
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
/// thread's batch start writing, and `write_or_read` looks out for that once, at its start.
#[inline(always)]
fn objects(
    filter: &Bloom,
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
        let mut left = hashes.chunks(BLOCK);
        let mut fill = |block: &mut [u64; BLOCK]| {
            let some = left.next().unwrap_or_default();
            block[..some.len()].copy_from_slice(some);
            Ok::<usize, Infallible>(some.len())
        };
        filter.write_or_read(py, options.op, |filter, op| {
            let mut done = |answers: &[u8]| mask.rows.extend_from_slice(answers);
            let _ = batch::run(&filter.bits, &filter.shape, op, &mut fill, &mut done);
        })?;
        if let Some(end) = stopped {
            end?;
            mask.leave_out(&nulls);
            return Ok(mask);
        }
        py.check_signals()?;
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

/// A column: the interpreter lock is released while it is hashed and probed.
fn rows(
    py: Python<'_>,
    filter: &Bloom,
    column: &Column,
    options: &Options,
    mask: &mut Vec<u8>,
) -> PyResult<()> {
    let detached = column.keys() >= DETACH_FROM;
    if !options.mask && options.threads == 1 {
        let work = |filter: &Bloom, op: Op| unmasked(filter, op, column);
        return match detached {
            true => filter.write_or_read_detached(py, options.op, work),
            false => filter.write_or_read(py, options.op, work),
        };
    }
    let start = mask.len();
    if start == 0 {
        *mask = vec![0; column.keys()]; // zeroed by the kernel, not touched twice
    } else {
        mask.resize(start + column.keys(), 0);
    }
    let answers = &mut mask[start..];
    let work = |filter: &Bloom, op: Op| column_pass(filter, op, options.threads, column, answers);
    if detached {
        filter.write_or_read_detached(py, options.op, work)?;
    } else {
        filter.write_or_read(py, options.op, work)?;
    }
    if let Some(valid) = &column.valid {
        let found = mask.split_off(start);
        mask.resize(start + column.len, 0);
        valid.iter().zip(found).for_each(|(row, answer)| mask[start + row] = answer);
    }
    Ok(())
}

/// For `update`: the same few answers' memory over and over, not a page fault every 4096 rows.
fn unmasked(filter: &Bloom, op: Op, column: &Column) {
    let mut answers = [0u8; 8192];
    for from in (0..column.keys()).step_by(answers.len()) {
        let count = answers.len().min(column.keys() - from);
        some_rows(filter, op, column, from, &mut answers[..count]);
    }
}

fn column_pass(filter: &Bloom, op: Op, threads: usize, column: &Column, answers: &mut [u8]) {
    let Bloom { bits, shape, hasher, .. } = filter;
    // Starting a thread is not worth it for fewer keys than this each (a guess, not a measurement).
    if threads == 1 || answers.len() < threads * 16_384 {
        return some_rows(filter, op, column, 0, answers);
    }
    let work = |from: usize, mine: &mut [u8]| some_rows(filter, op, column, from, mine);
    let hash = |from: usize, out: &mut [u64]| column.hash(hasher, from, out);
    match op {
        Op::Contains => threads::share(threads, answers, &work),
        _ => threads::add_threads(bits, shape, op == Op::AddAtomic, threads, &hash, answers),
    }
}

/// The keys from the `from`th on, as many as there are answers.
fn some_rows(filter: &Bloom, op: Op, column: &Column, from: usize, answers: &mut [u8]) {
    let Bloom { bits, shape, hasher, .. } = filter;
    if let (Some(values), Some(hash)) = (column.dense_i64(), hasher.int_hash()) {
        let hash = move |row: usize| hash(values.get(from + row));
        return batch::run_indexed(bits, shape, op, hash, answers);
    }
    let (mut at, mut done) = (from, 0);
    let end = from + answers.len();
    let mut fill = |block: &mut [u64; BLOCK]| {
        let n = BLOCK.min(end - at);
        column.hash(hasher, at, &mut block[..n]);
        at += n;
        Ok::<usize, Infallible>(n)
    };
    let _ = batch::run(bits, shape, op, &mut fill, &mut |some| {
        answers[done..done + some.len()].copy_from_slice(some);
        done += some.len();
    });
}

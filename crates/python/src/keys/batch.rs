//! Many keys in one call: finds what kind of batch it is, and what its mask looks like.

use std::alloc::{Layout, alloc_zeroed};
use std::convert::Infallible;
use std::ops::Range;

use bloomery_core::batch::BLOCK;
use bloomery_core::hash::{IntHash, KeyHasher};
use bloomery_core::kind::Refusal;
use bloomery_core::loops::Hashes;
use bloomery_core::probe::prefetch;
use pyo3::Borrowed;
use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::errors::{in_row, invalid, null_error, refused, too_many_rows};
use crate::filters::sections::{fork_waits, give_turn};
use crate::keys::arrow;
use crate::keys::arrow_rows::{Reading, bad_row};
use crate::keys::column::Column;
use crate::keys::key::hash_key;
use crate::keys::layout::short_int;
use crate::keys::mask::Mask;
use crate::keys::source::{self, Source};

/// Rows between two looks at what else there is to do: whether Ctrl-C was pressed, say. A batch may
/// claim to have more than can be gone through, all of them in the same place.
const TURN: usize = 1 << 24;
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

    /// Are the keys only asked about, so that nothing is changed by those before a bad one?
    fn asks(&self) -> bool {
        false
    }

    /// Told how many keys a column has, before the first of them.
    fn expect(&mut self, _py: Python<'_>, _keys: usize) -> PyResult<()> {
        Ok(())
    }

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
    /// Takes all hashes that `blocks` brings; `out` receives one byte a key, in order.
    fn hashes(
        &mut self,
        blocks: &mut Hashes<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal>;

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

    /// As `shared`, of keys whose answers nobody wants; false if that is not known to be faster.
    fn shared_unasked(
        &mut self,
        _column: &Column,
        _keys: Range<usize>,
        _threads: usize,
    ) -> Result<bool, Refusal> {
        Ok(false)
    }
}

/// Takes every key of the batch, whatever kind of batch it is.
pub fn run(target: &mut impl Target, keys: &Bound<'_, PyAny>, options: &Options) -> PyResult<Mask> {
    let py = keys.py();
    let hasher = &target.hasher();
    if let Ok(list) = keys.cast_exact::<PyList>() {
        return listed(target, list, options);
    }
    if let Ok(tuple) = keys.cast_exact::<PyTuple>() {
        let hash = |key: Bound<'_, PyAny>| hash_object(key.as_borrowed(), hasher);
        let none = |_: usize, _: &mut Vec<u64>| {};
        return objects(target, options, tuple.len(), none, |i| tuple.get_item(i).ok().map(hash));
    }
    let mut mask = Mask { rows: Vec::new(), array: true };
    match source::find(keys)? {
        Source::Arrow(exported) => {
            // `rows` looks at views later where there is a mask; several threads share what was
            // looked at before.
            let views_later = target.asks() && options.mask && options.threads == 1;
            let reading = Reading { skip_nulls: options.skip_nulls, views_later };
            arrow::each_chunk(py, &exported, hasher, reading, &mut |chunk| {
                rows(py, target, &chunk, options, &mut mask.rows)
            })?;
        }
        Source::Array(column, _held) => rows(py, target, &column, options, &mut mask.rows)?,
        Source::Objects(list) => mask.rows = listed(target, &list, options)?.rows,
        Source::Iterator(mut iterator) => {
            let hash = |key: PyResult<Bound<'_, PyAny>>| hash_object(key?.as_borrowed(), hasher);
            let expected = match keys.len() {
                Err(problem) if !problem.is_instance_of::<PyException>(py) => return Err(problem),
                found => found.unwrap_or(0), // only a hint
            };
            let none = |_: usize, _: &mut Vec<u64>| {};
            return objects(target, options, expected, none, |_| iterator.next().map(hash));
        }
    }
    Ok(mask)
}

fn listed(target: &mut impl Target, list: &Bound<'_, PyList>, options: &Options) -> PyResult<Mask> {
    let hasher = &target.hasher();
    let mut ints = hasher.int_hash().filter(|_| !cfg!(Py_GIL_DISABLED));
    let leading_ints = |row: usize, hashes: &mut Vec<u64>| {
        let before = hashes.len();
        if let Some(hash) = ints {
            hash_ints(list, row, hash, hashes);
        }
        if hashes.len() == before {
            ints = None; // a list of something else, or a mixed one
        }
    };
    objects(target, options, list.len(), leading_ints, |i| hash_item(list, i, hasher))
}

/// Appends the hashes of a list's items from this one on, up to the first that is no exact int of 63
/// bits, or until `OBJECTS` are there. The same as `hash_item` in a loop that has nothing else to
/// look out for: 3 ns a key instead of 5.
#[inline(never)]
fn hash_ints(list: &Bound<'_, PyList>, from: usize, hash: IntHash, hashes: &mut Vec<u64>) {
    let room = OBJECTS.saturating_sub(hashes.len());
    let count = list.len().saturating_sub(from).min(room);
    if count == 0 {
        return; // an empty list has no items to point to
    }
    // SAFETY: within the list, which stays as it is: the interpreter lock is held, and no Python
    // code runs.
    let items = unsafe {
        let first = (*list.as_ptr().cast::<ffi::PyListObject>()).ob_item;
        std::slice::from_raw_parts(first.wrapping_add(from), count)
    };
    let int = |(i, item): (usize, &*mut ffi::PyObject)| {
        prefetch(items[(i + ITEMS_AHEAD).min(count - 1)].cast());
        // SAFETY: the item is alive, and its exact type is asked before what is in it.
        unsafe {
            let exact = ffi::Py_TYPE(*item) == &raw mut ffi::PyLong_Type;
            if exact { short_int(*item) } else { None }
        }
    };
    hashes.extend(items.iter().enumerate().map_while(int).map(|value| hash.hash(value)));
}

/// How many items ahead to fetch: their objects lie anywhere in memory. A list of a million ints took
/// 10 ns a key with 16, and takes 8.6 with 96; one of text 12.6 and 11.1.
const ITEMS_AHEAD: usize = 96;

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

/// Objects hashed before their bits are touched.
const OBJECTS: usize = 4096;

/// Python objects, one by one: the interpreter lock is needed to read each. All of a chunk's hashes
/// are made before the first of its bits is set: hashing may run Python code, which may let another
/// thread's batch start writing, and `enter` looks out for that once, at its start. Between two
/// chunks other threads have a turn. `leading` may append the hashes of keys from a row on, as many as
/// it likes, and `hash` is for the row behind them.
#[inline(always)]
fn objects(
    target: &mut impl Target,
    options: &Options,
    expected: usize,
    mut leading: impl FnMut(usize, &mut Vec<u64>),
    mut hash: impl FnMut(usize) -> Option<PyResult<Hashed>>,
) -> PyResult<Mask> {
    // SAFETY: called from a method, so attached.
    let py = unsafe { Python::assume_attached() };
    // A length is only a hint: it may be a lie.
    let expected = expected.min(1 << 20);
    let mut mask =
        Mask { rows: Vec::with_capacity(if options.mask { expected } else { 0 }), array: false };
    let mut hashes = Vec::with_capacity(OBJECTS.min(expected.max(1)));
    let mut nulls = Vec::new();
    let mut row = 0;
    loop {
        hashes.clear();
        let mut stopped = None;
        while hashes.len() < OBJECTS {
            let before = hashes.len();
            leading(row, &mut hashes);
            if hashes.len() > before {
                row += hashes.len() - before;
                continue;
            }
            match hash(row) {
                Some(Ok(Hashed::Key(h))) => hashes.push(h),
                Some(Ok(Hashed::Null)) if options.skip_nulls => nulls.push(row),
                Some(Ok(Hashed::Null)) => stopped = Some(Err(null_error(py, row))),
                Some(Err(problem)) => stopped = Some(Err(in_row(py, row, problem))),
                None => stopped = Some(Ok(())),
            }
            if stopped.is_some() {
                break;
            }
            row += 1;
        }
        if options.mask && mask.rows.capacity() - mask.rows.len() < hashes.len() {
            // Copies all that there are, if they cannot stay where they are, while others run.
            py.detach(|| mask.rows.reserve(hashes.len()));
        }
        let mut done = 0;
        target.enter(py, false, |inside| {
            let mut left = hashes[done..].chunks(BLOCK);
            let mut blocks = |block: &mut [u64; BLOCK]| {
                let some = left.next().unwrap_or_default();
                block[..some.len()].copy_from_slice(some);
                Ok(some.len())
            };
            inside.hashes(&mut blocks, &mut |answers| {
                done += answers.len();
                if options.mask {
                    mask.rows.extend_from_slice(answers);
                }
            })
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

/// Rows whose views are looked at before they are hashed: 128 KiB of them, which stay in the cache.
const VIEWS: usize = 1 << 13;

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
    let keys = column.keys();
    target.expect(py, keys)?;
    let long = keys >= DETACH_FROM;
    let mut done = 0;
    // Starting a thread is not worth it for fewer keys than this each (a guess, not a measurement).
    let alone = options.threads == 1 || keys < options.threads * 16_384;
    if !options.mask && !alone && !column.unchecked {
        let all = target
            .enter(py, long, |inside| shared_unasked(inside, column, &mut done, options.threads))?;
        if all {
            return Ok(());
        }
    }
    if !options.mask && options.threads == 1 {
        return target.enter(py, long, |inside| unasked(inside, column, &mut done));
    }
    let start = mask.len();
    grown(py, mask, column.len)?;
    // Where rows have no key, answers are put into their places at the end.
    let mut found = Vec::new();
    let answers = match &column.valid {
        None => &mut mask[start..],
        Some(_) => grown(py, &mut found, keys)?,
    };
    let most = match (column.unchecked, alone) {
        (true, _) => VIEWS,
        (false, true) => ROWS,
        (false, false) => SHARED_ROWS,
    };
    let mut bad = None;
    target.enter(py, long, |inside| {
        let turn = keys.min(done + TURN);
        while done < turn {
            let count = (turn - done).min(most);
            if column.unchecked {
                bad = column.first_bad_view(done..done + count);
                if bad.is_some() {
                    return Ok(());
                }
            }
            let some = &mut answers[done..done + count];
            if alone {
                take(inside, column, &mut done, some)?;
            } else {
                inside.shared(column, done, options.threads, some)?;
                done += count;
                later_unless(!fork_waits())?;
            }
        }
        later_unless(done == keys)
    })?;
    if let Some(bad) = bad {
        return Err(bad_row(py, start, bad));
    }
    if let Some(valid) = &column.valid {
        valid.spread(0, &found, &mut mask[start..]);
    }
    Ok(())
}

/// Takes rows without returning answers, with several threads, for one turn. Returns false if the
/// target does not do that.
fn shared_unasked(
    inside: &mut dyn Inside,
    column: &Column,
    done: &mut usize,
    threads: usize,
) -> Result<bool, Refusal> {
    let keys = column.keys();
    let turn = keys.min(*done + TURN);
    while *done < turn {
        let some = *done..turn.min(*done + SHARED_ROWS);
        if !inside.shared_unasked(column, some.clone(), threads)? {
            return Ok(false);
        }
        *done = some.end;
        later_unless(!fork_waits() || *done == keys)?;
    }
    later_unless(*done == keys)?;
    Ok(true)
}

/// Takes rows without returning answers, for one turn.
fn unasked(inside: &mut dyn Inside, column: &Column, done: &mut usize) -> Result<(), Refusal> {
    // The memory of the answers is used again and again: no page fault every 4096 rows.
    let mut answers = [0u8; 8192];
    let keys = column.keys();
    let turn = keys.min(*done + TURN);
    while *done < turn {
        let count = answers.len().min(turn - *done);
        take(inside, column, done, &mut answers[..count])?;
    }
    later_unless(*done == keys)
}

/// Makes a mask longer by so many zeros, which are returned.
fn grown<'a>(py: Python<'_>, mask: &'a mut Vec<u8>, by: usize) -> PyResult<&'a mut [u8]> {
    let start = mask.len();
    if start == 0 {
        *mask = zeroed(by).ok_or_else(|| too_many_rows(py, by))?;
    } else {
        mask.try_reserve(by).map_err(|_| too_many_rows(py, by))?;
        mask.resize(start + by, 0);
    }
    Ok(&mut mask[start..])
}

/// So many zeros, made by the kernel and not touched twice; None if there is no memory for them.
fn zeroed(len: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(len).ok()?;
    if len == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout is not empty, and that of a Vec of this length and capacity.
    unsafe {
        let start = alloc_zeroed(layout);
        if start.is_null() { None } else { Some(Vec::from_raw_parts(start, len, len)) }
    }
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
    later_unless(!fork_waits())
}

/// Stops a batch that is to go on later, after others have had a turn.
fn later_unless(whole: bool) -> Result<(), Refusal> {
    if whole { Ok(()) } else { Err(Refusal::Later) }
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

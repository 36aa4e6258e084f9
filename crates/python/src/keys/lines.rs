//! Lines of text as keys, a chunk of input at a time: what `bloomery dedup` and `contains` run on.

use std::ops::Range;

use bloomery_core::batch::BLOCK;
use bloomery_core::fields::{Field, Step};
use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::Refusal;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{error, invalid};
use crate::keys::batch::{Inside, Target};
use crate::keys::buffer::BufferView;

/// The lines kept, the bytes used, the lines seen, and how many were kept.
pub type Lines<'py> = (Bound<'py, PyBytes>, usize, usize, usize);

/// The lines and keys of a chunk, apart; and the bytes used.
type Split<'py> = (Bound<'py, PyList>, Bound<'py, PyList>, usize);

/// Where in each line its key is, and how many lines had none.
#[pyclass(module = "bloomery._native")]
pub struct LineKey {
    field: Field,
    /// Lines seen so far.
    #[pyo3(get)]
    lines: usize,
    /// Those without a key.
    #[pyo3(get)]
    missing: usize,
    /// The number of the first of those, from 1; 0 if there is none.
    #[pyo3(get)]
    first_missing: usize,
}

#[pymethods]
impl LineKey {
    /// A value inside lines of JSON: names of members and numbers of elements lead to it.
    #[staticmethod]
    fn json(path: Vec<Bound<'_, PyAny>>) -> PyResult<LineKey> {
        let step = |step: Bound<'_, PyAny>| match step.extract::<usize>() {
            Ok(number) => Ok(Step::Element(number)),
            Err(_) => step.extract::<String>().map(|name| Step::Member(name.into_bytes())),
        };
        let path = path.into_iter().map(step).collect::<PyResult<_>>()?;
        Ok(LineKey { field: Field::Json(path), lines: 0, missing: 0, first_missing: 0 })
    }

    /// A column of CSV, from 0.
    #[staticmethod]
    fn csv(py: Python<'_>, column: usize, delimiter: &[u8]) -> PyResult<LineKey> {
        let [delimiter] = *delimiter else {
            return Err(invalid(py, "a delimiter is one byte".into()));
        };
        let field = Field::Csv { column, delimiter };
        Ok(LineKey { field, lines: 0, missing: 0, first_missing: 0 })
    }

    /// The same, with no line seen yet.
    fn fresh(&self) -> LineKey {
        LineKey { field: self.field.clone(), lines: 0, missing: 0, first_missing: 0 }
    }

    /// The lines of `data`, the key of each (None where it has none), and the bytes used.
    #[pyo3(signature = (data, *, r#final=false))]
    fn split<'py>(&mut self, data: &Bound<'py, PyAny>, r#final: bool) -> PyResult<Split<'py>> {
        let py = data.py();
        let held = buffer(data)?;
        // SAFETY: contiguous; the caller hands the buffer over for the time of the call.
        let text = unsafe { held.bytes() };
        let (lines, keys) = (PyList::empty(py), PyList::empty(py));
        let mut begin = 0;
        while let Some(record) = self.field.record(text, begin, r#final) {
            lines.append(PyBytes::new(py, &text[record.span]))?;
            self.count(record.key.is_none());
            keys.append(record.key.map(|key| PyBytes::new(py, &key)))?;
            begin = record.next;
        }
        Ok((lines, keys, begin))
    }
}

impl LineKey {
    fn count(&mut self, missing: bool) {
        self.lines += 1;
        if missing {
            self.missing += 1;
            if self.first_missing == 0 {
                self.first_missing = self.lines;
            }
        }
    }
}

/// Takes each line of `data`, without its newline, as a key, or the part of it that `key` names;
/// keeps those whose answer is `keep`, and all that have no key.
/// Returns the kept lines, each with a newline; how many bytes of `data` were used (up to its last
/// newline, or all at the `end` of the input); and how many lines there were and were kept.
pub fn run<'py>(
    target: &mut impl Target,
    data: &Bound<'py, PyAny>,
    end: bool,
    keep: bool,
    key: Option<PyRefMut<'_, LineKey>>,
) -> PyResult<Lines<'py>> {
    let py = data.py();
    let held = buffer(data)?;
    let hasher = target.hasher();
    // SAFETY: contiguous; the caller hands the buffer over for the time of the call.
    let text = unsafe { held.bytes() };
    let taken = match key {
        None => target.enter(py, true, |inside| take(inside, hasher, text, end, keep))?,
        Some(mut key) => {
            let line_key: &mut LineKey = &mut key;
            target
                .enter(py, true, |inside| take_fields(inside, hasher, text, end, keep, line_key))?
        }
    };
    // Straight into the answer, without a buffer between: to map a megabyte anew for each chunk of
    // a crawl's URLs took as long as to add them.
    let lines = PyBytes::new_with(py, taken.kept_bytes, |out| {
        taken.write(text, out);
        Ok(())
    })?;
    Ok((lines, taken.used, taken.answers.len(), taken.kept))
}

fn buffer(data: &Bound<'_, PyAny>) -> PyResult<BufferView> {
    BufferView::get(data, ffi::PyBUF_SIMPLE).ok_or_else(|| {
        let message = "lines are taken from bytes or another contiguous buffer".to_string();
        error(data.py(), "UnsupportedBatch", message)
    })
}

/// The lines of a chunk, and the answer for each.
struct Taken {
    used: usize,
    /// Where each line ends: at its newline, or at the end of the text.
    ends: Vec<usize>,
    answers: Vec<u8>,
    keep: bool,
    kept: usize,
    kept_bytes: usize,
}

impl Taken {
    fn new(used: usize, ends: Vec<usize>, answers: Vec<u8>, keep: bool) -> Taken {
        let mut taken = Taken { used, ends, answers, keep, kept: 0, kept_bytes: 0 };
        let (kept, kept_bytes) =
            taken.lines().fold((0, 0), |(lines, bytes), line| (lines + 1, bytes + line.len() + 1));
        (taken.kept, taken.kept_bytes) = (kept, kept_bytes);
        taken
    }

    /// Each line that is kept, as a range of the text.
    fn lines(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|end| end + 1));
        let lines = begins.zip(&self.ends).zip(&self.answers);
        lines
            .filter(|(_, answer)| (**answer != 0) == self.keep)
            .map(|((begin, end), _)| begin..*end)
    }

    /// Writes the kept lines, each with a newline, into as many bytes as they have.
    fn write(&self, text: &[u8], out: &mut [u8]) {
        let mut rest = out;
        for line in self.lines() {
            let (this, after) = rest.split_at_mut(line.len() + 1);
            this[..line.len()].copy_from_slice(&text[line.clone()]);
            this[line.len()] = b'\n';
            rest = after;
        }
    }
}

fn take(
    inside: &mut dyn Inside,
    hasher: KeyHasher,
    text: &[u8],
    end: bool,
    keep: bool,
) -> Result<Taken, Refusal> {
    let used = match memchr::memrchr(b'\n', text) {
        _ if end => text.len(),
        Some(last) => last + 1,
        None => 0,
    };
    let text = &text[..used];
    let mut newlines =
        memchr::memchr_iter(b'\n', text).chain(text.last().filter(|b| **b != b'\n').map(|_| used));
    let mut ends = Vec::with_capacity(text.len() / 32);
    let mut begin = 0;
    let mut blocks = |block: &mut [u64; BLOCK]| {
        for (n, h) in block.iter_mut().enumerate() {
            let Some(stop) = newlines.next() else {
                return Ok(n);
            };
            *h = hasher.hash_bytes(&text[begin..stop]);
            ends.push(stop);
            begin = stop + 1;
        }
        Ok(BLOCK)
    };
    let mut answers = Vec::with_capacity(text.len() / 32);
    inside.hashes(&mut blocks, &mut |some| answers.extend_from_slice(some))?;
    Ok(Taken::new(used, ends, answers, keep))
}

/// As `take`, by a part of each line.
fn take_fields(
    inside: &mut dyn Inside,
    hasher: KeyHasher,
    text: &[u8],
    end: bool,
    keep: bool,
    line_key: &mut LineKey,
) -> Result<Taken, Refusal> {
    let (mut ends, mut missing) = (Vec::with_capacity(text.len() / 64), Vec::new());
    let mut begin = 0;
    let mut blocks = |block: &mut [u64; BLOCK]| {
        let mut hashed = 0;
        while hashed < BLOCK {
            let Some(record) = line_key.field.record(text, begin, end) else {
                break;
            };
            line_key.count(record.key.is_none());
            match record.key {
                Some(key) => {
                    block[hashed] = hasher.hash_bytes(&key);
                    hashed += 1;
                }
                None => missing.push(ends.len()),
            }
            ends.push(record.span.end);
            begin = record.next;
        }
        Ok(hashed)
    };
    let mut asked = Vec::with_capacity(text.len() / 64);
    inside.hashes(&mut blocks, &mut |some| asked.extend_from_slice(some))?;
    // A line without a key was not asked for, and is kept.
    let mut answers = vec![u8::from(keep); ends.len()];
    let mut missing = missing.into_iter().peekable();
    let mut asked = asked.into_iter();
    for (number, answer) in answers.iter_mut().enumerate() {
        if missing.next_if_eq(&number).is_none() {
            *answer = asked.next().unwrap_or(0);
        }
    }
    Ok(Taken::new(begin, ends, answers, keep))
}

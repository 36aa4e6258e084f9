//! Lines of text as keys, a chunk of input at a time: what `bloomery dedup` and `contains` run on.

use std::convert::Infallible;

use bloomery_core::batch::{self, BLOCK, Op};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bloom::Bloom;
use crate::buffer::Held;
use crate::errors::error;

/// Takes each line of `data`, without its newline, as a key; keeps those whose answer is `keep`.
/// Returns the kept lines, each with a newline; how many bytes of `data` were used (up to its last
/// newline, or all at the `end` of the input); and how many lines there were and were kept.
pub fn run<'py>(
    filter: &Bloom,
    data: &Bound<'py, PyAny>,
    op: Op,
    end: bool,
    keep: bool,
) -> PyResult<(Bound<'py, PyBytes>, usize, usize, usize)> {
    let py = data.py();
    let Some(held) = Held::get(data, ffi::PyBUF_SIMPLE) else {
        let message = "lines are taken from bytes or another contiguous buffer".to_string();
        return Err(error(py, "UnsupportedBatch", message));
    };
    let (kept, used, seen, count) = filter.write_or_read_detached(py, op, |filter, op| {
        // SAFETY: contiguous; the caller hands the buffer over for the time of the call.
        take(filter, unsafe { held.bytes() }, op, end, keep)
    })?;
    Ok((PyBytes::new(py, &kept), used, seen, count))
}

fn take(
    filter: &Bloom,
    text: &[u8],
    op: Op,
    end: bool,
    keep: bool,
) -> (Vec<u8>, usize, usize, usize) {
    let used = match memchr::memrchr(b'\n', text) {
        _ if end => text.len(),
        Some(last) => last + 1,
        None => 0,
    };
    let text = &text[..used];
    let mut ends =
        memchr::memchr_iter(b'\n', text).chain(text.last().filter(|b| **b != b'\n').map(|_| used));
    let mut spans = Vec::with_capacity(text.len() / 32);
    let mut begin = 0;
    let mut fill = |block: &mut [u64; BLOCK]| {
        for (n, h) in block.iter_mut().enumerate() {
            let Some(stop) = ends.next() else {
                return Ok::<usize, Infallible>(n);
            };
            *h = filter.hasher.hash_bytes(&text[begin..stop]);
            spans.push((begin, stop));
            begin = stop + 1;
        }
        Ok(BLOCK)
    };
    let mut answers = Vec::new();
    let _ = batch::run(&filter.bits, &filter.shape, op, &mut fill, &mut |some| {
        answers.extend_from_slice(some);
    });
    let mut kept = Vec::with_capacity(text.len());
    let mut count = 0;
    for ((begin, stop), answer) in spans.iter().zip(&answers) {
        if (*answer != 0) == keep {
            kept.extend_from_slice(&text[*begin..*stop]);
            kept.push(b'\n');
            count += 1;
        }
    }
    (kept, used, answers.len(), count)
}

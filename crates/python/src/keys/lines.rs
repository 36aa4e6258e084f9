//! Lines of text as keys, a chunk of input at a time: what `bloomery dedup` and `contains` run on.

use bloomery_core::batch::BLOCK;
use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::Refusal;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::error;
use crate::keys::batch::{Inside, Target};
use crate::keys::buffer::BufferView;

/// The lines kept, the bytes used, the lines seen, and how many were kept.
pub type Lines<'py> = (Bound<'py, PyBytes>, usize, usize, usize);

/// Takes each line of `data`, without its newline, as a key; keeps those whose answer is `keep`.
/// Returns the kept lines, each with a newline; how many bytes of `data` were used (up to its last
/// newline, or all at the `end` of the input); and how many lines there were and were kept.
pub fn run<'py>(
    target: &mut impl Target,
    data: &Bound<'py, PyAny>,
    end: bool,
    keep: bool,
) -> PyResult<Lines<'py>> {
    let py = data.py();
    let Some(held) = BufferView::get(data, ffi::PyBUF_SIMPLE) else {
        let message = "lines are taken from bytes or another contiguous buffer".to_string();
        return Err(error(py, "UnsupportedBatch", message));
    };
    let hasher = target.hasher();
    let (kept, used, seen, count) = target.enter(py, true, |inside| {
        // SAFETY: contiguous; the caller hands the buffer over for the time of the call.
        take(inside, hasher, unsafe { held.bytes() }, end, keep)
    })?;
    Ok((PyBytes::new(py, &kept), used, seen, count))
}

fn take(
    inside: &mut dyn Inside,
    hasher: KeyHasher,
    text: &[u8],
    end: bool,
    keep: bool,
) -> Result<(Vec<u8>, usize, usize, usize), Refusal> {
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
                return Ok(n);
            };
            *h = hasher.hash_bytes(&text[begin..stop]);
            spans.push((begin, stop));
            begin = stop + 1;
        }
        Ok(BLOCK)
    };
    let mut answers = Vec::new();
    inside.hashes(&mut fill, &mut |some| answers.extend_from_slice(some))?;
    let mut kept = Vec::with_capacity(text.len());
    let mut count = 0;
    for ((begin, stop), answer) in spans.iter().zip(&answers) {
        if (*answer != 0) == keep {
            kept.extend_from_slice(&text[*begin..*stop]);
            kept.push(b'\n');
            count += 1;
        }
    }
    Ok((kept, used, answers.len(), count))
}

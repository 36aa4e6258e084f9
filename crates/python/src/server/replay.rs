//! Hashes back into a filter as a log kept them, 8 little-endian bytes each and in order; and
//! whether a filter still lives in the memory that it was opened over.

use std::convert::Infallible;

use bloomery_core::batch::BLOCK;
use bloomery_core::bits::Bits;
use bloomery_core::kind::{AnyKind, Refusal};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::invalid;
use crate::keys::buffer::BufferView;

/// From so many hashes on the interpreter lock is let go, as for other batches.
pub const LONG: usize = 2048;

pub fn hashes<'a>(py: Python<'_>, data: &'a [u8]) -> PyResult<&'a [[u8; 8]]> {
    match data.as_chunks() {
        (hashes, []) => Ok(hashes),
        _ => Err(invalid(py, format!("{} bytes are no hashes of 8 bytes each", data.len()))),
    }
}

/// Two hashes a key.
pub fn pairs<'a>(py: Python<'_>, data: &'a [u8]) -> PyResult<&'a [[[u8; 8]; 2]]> {
    match hashes(py, data)?.as_chunks() {
        (pairs, []) => Ok(pairs),
        _ => Err(invalid(py, format!("{} bytes are no hashes of 16 bytes each", data.len()))),
    }
}

pub fn filler(
    hashes: &[[u8; 8]],
) -> impl FnMut(&mut [u64; BLOCK]) -> Result<usize, Infallible> + '_ {
    let mut left = hashes.chunks(BLOCK);
    move |block| {
        let some = left.next().unwrap_or_default();
        for (hash, bytes) in block.iter_mut().zip(some) {
            *hash = u64::from_le_bytes(*bytes);
        }
        Ok(some.len())
    }
}

/// How many of the answers are a yes.
pub fn yes(answers: &[u8]) -> u64 {
    answers.iter().map(|answer| u64::from(*answer)).sum()
}

/// Adds or removes the hashes that are left; counts how many were new, or were there. A hash that
/// finds no room is left out: what wrote the log had it refused too.
pub fn change(
    kind: &mut dyn AnyKind,
    remove: bool,
    left: &mut &[[u8; 8]],
    changed: &mut u64,
) -> Result<(), Refusal> {
    loop {
        let mut done = 0;
        let mut out = |answers: &[u8]| {
            done += answers.len();
            *changed += yes(answers);
        };
        let ended = match remove {
            true => kind.remove_all(&mut filler(left), &mut out),
            false => kind.add_all(&mut filler(left), &mut out),
        };
        let refused = usize::from(matches!(ended, Err(Refusal::Full(_) | Refusal::Copies(_))));
        *left = left.get(done + refused..).unwrap_or_default();
        if refused == 0 {
            return ended;
        }
    }
}

/// Do these sections lie in the buffer, one behind the other from the offset on?
pub fn shares(buffer: &Bound<'_, PyAny>, offset: usize, sections: &[Bits]) -> PyResult<bool> {
    let held = BufferView::get(buffer, ffi::PyBUF_SIMPLE)
        .ok_or_else(|| invalid(buffer.py(), "buffer must be a contiguous buffer".into()))?;
    let mut next = held.start().wrapping_add(offset);
    Ok(sections.iter().all(|section| {
        let here = section.as_ptr().cast_const() == next;
        next = next.wrapping_add(section.nbytes());
        here
    }))
}

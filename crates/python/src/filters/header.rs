//! The head of a saved filter, made and read for Python.

use bloomery_core::format::{self, CHUNK_BYTES, FormatError, HEADER_BYTES, Header, KindId};
use bloomery_core::shape::Shape;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{self, invalid};
use crate::keys::buffer::BufferView;
use crate::keys::key::hasher_of;

/// The head of a new, empty filter; what each number means is the kind's business.
#[pyfunction]
#[pyo3(signature = (kind, capacity, error_rate, hasher, seed, *, layout=0, lines_per_key=0,
                    num_hashes=0, num_bits=0, nbytes=0, extra=Vec::new()))]
#[pyo3(text_signature = "(kind, capacity, error_rate, hasher, seed, *, layout=0, \
                         lines_per_key=0, num_hashes=0, num_bits=0, nbytes=0, extra=())")]
#[expect(clippy::too_many_arguments, reason = "private: the classes in filters/ are its callers")]
pub fn make_header<'py>(
    py: Python<'py>,
    kind: &str,
    capacity: u64,
    error_rate: f64,
    hasher: &str,
    seed: u128,
    layout: u8,
    lines_per_key: u8,
    num_hashes: u16,
    num_bits: u64,
    nbytes: u64,
    mut extra: Vec<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let Some(kind) = KindId::from_name(kind) else {
        let names = KindId::ALL.map(|(_, name)| name).join(", ");
        return Err(invalid(py, format!("kind is {kind:?}, must be one of {names}")));
    };
    extra.resize(extra.len().max(6), 0);
    let Ok(extra) = extra.try_into() else {
        return Err(invalid(py, "extra must be at most 6 ints".into()));
    };
    let hasher = hasher_of(py, hasher, seed)?;
    let head = Header {
        kind,
        layout,
        lines_per_key,
        num_hashes,
        num_bits,
        hasher,
        capacity,
        error_rate,
        nbytes,
        extra,
        checksum: 0,
    };
    let head = head.encode();
    match Header::parse(&head) {
        Err(FormatError::Corrupt(message)) => Err(invalid(py, message)),
        parsed => parsed.map(|_| PyBytes::new(py, &head)).map_err(|e| errors::format(py, e)),
    }
}

/// The kind of a saved filter, the bytes after its head and their checksum; `total` bytes in all,
/// if that is known.
#[pyfunction]
pub fn read_header(
    py: Python<'_>,
    head: &[u8],
    total: Option<u64>,
) -> PyResult<(&'static str, u64, u64)> {
    let read = || {
        let header = Header::parse(head)?;
        if header.kind == KindId::Bloom {
            Shape::of(&header)?; // the other kinds check theirs when they are opened
        }
        total.map_or(Ok(()), |total| header.check_total(total))?;
        Ok((header.kind.name(), header.nbytes, header.checksum))
    };
    read().map_err(|problem| errors::format(py, problem))
}

/// (capacity, error_rate, layout, num_bits, num_hashes, lines_per_key, hasher, seed), the arguments
/// of `Bloom`, and the checksum.
type Parsed = (u64, f64, &'static str, u64, u32, u32, &'static str, u128, u64);

/// Reads and checks the head of a saved Bloom filter of `total` bytes, if that is known.
#[pyfunction]
pub fn parse_header(py: Python<'_>, head: &[u8], total: Option<u64>) -> PyResult<Parsed> {
    let read = || {
        let header = Header::parse(&head[..head.len().min(HEADER_BYTES)])?;
        let shape = Shape::of(&header)?;
        total.map_or(Ok(()), |total| header.check_total(total))?;
        Ok((header, shape))
    };
    let (header, shape) = read().map_err(|problem| errors::format(py, problem))?;
    let hasher = header.hasher;
    Ok((
        header.capacity,
        header.error_rate,
        shape.layout.name(),
        shape.num_bits,
        shape.num_hashes,
        shape.lines_per_key,
        hasher.kind.name(),
        hasher.seed,
        header.checksum,
    ))
}

/// The checksum of one more piece of a filter's bits (whole chunks, but for the last).
#[pyfunction]
#[pyo3(signature = (data, before=0))]
pub fn checksum(py: Python<'_>, data: &Bound<'_, PyAny>, before: u64) -> PyResult<u64> {
    let held = BufferView::get(data, ffi::PyBUF_SIMPLE)
        .ok_or_else(|| invalid(py, "data must be a contiguous buffer".into()))?;
    // SAFETY: contiguous; the caller hands the buffer over for the time of the call.
    Ok(py.detach(|| format::checksum(unsafe { held.bytes() }, before)))
}

/// The checksum of a filter's sections end to end, as in a file's header, made while others run. Who
/// adds meanwhile makes it one of no state of the filter.
#[pyfunction]
pub fn checksum_of_sections(py: Python<'_>, sections: Vec<Bound<'_, PyAny>>) -> PyResult<u64> {
    let held = sections.iter().map(|section| BufferView::get(section, ffi::PyBUF_SIMPLE));
    let held = held
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| invalid(py, "sections must be contiguous buffers".into()))?;
    Ok(py.detach(|| {
        let (mut chunk, mut sum) = (Vec::with_capacity(CHUNK_BYTES), 0);
        for section in &held {
            // SAFETY: contiguous; the caller hands the buffer over for the time of the call.
            let mut rest = unsafe { section.bytes() };
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(CHUNK_BYTES - chunk.len()));
                chunk.extend_from_slice(now);
                rest = later;
                if chunk.len() == CHUNK_BYTES {
                    sum = format::checksum(&chunk, sum);
                    chunk.clear();
                }
            }
        }
        if chunk.is_empty() { sum } else { format::checksum(&chunk, sum) }
    }))
}

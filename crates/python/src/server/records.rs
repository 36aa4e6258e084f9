//! The records of a turn as the payload of one entry of a shared log: for each the filter's number
//! (8 bytes), the operation (1), how many bytes follow (4), all little-endian, and those bytes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{error, invalid};

type Record<'py> = (u64, u8, Bound<'py, PyBytes>);

/// Number, operation and length.
const HEAD: usize = 8 + 1 + 4;

#[pyfunction]
pub fn pack_records<'py>(records: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
    let py = records.py();
    let records: Vec<Record<'_>> = records.extract()?;
    let nbytes = records.iter().map(|(_, _, data)| HEAD + data.as_bytes().len()).sum();
    let mut packed = Vec::with_capacity(nbytes);
    for (id, op, data) in &records {
        let data = data.as_bytes();
        let Ok(length) = u32::try_from(data.len()) else {
            return Err(invalid(py, format!("a record of {} bytes is too long", data.len())));
        };
        packed.extend_from_slice(&id.to_le_bytes());
        packed.push(*op);
        packed.extend_from_slice(&length.to_le_bytes());
        packed.extend_from_slice(data);
    }
    Ok(PyBytes::new(py, &packed))
}

/// The inverse; CorruptData if the bytes end within a record.
#[pyfunction]
pub fn unpack_records<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Vec<Record<'py>>> {
    let mut records = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let Some((id, op, found, after)) = split(rest) else {
            let message = format!("records of {} bytes are cut off", data.len());
            return Err(error(py, "CorruptData", message));
        };
        records.push((id, op, PyBytes::new(py, found)));
        rest = after;
    }
    Ok(records)
}

/// The first record, and what is behind it; None if it is not whole.
fn split(data: &[u8]) -> Option<(u64, u8, &[u8], &[u8])> {
    let (id, rest) = data.split_first_chunk::<8>()?;
    let (op, rest) = rest.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (found, after) = rest.split_at_checked(length)?;
    Some((u64::from_le_bytes(*id), *op, found, after))
}

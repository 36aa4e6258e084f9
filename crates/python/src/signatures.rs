//! The native half of `bloomery.signatures.SignatureIndex`: columns as hashes, hashes as bits of
//! rows, and the rows that have all bits of a question.

use bloomery_core::bits::Bits;
use bloomery_core::format::Header;
use bloomery_core::hash::{HashKind, KeyHasher};
use bloomery_core::signatures::{self, MAX_COLUMNS, MAX_LENGTH, Piece, places};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{self, error, invalid, no_memory, too_many_rows};
use crate::filters::family::borrow;
use crate::filters::gate::Gate;
use crate::filters::memory::{Memory, Section};
use crate::keys::arrow;
use crate::keys::arrow_rows::Reading;
use crate::keys::source::{Source, find};

const HASHER: KeyHasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };
/// Below this many rows the work is done before another thread could have taken over.
const DETACH_FROM: usize = 2048;

#[pyclass(frozen, module = "bloomery._native")]
pub struct Signatures {
    gate: Gate<signatures::Signatures>,
    /// Of each column, how many bits a key of it sets.
    bits: Vec<u32>,
    length: u64,
}

impl Signatures {
    fn checked(py: Python<'_>, rows: signatures::Signatures, bits: Vec<u32>) -> PyResult<Self> {
        let length = rows.length();
        if bits.is_empty() || bits.len() > MAX_COLUMNS {
            let message = format!("{} columns, must be 1 to {MAX_COLUMNS}", bits.len());
            return Err(invalid(py, message));
        }
        match bits.iter().find(|bits| !(1..=length).contains(&u64::from(**bits))) {
            Some(wrong) => Err(invalid(
                py,
                format!("{wrong} bits a column, must be 1 to {length}, the length"),
            )),
            None => Ok(Signatures { gate: Gate::new(rows), bits, length }),
        }
    }

    /// The hashes of a column's rows, and how many rows there are.
    fn hashes(column: &Bound<'_, PyAny>) -> PyResult<(usize, Vec<Piece>)> {
        let py = column.py();
        let Source::Arrow(exported) = find(column)? else {
            return Err(error(py, "UnsupportedBatch", "a column must be Arrow's".into()));
        };
        let (mut rows, mut pieces) = (0, Vec::new());
        let reading = Reading { skip_nulls: true, views_later: false };
        arrow::each_chunk(py, &exported, &HASHER, reading, &mut |chunk| {
            let keys = chunk.keys();
            let mut hashes = Vec::new();
            hashes.try_reserve_exact(keys).map_err(|_| too_many_rows(py, keys))?;
            hashes.resize(keys, 0);
            match keys >= DETACH_FROM {
                true => py.detach(|| chunk.hash(&HASHER, 0, &mut hashes)),
                false => chunk.hash(&HASHER, 0, &mut hashes),
            }
            let start = rows;
            rows += chunk.len;
            let valid = chunk.valid.map(|valid| valid.rows(0..valid.keys()).collect());
            pieces.push(Piece { start, hashes, valid });
            Ok(())
        })?;
        Ok((rows, pieces))
    }
}

#[pymethods]
impl Signatures {
    /// No rows yet; signatures of `length` bits, of which a key of each column sets so many.
    #[new]
    fn new(py: Python<'_>, length: u64, bits: Vec<u32>) -> PyResult<Signatures> {
        let Some(empty) = signatures::Signatures::new(length) else {
            return Err(invalid(py, format!("length is {length}, must be 1 to {MAX_LENGTH}")));
        };
        Signatures::checked(py, empty, bits)
    }

    /// Those that were saved: a `Memory`, which becomes theirs, or any other buffer, which is only
    /// read, from `offset` on. The first `skip` bytes of the body are the caller's.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        header: &[u8],
        bits: Vec<u32>,
        body: &Bound<'_, PyAny>,
        offset: usize,
        skip: usize,
    ) -> PyResult<Signatures> {
        let header = Header::parse(header).map_err(|problem| errors::format(py, problem))?;
        let body = match body.cast::<Memory>() {
            Ok(memory) => memory.get().take(py)?,
            Err(_) => borrow(py, body, offset, false)?,
        };
        let opened = py.detach(|| signatures::Signatures::open(&header, skip, &body));
        Signatures::checked(py, opened.map_err(|problem| errors::format(py, problem))?, bits)
    }

    /// Appends so many rows: of each column an Arrow array of as many.
    fn append(&self, py: Python<'_>, rows: usize, columns: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        if columns.len() != self.bits.len() {
            let message = format!("{} columns, expected {}", columns.len(), self.bits.len());
            return Err(invalid(py, message));
        }
        let mut hashed = Vec::with_capacity(columns.len());
        for (column, bits) in columns.iter().zip(&self.bits) {
            let (count, pieces) = Signatures::hashes(column)?;
            if count != rows {
                let message = format!("a column has {count} rows, others have {rows}");
                return Err(error(py, "UnsupportedBatch", message));
            }
            hashed.push((*bits, pieces));
        }
        let long = rows >= DETACH_FROM;
        let done = self.gate.write(py, long, |signatures| signatures.append(rows, &hashed))?;
        done.ok_or_else(|| too_many_rows(py, rows))
    }

    /// Forgets all rows from this one on.
    fn truncate(&self, py: Python<'_>, rows: usize) -> PyResult<()> {
        let done = self.gate.write(py, true, |signatures| signatures.truncate(rows))?;
        done.ok_or_else(|| no_memory(py, self.length * 4096))
    }

    /// The numbers of those among the first `rows` rows that may hold all of these keys, 8 bytes
    /// each: (column, an Arrow array of one key) for each. None if one of them is null: no row is.
    fn candidates<'py>(
        &self,
        py: Python<'py>,
        asked: Vec<(usize, Bound<'py, PyAny>)>,
        rows: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut needed = Vec::new();
        for (number, key) in asked {
            let Some(bits) = self.bits.get(number) else {
                return Err(invalid(py, format!("there is no column {number}")));
            };
            let (_, pieces) = Signatures::hashes(&key)?;
            let Some(hash) = pieces.first().and_then(|piece| piece.hashes.first()) else {
                return Ok(None);
            };
            needed.extend(places(*hash, number, *bits, self.length));
        }
        needed.sort_unstable();
        needed.dedup();
        let found = self.gate.read(py, true, |signatures| signatures.candidates(&needed, rows))?;
        let found = found.map_err(|_| too_many_rows(py, rows))?;
        let bytes = PyBytes::new_with(py, found.len() * 8, |bytes| {
            for (out, row) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&found) {
                *out = row.to_le_bytes();
            }
            Ok(())
        })?;
        Ok(Some(bytes))
    }

    /// The bitmaps, as they are saved.
    fn sections(&self, py: Python<'_>) -> PyResult<Vec<Section>> {
        let found = self.gate.read(py, true, signatures::Signatures::sections)?;
        let found: Option<Vec<Bits>> = found;
        let found = found.ok_or_else(|| no_memory(py, self.length * 4096))?;
        Ok(found.into_iter().map(Section).collect())
    }

    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, false, signatures::Signatures::rows)
    }

    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.read(py, false, signatures::Signatures::nbytes)
    }

    /// How many bits are set, of all rows together.
    fn set_bits(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.read(py, true, signatures::Signatures::set_bits)
    }
}

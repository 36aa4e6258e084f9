//! Parquet's own filters for Python: footers, and columns of stored values as split-block filters.

use bloomery_core::hash::{HashKind, KeyHasher};
use bloomery_core::parquet::footer::{self, Cut, Footer, Places};
use bloomery_core::parquet::page;
use bloomery_core::parquet::split_block::{self, BLOCK_BYTES};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{error, invalid, no_memory, too_many_rows};
use crate::keys::arrow::each_chunk;
use crate::keys::arrow_rows::Reading;
use crate::keys::source::{self, Source};

/// What a Parquet file's footer says about the filters of its columns.
#[pyclass(frozen, module = "bloomery._native")]
pub struct ParquetFooter {
    bytes: Vec<u8>,
    read: Footer,
}

#[pymethods]
impl ParquetFooter {
    #[new]
    fn new(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        let read = footer::read(bytes).map_err(|problem| damaged(py, &problem))?;
        Ok(ParquetFooter { bytes: bytes.to_vec(), read })
    }

    /// The number of rows of each row group.
    #[getter]
    fn rows(&self) -> Vec<i64> {
        self.read.row_groups.iter().map(|group| group.rows).collect()
    }

    /// Is it encrypted, or signed so that a change would be noticed?
    #[getter]
    fn signed(&self) -> bool {
        self.read.signed
    }

    /// Do some of its columns lie in other files?
    #[getter]
    fn external(&self) -> bool {
        self.read.external
    }

    /// For each row group, where the column's filter begins and how long it is, as far as is said.
    fn filters(&self, py: Python<'_>, column: usize) -> PyResult<Vec<(Option<i64>, Option<i64>)>> {
        let chunk = |group: &footer::RowGroup| group.chunks.get(column).copied();
        let found: Option<Vec<_>> = self.read.row_groups.iter().map(chunk).collect();
        let found = found.ok_or_else(|| damaged(py, "a row group has too few columns"))?;
        Ok(found.into_iter().map(|chunk| (chunk.offset, chunk.length)).collect())
    }

    /// The footer with filters at these places: row group and column, offset and length.
    fn with_filters<'py>(
        &self,
        py: Python<'py>,
        places: Vec<(usize, usize, i64, i32)>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let places: Places =
            places.into_iter().map(|(g, c, at, len)| ((g, c), (at, len))).collect();
        let written = footer::with_filters(&self.bytes, &places);
        written.map(|bytes| PyBytes::new(py, &bytes)).map_err(|problem| damaged(py, &problem))
    }

    /// The footer of these row groups alone; if `physical`, without logical types: whoever reads by
    /// it gets values as they are stored.
    fn excerpt<'py>(
        &self,
        py: Python<'py>,
        row_groups: Vec<usize>,
        physical: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let written = self.read.excerpt(&self.bytes, &row_groups, physical);
        written.map(|bytes| PyBytes::new(py, &bytes)).map_err(|problem| damaged(py, &problem))
    }

    /// Where the pages of a column in a row group begin, and how many bytes they have; None if that
    /// is not said.
    fn pages(&self, row_group: usize, column: usize) -> Option<(i64, i64)> {
        self.read.row_groups.get(row_group)?.chunks.get(column)?.pages()
    }

    /// The footer of a row group with some pages of its columns, which stand in another file: for
    /// each column its number, where they begin, how many values they have, how many bytes the
    /// dictionary has, and how many all of it.
    fn cut<'py>(
        &self,
        py: Python<'py>,
        row_group: usize,
        columns: Vec<(usize, i64, i64, i64, i64)>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let cut = |(column, start, values, dictionary_bytes, num_bytes)| {
            (column, Cut { start, values, dictionary_bytes, num_bytes })
        };
        let cuts = columns.into_iter().map(cut).collect();
        let written = self.read.cut(&self.bytes, row_group, &cuts);
        written.map(|bytes| PyBytes::new(py, &bytes)).map_err(|problem| damaged(py, &problem))
    }
}

/// How many bytes the page has that begins with this header, how many without compression, and how
/// many values, which is None of a dictionary; None if the header is not whole, or of another kind.
#[pyfunction]
pub fn parquet_page(bytes: &[u8]) -> Option<(u64, u64, Option<i64>)> {
    let page = page::read(bytes).ok()?;
    let values = match page.kind {
        page::Kind::Data { values } => Some(values),
        page::Kind::Dictionary => None,
        page::Kind::Other => return None,
    };
    Some((page.num_bytes, page.decoded_bytes, values))
}

/// The header of a filter of so many bytes.
#[pyfunction]
pub fn parquet_filter_header(py: Python<'_>, num_bytes: i32) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &footer::filter_header(num_bytes))
}

/// How many bytes the filter has that begins with this header, and how many the header; None if it
/// is of a kind that is not known.
#[pyfunction]
pub fn read_parquet_filter_header(py: Python<'_>, bytes: &[u8]) -> PyResult<Option<(i64, usize)>> {
    footer::read_filter_header(bytes)
        .map_err(|problem| error(py, "CorruptData", format!("damaged filter header: {problem}")))
}

/// A filter of a column's values (binary, or of a fixed width), which come as Arrow arrays one
/// after another, and how many are distinct; nulls are left out.
#[pyfunction]
pub fn parquet_filter<'py>(
    arrays: &Bound<'py, PyAny>,
    error_rate: f64,
) -> PyResult<(Bound<'py, PyBytes>, usize)> {
    let py = arrays.py();
    let mut hashes = Vec::new();
    // Of a dictionary's values, which no column of stored values has.
    let hasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };
    let reading = Reading { skip_nulls: true, views_later: false };
    for array in arrays.try_iter()? {
        let Source::Arrow(exported) = source::find(&array?)? else {
            return Err(invalid(py, "stored values are taken from Arrow arrays".into()));
        };
        each_chunk(py, &exported, &hasher, reading, &mut |chunk| {
            hashes.try_reserve(chunk.keys()).map_err(|_| too_many_rows(py, chunk.keys()))?;
            let mut take =
                |row| chunk.bytes(row).map(|value| hashes.push(split_block::hash(value)));
            let all = py.detach(|| match &chunk.valid {
                None => (0..chunk.len).try_for_each(&mut take),
                Some(valid) => valid.rows(0..valid.keys()).try_for_each(&mut take),
            });
            all.ok_or_else(|| {
                invalid(py, "stored values must be binary, or of a fixed width".into())
            })
        })?;
    }
    let built = py.detach(|| split_block::build(&mut hashes, error_rate));
    let (bits, distinct) = built.ok_or_else(|| no_memory(py, split_block::MAX_BYTES as u64))?;
    Ok((PyBytes::new(py, &bits), distinct))
}

/// The hash of a stored value.
#[pyfunction]
pub fn parquet_hash(value: &[u8]) -> u64 {
    split_block::hash(value)
}

/// Where in a filter of so many bytes the block of a hash begins.
#[pyfunction]
pub fn parquet_block(hash: u64, num_bytes: u64) -> u64 {
    split_block::block_of(hash, num_bytes / BLOCK_BYTES as u64) * BLOCK_BYTES as u64
}

/// May the block of 32 bytes hold the hash?
#[pyfunction]
pub fn parquet_block_contains(py: Python<'_>, block: &[u8], hash: u64) -> PyResult<bool> {
    let block = block.try_into().map_err(|_| invalid(py, "a block has 32 bytes".into()))?;
    Ok(split_block::contains(block, hash))
}

/// How often a filter is wrong about values that are not in it, by its bits.
#[pyfunction]
pub fn parquet_error_rate(py: Python<'_>, bits: &[u8]) -> f64 {
    py.detach(|| split_block::error_rate(bits))
}

#[cold]
fn damaged(py: Python<'_>, problem: &str) -> PyErr {
    error(py, "CorruptData", format!("damaged footer: {problem}"))
}

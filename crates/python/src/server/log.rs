//! The write-ahead log (`bloomery_server::log`) for Python.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bloomery_server::log::{
    self, Batch, Control, Fsync, Log, LogError, LogReader, Options, RecordTooLong,
};
use bloomery_server::replay::{LeftRecord, Replay, ReplayError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{error, invalid};
use crate::filters::sections::detached;
use crate::server::any_filter::raise;
use crate::server::shelf::Shelf;

type Row<'py> = (f64, u64, u8, Bound<'py, PyBytes>);
type NumberedRow<'py> = (u64, f64, u64, u8, Bound<'py, PyBytes>);

fn unavailable(py: Python<'_>, problem: LogError) -> PyErr {
    error(py, "LogUnavailable", problem.0)
}

fn policy(py: Python<'_>, name: &str) -> PyResult<Fsync> {
    match name {
        "always" => Ok(Fsync::Always),
        "everysec" => Ok(Fsync::EverySecond),
        "never" => Ok(Fsync::Never),
        _ => Err(invalid(py, format!("fsync is {name:?}, must be one of always, everysec, never"))),
    }
}

/// A log that is open for writing.
#[pyclass(frozen, module = "bloomery._native")]
pub struct LogWriter(pub Arc<Log>);

#[pymethods]
impl LogWriter {
    #[new]
    #[pyo3(signature = (folder, segment, seq, fsync, segment_bytes, control=None))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        segment: u64,
        seq: u64,
        fsync: &str,
        segment_bytes: u64,
        control: Option<(PathBuf, [usize; 2])>,
    ) -> PyResult<Self> {
        let fsync = policy(py, fsync)?;
        let control = control.map(|(path, offsets)| Control::open(&path, offsets)).transpose()?;
        let options = Options { folder, segment, seq, fsync, segment_bytes, control };
        let opened = py.detach(|| Log::open(options));
        opened.map(|log| Self(Arc::new(log))).map_err(|problem| unavailable(py, problem))
    }

    #[getter]
    fn seq(&self) -> u64 {
        self.0.seq()
    }

    #[getter]
    fn segment(&self) -> u64 {
        self.0.segment()
    }

    #[getter]
    fn oldest_unsynced(&self) -> Option<f64> {
        self.0.oldest_unsynced()
    }

    #[getter]
    fn flushing(&self) -> bool {
        self.0.is_flushing()
    }

    fn write(&self, py: Python<'_>, rows: &Bound<'_, PyList>, now: f64) -> PyResult<u64> {
        let mut batch = Batch::with_capacity(rows.len(), rows.len() * 8);
        for row in rows {
            let (at, filter, op, data): Row<'_> = row.extract()?;
            batch.push(at, filter, op, data.as_bytes()).map_err(|RecordTooLong(nbytes)| {
                invalid(py, format!("a record of {nbytes} bytes is too long: use smaller chunks"))
            })?;
        }
        py.detach(|| self.0.write(&mut batch, now)).map_err(|problem| unavailable(py, problem))
    }

    fn cut(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.0.cut()).map_err(|problem| unavailable(py, problem))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.0.flush()).map_err(|problem| unavailable(py, problem))
    }

    fn retry(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.retry()).map_err(|problem| unavailable(py, problem))
    }

    fn close(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.0.close()).map_err(|problem| unavailable(py, problem))
    }
}

/// Reads a log.
#[pyclass(module = "bloomery._native")]
pub struct LogChunks(Replay);

#[pymethods]
impl LogChunks {
    #[new]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        first: u64,
        seq: Option<u64>,
        end: Option<u64>,
        salvage: bool,
    ) -> PyResult<Self> {
        let opened = py.detach(|| LogReader::new(&folder, first, seq, end, salvage));
        opened.map(|log| Self(Replay::new(log))).map_err(|problem| unavailable(py, problem))
    }

    /// The next rows; none at the end.
    fn read<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<NumberedRow<'py>>> {
        let read = py.detach(|| self.0.reader.next_chunk());
        let Some(chunk) = read.map_err(|problem| unavailable(py, problem))? else {
            return Ok(Vec::new());
        };
        let rows = chunk.records().map(|record| {
            let data = PyBytes::new(py, record.data);
            (record.seq, record.at, record.filter, record.op, data)
        });
        Ok(rows.collect())
    }

    /// Applies rows of keys to the filters on a shelf, until Python must apply one: returns that row,
    /// and others after it. Some time passes at most, so there may be none. None: the log has ended.
    fn apply<'py>(
        &mut self,
        py: Python<'py>,
        shelf: &Bound<'py, Shelf>,
    ) -> PyResult<Option<Vec<NumberedRow<'py>>>> {
        let (replay, keyspace) = (&mut self.0, shelf.get().keyspace.clone());
        let mut left = Vec::new();
        let done = detached(py, || replay.step(&keyspace, &mut left));
        let more = done.map_err(|problem| match problem {
            ReplayError::Log(problem) => unavailable(py, problem),
            ReplayError::Fault(fault) => raise(py, fault),
        })?;
        let row = |record: LeftRecord| {
            let LeftRecord { seq, at, filter, op, data } = record;
            (seq, at, filter, op, PyBytes::new(py, &data))
        };
        Ok((more || !left.is_empty()).then(|| left.into_iter().map(row).collect()))
    }

    /// The latest time of a row that `apply` has applied.
    #[getter]
    fn latest(&self) -> f64 {
        self.0.latest
    }

    #[getter]
    fn segments(&self) -> Vec<u64> {
        self.0.reader.segments.clone()
    }

    #[getter]
    fn last(&self) -> u64 {
        self.0.reader.last()
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.0.reader.rows
    }

    #[getter]
    fn problems(&self) -> Vec<String> {
        self.0.reader.problems.clone()
    }

    #[getter]
    fn broken(&self) -> Option<u64> {
        self.0.reader.broken
    }

    #[getter]
    fn intact(&self) -> u64 {
        self.0.reader.intact
    }

    #[getter]
    fn tail(&self) -> Option<String> {
        self.0.reader.tail.clone()
    }
}

#[pyfunction]
pub fn log_segment_path(folder: PathBuf, number: u64) -> PathBuf {
    log::segment_path(&folder, number)
}

#[pyfunction]
pub fn log_segments(folder: PathBuf) -> PyResult<Vec<u64>> {
    Ok(log::segments(Path::new(&folder))?)
}

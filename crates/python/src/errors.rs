//! Errors as `bloomery.errors` defines them: the classes live there, in Python, once.

use bloomery_core::format::FormatError;
use bloomery_core::kind::Refusal;
use pyo3::prelude::*;

/// An instance of the class of that name, ready to be raised.
#[cold]
pub fn error(py: Python<'_>, class: &str, message: String) -> PyErr {
    let build = || py.import("bloomery.errors")?.getattr(class)?.call1((message,));
    match build() {
        Ok(value) => PyErr::from_value(value),
        Err(problem) => problem,
    }
}

pub fn invalid(py: Python<'_>, message: String) -> PyErr {
    error(py, "InvalidParameter", message)
}

pub fn format(py: Python<'_>, problem: FormatError) -> PyErr {
    match problem {
        FormatError::Corrupt(message) => error(py, "CorruptData", message),
        FormatError::Newer(message) => error(py, "UnsupportedVersion", message),
        FormatError::NoMemory(nbytes) => no_memory(py, nbytes),
    }
}

/// Nobody should ever see it: whoever gets `Refusal::Later` goes on by itself.
pub const LATER: &str = "the filter was not given the time to grow: this is an error of ours";

#[cold]
pub fn refused(py: Python<'_>, refusal: Refusal) -> PyErr {
    match refusal {
        Refusal::Full(message) => error(py, "FilterFull", message),
        Refusal::Copies(message) => error(py, "TooManyCopies", message),
        Refusal::NoMemory(nbytes) => no_memory(py, nbytes),
        Refusal::Never(message) => error(py, "ReadOnlyFilter", message.into()),
        Refusal::Later => error(py, "BloomeryError", LATER.into()),
    }
}

#[cold]
pub fn no_memory(py: Python<'_>, nbytes: u64) -> PyErr {
    error(py, "NotEnoughMemory", format!("{nbytes} bytes for the filter could not be had"))
}

#[cold]
pub fn read_only(py: Python<'_>) -> PyErr {
    let message = "this filter is mapped read-only: load it with writable=True, or without mmap";
    error(py, "ReadOnlyFilter", message.into())
}

#[cold]
pub fn null_error(py: Python<'_>, row: usize) -> PyErr {
    let message = format!("row {row} is null: drop nulls first, or pass nulls=\"skip\"");
    error(py, "NullKey", message)
}

/// The same error, if it is one of ours about a key, with the key's row in its batch.
#[cold]
pub fn in_row(py: Python<'_>, row: usize, problem: PyErr) -> PyErr {
    let told = || {
        let class = problem.get_type(py);
        let ours = class.getattr("__module__")?.eq("bloomery.errors")?;
        let message = format!("row {row}: {}", problem.value(py));
        Ok::<_, PyErr>(if ours { Some(class.call1((message,))?) } else { None })
    };
    match told() {
        Ok(Some(value)) => PyErr::from_value(value),
        _ => problem,
    }
}

/// For a batch whose rows are so many that there is no memory for one thing or another of each.
#[cold]
pub fn too_many_rows(py: Python<'_>, rows: usize) -> PyErr {
    let message = format!("memory for {rows} rows could not be had: pass smaller batches");
    error(py, "NotEnoughMemory", message)
}

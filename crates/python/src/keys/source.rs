//! Where the keys of a batch are read: in a column's own memory, or from Python objects.
//!
//! One rule for all: a row is the key that the column's own library shows for it (`to_pylist`,
//! `to_list`, `tolist`), or the batch is refused. What a library hands over as Arrow or as a buffer
//! is taken where it says as much, and passed by where it does not.

use pyo3::exceptions::{PyException, PyMemoryError, PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyList, PyMemoryView, PySlice, PyString};
use pyo3::{ffi, intern};

use crate::errors::error;
use crate::keys::arrow::{self, Capsules, Exported};
use crate::keys::buffer::{Array, BufferView, column};
use crate::keys::column::Column;

pub enum Source<'py> {
    Arrow(Exported<'py>),
    Array(Column, BufferView),
    /// A column of Python objects.
    Objects(Bound<'py, PyList>),
    Iterator(Bound<'py, PyIterator>),
}

/// The types of DuckDB that Arrow has as well; others become one of these, or an extension type.
const SAME_IN_DUCKDB: [&str; 12] = [
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "VARCHAR",
    "BLOB",
    "JSON",
    "\"NULL\"",
];

/// Finds out what a batch is; UnsupportedBatch if it is none.
pub fn find<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Source<'py>> {
    refuse_no_batch(keys)?;
    let only = only_column(keys)?;
    let keys = only.as_ref().unwrap_or(keys);
    let py = keys.py();
    let dtype = keys.getattr_opt(intern!(py, "dtype"))?;
    let pandas = dtype.is_some() && keys.hasattr(intern!(py, "isna"))?;
    if let Some(list) = objects(keys, dtype.as_ref(), pandas)? {
        return Ok(Source::Objects(list));
    }
    // pandas has NumPy's types as NumPy has them, and all others as Arrow.
    if !(pandas && dtype.as_ref().is_some_and(is_numpys)) {
        match exported(keys) {
            Ok(None) => {}
            Ok(Some(capsules)) => {
                return Ok(Source::Arrow(Exported { capsules, lossy: lossy_type(keys)? }));
            }
            // Rows of more than one type, say.
            Err(problem) if pandas && problem.cause(py).is_some() => {
                return Ok(Source::Objects(pandas_list(keys)?));
            }
            Err(problem) => return Err(problem),
        }
    }
    if let Some(held) = BufferView::get(keys, ffi::PyBUF_RECORDS_RO) {
        if held.is_bytes(keys)? {
            return Err(one_key(keys)?);
        }
        return array(keys, held);
    }
    if let Some(dtype) = dtype {
        let array_of = call(keys, "__array__")?;
        if let Some(held) = BufferView::get(&array_of, ffi::PyBUF_RECORDS_RO) {
            return array(&array_of, held);
        }
        // What is neither int nor text has no buffer: dates, say, which would become ints of some
        // unit. Str of any width has none either, but is text.
        let kind = array_of.getattr("dtype").and_then(|dtype| dtype.getattr("kind"));
        if kind.is_ok_and(|kind| kind.eq("T").unwrap_or(false)) {
            return Ok(Source::Objects(list(&array_of, "tolist")?));
        }
        let message = format!(
            "an array of dtype {dtype} is not a batch of keys: use .astype('int64') or .astype(str)"
        );
        return Err(error(py, "UnsupportedBatch", message));
    }
    let iterator = match PyIterator::from_object(keys) {
        Err(problem) if !problem.is_instance_of::<PyTypeError>(py) => return Err(problem),
        found => found.ok(),
    };
    let Some(iterator) = iterator else {
        let name = keys.get_type().fully_qualified_name()?;
        let message = format!(
            "{name} is not a batch of keys: pass a list or other iterable, a NumPy array, or an \
             Arrow, Polars, DuckDB or pandas column"
        );
        return Err(error(py, "UnsupportedBatch", message));
    };
    Ok(Source::Iterator(iterator))
}

/// The keys of a column of Python objects as a list; None if the batch is anything else.
#[pyfunction]
pub fn column_objects<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyList>>> {
    refuse_no_batch(keys)?;
    let only = only_column(keys)?;
    let keys = only.as_ref().unwrap_or(keys);
    let dtype = keys.getattr_opt(intern!(keys.py(), "dtype"))?;
    let pandas = dtype.is_some() && keys.hasattr(intern!(keys.py(), "isna"))?;
    if dtype.is_none()
        && let Some(held) = BufferView::get(keys, ffi::PyBUF_RECORDS_RO)
        && held.is_bytes(keys)?
    {
        return Err(one_key(keys)?);
    }
    objects(keys, dtype.as_ref(), pandas)
}

/// The capsule or capsules of a column that speaks Arrow, once its rows are known to be keys; None
/// if it does not.
#[pyfunction]
pub fn checked_arrow<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = keys.py();
    let Some(capsules) = exported(keys)? else {
        return Ok(None);
    };
    let exported = Exported { capsules, lossy: lossy_type(keys)? };
    arrow::check(py, &exported)?;
    Ok(Some(match exported.capsules {
        Capsules::Stream(capsule) => capsule,
        Capsules::Array { schema, chunk } => (schema, chunk).into_pyobject(py)?.into_any(),
    }))
}

fn objects<'py>(
    keys: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    pandas: bool,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let (py, Some(dtype)) = (keys.py(), dtype) else {
        return Ok(None);
    };
    if pandas {
        let listed = match dtype.getattr_opt(intern!(py, "char"))? {
            Some(char) => char.eq("O")?,
            None => !keys.hasattr(intern!(py, "__arrow_c_stream__"))?,
        };
        return if listed { pandas_list(keys).map(Some) } else { Ok(None) };
    }
    // Polars hands objects over as their addresses.
    let polars =
        keys.hasattr(intern!(py, "to_list"))? && dtype.str()?.to_string_lossy() == "Object";
    if polars { list(keys, "to_list").map(Some) } else { Ok(None) }
}

/// Has it NumPy's `char`, which pandas' own types do not have?
fn is_numpys(dtype: &Bound<'_, PyAny>) -> bool {
    dtype.hasattr(intern!(dtype.py(), "char")).unwrap_or(false)
}

/// The objects of a pandas column, None where it has one of its nulls.
fn pandas_list<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = keys.py();
    let found = list(keys, "tolist")?;
    let nulls = match keys.call_method0(intern!(py, "isna")) {
        Ok(nulls) => nulls,
        // Of a MultiIndex, whose rows are tuples.
        Err(problem) if problem.is_instance_of::<PyNotImplementedError>(py) => return Ok(found),
        Err(problem) => return Err(foreign(keys, "isna", problem)),
    };
    if call(&nulls, "any")?.is_truthy()? {
        for (row, null) in list(&nulls, "tolist")?.iter().enumerate() {
            if null.is_truthy()? {
                found.set_item(row, py.None())?;
            }
        }
    }
    Ok(found)
}

/// The column of a pandas or Polars frame that has no other; None if it is no frame.
fn only_column<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = keys.py();
    if keys.hasattr(intern!(py, "dtype"))? || !keys.hasattr(intern!(py, "__arrow_c_stream__"))? {
        return Ok(None);
    }
    let pandas = keys.getattr_opt(intern!(py, "iloc"))?;
    if pandas.is_none() && !keys.hasattr(intern!(py, "get_columns"))? {
        return Ok(None);
    }
    let columns = keys.getattr(intern!(py, "columns"))?.len()?;
    if columns != 1 {
        let message =
            format!("a table of {columns} columns is not a batch of keys: pick one column");
        return Err(error(py, "UnsupportedBatch", message));
    }
    match pandas {
        Some(places) => places.get_item((PySlice::full(py), 0)),
        None => call(keys, "get_columns")?.get_item(0),
    }
    .map(Some)
}

/// What the batch hands over as Arrow; None if it does not speak it.
fn exported<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Option<Capsules<'py>>> {
    let py = keys.py();
    if keys.hasattr(intern!(py, "__arrow_c_stream__"))? {
        return Ok(Some(Capsules::Stream(call(keys, "__arrow_c_stream__")?)));
    }
    if !keys.hasattr(intern!(py, "__arrow_c_array__"))? {
        return Ok(None);
    }
    let pair = call(keys, "__arrow_c_array__")?;
    let Ok((schema, chunk)) = pair.extract() else {
        let message = "__arrow_c_array__ must return a pair of capsules";
        return Err(error(py, "UnsupportedBatch", message.into()));
    };
    Ok(Some(Capsules::Array { schema, chunk }))
}

/// The type of a DuckDB relation's only column, if Arrow alone does not tell it: a UUID becomes
/// text, unless the connection is told otherwise.
fn lossy_type(keys: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = keys.py();
    if !keys.hasattr(intern!(py, "fetchall"))? {
        return Ok(None);
    }
    let Some(types) = keys.getattr_opt(intern!(py, "types"))? else {
        return Ok(None);
    };
    let Ok(Some(only)) = types.try_iter().map(|mut types| types.next()) else {
        return Ok(None);
    };
    let name = only?.str()?.to_string_lossy().into_owned();
    let same = SAME_IN_DUCKDB.contains(&name.as_str()) || name.starts_with("ENUM(");
    Ok((!same).then_some(name))
}

fn array<'py>(keys: &Bound<'py, PyAny>, held: BufferView) -> PyResult<Source<'py>> {
    match column(keys, held)? {
        Array::Column(column, held) => Ok(Source::Array(column, held)),
        Array::Objects => Ok(Source::Objects(list(keys, "tolist")?)),
    }
}

/// A str or bytes, or what holds bytes, is one key, not a batch of its characters; other things have
/// keys somewhere, and which is not said.
fn refuse_no_batch(keys: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = keys.py();
    if keys.is_instance_of::<PyString>()
        || keys.is_instance_of::<PyBytes>()
        || keys.is_instance_of::<PyByteArray>()
        || (keys.is_instance_of::<PyMemoryView>()
            && keys.getattr(intern!(py, "itemsize"))?.eq(1)?)
    {
        return Err(one_key(keys)?);
    }
    let (name, instead) = match &*keys.get_type().name()?.to_string_lossy() {
        "MaskedArray" => ("masked array", "use .compressed(), which leaves masked rows out"),
        "LazyFrame" => ("LazyFrame", "pass frame.select(\"column\").collect()"),
        "DuckDBPyConnection" => {
            ("DuckDB connection", "pass a relation, connection.sql(\"SELECT column FROM table\")")
        }
        _ => return Ok(()),
    };
    let message = format!("a {name} is not a batch of keys: {instead}");
    Err(error(py, "UnsupportedBatch", message))
}

fn one_key(keys: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let name = keys.get_type().name()?;
    let advice = match keys.is_instance_of::<PyString>() || keys.is_instance_of::<PyBytes>() {
        true => "pass [key], or use add(key)",
        false => "pass [bytes(key)], or use add(bytes(key))",
    };
    let message = format!("one {name} is not a batch of keys: {advice}");
    Ok(error(keys.py(), "UnsupportedBatch", message))
}

/// What the batch's own method returns.
fn call<'py>(keys: &Bound<'py, PyAny>, method: &str) -> PyResult<Bound<'py, PyAny>> {
    keys.call_method0(method).map_err(|problem| foreign(keys, method, problem))
}

fn list<'py>(keys: &Bound<'py, PyAny>, method: &str) -> PyResult<Bound<'py, PyList>> {
    call(keys, method)?.cast_into_exact::<PyList>().map_err(|_| {
        let message = format!("{method} of a batch of keys must return a list");
        error(keys.py(), "UnsupportedBatch", message)
    })
}

/// An UnsupportedBatch that names an error of another library, and no key that is in its message.
#[cold]
fn foreign(keys: &Bound<'_, PyAny>, method: &str, problem: PyErr) -> PyErr {
    let py = keys.py();
    let ours = py.import("bloomery.errors").and_then(|errors| errors.getattr("BloomeryError"));
    let is_ours = ours.is_ok_and(|class| problem.matches(py, class).unwrap_or(false));
    if is_ours
        || !problem.is_instance_of::<PyException>(py)
        || problem.is_instance_of::<PyMemoryError>(py)
    {
        return problem;
    }
    let name = |class: Bound<'_, pyo3::types::PyType>| {
        class.fully_qualified_name().map_or("?".into(), |name| name.to_string())
    };
    let message = format!(
        "the keys of this {} cannot be read: {method} raised {}; pass a list of keys, or a column \
         of one type",
        name(keys.get_type()),
        name(problem.get_type(py)),
    );
    let told = error(py, "UnsupportedBatch", message);
    told.set_cause(py, Some(problem));
    told
}

//! Python objects to hashes. docs/format.md describes the canonical bytes; golden tests freeze them.

use std::cell::Cell;

use bloomery_core::hash::{Domain, HashKind, KeyHasher};
use bloomery_core::utf8;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::string::PyStringData;
use pyo3::types::{
    PyByteArray, PyBytes, PyDateTime, PyDelta, PyDeltaAccess, PyInt, PyMemoryView, PyString,
    PyTuple, PyTzInfo, PyTzInfoAccess,
};
use pyo3::{Borrowed, ffi};

use crate::errors::{error, invalid};
use crate::keys::layout::{compact_ascii, int64, uuid_attribute, uuid_class};
use crate::keys::short::{hash_short, hash_text};

/// Tuples within tuples deeper than this are refused, before the stack runs out.
const MAX_DEPTH: usize = 64;
/// And larger ones than this: (t, t) of a (t, t) of … doubles with each level.
const MAX_TUPLE_BYTES: usize = 1 << 30;

/// The hasher of this name.
pub fn hasher_of(py: Python<'_>, name: &str, seed: u128) -> PyResult<KeyHasher> {
    let Some(kind) = HashKind::from_name(name) else {
        let names = HashKind::ALL.map(|(_, name)| name).join(", ");
        return Err(invalid(py, format!("hasher is {name:?}, must be one of {names}")));
    };
    Ok(KeyHasher { kind, seed })
}

/// The hash of one key. str, bytes and int of exactly these types are told apart by one comparison
/// each and hashed where they lie; all else takes the long way.
#[inline(always)]
pub fn hash_key(key: Borrowed<'_, '_, PyAny>, hasher: &KeyHasher) -> PyResult<u64> {
    let object = key.as_ptr();
    // SAFETY: `key` is a live object and its exact type is checked before its fields are read.
    unsafe {
        let class = ffi::Py_TYPE(object);
        if class == &raw mut ffi::PyUnicode_Type {
            if let Some(ascii) = compact_ascii(object) {
                return Ok(hasher.hash_bytes(ascii));
            }
            if let Some(h) = hash_text(object, hasher) {
                return Ok(h);
            }
        } else if class == &raw mut ffi::PyLong_Type {
            if let Some(value) = int64(object) {
                return Ok(hasher.hash_i64(value));
            }
        } else if class == &raw mut ffi::PyBytes_Type {
            let start = ffi::PyBytes_AS_STRING(object).cast();
            let len = ffi::Py_SIZE(object) as usize;
            return Ok(hasher.hash_bytes(std::slice::from_raw_parts(start, len)));
        }
    }
    hash_any(key, hasher)
}

#[inline(never)]
fn hash_any(key: Borrowed<'_, '_, PyAny>, hasher: &KeyHasher) -> PyResult<u64> {
    hash_short(key, hasher).map_or_else(|| hash_long(key, hasher), Ok)
}

#[cold]
#[inline(never)]
fn hash_long(key: Borrowed<'_, '_, PyAny>, hasher: &KeyHasher) -> PyResult<u64> {
    let key = key.to_owned(); // Python code may run below, and drop what was only borrowed
    let mut bytes = BYTES.take();
    bytes.clear();
    let hash = encode(&key, &mut bytes, 0).map(|domain| hasher.hash(domain, &bytes));
    if bytes.capacity() <= MOST_KEPT {
        BYTES.set(bytes);
    }
    hash
}

thread_local! {
    /// Memory for the bytes of a thread's next key: to ask for it each time took a third of the time
    /// of a tuple. Empty while it is in use: a key's own code may use another key.
    static BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}
const MOST_KEPT: usize = 1 << 12;

/// A key's domain and canonical bytes: equal for two keys exactly if every filter takes them for one.
#[pyfunction]
pub fn canonical<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut bytes = vec![0];
    bytes[0] = encode(key, &mut bytes, 0)? as u8;
    Ok(PyBytes::new(key.py(), &bytes))
}

/// Appends the key's canonical bytes.
fn encode(key: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> PyResult<Domain> {
    if let Some(domain) = encode_exact(key, out) {
        return Ok(domain);
    }
    if let Ok(text) = key.cast::<PyString>() {
        encode_str(text, out)?;
        Ok(Domain::Bytes)
    } else if let Ok(bytes) = key.cast::<PyBytes>() {
        out.extend_from_slice(bytes.as_bytes());
        Ok(Domain::Bytes)
    } else if let Ok(int) = key.cast::<PyInt>() {
        encode_int(int, out)?;
        Ok(Domain::Int)
    } else if let Ok(tuple) = key.cast::<PyTuple>() {
        encode_tuple(tuple, out, depth)?;
        Ok(Domain::Tuple)
    } else if key.is_instance_of::<PyByteArray>() || key.is_instance_of::<PyMemoryView>() {
        encode_buffer(key, out)?;
        Ok(Domain::Bytes)
    } else if let Ok(instant) = key.cast::<PyDateTime>() {
        encode_datetime(instant, out)
    } else if is_uuid(key)? {
        out.extend_from_slice(key.getattr("bytes")?.cast::<PyBytes>()?.as_bytes());
        Ok(Domain::Uuid)
    } else if is_numpy_bool(key)? {
        out.extend_from_slice(&i64::from(key.is_truthy()?).to_le_bytes());
        Ok(Domain::Int)
    } else if !is_array(key)? {
        // NumPy's ints and others that say they are ints; an array is not, whatever its length.
        // SAFETY: PyNumber_Index returns a new reference or null with an exception set.
        let int = unsafe {
            if ffi::PyIndex_Check(key.as_ptr()) == 0 {
                return Err(unsupported(key));
            }
            Bound::from_owned_ptr_or_err(key.py(), ffi::PyNumber_Index(key.as_ptr()))
        };
        // A TypeError says that it is no int after all (a NumPy array's does); any other is its own.
        let int = int.map_err(|problem| match problem.is_instance_of::<PyTypeError>(key.py()) {
            true => unsupported(key),
            false => problem,
        })?;
        encode_int(int.cast::<PyInt>()?, out)?;
        Ok(Domain::Int)
    } else {
        Err(unsupported(key))
    }
}

/// As `encode`, for what most parts of tuples are, by one comparison each; and for UUIDs, whose
/// `bytes` are Python code. None if it is anything else.
#[inline(always)]
fn encode_exact(key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Option<Domain> {
    let object = key.as_ptr();
    // SAFETY: the object is alive, and its exact type is checked before its fields are read.
    unsafe {
        let class = ffi::Py_TYPE(object);
        if class == &raw mut ffi::PyUnicode_Type {
            out.extend_from_slice(compact_ascii(object)?);
            return Some(Domain::Bytes);
        }
        if class == &raw mut ffi::PyLong_Type {
            out.extend_from_slice(&int64(object)?.to_le_bytes());
            return Some(Domain::Int);
        }
    }
    out.extend_from_slice(&uuid_attribute(key)?.to_be_bytes());
    Some(Domain::Uuid)
}

/// UTF-8, made here: asking Python for it would leave a copy in every non-ASCII str.
fn encode_str(text: &Bound<'_, PyString>, out: &mut Vec<u8>) -> PyResult<()> {
    // SAFETY: the data is read at once, while the str is alive and nothing else runs.
    match unsafe { text.data() }? {
        PyStringData::Ucs1(units) => utf8::append(units, out),
        PyStringData::Ucs2(units) => utf8::append(units, out),
        PyStringData::Ucs4(units) => utf8::append(units, out),
    }
    .map_err(|at| {
        let message = format!(
            "a str key has a lone surrogate at index {at}, which UTF-8 cannot hold: encode it \
             yourself, as in key.encode('utf-8', 'surrogatepass')"
        );
        error(text.py(), "InvalidKey", message)
    })
}

/// Two's complement, little-endian: 8 bytes where they are enough, else bit_length // 8 + 1.
fn encode_int(int: &Bound<'_, PyInt>, out: &mut Vec<u8>) -> PyResult<()> {
    if let Ok(small) = int.extract::<i64>() {
        out.extend_from_slice(&small.to_le_bytes());
        return Ok(());
    }
    let py = int.py();
    let class = py.get_type::<PyInt>();
    let bits: usize = class.call_method1("bit_length", (int,))?.extract()?;
    let options = pyo3::types::PyDict::new(py);
    options.set_item("signed", true)?;
    let bytes = class.call_method("to_bytes", (int, bits / 8 + 1, "little"), Some(&options))?;
    out.extend_from_slice(bytes.cast::<PyBytes>()?.as_bytes());
    Ok(())
}

/// For each part its kind, its length in 4 bytes, and its bytes: ("ab", "c") is not ("a", "bc").
fn encode_tuple(tuple: &Bound<'_, PyTuple>, out: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    let py = tuple.py();
    if depth == MAX_DEPTH {
        let message = format!("a tuple key is nested more than {MAX_DEPTH} deep");
        return Err(error(py, "InvalidKey", message));
    }
    for part in tuple.iter() {
        let start = out.len();
        out.extend_from_slice(&[0; 5]);
        let domain = encode(&part, out, depth + 1)?;
        if out.len() > MAX_TUPLE_BYTES {
            let message = format!("a tuple key takes more than {MAX_TUPLE_BYTES} bytes");
            return Err(error(py, "InvalidKey", message));
        }
        let len = (out.len() - start - 5) as u32;
        out[start] = domain as u8;
        out[start + 1..start + 5].copy_from_slice(&len.to_le_bytes());
    }
    Ok(())
}

fn encode_buffer(key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    // SAFETY: PyObject_GetBuffer fills `view` or fails; it is released once, after the copy.
    unsafe {
        let mut view = std::mem::zeroed::<ffi::Py_buffer>();
        if ffi::PyObject_GetBuffer(key.as_ptr(), &raw mut view, ffi::PyBUF_SIMPLE) != 0 {
            PyErr::take(key.py()); // a BufferError: only bytearray and memoryview come here
            let message = "a memoryview key must be contiguous: use bytes(key)".to_string();
            return Err(error(key.py(), "InvalidKey", message));
        }
        if view.len > 0 {
            let bytes = std::slice::from_raw_parts(view.buf.cast::<u8>(), view.len as usize);
            out.extend_from_slice(bytes);
        }
        ffi::PyBuffer_Release(&raw mut view);
    }
    Ok(())
}

/// Microseconds since 1970 as 8 bytes: in UTC if it has a time zone, so that equal instants are one
/// key; else as the clock shows, in a domain of its own, since Python holds the two unequal.
fn encode_datetime(instant: &Bound<'_, PyDateTime>, out: &mut Vec<u8>) -> PyResult<Domain> {
    let py = instant.py();
    if !instant.is_exact_instance_of::<PyDateTime>() {
        // pandas' NaT equals nothing, itself included; its Timestamps count nanoseconds.
        let finer = optional(instant, "nanosecond")?.map_or(Ok(false), |n| n.is_truthy())?;
        if instant.ne(instant)? || finer {
            let message = "a datetime key must be an instant in whole microseconds: NaT and \
                           nanoseconds cannot be keys; use str(key)";
            return Err(error(py, "InvalidKey", message.into()));
        }
    }
    let aware = instant.get_tzinfo().is_some() && !instant.call_method0("utcoffset")?.is_none();
    let utc = PyTzInfo::utc(py)?.to_owned();
    let epoch = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, aware.then_some(&utc))?;
    // datetime's own subtraction: a subclass (pandas' Timestamp) may return something else.
    let since = py.get_type::<PyDateTime>().call_method1("__sub__", (instant, epoch))?;
    let since = since.cast::<PyDelta>()?;
    let seconds = i64::from(since.get_days()) * 86_400 + i64::from(since.get_seconds());
    let micros = seconds * 1_000_000 + i64::from(since.get_microseconds());
    out.extend_from_slice(&micros.to_le_bytes());
    Ok(if aware { Domain::InstantUtc } else { Domain::InstantNaive })
}

fn is_uuid(key: &Bound<'_, PyAny>) -> PyResult<bool> {
    key.is_instance(uuid_class(key.py())?)
}

fn is_numpy_bool(key: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = key.get_type();
    let name = class.name()?;
    Ok((name == "bool" || name == "bool_") && class.module()? == "numpy")
}

/// Has it a `dtype` and, unlike NumPy's scalars, dimensions?
fn is_array(key: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !key.hasattr("dtype")? {
        return Ok(false);
    }
    Ok(optional(key, "ndim")?.and_then(|n| n.extract::<i64>().ok()).unwrap_or(1) != 0)
}

/// An attribute, if there is one. What else is raised (KeyboardInterrupt, say) is no answer to that.
fn optional<'py>(key: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    match key.getattr(name) {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.is_instance_of::<PyAttributeError>(key.py()) => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Names the type, never the value: keys do not belong in messages and logs.
#[cold]
fn unsupported(key: &Bound<'_, PyAny>) -> PyErr {
    let name = key.get_type().fully_qualified_name().map_or("?".into(), |n| n.to_string());
    let advice = match name.as_str() {
        "float" | "numpy.float64" | "numpy.float32" if key.ne(key).unwrap_or(false) => {
            "this one is NaN, a missing value? drop those first, or pass None and nulls=\"skip\""
        }
        "NoneType" => "leave None out, or give it a name of your own, as in \"none\"",
        "float" | "numpy.float64" | "numpy.float32" => "use repr(key), or struct.pack('<d', key)",
        "list" => "use tuple(key); for many keys at once use add_many or contains_many",
        "dict" => "use json.dumps(key, sort_keys=True)",
        "set" | "frozenset" => "use tuple(sorted(key))",
        "datetime.date" | "datetime.time" => "use key.isoformat()",
        "numpy.ndarray" => "for many keys at once use add_many or contains_many",
        _ => "use a str, bytes or tuple that names it",
    };
    let message = format!(
        "{name} cannot be a key: a key is a str, bytes, int, UUID, datetime or a tuple of these; \
         {advice}"
    );
    error(key.py(), "UnsupportedKey", message)
}

//! Arrow columns through the PyCapsule interface: pyarrow, Polars, DuckDB, pandas and any other
//! that speaks it, without a dependency on one of them and without a copy.
//!
//! Nothing that a structure says is believed where it can be checked; what its buffers really hold
//! cannot, for the interface does not say how long they are.

use std::ffi::{CStr, c_char, c_int, c_void};

use bloomery_core::hash::KeyHasher;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::error;
use crate::keys::arrow_rows::{Reader, Reading};
use crate::keys::arrow_type::{KeyType, key_type};
use crate::keys::column::Column;

/// The three structures of the Arrow C data and stream interfaces; their layout is fixed there.
#[repr(C)]
pub struct Schema {
    pub format: *const c_char,
    name: *const c_char,
    pub metadata: *const c_char,
    flags: i64,
    pub n_children: i64,
    pub children: *mut *mut Schema,
    pub dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub struct Chunk {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut Chunk,
    pub dictionary: *mut Chunk,
    release: Option<unsafe extern "C" fn(*mut Chunk)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Chunk) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

/// A structure that a producer fills for us and that we therefore release.
struct Owned<T: Release>(Box<T>);

trait Release {
    fn release(&mut self);
}

impl Release for Schema {
    fn release(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the producer's own callback, called once; it clears itself.
            unsafe { release(self) }
        }
    }
}

impl Release for Chunk {
    fn release(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as above.
            unsafe { release(self) }
        }
    }
}

impl<T: Release> Owned<T> {
    fn empty() -> Self {
        // SAFETY: null pointers and no callback are what the interface means by "released".
        Owned(Box::new(unsafe { std::mem::zeroed() }))
    }
}

impl<T: Release> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// What a column handed over, and what is known of it besides.
pub struct Exported<'py> {
    pub capsules: Capsules<'py>,
    /// The type that the column has where it comes from, if its Arrow type alone does not tell it.
    pub lossy: Option<String>,
}

pub enum Capsules<'py> {
    Stream(Bound<'py, PyAny>),
    Array { schema: Bound<'py, PyAny>, chunk: Bound<'py, PyAny> },
}

/// Calls `each` with every chunk of the column as it comes.
pub fn each_chunk(
    py: Python<'_>,
    exported: &Exported<'_>,
    hasher: &KeyHasher,
    reading: Reading,
    each: &mut dyn FnMut(Column) -> PyResult<()>,
) -> PyResult<()> {
    let mut reader = Reader { py, hasher, reading, rows: 0 };
    let lossy = exported.lossy.as_deref();
    let capsule = match &exported.capsules {
        Capsules::Stream(capsule) => capsule,
        Capsules::Array { schema, chunk } => {
            // SAFETY: the capsules keep what they point to alive until the end of this function.
            unsafe {
                let schema = live_schema(schema)?;
                let chunk = pointee(py, pointer::<Chunk>(chunk, c"arrow_array")?)?;
                if chunk.release.is_none() {
                    return Err(damaged(py, "its array was released"));
                }
                return each(reader.column(&key_type(py, schema, lossy)?, chunk)?);
            }
        }
    };
    // SAFETY: the capsule keeps the stream alive; its callbacks are called as the interface says.
    unsafe {
        let (stream, kind) = stream_type(py, capsule, exported)?;
        let get_next = (*stream).get_next.ok_or_else(|| broken(py, "no get_next"))?;
        loop {
            let mut chunk = Owned::<Chunk>::empty();
            if get_next(stream, &raw mut *chunk.0) != 0 {
                return Err(stream_error(py, stream));
            }
            if chunk.0.release.is_none() {
                return Ok(());
            }
            each(reader.column(&kind, &chunk.0)?)?;
            py.check_signals()?;
        }
    }
}

/// Raises UnsupportedBatch unless the rows of a column of this Arrow type or field are keys.
#[pyfunction]
pub fn check_arrow_type(kind: &Bound<'_, PyAny>) -> PyResult<()> {
    let capsule = kind.call_method0("__arrow_c_schema__")?;
    // SAFETY: the capsule keeps what it points to alive until the end of this function.
    unsafe { key_type(kind.py(), live_schema(&capsule)?, None).map(drop) }
}

/// Raises UnsupportedBatch unless the rows of what was handed over are keys.
pub fn check(py: Python<'_>, exported: &Exported<'_>) -> PyResult<()> {
    // SAFETY: the capsules outlive this function; a stream may be asked for its schema any time.
    unsafe {
        match &exported.capsules {
            Capsules::Array { schema, .. } => {
                key_type(py, live_schema(schema)?, exported.lossy.as_deref()).map(drop)
            }
            Capsules::Stream(capsule) => stream_type(py, capsule, exported).map(drop),
        }
    }
}

/// A stream, and the type of its keys.
///
/// # Safety
/// The stream lives only as long as the capsule.
unsafe fn stream_type(
    py: Python<'_>,
    capsule: &Bound<'_, PyAny>,
    exported: &Exported<'_>,
) -> PyResult<(*mut Stream, KeyType)> {
    // SAFETY: the capsule keeps the stream alive; its callbacks are called as the interface says.
    unsafe {
        let stream = pointer::<Stream>(capsule, c"arrow_array_stream")?;
        if pointee(py, stream)?.release.is_none() {
            return Err(damaged(py, "its stream was released"));
        }
        let mut schema = Owned::<Schema>::empty();
        let get_schema = (*stream).get_schema.ok_or_else(|| broken(py, "no get_schema"))?;
        if get_schema(stream, &raw mut *schema.0) != 0 {
            return Err(stream_error(py, stream));
        }
        Ok((stream, key_type(py, &schema.0, exported.lossy.as_deref())?))
    }
}

/// # Safety
/// What is returned lives only as long as the capsule.
unsafe fn live_schema<'a>(capsule: &Bound<'_, PyAny>) -> PyResult<&'a Schema> {
    let py = capsule.py();
    // SAFETY: as promised above.
    let schema = unsafe { pointee(py, pointer::<Schema>(capsule, c"arrow_schema")?)? };
    if schema.release.is_none() { Err(damaged(py, "its schema was released")) } else { Ok(schema) }
}

/// # Safety
/// What is returned lives only as long as the capsule.
unsafe fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<*mut T> {
    // SAFETY: PyCapsule_GetPointer checks that it is a capsule of this name.
    let found = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    if found.is_null() {
        PyErr::take(capsule.py());
        return Err(damaged(
            capsule.py(),
            &format!("it gave no capsule {}", name.to_string_lossy()),
        ));
    }
    Ok(found.cast())
}

/// # Safety
/// If it is neither null nor misaligned, a `T` is there for `'a`.
pub unsafe fn pointee<'a, T>(py: Python<'_>, at: *const T) -> PyResult<&'a T> {
    if at.is_null() || !at.is_aligned() {
        return Err(damaged(py, "a pointer in its structures leads nowhere"));
    }
    // SAFETY: as promised above.
    Ok(unsafe { &*at })
}

unsafe fn stream_error(py: Python<'_>, stream: *mut Stream) -> PyErr {
    // SAFETY: called right after a callback failed, as the interface asks.
    let text = unsafe {
        let text = (*stream).get_last_error.map(|f| f(stream)).filter(|t| !t.is_null());
        text.map_or("no reason given".into(), |t| CStr::from_ptr(t).to_string_lossy().into_owned())
    };
    broken(py, &text)
}

fn broken(py: Python<'_>, reason: &str) -> PyErr {
    error(py, "UnsupportedBatch", format!("the Arrow stream failed: {reason}"))
}

/// A structure that contradicts itself or the interface.
#[cold]
pub fn damaged(py: Python<'_>, what: &str) -> PyErr {
    error(py, "UnsupportedBatch", format!("an Arrow column is damaged: {what}"))
}

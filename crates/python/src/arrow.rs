//! Arrow columns through the PyCapsule interface: pyarrow, Polars, DuckDB, pandas and any other
//! that speaks it, without a dependency on one of them and without a copy.

use std::ffi::{CStr, c_char, c_int, c_void};

use bloomery_core::hash::KeyHasher;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::column::{Column, Data, Int};
use crate::errors::{error, null_error};

/// The three structures of the Arrow C data and stream interfaces; their layout is fixed there.
#[repr(C)]
pub struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub struct Chunk {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Chunk,
    dictionary: *mut Chunk,
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

/// Calls `each` with every chunk of the column as it comes; `skip_nulls` or refuse them.
pub fn each_chunk(
    object: &Bound<'_, PyAny>,
    hasher: &KeyHasher,
    skip_nulls: bool,
    each: &mut dyn FnMut(Column) -> PyResult<()>,
) -> PyResult<()> {
    let py = object.py();
    let mut reader = Reader { py, hasher, skip_nulls, rows: 0 };
    if !object.hasattr("__arrow_c_stream__")? {
        let pair = object.call_method0("__arrow_c_array__")?;
        let (schema, chunk): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        // SAFETY: the capsules keep what they point to alive until the end of this function.
        unsafe {
            let schema = &*pointer::<Schema>(&schema, c"arrow_schema")?;
            let chunk = &*pointer::<Chunk>(&chunk, c"arrow_array")?;
            return each(reader.column(schema, chunk)?);
        }
    }
    let capsule = object.call_method0("__arrow_c_stream__")?;
    // SAFETY: the capsule keeps the stream alive; its callbacks are called as the interface says.
    unsafe {
        let stream = pointer::<Stream>(&capsule, c"arrow_array_stream")?;
        let mut schema = Owned::<Schema>::empty();
        let get_schema = (*stream).get_schema.ok_or_else(|| broken(py, "no get_schema"))?;
        if get_schema(stream, &raw mut *schema.0) != 0 {
            return Err(stream_error(py, stream));
        }
        let get_next = (*stream).get_next.ok_or_else(|| broken(py, "no get_next"))?;
        loop {
            let mut chunk = Owned::<Chunk>::empty();
            if get_next(stream, &raw mut *chunk.0) != 0 {
                return Err(stream_error(py, stream));
            }
            if chunk.0.release.is_none() {
                return Ok(());
            }
            each(reader.column(&schema.0, &chunk.0)?)?;
            py.check_signals()?;
        }
    }
}

/// # Safety
/// What is returned lives only as long as the capsule.
unsafe fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<*mut T> {
    // SAFETY: PyCapsule_GetPointer checks that it is a capsule of this name.
    let found = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    if found.is_null() { Err(PyErr::fetch(capsule.py())) } else { Ok(found.cast()) }
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

struct Reader<'a, 'py> {
    py: Python<'py>,
    hasher: &'a KeyHasher,
    skip_nulls: bool,
    rows: usize,
}

impl Reader<'_, '_> {
    fn refuse<T>(&self, message: String) -> PyResult<T> {
        Err(error(self.py, "UnsupportedBatch", message))
    }

    /// # Safety
    /// `schema` and `chunk` are valid as the Arrow C data interface describes them, and outlive
    /// the column.
    unsafe fn column(&mut self, schema: &Schema, chunk: &Chunk) -> PyResult<Column> {
        // SAFETY: as promised above.
        let format = unsafe { CStr::from_ptr(schema.format) }.to_string_lossy();
        if format == "+s" {
            // SAFETY: as promised above.
            return unsafe { self.only_column(schema, chunk) };
        }
        let (len, offset) = (chunk.length as usize, chunk.offset as usize);
        if format == "n" {
            return self.nothing(len);
        }
        // SAFETY: as promised above.
        let data = unsafe { self.data(&format, schema, chunk, offset)? };
        let mut column = Column { data, len, valid: None };
        let validity = if chunk.n_buffers > 0 {
            // SAFETY: there is a first buffer.
            unsafe { *chunk.buffers }
        } else {
            std::ptr::null()
        };
        if chunk.null_count != 0 && !validity.is_null() {
            let is_valid = |row: &usize| {
                let bit = offset + row;
                // SAFETY: the bitmap has a bit for each row.
                unsafe { *validity.cast::<u8>().add(bit / 8) >> (bit % 8) & 1 == 1 }
            };
            let valid: Vec<usize> = (0..len).filter(is_valid).collect();
            if valid.len() < len {
                let first = valid.iter().enumerate().find(|(i, row)| i != *row);
                let row = self.rows + first.map_or(valid.len(), |(i, _)| i);
                if !self.skip_nulls {
                    return Err(null_error(self.py, row));
                }
                column.valid = Some(valid);
            }
        }
        self.rows += len;
        Ok(column)
    }

    /// A column of the null type, which an empty list of objects becomes: rows, but no key.
    fn nothing(&mut self, len: usize) -> PyResult<Column> {
        if len > 0 && !self.skip_nulls {
            return Err(null_error(self.py, self.rows));
        }
        self.rows += len;
        let data = Data::Fixed { start: std::ptr::null(), stride: 0, width: 0, trim: false };
        Ok(Column { data, len, valid: Some(Vec::new()) })
    }

    /// A table, a record batch or a relation with one column is that column.
    unsafe fn only_column(&mut self, schema: &Schema, chunk: &Chunk) -> PyResult<Column> {
        if schema.n_children != 1 || chunk.null_count > 0 {
            return self.refuse(format!(
                "a table of {} columns is not a batch of keys: pick one column",
                schema.n_children
            ));
        }
        // SAFETY: there is one child; what is copied is only read here, and not released.
        unsafe {
            let child = &**chunk.children;
            let rows = Chunk {
                length: chunk.length,
                offset: child.offset + chunk.offset,
                null_count: -1, // not known of a slice
                release: None,
                ..*child
            };
            self.column(&**schema.children, &rows)
        }
    }

    unsafe fn data(
        &mut self,
        format: &str,
        schema: &Schema,
        chunk: &Chunk,
        offset: usize,
    ) -> PyResult<Data> {
        let buffer = |i: usize| {
            // SAFETY: each format has the buffers that the interface lists for it.
            unsafe { *chunk.buffers.add(i) }.cast::<u8>()
        };
        let from = |i: usize, width: usize| buffer(i).wrapping_add(offset * width);
        let int = match format {
            "c" | "s" | "i" | "l" => Some(true),
            "C" | "S" | "I" | "L" => Some(false),
            _ => None,
        };
        if let Some(signed) = int {
            let width = match format {
                "c" | "C" => 1,
                "s" | "S" => 2,
                "i" | "I" => 4,
                _ => 8,
            };
            let kind = Int { width, signed, swapped: false };
            if schema.dictionary.is_null() {
                return Ok(Data::Ints { start: from(1, width), stride: width as isize, kind });
            }
            // A null among the values cannot be skipped: rows point at places in the dictionary.
            let mut reader = Reader { rows: 0, skip_nulls: false, ..*self };
            // SAFETY: where the schema has a dictionary the array has one too.
            let values = unsafe { reader.column(&*schema.dictionary, &*chunk.dictionary)? };
            let mut hashes = vec![0; values.keys()];
            values.hash(self.hasher, 0, &mut hashes);
            return Ok(Data::Dictionary { hashes, start: from(1, width), kind });
        }
        Ok(match format {
            "u" | "z" => Data::Offsets { offsets: from(1, 4), wide: false, bytes: buffer(2) },
            "U" | "Z" => Data::Offsets { offsets: from(1, 8), wide: true, bytes: buffer(2) },
            "vu" | "vz" => {
                // Validity, views, the data, and last the lengths of the data buffers.
                let buffers = (2..chunk.n_buffers as usize - 1).map(buffer).collect();
                Data::Views { views: from(1, 16), buffers }
            }
            _ if format.starts_with("w:") => {
                let width = format[2..].parse().unwrap_or(0);
                let start = from(1, width);
                Data::Fixed { start, stride: width as isize, width, trim: false }
            }
            _ => {
                return self.refuse(format!(
                    "an Arrow column of format {format:?} is not a batch of keys: ints, strings \
                     and binary are; cast it to one of these"
                ));
            }
        })
    }
}

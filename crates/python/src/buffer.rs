//! NumPy arrays, array.array and memoryviews as columns, through the buffer protocol: no build or
//! run-time dependency on NumPy.

use std::ffi::CStr;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::column::{Column, Data, Int};
use crate::errors::error;

/// A buffer held for as long as its column is in use.
pub struct Held {
    view: Box<ffi::Py_buffer>,
}

// SAFETY: the view is only read, and released with the GIL held (see Drop).
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the view was filled by PyObject_GetBuffer and is released once.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.view) });
    }
}

impl Held {
    /// The object's buffer with format and strides; `None` if it has none to give.
    pub fn get(object: &Bound<'_, PyAny>, flags: i32) -> Option<Held> {
        // SAFETY: PyObject_GetBuffer fills the view or fails; a Py_buffer of zeros is valid.
        unsafe {
            let mut view = Box::new(std::mem::zeroed::<ffi::Py_buffer>());
            if ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) != 0 {
                PyErr::take(object.py());
                return None;
            }
            Some(Held { view })
        }
    }

    pub fn start(&self) -> *const u8 {
        self.view.buf.cast::<u8>().cast_const()
    }

    pub fn nbytes(&self) -> usize {
        self.view.len as usize
    }

    pub fn read_only(&self) -> bool {
        self.view.readonly != 0
    }

    /// All of it as bytes.
    ///
    /// # Safety
    /// The buffer is contiguous (PyBUF_SIMPLE) and nobody writes to it meanwhile.
    pub unsafe fn bytes(&self) -> &[u8] {
        if self.nbytes() == 0 {
            return &[];
        }
        // SAFETY: as promised above.
        unsafe { std::slice::from_raw_parts(self.start(), self.nbytes()) }
    }

    fn format(&self) -> &str {
        if self.view.format.is_null() {
            return "B";
        }
        // SAFETY: a format is a C string that lives as long as the view.
        unsafe { CStr::from_ptr(self.view.format) }.to_str().unwrap_or("?")
    }
}

/// What an array turned out to be.
pub enum Array {
    Column(Column, Held),
    /// Python objects: go through them one by one.
    Objects,
}

/// Reads an array's format; what is neither int nor text is an error that says what to do.
pub fn column(object: &Bound<'_, PyAny>, held: Held) -> PyResult<Array> {
    let refuse = |message: String| Err(error(object.py(), "UnsupportedBatch", message));
    if held.view.ndim != 1 {
        let dims = held.view.ndim;
        return refuse(format!("an array of {dims} dimensions is not a batch of keys: use 1"));
    }
    // SAFETY: PyBUF_STRIDES was asked for, so shape and strides have ndim = 1 entries.
    let (len, stride) = unsafe { (*held.view.shape as usize, *held.view.strides) };
    let (start, width) = (held.start(), held.view.itemsize as usize);
    let (swapped, code) = match held.format().split_at_checked(1) {
        Some((">" | "!", code)) => (true, code),
        Some(("@" | "=" | "<", code)) => (false, code),
        _ => (false, held.format()),
    };
    let data = match code.trim_start_matches(|c: char| c.is_ascii_digit()) {
        "b" | "h" | "i" | "l" | "q" | "n" if width <= 8 => {
            Data::Ints { start, stride, kind: Int { width, signed: true, swapped } }
        }
        "B" | "H" | "I" | "L" | "Q" | "N" | "?" if width <= 8 => {
            Data::Ints { start, stride, kind: Int { width, signed: false, swapped } }
        }
        "s" => Data::Fixed { start, stride, width, trim: true },
        "w" => Data::Ucs4 { start, stride, width: width / 4, swapped },
        "O" => return Ok(Array::Objects),
        other => {
            let advice = match other {
                "f" | "d" | "e" | "g" => {
                    "; floats have no stable keys: use .astype(str) or .view('int64')"
                }
                _ => "",
            };
            return refuse(format!(
                "an array of format {:?} is not a batch of keys: ints, bytes ('S') and str ('U') \
                 are{advice}",
                held.format()
            ));
        }
    };
    let column = Column { data, len, valid: None };
    if let Some(row) = column.first_bad_row() {
        let message = format!("row {row} of the str array is not valid text (a lone surrogate?)");
        return Err(error(object.py(), "InvalidKey", message));
    }
    Ok(Array::Column(column, held))
}

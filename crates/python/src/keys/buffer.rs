//! NumPy arrays, array.array and memoryviews as columns, through the buffer protocol: no build or
//! run-time dependency on NumPy.

use std::ffi::CStr;

use bloomery_core::hash::Domain;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::error;
use crate::keys::column::{Column, Data, Int};

/// A buffer held for as long as its column is in use.
pub struct BufferView {
    view: Box<ffi::Py_buffer>,
}

// SAFETY: the view is only read, and released with the GIL held (see Drop).
unsafe impl Send for BufferView {}
// SAFETY: as above.
unsafe impl Sync for BufferView {}

impl Drop for BufferView {
    fn drop(&mut self) {
        // SAFETY: the view was filled by PyObject_GetBuffer and is released once.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.view) });
    }
}

impl BufferView {
    /// The object's buffer with format and strides; `None` if it has none to give.
    pub fn get(object: &Bound<'_, PyAny>, flags: i32) -> Option<BufferView> {
        // SAFETY: PyObject_GetBuffer fills the view or fails; a Py_buffer of zeros is valid.
        unsafe {
            let mut view = Box::new(std::mem::zeroed::<ffi::Py_buffer>());
            if ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) != 0 {
                PyErr::take(object.py());
                return None;
            }
            Some(BufferView { view })
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
    Column(Column, BufferView),
    /// Python objects: go through them one by one.
    Objects,
}

impl BufferView {
    /// Is it bytes rather than an array of small ints? So are `mmap`, pyarrow's Buffer and other
    /// owners of plain memory; NumPy (`dtype`), `array` (`typecode`) and ctypes (which names a byte
    /// order) are arrays.
    pub fn is_bytes(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let byte = matches!(self.format(), "B" | "b" | "c") && self.view.itemsize == 1;
        Ok(byte && !object.hasattr("dtype")? && !object.hasattr("typecode")?)
    }

    /// The first row of an array of floats that is NaN; of widths other than 4 and 8 none is known.
    fn first_nan(&self, code: &str, swapped: bool, rows: usize, stride: isize) -> Option<usize> {
        let bytes = |row: usize, width| {
            let at = self.start().wrapping_offset(row as isize * stride);
            // SAFETY: the row is there, of this width, and bytes need no alignment.
            let mut bytes = unsafe { std::slice::from_raw_parts(at, width) }.to_vec();
            if swapped != cfg!(target_endian = "big") {
                bytes.reverse();
            }
            bytes
        };
        (0..rows).find(|row| match (code, self.view.itemsize) {
            ("f", 4) => bytes(*row, 4).try_into().is_ok_and(|b| f32::from_le_bytes(b).is_nan()),
            ("d", 8) => bytes(*row, 8).try_into().is_ok_and(|b| f64::from_le_bytes(b).is_nan()),
            _ => false,
        })
    }

    /// The rows and the bytes from one to the next; None if the view contradicts itself. Not every
    /// exporter fills in what was asked for: of ctypes there are no strides.
    fn rows(&self) -> Option<(usize, isize)> {
        let view = &*self.view;
        let width = view.itemsize;
        if width < 0 || view.len < 0 || view.buf.is_null() && view.len > 0 {
            return None;
        }
        // SAFETY: where they are given, there is one of each for each of the ndim = 1 dimensions.
        let (shape, stride, indirect) = unsafe {
            (
                view.shape.as_ref().copied(),
                view.strides.as_ref().copied(),
                view.suboffsets.as_ref().is_some_and(|suboffset| *suboffset >= 0),
            )
        };
        let rows = shape.or_else(|| view.len.checked_div(width))?;
        let stride = stride.unwrap_or(width);
        let whole = rows >= 0 && rows.checked_mul(width)? == view.len && !indirect;
        rows.checked_mul(stride)?; // else the rows do not fit the address space
        whole.then_some((rows as usize, stride))
    }
}

/// Reads an array's format; what is neither int nor text is an error that says what to do.
pub fn column(object: &Bound<'_, PyAny>, held: BufferView) -> PyResult<Array> {
    let refuse = |message: String| Err(error(object.py(), "UnsupportedBatch", message));
    if held.view.ndim != 1 {
        let dims = held.view.ndim;
        return refuse(format!("an array of {dims} dimensions is not a batch of keys: use 1"));
    }
    let Some((len, stride)) = held.rows() else {
        return refuse("an array whose buffer contradicts itself is not a batch of keys".into());
    };
    let (start, width) = (held.start(), held.view.itemsize as usize);
    let (swapped, code) = match held.format().split_at_checked(1) {
        Some((">" | "!", code)) => (true, code),
        Some(("@" | "=" | "<", code)) => (false, code),
        _ => (false, held.format()),
    };
    let ints = |signed, truth| {
        let kind = Int { width, signed, swapped, truth };
        Data::Ints { start, stride, kind }
    };
    // As many characters of NumPy's as the number says, NULs at the end dropped; none: array's.
    let trim = code.starts_with(|c: char| c.is_ascii_digit());
    let data = match code {
        "b" | "h" | "i" | "l" | "q" | "n" if matches!(width, 1 | 2 | 4 | 8) => ints(true, false),
        "B" | "H" | "I" | "L" | "Q" | "N" if matches!(width, 1 | 2 | 4 | 8) => ints(false, false),
        "?" if width == 1 => ints(false, true),
        "O" => return Ok(Array::Objects),
        _ => match code.trim_start_matches(|c: char| c.is_ascii_digit()) {
            "s" if trim => Data::Fixed { start, stride, width, trim, domain: Domain::Bytes },
            "w" if width % 4 == 0 => Data::Ucs4 { start, stride, width: width / 4, trim, swapped },
            other => {
                let nan = || held.first_nan(other, swapped, len, stride);
                let advice = match other {
                    "f" | "d" | "e" | "g" => match nan() {
                        Some(row) => format!(
                            "; row {row} is NaN: an int column with missing values? use Int64 \
                             (pandas: .astype('Int64')), or drop them"
                        ),
                        None => {
                            "; whole numbers? use .astype('int64'); other floats have no stable \
                                 keys: use .astype(str)"
                                .into()
                        }
                    },
                    _ => String::new(),
                };
                let kind = match (object.getattr("dtype"), other) {
                    (Ok(dtype), _) => dtype.to_string(),
                    (_, "f") => "float32".into(),
                    (_, "d") => "float64".into(),
                    _ => format!("format {:?}", held.format()),
                };
                return refuse(format!(
                    "an array of {kind} is not a batch of keys: ints, bytes ('S') and str ('U') \
                     are{advice}"
                ));
            }
        },
    };
    let column = Column { data, len, valid: None, unchecked: false };
    if let Some((row, what)) = column.first_bad_row() {
        let message = format!("row {row} of the str array {what}");
        return Err(error(object.py(), "InvalidKey", message));
    }
    Ok(Array::Column(column, held))
}

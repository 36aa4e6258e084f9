//! A batch's answer: a list of bool for Python objects, a NumPy array for arrays and columns.

use std::cell::UnsafeCell;
use std::os::raw::c_int;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::filters::sections::give_turn;

/// One byte a row, and whether the batch was an array (NumPy out) or Python objects (list out).
pub struct Mask {
    pub rows: Vec<u8>,
    pub array: bool,
}

impl Mask {
    /// Puts a False at each of these rows, which had no key; the others keep their order.
    pub fn leave_out(&mut self, nulls: &[usize]) {
        if nulls.is_empty() {
            return;
        }
        let total = self.rows.len() + nulls.len();
        let (mut found, mut nulls) = (self.rows.iter().copied(), nulls.iter().peekable());
        self.rows = (0..total)
            .map(|row| match nulls.next_if(|null| **null == row) {
                Some(_) => 0,
                None => found.next().unwrap_or_default(),
            })
            .collect();
    }

    pub fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        if self.array {
            // Without NumPy a column's mask is a list as well: an answer, not an error.
            if let Ok(numpy) = py.import("numpy") {
                let memory = MaskMemory(UnsafeCell::new(self.rows));
                return numpy.call_method1("frombuffer", (memory, numpy.getattr("bool_")?));
            }
        }
        list_of_bools(py, &self.rows)
    }
}

/// A mask's memory, lent to the NumPy array that is made of it.
#[pyclass(frozen, module = "bloomery._native")]
struct MaskMemory(UnsafeCell<Vec<u8>>);

// SAFETY: after it is made, only the NumPy array touches it, and NumPy arrays are shared under
// their own rules.
unsafe impl Sync for MaskMemory {}

#[pymethods]
impl MaskMemory {
    /// # Safety
    /// Called by the interpreter with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the rows never move and live as long as the object, which the view keeps alive.
        let filled = unsafe {
            let rows = &mut *slf.get().0.get();
            let (start, len) = (rows.as_mut_ptr().cast(), rows.len() as ffi::Py_ssize_t);
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 0, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Answers between two turns of other threads: 128 pages of the list, which the kernel makes when
/// they are first written to, in half a millisecond and, where memory is scarce, in some.
const TURN: usize = 1 << 16;

/// Takes so many references at once: one by one, each would wait for the one before.
///
/// # Safety
/// True or False, with the interpreter lock held.
#[inline(always)]
unsafe fn refer(answer: *mut ffi::PyObject, times: usize) {
    // SAFETY: as promised above. From 3.12 on they live for ever, and are not counted.
    #[cfg(not(Py_3_12))]
    unsafe {
        (*answer).ob_refcnt += times as ffi::Py_ssize_t;
    }
    #[cfg(Py_3_12)]
    let _ = (answer, times);
}

/// A new list of True and False.
fn list_of_bools<'py>(py: Python<'py>, rows: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: PyList_New gives a list of as many empty places, each of which is filled once with a
    // new reference. Until they are, the collector does not know of it, so that nobody else can
    // come across it; a list that is given up with empty places is freed as any other.
    unsafe {
        let list = ffi::PyList_New(rows.len() as ffi::Py_ssize_t);
        let list = Bound::from_owned_ptr_or_err(py, list)?;
        ffi::PyObject_GC_UnTrack(list.as_ptr().cast());
        let answers = [ffi::Py_False(), ffi::Py_True()];
        for (turn, rows) in rows.chunks(TURN).enumerate() {
            if turn > 0 {
                give_turn(py)?;
            }
            let found = rows.iter().filter(|row| **row != 0).count();
            refer(answers[0], rows.len() - found);
            refer(answers[1], found);
            for (i, row) in rows.iter().enumerate() {
                let answer = answers[usize::from(*row != 0)];
                let place = (turn * TURN + i) as ffi::Py_ssize_t;
                ffi::PyList_SET_ITEM(list.as_ptr(), place, answer);
            }
        }
        ffi::PyObject_GC_Track(list.as_ptr().cast());
        Ok(list)
    }
}

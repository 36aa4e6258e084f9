//! `add` and `in` as the interpreter calls them fastest: without packing arguments, without a
//! trampoline. All other methods are PyO3's.

use std::os::raw::c_int;

use bloomery_core::hash::KeyHasher;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::PyType;
use pyo3::{Borrowed, PyClass, ffi};

use crate::key::hash_key;

/// A filter class: what it does with one key, once that is hashed.
pub trait OneKey: PyClass<Frozen = True> + Sync {
    fn hasher(&self) -> &KeyHasher;
    fn contains(&self, py: Python<'_>, h: u64) -> PyResult<bool>;
    fn add(&self, py: Python<'_>, h: u64) -> PyResult<bool>;
}

/// Puts both on the class, before Python makes subclasses of it.
pub fn install<T: OneKey>(py: Python<'_>) -> PyResult<()> {
    let class = &py.get_type::<T>();
    install_add::<T>(class)?;
    install_contains::<T>(class)
}

/// Puts `add` on the class as a one-argument method of the fastest kind there is.
fn install_add<T: OneKey>(class: &Bound<'_, PyType>) -> PyResult<()> {
    // A method definition must outlive the class, which is never freed.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: c"add".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: add_one::<T> },
        ml_flags: ffi::METH_O,
        ml_doc: c"add($self, key, /)\n--\n\nAdd the key; True if it is definitely new.".as_ptr(),
    }));
    // SAFETY: the class is a live type object and the definition lives for ever.
    let method = unsafe {
        let made = ffi::PyDescr_NewMethod(class.as_type_ptr(), &raw mut *definition);
        Bound::from_owned_ptr_or_err(class.py(), made)?
    };
    class.setattr("add", method)
}

/// Puts `in` on the class without PyO3's trampoline.
fn install_contains<T: OneKey>(class: &Bound<'_, PyType>) -> PyResult<()> {
    let wrapper = class.getattr("__contains__")?;
    // SAFETY: a slot's wrapper is a PyWrapperDescrObject; both places hold an objobjproc, and the
    // new one has the same contract. Subclasses, made later, copy it from the wrapper.
    unsafe {
        let contains: ffi::objobjproc = contains_one::<T>;
        (*wrapper.as_ptr().cast::<ffi::PyWrapperDescrObject>()).d_wrapped = contains as *mut _;
        (*(*class.as_type_ptr()).tp_as_sequence).sq_contains = Some(contains);
    }
    Ok(())
}

/// `add` as a plain one-argument C method: the interpreter calls it without packing or parsing
/// arguments, which a method made by PyO3 costs (measured: docs/decisions/0003).
///
/// # Safety
/// Called by the interpreter: `slf` is a T, which the method descriptor has checked.
unsafe extern "C" fn add_one<T: OneKey>(
    slf: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as promised above; a panic cannot cross, since nothing here panics on input.
    unsafe {
        let py = Python::assume_attached();
        let filter = Borrowed::from_ptr(py, slf).cast_unchecked::<T>();
        let filter = filter.get();
        let key = Borrowed::from_ptr(py, key);
        match hash_key(key, filter.hasher()).and_then(|h| filter.add(py, h)) {
            Ok(new) => {
                let answer = if new { ffi::Py_True() } else { ffi::Py_False() };
                ffi::Py_INCREF(answer);
                answer
            }
            Err(problem) => {
                problem.restore(py);
                std::ptr::null_mut()
            }
        }
    }
}

/// `in`, called by the interpreter without PyO3's trampoline (measured: docs/decisions/0003).
///
/// # Safety
/// As for `add_one`.
unsafe extern "C" fn contains_one<T: OneKey>(
    slf: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: as for `add_one`.
    unsafe {
        let py = Python::assume_attached();
        let filter = Borrowed::from_ptr(py, slf).cast_unchecked::<T>();
        let filter = filter.get();
        let key = Borrowed::from_ptr(py, key);
        match hash_key(key, filter.hasher()).and_then(|h| filter.contains(py, h)) {
            Ok(maybe) => c_int::from(maybe),
            Err(problem) => {
                problem.restore(py);
                -1
            }
        }
    }
}

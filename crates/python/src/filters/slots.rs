//! `add`, `in`, `contains` and `remove` as the interpreter calls them fastest: without packing
//! arguments, without a trampoline. All other methods are PyO3's.

use std::ffi::CStr;
use std::os::raw::c_int;

use bloomery_core::hash::KeyHasher;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::PyType;
use pyo3::{Borrowed, PyClass, ffi};

use crate::keys::key::hash_key;

/// A filter class: what it does with one key, once that is hashed.
pub trait OneKey: PyClass<Frozen = True> + Sync {
    fn hasher(&self) -> &KeyHasher;
    fn contains(&self, py: Python<'_>, h: u64) -> PyResult<bool>;
    fn add(&self, py: Python<'_>, h: u64) -> PyResult<bool>;
}

/// A filter class from which keys can be taken: `None` if the key was definitely not there, else
/// whether it could be.
pub trait RemoveKey: OneKey {
    fn remove(&self, py: Python<'_>, h: u64) -> PyResult<Option<bool>>;
}

/// Puts them on the class, before Python makes subclasses of it.
pub fn install<T: OneKey>(py: Python<'_>) -> PyResult<()> {
    let class = &py.get_type::<T>();
    let doc =
        c"add($self, key, /)\n--\n\nAdd the key; True if it is definitely new, False if it may \
have been there.";
    install_method(class, "add", c"add", doc, add_one::<T>)?;
    let doc = c"contains($self, key, /)\n--\n\nThe same as `key in filter`. False: definitely not \
there. True: maybe.";
    install_method(class, "contains", c"contains", doc, contains_method::<T>)?;
    install_contains::<T>(class)
}

/// The same for classes from which keys can be removed; which of their subclasses show it, and
/// under which name, is Python's business.
pub fn install_remove<T: RemoveKey>(py: Python<'_>) -> PyResult<()> {
    let class = &py.get_type::<T>();
    let doc = c"remove($self, key, /)\n--\n\nTake one copy of the key out; KeyError if it is \
definitely not there.\n\nTrue: it was taken out. False: it may be there and cannot be.";
    install_method(class, "_remove_one", c"remove", doc, remove_one::<T>)?;
    let doc =
        c"discard($self, key, /)\n--\n\nTake one copy of the key out if it is there; True if \
it was.";
    install_method(class, "_discard_one", c"discard", doc, discard_one::<T>)
}

/// Puts a one-argument method of the fastest kind there is on the class, as this attribute. Messages
/// and `help` call it by its name.
fn install_method(
    class: &Bound<'_, PyType>,
    attribute: &str,
    name: &'static CStr,
    doc: &'static CStr,
    function: ffi::PyCFunction,
) -> PyResult<()> {
    // A method definition must outlive the class, which is never freed.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
        ml_flags: ffi::METH_O,
        ml_doc: doc.as_ptr(),
    }));
    // SAFETY: the class is a live type object and the definition lives for ever.
    let method = unsafe {
        let made = ffi::PyDescr_NewMethod(class.as_type_ptr(), &raw mut *definition);
        Bound::from_owned_ptr_or_err(class.py(), made)?
    };
    class.setattr(attribute, method)
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
    // SAFETY: as promised above; a panic cannot cross, since nothing here panics on input. (To catch
    // it would take 6 ns of 25.)
    unsafe {
        let py = Python::assume_attached();
        let filter = Borrowed::from_ptr(py, slf).cast_unchecked::<T>();
        let filter = filter.get();
        let key = Borrowed::from_ptr(py, key);
        answer(py, hash_key(key, filter.hasher()).and_then(|h| filter.add(py, h)))
    }
}

/// A bool, or an error, as a C method returns it.
#[inline(always)]
fn answer(py: Python<'_>, result: PyResult<bool>) -> *mut ffi::PyObject {
    match result {
        Ok(answer) => {
            // SAFETY: True and False live for ever; the caller gets a reference of its own.
            unsafe {
                let answer = if answer { ffi::Py_True() } else { ffi::Py_False() };
                ffi::Py_INCREF(answer);
                answer
            }
        }
        Err(problem) => {
            problem.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As for `add_one`.
unsafe extern "C" fn remove_one<T: RemoveKey>(
    slf: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as for `add_one`.
    unsafe {
        let py = Python::assume_attached();
        let filter = Borrowed::from_ptr(py, slf).cast_unchecked::<T>();
        let filter = filter.get();
        let key = Borrowed::from_ptr(py, key);
        let found = hash_key(key, filter.hasher()).and_then(|h| filter.remove(py, h));
        let missing = || PyKeyError::new_err(key.to_owned().unbind());
        answer(py, found.and_then(|found| found.ok_or_else(missing)))
    }
}

/// # Safety
/// As for `add_one`.
unsafe extern "C" fn discard_one<T: RemoveKey>(
    slf: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as for `add_one`.
    unsafe {
        let py = Python::assume_attached();
        let filter = Borrowed::from_ptr(py, slf).cast_unchecked::<T>();
        let filter = filter.get();
        let key = Borrowed::from_ptr(py, key);
        let found = hash_key(key, filter.hasher()).and_then(|h| filter.remove(py, h));
        answer(py, found.map(|found| found == Some(true)))
    }
}

/// `contains`: `in` as a method.
///
/// # Safety
/// As for `add_one`.
unsafe extern "C" fn contains_method<T: OneKey>(
    slf: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as for `add_one`.
    unsafe {
        let py = Python::assume_attached();
        let filter = Borrowed::from_ptr(py, slf).cast_unchecked::<T>();
        let filter = filter.get();
        let key = Borrowed::from_ptr(py, key);
        answer(py, hash_key(key, filter.hasher()).and_then(|h| filter.contains(py, h)))
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

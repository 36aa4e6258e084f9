//! `add`, `in` and `remove` as the interpreter calls them fastest: without packing arguments, without
//! a trampoline. All other methods are PyO3's.

use std::any::Any;
use std::ffi::CStr;
use std::os::raw::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bloomery_core::hash::KeyHasher;
use pyo3::exceptions::PyKeyError;
use pyo3::panic::PanicException;
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
    /// Panics where a single key is added, or where a `long` batch is.
    fn panic(&self, py: Python<'_>, long: bool) -> PyResult<bool>;
}

/// A filter class from which keys can be taken: `None` if the key was definitely not there, else
/// whether it could be.
pub trait RemoveKey: OneKey {
    fn remove(&self, py: Python<'_>, h: u64) -> PyResult<Option<bool>>;
}

/// Puts both on the class, before Python makes subclasses of it.
pub fn install<T: OneKey>(py: Python<'_>) -> PyResult<()> {
    let class = &py.get_type::<T>();
    let doc = c"add($self, key, /)\n--\n\nAdd the key; True if it is definitely new.";
    install_method(class, c"add", doc, add_one::<T>)?;
    let doc = c"_panic($self, long, /)\n--\n\nPanic inside, for tests of what happens then.";
    install_method(class, c"_panic", doc, panic_one::<T>)?;
    install_contains::<T>(class)
}

/// The same for classes from which keys can be removed; which of their subclasses show it, and
/// under which name, is Python's business.
pub fn install_remove<T: RemoveKey>(py: Python<'_>) -> PyResult<()> {
    let class = &py.get_type::<T>();
    let doc = c"_remove_one($self, key, /)\n--\n\nTake one copy of the key out; KeyError if it is \
definitely not there.\n\nTrue: it was taken out. False: it may be there and cannot be.";
    install_method(class, c"_remove_one", doc, remove_one::<T>)?;
    let doc =
        c"_discard_one($self, key, /)\n--\n\nTake one copy of the key out if it is there; True \
if it was.";
    install_method(class, c"_discard_one", doc, discard_one::<T>)
}

/// Puts a one-argument method of the fastest kind there is on the class.
fn install_method(
    class: &Bound<'_, PyType>,
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
    class.setattr(&*name.to_string_lossy(), method)
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
    // SAFETY: as promised above.
    unsafe {
        let py = Python::assume_attached();
        let filter = Borrowed::from_ptr(py, slf).cast_unchecked::<T>();
        let filter = filter.get();
        let key = Borrowed::from_ptr(py, key);
        answer(py, || filter.add(py, hash_key(key, filter.hasher())?))
    }
}

/// # Safety
/// As for `add_one`.
unsafe extern "C" fn panic_one<T: OneKey>(
    slf: *mut ffi::PyObject,
    long: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as for `add_one`.
    unsafe {
        let py = Python::assume_attached();
        let filter = Borrowed::from_ptr(py, slf).cast_unchecked::<T>();
        let long = Borrowed::from_ptr(py, long);
        answer(py, || filter.get().panic(py, long.is_truthy()?))
    }
}

/// Runs what may panic where a panic must not get out, into C: it is raised, as PyO3 does it.
#[inline(always)]
fn caught<R>(work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    #[cold]
    fn raised(panic: Box<dyn Any + Send>) -> PyErr {
        let message = match panic.downcast::<String>() {
            Ok(message) => *message,
            Err(panic) => panic.downcast_ref::<&str>().unwrap_or(&"a panic").to_string(),
        };
        PanicException::new_err(message)
    }
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(raised(panic)))
}

/// A bool, or an error, as a C method returns it.
#[inline(always)]
fn answer(py: Python<'_>, work: impl FnOnce() -> PyResult<bool>) -> *mut ffi::PyObject {
    match caught(work) {
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
        answer(py, || {
            let found = filter.remove(py, hash_key(key, filter.hasher())?)?;
            found.ok_or_else(|| PyKeyError::new_err(key.to_owned().unbind()))
        })
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
        answer(py, || Ok(filter.remove(py, hash_key(key, filter.hasher())?)? == Some(true)))
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
        match caught(|| filter.contains(py, hash_key(key, filter.hasher())?)) {
            Ok(maybe) => c_int::from(maybe),
            Err(problem) => {
                problem.restore(py);
                -1
            }
        }
    }
}

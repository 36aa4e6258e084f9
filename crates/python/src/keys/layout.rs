//! What is in a str, an int or a UUID, read where CPython keeps it. Versions whose layout is not known
//! here take a call, or the long way (key.rs).

use std::os::raw::c_int;

#[cfg(Py_3_14)]
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
#[cfg(Py_3_14)]
use pyo3::types::string::PyStringData;
use pyo3::types::{PyInt, PyString, PyType};
use pyo3::{ffi, intern};

/// The characters of a str, one unit each. ASCII is Latin-1 that is known to be UTF-8 too.
pub enum Units<'a> {
    Ascii(&'a [u8]),
    Latin1(&'a [u8]),
    Ucs2(&'a [u16]),
    Ucs4(&'a [u32]),
}

/// The bytes of an ASCII str.
///
/// # Safety
/// `object` is a live, exact str; the bytes live as long as it does.
#[cfg(not(Py_3_14))]
#[inline(always)]
pub unsafe fn compact_ascii<'a>(object: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: as promised above; CPython keeps them right behind the head.
    unsafe {
        if ffi::PyUnicode_IS_COMPACT_ASCII(object) == 0 {
            return None;
        }
        let start = object.cast::<ffi::PyASCIIObject>().add(1).cast::<u8>();
        Some(std::slice::from_raw_parts(start, ffi::PyUnicode_GET_LENGTH(object) as usize))
    }
}

/// From 3.14 on the head's flags are not to be read directly; one byte a character and all of them
/// ASCII comes to the same.
#[cfg(Py_3_14)]
#[inline(always)]
pub unsafe fn compact_ascii<'a>(object: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: as promised above.
    match unsafe { units(object) } {
        Some(Units::Ascii(units)) => Some(units),
        _ => None,
    }
}

/// The units of a str; None of one from before Python 3.12 that was not made in one piece.
///
/// # Safety
/// As for `compact_ascii`.
#[cfg(not(Py_3_14))]
#[inline(always)]
pub unsafe fn units<'a>(object: *mut ffi::PyObject) -> Option<Units<'a>> {
    // Of the head's bits, from the lowest: two that say whether it is interned, three for the bytes
    // of a unit, whether all is in one piece, and whether it is ASCII. PyO3 reads them one by one.
    const _: () = assert!(cfg!(target_endian = "little"));
    const COMPACT: u32 = 1 << 5;
    const ASCII: u32 = 1 << 6;
    // SAFETY: as promised above; the units lie right behind the head, which ASCII has a shorter one of.
    unsafe {
        let head = object.cast::<ffi::PyASCIIObject>();
        let (state, len) = ((*head).state, (*head).length as usize);
        if state & COMPACT == 0 {
            return None;
        }
        if state & ASCII != 0 {
            return Some(Units::Ascii(std::slice::from_raw_parts(head.add(1).cast(), len)));
        }
        let start = object.cast::<ffi::PyCompactUnicodeObject>().add(1);
        match state >> 2 & 7 {
            1 => Some(Units::Latin1(std::slice::from_raw_parts(start.cast(), len))),
            2 => Some(Units::Ucs2(std::slice::from_raw_parts(start.cast(), len))),
            4 => Some(Units::Ucs4(std::slice::from_raw_parts(start.cast(), len))),
            _ => None,
        }
    }
}

#[cfg(Py_3_14)]
#[inline(always)]
pub unsafe fn units<'a>(object: *mut ffi::PyObject) -> Option<Units<'a>> {
    // SAFETY: as promised above; the units live as long as the str, and not only as this reference.
    unsafe {
        let text = Borrowed::from_ptr(Python::assume_attached(), object);
        let found = match text.cast_unchecked::<PyString>().data().ok()? {
            PyStringData::Ucs1(units) if units.is_ascii() => Units::Ascii(longer(units)),
            PyStringData::Ucs1(units) => Units::Latin1(longer(units)),
            PyStringData::Ucs2(units) => Units::Ucs2(longer(units)),
            PyStringData::Ucs4(units) => Units::Ucs4(longer(units)),
        };
        Some(found)
    }
}

#[cfg(Py_3_14)]
unsafe fn longer<'a, U>(units: &[U]) -> &'a [U] {
    // SAFETY: the caller knows how long they live.
    unsafe { std::slice::from_raw_parts(units.as_ptr(), units.len()) }
}

/// The digits of an int, of 30 bits each, from the lowest, and whether it is negative; None where the
/// layout is not known.
///
/// # Safety
/// `object` is a live, exact int; the digits live as long as it does.
#[inline(always)]
unsafe fn digits<'a>(object: *mut ffi::PyObject) -> Option<(&'a [u32], bool)> {
    if cfg!(Py_3_15) {
        return None;
    }
    // SAFETY: as promised above; behind an int's head lie its tag and its digits.
    unsafe {
        let tag = object.add(1).cast::<isize>().read();
        let (count, negative) = if cfg!(Py_3_12) {
            ((tag as usize) >> 3, tag & 3 == 2) // number of digits; sign: 0, zero 1, minus 2
        } else {
            (tag.unsigned_abs(), tag < 0) // the number of digits, negative as the int is
        };
        let first = object.add(1).cast::<isize>().add(1).cast::<u32>();
        Some((std::slice::from_raw_parts(first, count), negative))
    }
}

/// The value of an int of up to 63 bits and a sign, read where it lies: 3 ns less than a call. None
/// if it is longer, or where the layout is not known.
///
/// # Safety
/// `object` is a live, exact int.
#[inline(always)]
pub unsafe fn short_int(object: *mut ffi::PyObject) -> Option<i64> {
    // SAFETY: as promised above.
    let (digits, negative) = unsafe { digits(object) }?;
    let value = match *digits {
        [] => 0,
        [low] => i64::from(low),
        [low, high] => i64::from(low) | i64::from(high) << 30,
        [low, middle, high @ 0..8] => {
            i64::from(low) | i64::from(middle) << 30 | i64::from(high) << 60
        }
        _ => return None,
    };
    Some(if negative { -value } else { value })
}

/// The value of an int that fits.
///
/// # Safety
/// `object` is a live, exact int.
#[inline(always)]
pub unsafe fn int64(object: *mut ffi::PyObject) -> Option<i64> {
    // SAFETY: as promised above.
    unsafe {
        if let Some(value) = short_int(object) {
            return Some(value);
        }
        let mut overflow: c_int = 0;
        let value = ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow);
        (overflow == 0).then_some(value)
    }
}

/// The value of an int of 128 bits at most that is not negative; None if it is another, or where the
/// layout is not known.
///
/// # Safety
/// `object` is a live, exact int.
#[inline(always)]
unsafe fn uint128(object: *mut ffi::PyObject) -> Option<u128> {
    // SAFETY: as promised above.
    let (digits, negative) = unsafe { digits(object) }?;
    let top = digits.get(4).copied().unwrap_or(0);
    if negative || digits.len() > 5 || top >= 1 << 8 {
        return None;
    }
    let digit = |i: usize| u128::from(digits.get(i).copied().unwrap_or(0));
    Some(digit(0) | digit(1) << 30 | digit(2) << 60 | digit(3) << 90 | u128::from(top) << 120)
}

/// The class `uuid.UUID`, and where its instances keep their number.
struct Uuid {
    class: Py<PyType>,
    /// Bytes from an instance's start; None where it is not kept in a slot, or not to be read there.
    slot: Option<usize>,
}

static UUID: PyOnceLock<Uuid> = PyOnceLock::new();

/// The class `uuid.UUID`; imported by the first key that is none of the plainer kinds.
pub fn uuid_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let found = UUID.get_or_try_init(py, || {
        let class = py.import("uuid")?.getattr("UUID")?.cast_into::<PyType>()?;
        let slot = slot(&class, intern!(py, "int"))?;
        PyResult::Ok(Uuid { class: class.unbind(), slot })
    })?;
    Ok(found.class.bind(py))
}

/// Where the instances of a class keep what its `__slots__` name so.
fn slot(class: &Bound<'_, PyType>, name: &Bound<'_, PyString>) -> PyResult<Option<usize>> {
    // Without the interpreter lock another thread may free the number while it is read.
    if cfg!(Py_GIL_DISABLED) {
        return Ok(None);
    }
    let member = class.getattr(name)?;
    // SAFETY: an object of this type is a PyMemberDescrObject, and what it points to lives with it.
    unsafe {
        if ffi::Py_TYPE(member.as_ptr()) != &raw mut ffi::PyMemberDescr_Type {
            return Ok(None);
        }
        let definition = (*member.as_ptr().cast::<ffi::PyMemberDescrObject>()).d_member;
        let definition = definition.cast::<ffi::PyMemberDef>();
        let is_object = (*definition).type_code == ffi::Py_T_OBJECT_EX;
        Ok(usize::try_from((*definition).offset).ok().filter(|_| is_object))
    }
}

/// The number of a UUID, of exactly this class. None if it is anything else, no UUID was met yet, or
/// somebody put something into it that is not such a number.
///
/// No Python code runs. With the digits read at once, this took a UUID from 63 to 47 ns.
///
/// # Safety
/// `object` is alive.
#[inline(always)]
pub unsafe fn uuid_value(py: Python<'_>, object: *mut ffi::PyObject) -> Option<u128> {
    let Uuid { class, slot } = UUID.get(py)?;
    // SAFETY: the class is asked before its slot is read, which holds an object or null.
    unsafe {
        if ffi::Py_TYPE(object) != class.as_ptr().cast() {
            return None;
        }
        let int = object.byte_add((*slot)?).cast::<ffi::PyObject>();
        let int = int.cast::<*mut ffi::PyObject>().read();
        if int.is_null() || ffi::Py_TYPE(int) != &raw mut ffi::PyLong_Type {
            return None;
        }
        uint128(int)
    }
}

/// As `uuid_value`, where the number is not to be read in its slot.
pub fn uuid_attribute(key: &Bound<'_, PyAny>) -> Option<u128> {
    let py = key.py();
    if !key.get_type().is(uuid_class(py).ok()?) {
        return None;
    }
    let int = key.getattr(intern!(py, "int")).ok()?;
    if !int.is_exact_instance_of::<PyInt>() {
        return None;
    }
    // SAFETY: an exact int.
    unsafe { uint128(int.as_ptr()) }
}

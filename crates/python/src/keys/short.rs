//! Keys whose canonical bytes are made on the stack: short text that is not ASCII, UUIDs, and tuples of
//! short parts. No Python code runs, and no reference is taken.
//!
//! What the bytes are is said in key.rs, whose long way all other keys take; this agrees with it.

use std::mem::MaybeUninit;

use bloomery_core::hash::{Domain, KeyHasher};
use bloomery_core::utf8::{self, Unit};
use pyo3::prelude::*;
use pyo3::{Borrowed, ffi};

use crate::keys::layout::{Units, int64, units, uuid_value};

/// The most bytes of such a key. Text needs room for all that its characters could take.
const ROOM: usize = 320;

/// Of a part of a tuple: its domain and its length.
const HEAD: usize = 5;

/// The hash of a key; None if it takes the long way.
#[inline(always)]
pub fn hash_short(key: Borrowed<'_, '_, PyAny>, hasher: &KeyHasher) -> Option<u64> {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut bytes = Short { room: &mut room, len: 0 };
    // SAFETY: the key is alive, and keeps its parts alive.
    let domain = unsafe { bytes.key(key.py(), key.as_ptr()) }?;
    Some(hasher.hash(domain, bytes.filled()))
}

/// The hash of few characters, of which some are not ASCII, where there is a faster way to it than
/// their bytes; None if there is not.
///
/// # Safety
/// `object` is a live, exact str.
#[inline(never)]
pub unsafe fn hash_text(object: *mut ffi::PyObject, hasher: &KeyHasher) -> Option<u64> {
    // SAFETY: as promised above.
    match unsafe { units(object) }? {
        Units::Latin1(units) => u8::hash_few(units, hasher),
        Units::Ucs2(units) => u16::hash_few(units, hasher),
        Units::Ascii(_) | Units::Ucs4(_) => None,
    }
}

/// Bytes one behind the other. The memory is not cleared first: that took 15 ns of 45.
struct Short<'a> {
    room: &'a mut [MaybeUninit<u8>; ROOM],
    /// So many of them are written.
    len: usize,
}

impl Short<'_> {
    #[inline(always)]
    fn filled(&self) -> &[u8] {
        // SAFETY: so many are written, which is no more than there are.
        unsafe { std::slice::from_raw_parts(self.room.as_ptr().cast(), self.len) }
    }

    /// Appends the bytes of a key; None if there is no room, or another way is to be taken.
    ///
    /// # Safety
    /// `object` is alive until the end.
    #[inline(always)]
    unsafe fn key(&mut self, py: Python<'_>, object: *mut ffi::PyObject) -> Option<Domain> {
        // SAFETY: as promised above; the exact type is asked before what is in it.
        unsafe {
            if ffi::Py_TYPE(object) != &raw mut ffi::PyTuple_Type {
                return self.part(py, object);
            }
            for i in 0..ffi::PyTuple_GET_SIZE(object) {
                let start = self.len;
                self.copy(&[0; HEAD])?;
                let domain = self.part(py, ffi::PyTuple_GET_ITEM(object, i))?;
                let len = (self.len - start - HEAD) as u64;
                let head = (len << 8 | domain as u64).to_le_bytes();
                self.put(start, &head[..HEAD]);
            }
        }
        Some(Domain::Tuple)
    }

    /// # Safety
    /// As for `key`.
    #[inline(always)]
    unsafe fn part(&mut self, py: Python<'_>, object: *mut ffi::PyObject) -> Option<Domain> {
        // SAFETY: as in `key`.
        unsafe {
            let class = ffi::Py_TYPE(object);
            if class == &raw mut ffi::PyUnicode_Type {
                match units(object)? {
                    Units::Ascii(units) => self.copy(units),
                    Units::Latin1(units) => self.text(units),
                    Units::Ucs2(units) => self.text(units),
                    Units::Ucs4(units) => self.text(units),
                }?;
                return Some(Domain::Bytes);
            }
            if class == &raw mut ffi::PyLong_Type {
                self.copy(&int64(object)?.to_le_bytes())?;
                return Some(Domain::Int);
            }
            if class == &raw mut ffi::PyBytes_Type {
                let start = ffi::PyBytes_AS_STRING(object).cast();
                let len = ffi::Py_SIZE(object) as usize;
                self.copy(std::slice::from_raw_parts(start, len))?;
                return Some(Domain::Bytes);
            }
            self.copy(&uuid_value(py, object)?.to_be_bytes())?;
            Some(Domain::Uuid)
        }
    }

    #[inline(always)]
    fn text<U: Unit>(&mut self, units: &[U]) -> Option<()> {
        self.len += utf8::encode(units, &mut self.room[self.len..])?;
        Some(())
    }

    #[inline(always)]
    fn copy(&mut self, bytes: &[u8]) -> Option<()> {
        self.put(self.len, bytes).then(|| self.len += bytes.len())
    }

    /// Writes bytes from this one on; false if there is no room.
    #[inline(always)]
    fn put(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(room) = self.room.get_mut(at..).and_then(|room| room.get_mut(..bytes.len()))
        else {
            return false;
        };
        // SAFETY: there is room, of this key's own.
        unsafe {
            room.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        true
    }
}

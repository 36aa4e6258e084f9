//! Filters as native functions of DuckDB, which asks them without Python and without a copy.
//!
//! DuckDB lets a program that it is part of link extensions of its own: `offer_to_duckdb` says to
//! the DuckDB of this process that there is one, and every database that is opened from then on
//! calls `entry`, which gives it one function for each kind of key. All is reached by the names of
//! DuckDB's public C API, which its module exports; nothing is linked, and where a name is missing
//! there is no native function and callers do without.
//!
//! A function's first argument is the number of a filter, its second the keys. DuckDB calls it from
//! threads of its own, without the interpreter lock. So a filter whose memory moves has one more
//! counted in at its gate while it has a number, and everybody takes the gate's lock (gate.rs).

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hint::select_unpredictable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use bloomery_core::batch::{BLOCK, Op};
use bloomery_core::hash::{Domain, KeyHasher};
use pyo3::prelude::*;

use crate::filters::bloom::Bloom;
use crate::filters::bloom_batch::Batch;
use crate::filters::family::Family;
use crate::filters::sections::{begin_elsewhere, detached};
use crate::keys::batch::{Inside, in_order};
use crate::keys::column::{Column, Data, Int};

type Handle = *mut c_void;
type Function = unsafe extern "C" fn(Handle, Handle, Handle);
type Describe = unsafe extern "C" fn(*mut Descriptor) -> i32;

/// What is used of DuckDB's C API, each under its name there without `duckdb_`.
macro_rules! api {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Api { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Api {
            /// None if one is missing.
            ///
            /// # Safety
            /// `library` is an open DuckDB.
            unsafe fn find(library: Handle) -> Option<Api> {
                Some(Api { $($name: {
                    let name = concat!("duckdb_", stringify!($name), "\0");
                    // SAFETY: a name that ends in a NUL; what DuckDB has under it is of this type.
                    unsafe {
                        let found = dlsym(library, name.as_ptr().cast());
                        if found.is_null() {
                            return None;
                        }
                        std::mem::transmute::<
                            Handle,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(found)
                    }
                },)* })
            }
        }
    };
}

api! {
    register_static_extension: fn(Describe) -> i32;
    connect: fn(Handle, *mut Handle) -> c_int;
    disconnect: fn(*mut Handle);
    create_logical_type: fn(c_int) -> Handle;
    destroy_logical_type: fn(*mut Handle);
    create_scalar_function: fn() -> Handle;
    destroy_scalar_function: fn(*mut Handle);
    scalar_function_set_name: fn(Handle, *const c_char);
    scalar_function_add_parameter: fn(Handle, Handle);
    scalar_function_set_return_type: fn(Handle, Handle);
    scalar_function_set_function: fn(Handle, Function);
    scalar_function_set_error: fn(Handle, *const c_char);
    register_scalar_function: fn(Handle, Handle) -> c_int;
    data_chunk_get_size: fn(Handle) -> u64;
    data_chunk_get_vector: fn(Handle, u64) -> Handle;
    vector_get_data: fn(Handle) -> Handle;
    vector_get_validity: fn(Handle) -> *mut u64;
    vector_ensure_validity_writable: fn(Handle);
}

#[cfg(unix)]
unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> Handle;
    fn dlsym(library: Handle, name: *const c_char) -> Handle;
}

/// Elsewhere there is no DuckDB to be found.
#[cfg(not(unix))]
unsafe fn dlopen(_path: *const c_char, _flags: c_int) -> Handle {
    std::ptr::null_mut()
}

#[cfg(not(unix))]
unsafe fn dlsym(_library: Handle, _name: *const c_char) -> Handle {
    std::ptr::null_mut()
}

/// On Linux, macOS and the BSDs alike.
const RTLD_NOW: c_int = 2;

static API: OnceLock<Option<Api>> = OnceLock::new();

/// How DuckDB is told of an extension: layout 1 of its `duckdb_static_extension.h`.
#[repr(C)]
struct Descriptor {
    version: u32,
    set_error: Handle,
    internal: Handle,
    name: *const c_char,
    extension_version: *const c_char,
    api_version: *const c_char,
    entry_cpp: Handle,
    entry_capi_v1: Option<unsafe extern "C" fn(Handle, *const Access) -> bool>,
    entry_capi_v2: Handle,
}

/// What an extension is given when a database is opened.
#[repr(C)]
struct Access {
    set_error: Handle,
    get_database: Option<unsafe extern "C" fn(Handle) -> *mut Handle>,
}

/// The functions, with DuckDB's number for the type of their keys. Those of `register` have a second
/// underscore in their names.
const FUNCTIONS: [(&CStr, c_int, Function); 5] = [
    (c"bloomery_int", 5, ints),
    (c"bloomery_uint", 9, uints),
    (c"bloomery_text", 17, texts),
    (c"bloomery_blob", 18, texts),
    (c"bloomery_uuid", 27, uuids),
];
const BOOLEAN: c_int = 1;
const UINTEGER: c_int = 8;

/// Gives the functions to databases that the DuckDB in this file, a loaded module, opens from now
/// on; False if it cannot be.
#[pyfunction]
pub fn offer_to_duckdb(path: CString) -> bool {
    let api = API.get_or_init(|| {
        // SAFETY: the module is loaded already, so that no code runs.
        unsafe {
            let library = dlopen(path.as_ptr(), RTLD_NOW);
            if library.is_null() { None } else { Api::find(library) }
        }
    });
    // SAFETY: `describe` is what is asked for; to offer it again does nothing.
    api.as_ref().is_some_and(|api| unsafe { (api.register_static_extension)(describe) } == 0)
}

unsafe extern "C" fn describe(descriptor: *mut Descriptor) -> i32 {
    // SAFETY: DuckDB's own, in a layout that has all of the one it offers, or more.
    let descriptor = unsafe { &mut *descriptor };
    if descriptor.version < 1 {
        return 1;
    }
    descriptor.version = 1;
    descriptor.name = c"bloomery".as_ptr();
    descriptor.extension_version = concat!("v", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast();
    descriptor.api_version = c"v1.2.0".as_ptr();
    descriptor.entry_capi_v1 = Some(entry);
    0
}

/// Called for each database. What fails leaves it without the functions: to say so would make
/// opening it fail.
unsafe extern "C" fn entry(info: Handle, access: *const Access) -> bool {
    let Some(Some(api)) = API.get() else { return true };
    // SAFETY: called by DuckDB with what is its own; each thing that is made is destroyed.
    unsafe {
        let Some(get_database) = (*access).get_database else { return true };
        let (database, mut con) = (get_database(info), std::ptr::null_mut());
        if database.is_null() || (api.connect)(*database, &raw mut con) != 0 {
            return true;
        }
        for (name, kind, work) in FUNCTIONS {
            let mut function = (api.create_scalar_function)();
            (api.scalar_function_set_name)(function, name.as_ptr());
            for (kind, set) in [
                (UINTEGER, api.scalar_function_add_parameter),
                (kind, api.scalar_function_add_parameter),
                (BOOLEAN, api.scalar_function_set_return_type),
            ] {
                let mut kind = (api.create_logical_type)(kind);
                set(function, kind);
                (api.destroy_logical_type)(&raw mut kind);
            }
            (api.scalar_function_set_function)(function, work);
            (api.register_scalar_function)(con, function);
            (api.destroy_scalar_function)(&raw mut function);
        }
        (api.disconnect)(&raw mut con);
    }
    true
}

/// Filters that have a number.
static FILTERS: RwLock<Option<HashMap<u32, Arc<Asked>>>> = RwLock::new(None);

enum Asked {
    Bloom(Py<Bloom>),
    Family(Guest),
}

/// A filter at whose gate one more is counted in.
struct Guest(Py<Family>);

impl Guest {
    fn new(filter: &Bound<'_, Family>) -> Guest {
        filter.get().gate.count_in(filter.py());
        Guest(filter.clone().unbind())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.get().gate.count_out();
    }
}

impl Asked {
    fn hasher(&self) -> KeyHasher {
        match self {
            Asked::Bloom(filter) => filter.get().hasher,
            Asked::Family(guest) => guest.0.get().hasher,
        }
    }

    /// False if the filter is broken.
    fn enter(&self, work: impl FnOnce(&mut dyn Inside)) -> bool {
        match self {
            Asked::Bloom(filter) => work(&mut Batch(filter.get(), Op::Contains)),
            // SAFETY: the guest is counted in.
            Asked::Family(guest) => return unsafe { guest.0.get().ask_counted(work) },
        }
        true
    }
}

/// A filter's number, until it is dropped. A chunk that is being answered keeps the filter until it
/// is done; a query that goes on after that fails with its next chunk.
#[pyclass(frozen, module = "bloomery._native")]
pub struct DuckDBFilter {
    #[pyo3(get)]
    number: u32,
}

#[pymethods]
impl DuckDBFilter {
    /// None if only Python can ask the filter.
    #[staticmethod]
    fn of(filter: &Bound<'_, PyAny>) -> PyResult<Option<DuckDBFilter>> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let py = filter.py();
        let asks = filter.get_type().getattr("contains_many")?;
        let asked = if let Ok(bloom) = filter.cast::<Bloom>()
            && asks.is(py.get_type::<Bloom>().getattr("contains_many")?)
        {
            Asked::Bloom(bloom.clone().unbind())
        } else if let Ok(family) = filter.cast::<Family>()
            && asks.is(py.get_type::<Family>().getattr("contains_many")?)
            && !family.get().timed
        {
            Asked::Family(Guest::new(family))
        } else {
            return Ok(None);
        };
        let number = NEXT.fetch_add(1, Relaxed);
        detached(py, || {
            let mut filters = FILTERS.write().unwrap_or_else(PoisonError::into_inner);
            filters.get_or_insert_default().insert(number, Arc::new(asked));
        });
        Ok(Some(DuckDBFilter { number }))
    }
}

impl Drop for DuckDBFilter {
    fn drop(&mut self) {
        let mut filters = FILTERS.write().unwrap_or_else(PoisonError::into_inner);
        let last = filters.as_mut().and_then(|filters| filters.remove(&self.number));
        drop(filters); // before the filter, which may run Python code as it goes
        drop(last);
    }
}

/// A vector of keys: DuckDB flattens the arguments of such a function, so that row is by row.
struct Keys {
    start: *const u8,
    /// A bit for each row that is not NULL; null if all are not.
    validity: *const u64,
    len: usize,
}

impl Keys {
    fn is_null(&self, row: usize) -> bool {
        // SAFETY: there is a bit for each row.
        !self.validity.is_null() && unsafe { *self.validity.add(row / 64) >> (row % 64) & 1 == 0 }
    }

    /// The answers for what `hash` makes of each row of `width` bytes; NULLs get any.
    fn ask(
        &self,
        inside: &mut dyn Inside,
        width: usize,
        hash: impl Fn(*const u8) -> u64,
        answers: &mut [u8],
    ) {
        let mut rows = 0..self.len;
        let mut blocks = |block: &mut [u64; BLOCK]| {
            let count = rows.len().min(BLOCK);
            for (h, row) in block.iter_mut().zip(rows.by_ref().take(count)) {
                *h = if self.is_null(row) { 0 } else { hash(self.start.wrapping_add(row * width)) };
            }
            Ok(count)
        };
        let _ = inside.hashes(&mut blocks, &mut in_order(answers)); // questions are never refused
    }

    /// Ints of 64 bits; those of NULLs are there and mean nothing.
    fn ask_ints(&self, inside: &mut dyn Inside, signed: bool, answers: &mut [u8]) {
        let kind = Int { width: 8, signed, swapped: false, truth: false };
        let data = Data::Ints { start: self.start, stride: 8, kind };
        let column = Column { data, len: self.len, valid: None, unchecked: false };
        let _ = inside.rows(&column, 0, answers);
    }
}

unsafe extern "C" fn ints(info: Handle, chunk: Handle, result: Handle) {
    // SAFETY: called by DuckDB, with ints of this kind.
    unsafe {
        answer(info, chunk, result, |keys, inside, _, out| keys.ask_ints(inside, true, out));
    }
}

unsafe extern "C" fn uints(info: Handle, chunk: Handle, result: Handle) {
    // SAFETY: as above.
    unsafe {
        answer(info, chunk, result, |keys, inside, _, out| keys.ask_ints(inside, false, out));
    }
}

unsafe extern "C" fn texts(info: Handle, chunk: Handle, result: Handle) {
    let key = |at: *const u8| {
        // SAFETY: a `duckdb_string_t`: a length of 32 bits, then up to 12 bytes, or in the second
        // half of the 16 bytes a pointer to more.
        unsafe {
            let len = at.cast::<u32>().read_unaligned() as usize;
            let far = at.add(8).cast::<*const u8>().read_unaligned();
            // As in column.rs: a branch would often be foreseen wrongly.
            let start = select_unpredictable(len > 12, far, at.add(4));
            std::slice::from_raw_parts(start, len)
        }
    };
    // SAFETY: called by DuckDB, with VARCHARs or BLOBs.
    unsafe {
        answer(info, chunk, result, |keys, inside, hasher, out| {
            keys.ask(inside, 16, |at| hasher.hash_bytes(key(at)), out);
        });
    }
}

unsafe extern "C" fn uuids(info: Handle, chunk: Handle, result: Handle) {
    // A signed int of 128 bits whose order is that of the UUIDs: so their first bit is flipped.
    // SAFETY: called by DuckDB, with UUIDs.
    unsafe {
        answer(info, chunk, result, |keys, inside, hasher, out| {
            let key = |at: *const u8| at.cast::<u128>().read_unaligned() ^ (1 << 127);
            keys.ask(inside, 16, |at| hasher.hash(Domain::Uuid, &key(at).to_be_bytes()), out);
        });
    }
}

/// Answers for a chunk of rows: numbers of filters, all the same, and keys.
///
/// # Safety
/// Called by DuckDB, from a function of two arguments.
unsafe fn answer(
    info: Handle,
    chunk: Handle,
    result: Handle,
    work: impl FnOnce(&Keys, &mut dyn Inside, &KeyHasher, &mut [u8]),
) {
    // Without it `entry` would have given no function to call.
    let Some(Some(api)) = API.get() else { unreachable!("the API was found before") };
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: vectors have as many rows as their chunk, and the result as many bools.
        let (numbers, keys, answers) = unsafe {
            let len = (api.data_chunk_get_size)(chunk) as usize;
            if len == 0 {
                return Ok(());
            }
            let (first, second) =
                ((api.data_chunk_get_vector)(chunk, 0), (api.data_chunk_get_vector)(chunk, 1));
            let validity = (api.vector_get_validity)(second);
            if !validity.is_null() {
                (api.vector_ensure_validity_writable)(result);
                let to = (api.vector_get_validity)(result);
                std::ptr::copy_nonoverlapping(validity, to, len.div_ceil(64));
            }
            let start = (api.vector_get_data)(second).cast_const().cast();
            let numbers = (api.vector_get_data)(first).cast_const().cast::<u32>();
            let answers = (api.vector_get_data)(result).cast::<u8>();
            (
                std::slice::from_raw_parts(numbers, len),
                Keys { start, validity, len },
                std::slice::from_raw_parts_mut(answers, len),
            )
        };
        let _section = begin_elsewhere();
        let number = numbers[0];
        if numbers.iter().fold(false, |other, each| other | (*each != number)) {
            return Err(c"the number of a filter must be the same in all rows");
        }
        let filter = {
            let filters = FILTERS.read().unwrap_or_else(PoisonError::into_inner);
            filters.as_ref().and_then(|filters| filters.get(&number).cloned())
        };
        let filter = filter.ok_or(c"the filter of this function was unregistered")?;
        let whole = filter.enter(|inside| work(&keys, inside, &filter.hasher(), answers));
        if whole { Ok(()) } else { Err(c"the filter was left half changed by an internal error") }
    }));
    if let Err(message) = done.unwrap_or(Err(c"internal error of bloomery")) {
        // SAFETY: DuckDB copies the message.
        unsafe { (api.scalar_function_set_error)(info, message.as_ptr()) };
    }
}

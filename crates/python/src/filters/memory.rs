//! A filter's memory as Python sees it: filled by a loader, read by a saver.

#[cfg(unix)]
use std::fs::File;
#[cfg(unix)]
use std::io::ErrorKind;
#[cfg(unix)]
use std::mem::ManuallyDrop;
#[cfg(unix)]
use std::os::fd::FromRawFd;
use std::os::raw::c_int;
#[cfg(unix)]
use std::os::unix::fs::FileExt;
#[cfg(unix)]
use std::sync::Condvar;
#[cfg(unix)]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bloomery_core::bits::{self, Bits, LINE_BYTES};
use bloomery_core::budget;
use bloomery_core::format::checksum;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::errors::{invalid, no_memory};
use crate::filters::bloom::Bloom;
use crate::keys::buffer::BufferView;

/// Memory that a loader fills and then hands to a filter, which has it to itself from then on.
#[pyclass(frozen, module = "bloomery._native")]
pub struct Memory(Mutex<Option<Bits>>);

/// Bytes: a huge page of most systems.
const TOUCHED_AT_ONCE: usize = 2 << 20;

impl Memory {
    pub fn new(bits: Bits) -> Self {
        Memory(Mutex::new(Some(bits)))
    }

    /// The bits; while another thread has them, which may wait for the interpreter, it is let go of.
    fn lock<'a>(&'a self, py: Python<'a>) -> MutexGuard<'a, Option<Bits>> {
        self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take(&self, py: Python<'_>) -> PyResult<Bits> {
        let mut bits = self.lock(py);
        bits.take().ok_or_else(|| invalid(py, "this memory belongs to a filter already".into()))
    }
}

#[pymethods]
impl Memory {
    #[new]
    fn make(py: Python<'_>, nbytes: usize) -> PyResult<Memory> {
        let bits = py.detach(|| Bits::zeroed(nbytes)).and_then(|bits| bits.part(0, nbytes));
        bits.map(Memory::new).ok_or_else(|| no_memory(py, nbytes as u64))
    }

    /// Asks the kernel for a part of the memory, or what there is of it, while others run, those who
    /// write to it too: the lock is had for a piece at a time.
    fn touch(&self, py: Python<'_>, offset: usize, count: usize) {
        let end = self.lock(py).as_ref().map_or(0, Bits::nbytes).min(offset.saturating_add(count));
        for start in (offset..end).step_by(TOUCHED_AT_ONCE) {
            let bits = self.lock(py);
            let Some(bits) = &*bits else { return };
            py.detach(|| touch_part(bits, start, TOUCHED_AT_ONCE.min(end - start)));
        }
    }

    /// Overwrites the bytes from an offset (a multiple of 8) on; with `bytes`, while others run: the
    /// kernel may have to make the memory first, and takes milliseconds for a huge page.
    fn write(&self, py: Python<'_>, offset: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let held = BufferView::get(data, ffi::PyBUF_SIMPLE)
            .ok_or_else(|| invalid(py, "data must be a contiguous buffer".into()))?;
        let bits = self.lock(py);
        let room = bits.as_ref().map_or(0, Bits::nbytes);
        match &*bits {
            Some(bits)
                if offset.is_multiple_of(8) && offset.saturating_add(held.nbytes()) <= room =>
            {
                // SAFETY: contiguous; `bytes` never change (a class made of them may give out what
                // does), and others not while the interpreter lock is held.
                let copy = || bits.fill_from(offset, unsafe { held.bytes() });
                if data.is_exact_instance_of::<PyBytes>() {
                    py.detach(copy)
                } else {
                    copy()
                }
                Ok(())
            }
            _ => Err(invalid(py, format!("{} bytes at {offset} do not fit", held.nbytes()))),
        }
    }

    /// The checksum of all of it, as in a file's header, made while others run.
    fn checksum(&self, py: Python<'_>) -> u64 {
        let bits = self.lock(py);
        let Some(bits) = &*bits else { return 0 };
        // SAFETY: the loader's bits, which nobody writes while they are locked.
        let bytes = unsafe { std::slice::from_raw_parts(bits.as_ptr(), bits.nbytes()) };
        py.detach(|| checksum(bytes, 0))
    }

    /// Reads a part of a file over its bytes from `start` (a multiple of 8) on, while others run:
    /// how many bytes there were, up to `count`, and the checksum with them, which was `before`.
    #[cfg(unix)]
    fn fill(
        &self,
        py: Python<'_>,
        file: c_int,
        offset: u64,
        start: usize,
        count: usize,
        before: u64,
    ) -> PyResult<(usize, u64)> {
        let bits = self.lock(py);
        let room = bits.as_ref().map_or(0, Bits::nbytes);
        match &*bits {
            Some(bits) if start.is_multiple_of(8) && start.saturating_add(count) <= room => py
                .detach(|| read_into(bits, file, offset, start, count, before))
                .map_err(Into::into),
            _ => Err(invalid(py, format!("{count} bytes at {start} do not fit"))),
        }
    }

    /// A copy of the bytes from an offset on; fewer, or none, past the end.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: usize,
        count: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bits = self.lock(py);
        let room = bits.as_ref().map_or(0, Bits::nbytes);
        let (start, count) = (offset.min(room), count.min(room.saturating_sub(offset)));
        PyBytes::new_with(py, count, |copy| {
            if let Some(bits) = &*bits {
                // SAFETY: within the bits, which nobody writes while they are locked.
                let bytes = unsafe { std::slice::from_raw_parts(bits.as_ptr(), room) };
                copy.copy_from_slice(&bytes[start..start + count]);
            }
            Ok(())
        })
    }
}

/// Asks the kernel for the memory from `offset` on, or what there is of it.
fn touch_part(bits: &Bits, offset: usize, count: usize) {
    let start = offset.min(bits.nbytes()) / LINE_BYTES * LINE_BYTES;
    let end = offset.saturating_add(count).min(bits.nbytes());
    if let Some(part) = bits.part(start, end.saturating_sub(start) / LINE_BYTES * LINE_BYTES) {
        part.touch();
    }
}

/// Reads a file with several threads. The kernel makes the memory, which takes most of the time,
/// longest where the host of a virtual machine has to find it first: 4.5 ms for 2 MiB per core.
#[cfg(unix)]
fn read_into(
    bits: &Bits,
    file: c_int,
    offset: u64,
    start: usize,
    count: usize,
    before: u64,
) -> std::io::Result<(usize, u64)> {
    // SAFETY: the caller's descriptor, which is open for the time of the call and not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file) });
    let summed = Summed { parts: 0, nbytes: 0, sum: before, ended: Ok(false) };
    let claimed = AtomicUsize::new(0);
    let summed = Mutex::new(summed);
    let (reading, ready) = (Reading { bits, file: &file, offset, start, count }, Condvar::new());
    let work = || reading.read_and_sum(&claimed, &summed, &ready);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let helpers = cores.min(MAX_READERS).min(count.div_ceil(TOUCHED_AT_ONCE)).saturating_sub(1);
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            // Without a thread to be had the others read all of it.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let summed = summed.into_inner().unwrap_or_else(PoisonError::into_inner);
    summed.ended.map(|_| (summed.nbytes, summed.sum))
}

/// Threads that read one file.
#[cfg(unix)]
const MAX_READERS: usize = 4;

/// A part of a file, which is read over a part of a filter's memory.
#[cfg(unix)]
struct Reading<'a> {
    bits: &'a Bits,
    file: &'a File,
    offset: u64,
    start: usize,
    count: usize,
}

/// How far the bytes are summed: in order, since each sum goes on from the one before.
#[cfg(unix)]
struct Summed {
    parts: usize,
    nbytes: usize,
    sum: u64,
    /// Whether the file is shorter, or what kept it from being read.
    ended: std::io::Result<bool>,
}

#[cfg(unix)]
impl Reading<'_> {
    /// Reads the parts that this thread claims. It sums each soon after, when it is in the
    /// processor's cache, and those before it are summed.
    fn read_and_sum(&self, claimed: &AtomicUsize, summed: &Mutex<Summed>, ready: &Condvar) {
        loop {
            let part = claimed.fetch_add(1, Relaxed);
            let at = part.saturating_mul(TOUCHED_AT_ONCE);
            if at >= self.count {
                return;
            }
            let nbytes = TOUCHED_AT_ONCE.min(self.count - at);
            let read = self.read_part(at, nbytes);
            let summed = summed.lock().unwrap_or_else(PoisonError::into_inner);
            let mut summed = ready
                .wait_while(summed, |summed| summed.parts != part)
                .unwrap_or_else(PoisonError::into_inner);
            if matches!(summed.ended, Ok(false)) {
                match read {
                    Ok(bytes) => {
                        summed.sum = checksum(bytes, summed.sum);
                        summed.nbytes += bytes.len();
                        summed.ended = Ok(bytes.len() < nbytes);
                    }
                    Err(problem) => summed.ended = Err(problem),
                }
            }
            summed.parts += 1;
            ready.notify_all();
            if !matches!(summed.ended, Ok(false)) {
                return; // parts that others claimed are read, and not summed
            }
        }
    }

    fn read_part(&self, at: usize, nbytes: usize) -> std::io::Result<&[u8]> {
        // Else the kernel makes the pages as it copies, with the lock on the map of the process,
        // and others who map memory, as imports do all the time, wait for each.
        touch_part(self.bits, self.start + at, nbytes);
        // SAFETY: within the bits, which are the loader's alone as long as they are locked; one
        // thread claims each part.
        let part = unsafe {
            std::slice::from_raw_parts_mut(self.bits.as_ptr().add(self.start + at), nbytes)
        };
        let mut read = 0;
        while read < nbytes {
            match self.file.read_at(&mut part[read..], self.offset + (at + read) as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(&part[..read])
    }
}

/// A part of a filter's memory, in the order in which it is saved. It stays as it is when the
/// filter moves on to other memory, and changes while the filter still writes to it.
#[pyclass(frozen, module = "bloomery._native")]
pub struct Section(pub Bits);

#[pymethods]
impl Section {
    /// # Safety
    /// Called by the interpreter with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the section keeps its memory, and the view the section.
        unsafe { fill_view(slf.as_any(), &slf.get().0, view, flags) }
    }
}

/// Gives the bits out as a read-only buffer of `owner`.
///
/// # Safety
/// `view` is the interpreter's, to be filled; `owner` keeps the bits alive.
pub unsafe fn fill_view(
    owner: &Bound<'_, PyAny>,
    bits: &Bits,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let (start, len) = (bits.as_ptr().cast(), bits.nbytes() as ffi::Py_ssize_t);
    // SAFETY: as promised above; bits never move.
    match unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, 1, flags) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(owner.py())),
    }
}

/// Asks the kernel for all of a filter's section of memory, in a thread that lets others run.
#[pyfunction]
pub fn touch(section: &Bound<'_, PyAny>) -> PyResult<()> {
    let bits = match section.cast::<Section>() {
        Ok(section) => section.get().0.clone(),
        Err(_) => section.cast::<Bloom>()?.get().bits.clone(), // it is its own
    };
    section.py().detach(|| bits.touch());
    Ok(())
}

/// Bytes that all filters of this process have now.
#[pyfunction]
pub fn memory_used() -> u64 {
    budget::used()
}

/// From now on memory of large filters is given back by threads, and nobody waits for it.
#[pyfunction]
pub fn unmap_aside() {
    bits::unmap_aside(true);
}

/// The most that they may have from now on; None: no limit.
#[pyfunction]
#[pyo3(signature = (nbytes=None))]
pub fn set_memory_limit(nbytes: Option<u64>) {
    budget::set_limit(nbytes.unwrap_or(u64::MAX));
}

//! The native half of `bloomery.FilterBank`. Everything else about it is Python (`filters/bank.py`).

use std::fs::File;
#[cfg(unix)]
use std::io::Write;
use std::io::{self, Read};
#[cfg(unix)]
use std::mem::ManuallyDrop;
#[cfg(unix)]
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};

use bloomery_core::bank::{self, Anonymous, Memory, Trouble, UserFacts, Users};
use bloomery_core::format::{self, HEADER_BYTES, Header, LIVE};
use bloomery_core::hash::KeyHasher;
use bloomery_core::kind::Refusal;
use bloomery_server::filter::Fault;
use pyo3::exceptions::PyOSError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::errors::{self, error, invalid, no_memory};
use crate::filters::bank_batch::{Batch, DETACH_FROM};
use crate::filters::counted;
use crate::filters::gate::Gate;
use crate::filters::mapped::{Mapped, Mode, forks};
use crate::keys::buffer::BufferView;
use crate::keys::hashes::hashes;
use crate::keys::key::hash_key;
use crate::server::replay;

/// The fields of a bank's header: lines a page, and cells of the first layer.
#[pyfunction]
pub fn bank_pages(py: Python<'_>, keys_per_filter: u64, error_rate: f64) -> PyResult<(u64, u64)> {
    bank::suited(keys_per_filter, error_rate).ok_or_else(|| {
        let message = format!(
            "keys_per_filter {keys_per_filter} is too large for error_rate {error_rate}: hashes \
             of 64 bits cannot tell that many keys apart that well"
        );
        invalid(py, message)
    })
}

#[pyclass(subclass, frozen, module = "bloomery._native", name = "FilterBank")]
pub struct Bank {
    /// `None` once it is closed.
    pub gate: Gate<Option<bank::Bank>>,
    header: Header,
    read_only: bool,
    /// `forks` when its file was opened; `None` if it has no file.
    file: Option<u64>,
}

fn raise(py: Python<'_>, trouble: Trouble) -> PyErr {
    match trouble {
        Trouble::Format(problem) => errors::format(py, problem),
        Trouble::Corrupt(message) => error(py, "CorruptData", message),
        Trouble::Full(message) => error(py, "FilterFull", message),
        Trouble::NoMemory(nbytes) => no_memory(py, nbytes),
        Trouble::Io(problem) => match problem.raw_os_error() {
            Some(code) => PyOSError::new_err((code, problem.to_string())),
            None => problem.into(),
        },
    }
}

/// An image in memory of its own, once its checksum holds.
fn loaded(
    nbytes: usize,
    fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> Result<Box<dyn Memory>, Trouble> {
    let memory = Anonymous::new(nbytes.max(1))?;
    // SAFETY: the memory was made for as many bytes, and nobody else has it yet.
    let image = unsafe { std::slice::from_raw_parts_mut(memory.start(), nbytes) };
    fill(image).map_err(Trouble::Io)?;
    let header = Header::parse(&image[..nbytes.min(HEADER_BYTES)])?;
    if header.checksum != LIVE {
        header.check_total(nbytes as u64)?;
        let (found, expected) = (format::checksum(&image[HEADER_BYTES..], 0), header.checksum);
        if found != expected {
            let message =
                format!("damaged bits: checksum {found:#018x}, expected {expected:#018x}");
            return Err(Trouble::Corrupt(message));
        }
    }
    Ok(Box::new(memory))
}

fn loaded_from(path: &Path) -> Result<Box<dyn Memory>, Trouble> {
    let mut file = File::open(path).map_err(Trouble::Io)?;
    let nbytes = file.metadata().map_err(Trouble::Io)?.len();
    loaded(nbytes as usize, |image| file.read_exact(image))
}

impl Bank {
    /// Is the file another process's, of which this one was forked?
    fn is_of_parent(&self) -> bool {
        self.file.is_some_and(|then| then != forks())
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_of_parent() {
            let message = "the bank's file was opened by the parent of this process, before the \
                           fork, and is the parent's: close it there and open it here";
            return Err(invalid(py, message.into()));
        }
        Ok(())
    }

    pub fn read<T: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&bank::Bank) -> Result<T, Trouble> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        let done = self.gate.read(py, long, |bank| bank.as_ref().map(work));
        done?.ok_or_else(|| closed(py))?.map_err(|trouble| raise(py, trouble))
    }

    pub fn write<T: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut bank::Bank) -> Result<T, Trouble> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        if self.read_only {
            let message = "this bank was opened to be read: open it with mode=\"r+\" to change it";
            return Err(error(py, "ReadOnlyFilter", message.into()));
        }
        let done = self.gate.write(py, long, |bank| bank.as_mut().map(work));
        done?.ok_or_else(|| closed(py))?.map_err(|trouble| raise(py, trouble))
    }

    /// As `read`, for the server.
    pub fn read_counted<T>(
        &self,
        work: impl FnOnce(&bank::Bank) -> Result<T, Trouble>,
    ) -> Result<T, Fault> {
        let done = counted::read(&self.gate, |bank| bank.as_ref().map(work))?;
        done.ok_or_else(|| Fault::Broken(CLOSED.into()))?.map_err(fault)
    }

    /// As `write`, for the server; with the refusal as it is.
    pub fn write_counted<T>(
        &self,
        work: impl FnOnce(&mut bank::Bank) -> Result<T, Trouble>,
    ) -> Result<Result<T, Refusal>, Fault> {
        if self.read_only {
            return Ok(Err(Refusal::Never("this filter is read-only")));
        }
        let done = counted::write(&self.gate, |bank| bank.as_mut().map(work))?;
        match done.ok_or_else(|| Fault::Broken(CLOSED.into()))? {
            Ok(done) => Ok(Ok(done)),
            Err(Trouble::Full(message)) => Ok(Err(Refusal::Full(message))),
            Err(trouble) => Err(fault(trouble)),
        }
    }

    pub fn key_hasher(&self) -> &KeyHasher {
        &self.header.hasher
    }

    fn hash(&self, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        hash_key(key.as_borrowed(), &self.header.hasher)
    }
}

const CLOSED: &str = "the bank is closed";

#[cold]
fn closed(py: Python<'_>) -> PyErr {
    invalid(py, CLOSED.into())
}

#[cold]
fn fault(trouble: Trouble) -> Fault {
    match trouble {
        Trouble::NoMemory(nbytes) => Fault::NoMemory(nbytes),
        Trouble::Format(problem) => Fault::Broken(format!("{problem:?}")),
        Trouble::Corrupt(message) | Trouble::Full(message) => Fault::Broken(message),
        Trouble::Io(problem) => Fault::Broken(problem.to_string()),
    }
}

/// Hands out what is behind the header, chunk by chunk, and returns the header.
fn written(
    bank: &bank::Bank,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<[u8; HEADER_BYTES], Trouble> {
    let mut checksum = 0;
    bank.image(|chunk| {
        checksum = format::checksum(chunk, checksum);
        each(chunk)
    })
    .map_err(Trouble::Io)?;
    let nbytes = (bank.nbytes() - HEADER_BYTES) as u64;
    Ok(Header { nbytes, checksum, ..*bank.header() }.encode())
}

/// Closed as if by `close`, as far as that can be.
impl Drop for Bank {
    fn drop(&mut self) {
        if self.file.is_some()
            && !self.is_of_parent()
            && !self.read_only
            && let Some(Some(bank)) = self.gate.get_mut()
        {
            let _ = bank.close();
        }
    }
}

#[pymethods]
impl Bank {
    /// A new bank as `source`, a header, says, in memory or in the file at `path`, which must not
    /// exist (`mode` "new"); or the one in that file ("r", "r+"); or a copy in memory of what the file
    /// or `source` holds ("load"). `boot` tells this start of the machine from others.
    #[new]
    #[pyo3(signature = (source, path, mode, boot))]
    fn new(
        py: Python<'_>,
        source: Option<&Bound<'_, PyAny>>,
        path: Option<PathBuf>,
        mode: &str,
        boot: u64,
    ) -> PyResult<Bank> {
        let held = source.and_then(|source| BufferView::get(source, ffi::PyBUF_SIMPLE));
        // SAFETY: contiguous; the caller hands the buffer over for the time of the call.
        let bytes = held.as_ref().map_or(&[][..], |held| unsafe { held.bytes() });
        let mapped = |path: &Path, mode| -> Result<Box<dyn Memory>, Trouble> {
            Ok(Box::new(Mapped::open(path, mode).map_err(Trouble::Io)?))
        };
        let made = py.detach(|| match (mode, path.as_deref()) {
            ("new", None) => {
                bank::Bank::create(&Header::parse(bytes)?, Box::new(Anonymous::new(1 << 16)?), boot)
            }
            ("new", Some(path)) => {
                bank::Bank::create(&Header::parse(bytes)?, mapped(path, Mode::New)?, boot)
            }
            ("r", Some(path)) => bank::Bank::open(mapped(path, Mode::Read)?, boot, true),
            ("r+", Some(path)) => bank::Bank::open(mapped(path, Mode::Write)?, boot, false),
            (_, Some(path)) => bank::Bank::open(loaded_from(path)?, boot, false),
            (_, None) => {
                let copy = |image: &mut [u8]| {
                    image.copy_from_slice(bytes);
                    Ok(())
                };
                bank::Bank::open(loaded(bytes.len(), copy)?, boot, false)
            }
        });
        let made = made.map_err(|trouble| raise(py, trouble))?;
        let file = path.filter(|_| mode != "load").map(|_| forks());
        let (header, gate) = (*made.header(), Gate::new(Some(made)));
        Ok(Bank { gate, header, read_only: mode == "r", file })
    }

    /// Add a key of a user; True if it is definitely new, False if it may have been there.
    fn add(&self, user: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (user, h) = (self.hash(user)?, self.hash(key)?);
        self.write(key.py(), false, |bank| bank.add(user, h))
    }

    /// Adds keys by their hashes, the user's and the key's, 16 bytes for both; how many were new.
    fn _add_hashes(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        let pairs = replay::pairs(py, data)?;
        self.write(py, pairs.len() >= replay::LONG, |bank| {
            let mut new = 0;
            for [user, h] in pairs {
                match bank.add(u64::from_le_bytes(*user), u64::from_le_bytes(*h)) {
                    Ok(added) => new += u64::from(added),
                    Err(Trouble::Full(_)) => {} // it was refused then too
                    Err(other) => return Err(other),
                }
            }
            Ok(new)
        })
    }

    /// False: the user definitely never had the key. True: maybe.
    fn contains(&self, user: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (user, h) = (self.hash(user)?, self.hash(key)?);
        self.read(key.py(), false, |bank| bank.contains(user, h))
    }

    /// Add every key, for one user or for one each; a mask that is True where it is new.
    ///
    /// What can be a key is one user, a tuple too; anything else that has rows is one user a row.
    /// The mask is a list, or a NumPy array if `keys` is an array or a column.
    fn add_many<'py>(
        &self,
        users: &Bound<'py, PyAny>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, batch) = (keys.py(), Batch::new(users, keys, self.header.hasher)?);
        let rows = self.write(py, batch.long(), |bank| {
            let mut rows = Vec::with_capacity(batch.keys.len());
            bank.add_many(batch.users(), &batch.keys, &mut rows).map(|()| rows)
        });
        batch.answer(py, rows?)
    }

    /// Ask for every key of one user, or of one each: False is certain, True is maybe.
    fn contains_many<'py>(
        &self,
        users: &Bound<'py, PyAny>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, batch) = (keys.py(), Batch::new(users, keys, self.header.hasher)?);
        let rows = self.read(py, batch.long(), |bank| {
            let mut rows = Vec::with_capacity(batch.keys.len());
            bank.contains_many(batch.users(), &batch.keys, &mut rows).map(|()| rows)
        });
        batch.answer(py, rows?)
    }

    /// Those of a list that the user has definitely not seen.
    fn _unseen<'py>(
        &self,
        user: &Bound<'py, PyAny>,
        candidates: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (py, user) = (candidates.py(), self.hash(user)?);
        let (keys, _) = hashes(candidates, self.header.hasher, false)?;
        let rows = self.read(py, keys.len() >= DETACH_FROM, |bank| {
            let mut rows = Vec::with_capacity(keys.len());
            bank.contains_many(Users::One(user), &keys, &mut rows).map(|()| rows)
        });
        let unseen = PyList::empty(py);
        for (key, seen) in candidates.iter().zip(rows?) {
            if seen == 0 {
                unseen.append(key)?;
            }
        }
        Ok(unseen)
    }

    fn __contains__(&self, user: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, user) = (user.py(), self.hash(user)?);
        self.read(py, false, |bank| bank.has(user))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, false, |bank| Ok(bank.users() as usize))
    }

    /// Forget a user and all of its keys; False if there is no such user.
    fn drop(&self, user: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, user) = (user.py(), self.hash(user)?);
        self.write(py, false, |bank| bank.drop_user(user))
    }

    /// Forget every user.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.write(py, true, |bank| bank.clear())
    }

    /// Return once everything added is on the disk, where no power cut takes it back.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.write(py, true, |bank| bank.flush())
    }

    /// Flush and let go of the file; nothing can be asked any more.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process(py)?;
        let read_only = self.read_only;
        let done = self.gate.write(py, true, |bank| match bank.take() {
            Some(mut bank) if !read_only => bank.close(),
            _ => Ok(()),
        });
        done?.map_err(|trouble| raise(py, trouble))
    }

    /// The 64-bit hash of a key or a user, the same in every process and on every machine.
    fn hash_of(&self, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.hash(key)
    }

    /// What is known about a user, if there is one.
    fn _user<'py>(&self, user: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (py, user) = (user.py(), self.hash(user)?);
        let facts = self.read(py, false, |bank| bank.user(user))?;
        let in_python = |UserFacts { keys, layers, nbytes, error_rate }| {
            let dict = PyDict::new(py);
            dict.set_item("keys", keys)?;
            dict.set_item("layers", layers)?;
            dict.set_item("nbytes", nbytes)?;
            dict.set_item("estimated_error_rate", error_rate)?;
            Ok(dict)
        };
        facts.map(in_python).transpose()
    }

    fn _verify(&self, py: Python<'_>) -> PyResult<()> {
        self.read(py, true, bank::Bank::verify)
    }

    fn _same(&self, py: Python<'_>, other: &Bank) -> PyResult<bool> {
        // One after the other: who holds two gates may wait for somebody who waits for one of them.
        let mut mine = Vec::new();
        self.read(py, true, |bank| {
            mine.extend_from_slice(
                &Header { nbytes: 0, checksum: LIVE, ..*bank.header() }.encode(),
            );
            bank.image(|chunk| {
                mine.extend_from_slice(chunk);
                Ok(())
            })
        })?;
        other.read(py, true, |theirs| {
            let copy = |image: &mut [u8]| {
                image.copy_from_slice(&mine);
                Ok(())
            };
            bank::Bank::open(loaded(mine.len(), copy)?, 0, false)?.same(theirs)
        })
    }

    /// The bank as `save` writes it. Nobody changes it meanwhile.
    fn _image<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let image = self.read(py, true, |bank| {
            let mut image = vec![0; HEADER_BYTES];
            image
                .try_reserve_exact(bank.nbytes())
                .map_err(|_| Trouble::NoMemory(bank.nbytes() as u64))?;
            let head = written(bank, |chunk| {
                image.extend_from_slice(chunk);
                Ok(())
            })?;
            image[..HEADER_BYTES].copy_from_slice(&head);
            Ok(image)
        })?;
        Ok(PyBytes::new(py, &image))
    }

    /// Writes everything that belongs behind the header to a file, from where that stands, and returns
    /// the header. With a `pace`, the disk has all but the last that many bytes. Nobody changes the
    /// bank meanwhile, so no Python runs: a signal's handler that adds a key would wait for itself.
    #[cfg(unix)]
    fn _save<'py>(&self, py: Python<'py>, fd: i32, pace: u64) -> PyResult<Bound<'py, PyBytes>> {
        // SAFETY: the caller's, who has it open until this returns; it is not closed here.
        let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        let head = self.read(py, true, |bank| {
            let mut unsynced = 0;
            written(bank, |chunk| {
                file.write_all(chunk)?;
                unsynced += chunk.len() as u64;
                if pace > 0 && unsynced >= pace {
                    file.sync_data()?;
                    unsynced = 0;
                }
                Ok(())
            })
        })?;
        Ok(PyBytes::new(py, &head))
    }

    /// The number of keys a user for which memory is used best.
    #[getter]
    fn keys_per_filter(&self) -> u64 {
        self.header.capacity
    }

    /// The share of absent keys that may be answered with a maybe, for each user.
    #[getter]
    fn error_rate(&self) -> f64 {
        self.header.error_rate
    }

    /// The hash function.
    #[getter]
    fn hasher(&self) -> &'static str {
        self.header.hasher.kind.name()
    }

    /// The hash function's seed; for siphash its key.
    #[getter]
    fn seed(&self) -> u128 {
        self.header.hasher.seed
    }

    /// Bytes in use, all users and the directory of them.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, false, |bank| Ok(bank.nbytes()))
    }

    /// How many distinct keys all users have; one taken for another is not counted.
    #[getter]
    fn estimated_count(&self, py: Python<'_>) -> PyResult<u64> {
        self.read(py, false, |bank| Ok(bank.keys()))
    }

    /// True if it was opened to be read.
    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }

    /// True once it is closed, and in a child of a fork, whose parent has the file.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.is_of_parent() || self.gate.read(py, false, Option::is_none)?)
    }
}

//! RedisBloom's two structures as Python calls them; keys are bytes.

use bloomery_core::bits::Bits;
use bloomery_core::format::{Header, KindId};
use bloomery_core::kind::Refusal;
use bloomery_core::redisbloom as core;
use bloomery_core::redisbloom::dump::{Layered, Malformed};
use bloomery_server::filter::Fault;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{self, error, no_memory, refused};
use crate::filters::counted;
use crate::filters::family::{borrow, to_python};
use crate::filters::gate::Gate;
use crate::filters::memory::{Memory, Section};
use crate::server::replay;

#[pyclass(subclass, frozen, module = "bloomery._native", name = "RedisBloomFilter")]
pub struct Chain {
    pub gate: Gate<core::Chain>,
    /// Are keys hashed to 64 bits? Those of filters from before RedisBloom 2 are not.
    hash_64: bool,
}

#[pyclass(subclass, frozen, module = "bloomery._native", name = "RedisCuckooFilter")]
pub struct Cuckoo {
    pub gate: Gate<core::Cuckoo>,
}

impl From<core::Chain> for Chain {
    fn from(made: core::Chain) -> Self {
        Chain { hash_64: made.hash_64(), gate: Gate::new(made) }
    }
}

impl From<core::Cuckoo> for Cuckoo {
    fn from(made: core::Cuckoo) -> Self {
        Cuckoo { gate: Gate::new(made) }
    }
}

impl Chain {
    #[inline(always)]
    pub fn hashes(&self, key: &[u8]) -> [u64; 2] {
        core::Chain::hashes(key, self.hash_64)
    }
}

/// Moves that a key may make before its filter is called full; of more, some 100 µs are not rare.
const MANY_MOVES: u16 = 1000;

impl Cuckoo {
    /// May one key take much longer to add than others?
    #[inline(always)]
    pub fn is_slow(&self) -> bool {
        let moves = counted::read(&self.gate, |cuckoo| cuckoo.numbers().max_iterations);
        moves.is_ok_and(|moves| moves > MANY_MOVES)
    }
}

/// (num_bits, num_hashes, capacity, keys, error_rate) of a layer.
type ChainLayer = (u64, u32, u64, u64, f64);

/// What the server says of a dump that cannot be loaded, word for word as RedisBloom.
fn malformed(py: Python<'_>, kind: KindId, problem: Malformed) -> PyErr {
    let says = match (kind, &problem) {
        (_, Malformed::NoMemory(nbytes)) => return no_memory(py, *nbytes),
        (_, Malformed::ReadOnly(refusal)) => return refused(py, refusal.clone()),
        (KindId::RedisCuckoo, Malformed::Short) => "Invalid header",
        (KindId::RedisCuckoo, Malformed::Header(_)) => "Couldn't create filter!",
        (KindId::RedisCuckoo, _) => "Couldn't load chunk!",
        (_, Malformed::NoLayer) => "ERR invalid offset - no link found",
        (_, Malformed::TooBig) => "ERR invalid chunk - Too big for current filter",
        _ => "ERR received bad data",
    };
    error(py, "CorruptData", says.into())
}

/// A new filter as a dump's header says; with a `body`, one that was saved, of which `head` is the
/// file's: in a `Memory`, which becomes its own, or in a buffer.
fn make<T: Layered + Send>(
    py: Python<'_>,
    head: &[u8],
    body: Option<&Bound<'_, PyAny>>,
    offset: usize,
    writable: bool,
    most: u64,
) -> PyResult<T> {
    let Some(body) = body else {
        let made = py.detach(|| T::from_header(head, most));
        return made.map_err(|problem| malformed(py, T::KIND, problem));
    };
    let header = Header::parse(head).map_err(|problem| errors::format(py, problem))?;
    let (bits, frozen) = match body.cast::<Memory>() {
        Ok(memory) => (memory.get().take(py)?, false),
        Err(_) => (borrow(py, body, offset, writable)?, !writable),
    };
    let made = py.detach(|| T::open(&header, &bits, frozen));
    made.map_err(|problem| errors::format(py, problem))
}

/// Header and body of a copy.
fn copied<T: Layered>(filter: &T) -> (Header, Option<Bits>) {
    let header = filter.header();
    let copy = || {
        let whole = Bits::zeroed(header.nbytes as usize)?;
        let mut offset = 0;
        for section in filter.sections() {
            whole.part(offset, section.nbytes())?.or_with(&section);
            offset += section.nbytes();
        }
        Some(whole)
    };
    (header, copy())
}

/// How many keys ahead their memory is asked for.
const AHEAD: usize = 12;

/// Does `act` for each of them; how many it was a yes for. What finds no room is left out: whoever
/// wrote the log had it refused too.
fn each<T, H: Copy>(
    filter: &mut T,
    hashes: &[H],
    prefetch: impl Fn(&T, H),
    act: impl Fn(&mut T, H) -> Result<bool, Refusal>,
) -> Result<u64, Refusal> {
    let mut done = 0;
    for (i, hash) in hashes.iter().enumerate() {
        if let Some(later) = hashes.get(i + AHEAD) {
            prefetch(filter, *later);
        }
        match act(filter, *hash) {
            Ok(yes) => done += u64::from(yes),
            Err(Refusal::Full(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(done)
}

fn pair(bytes: [[u8; 8]; 2]) -> [u64; 2] {
    bytes.map(u64::from_le_bytes)
}

/// Gets memory for the next layer ahead, if this many keys may need it, without the interpreter lock.
/// The layer starts when the keys are added; without memory, adding them fails.
pub fn make_room<T: Layered + Send + Sync>(gate: &Gate<T>, keys: u64) -> Result<(), Fault> {
    let Some(nbytes) = counted::read(gate, |filter| filter.lacks(keys))? else {
        return Ok(());
    };
    let memory = Bits::zeroed(nbytes as usize).inspect(Bits::touch);
    let Some(memory) = memory else { return Ok(()) };
    counted::write(gate, |filter| filter.spare(memory))
}

/// What both classes can do, and what only one can.
macro_rules! methods {
    ($class:ident { $($own:tt)* }) => {
        #[pymethods]
        impl $class {
            #[new]
            #[pyo3(signature = (head, body=None, offset=0, writable=false, most=u64::MAX))]
            #[pyo3(text_signature = "(head, body=None, offset=0, writable=False, most=2**64-1)")]
            fn new(
                py: Python<'_>,
                head: &[u8],
                body: Option<&Bound<'_, PyAny>>,
                offset: usize,
                writable: bool,
                most: u64,
            ) -> PyResult<Self> {
                let made: core::$class = make(py, head, body, offset, writable, most)?;
                Ok(made.into())
            }

            /// Bytes that the filter of a dump's header will need.
            #[staticmethod]
            fn _planned(py: Python<'_>, dump: &[u8]) -> PyResult<u64> {
                bytes_of::<core::$class>(py, dump)
            }

            /// A part of a dump, and the iterator that comes next.
            fn _chunk<'py>(
                &self,
                py: Python<'py>,
                iterator: i64,
            ) -> PyResult<(i64, Bound<'py, PyBytes>)> {
                let (next, data) = self.gate.read(py, true, |filter| filter.chunk(iterator))?;
                Ok((next, PyBytes::new(py, &data)))
            }

            fn _check_chunk(&self, py: Python<'_>, iterator: i64, nbytes: usize) -> PyResult<()> {
                let done = self.gate.read(py, false, |filter| filter.check_chunk(iterator, nbytes));
                done?.map_err(|problem| malformed(py, core::$class::KIND, problem))
            }

            fn _load_chunk(&self, py: Python<'_>, iterator: i64, data: &[u8]) -> PyResult<()> {
                let done = self.gate.write(py, true, |filter| filter.load_chunk(iterator, data));
                done?.map_err(|problem| malformed(py, core::$class::KIND, problem))
            }

            fn _clear(&self, py: Python<'_>) -> PyResult<()> {
                let done = self.gate.write(py, true, |filter| filter.clear());
                done?.map_err(|refusal| refused(py, refusal))
            }

            fn _facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let facts = PyDict::new(py);
                for (name, fact) in self.gate.read(py, true, |filter| filter.facts())? {
                    facts.set_item(name, to_python(py, fact)?)?;
                }
                Ok(facts)
            }

            fn _header<'py>(
                &self,
                py: Python<'py>,
                checksum: u64,
            ) -> PyResult<Bound<'py, PyBytes>> {
                let header = self.gate.read(py, false, |filter| filter.header())?;
                Ok(PyBytes::new(py, &Header { checksum, ..header }.encode()))
            }

            fn _sections(&self, py: Python<'_>) -> PyResult<Vec<Section>> {
                let sections = self.gate.write(py, false, |filter| filter.sections())?;
                Ok(sections.into_iter().map(Section).collect())
            }

            /// How often it was written to.
            fn _changes(&self, py: Python<'_>) -> PyResult<u64> {
                self.gate.read(py, false, |filter| filter.kept().changes)
            }

            /// Header and body of a copy, made while nobody writes.
            fn _snapshot<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Memory)> {
                let (header, body) = self.gate.write(py, true, |filter| copied(filter))?;
                let body = body.ok_or_else(|| no_memory(py, header.nbytes))?;
                Ok((PyBytes::new(py, &header.encode()), Memory::new(body)))
            }

            /// Does it still live in this buffer, which it was opened over? If so, the buffer is up
            /// to date now.
            fn _shares(&self, buffer: &Bound<'_, PyAny>, offset: usize) -> PyResult<bool> {
                let sections = self.gate.write(buffer.py(), false, |filter| filter.sections())?;
                replay::shares(buffer, offset, &sections)
            }

            /// How many keys the first layer was made for.
            #[getter]
            fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
                self.gate.read(py, false, |filter| filter.header().capacity)
            }

            /// The share of absent keys that may be answered with a maybe; of a cuckoo filter, once a
            /// layer is full, roughly.
            #[getter]
            fn error_rate(&self, py: Python<'_>) -> PyResult<f64> {
                self.gate.read(py, false, |filter| filter.header().error_rate)
            }

            /// Bytes that a file of it has after its header.
            #[getter]
            fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
                self.gate.read(py, false, |filter| filter.header().nbytes)
            }

            /// Bytes, as BF.INFO or CF.INFO counts them.
            #[getter]
            fn redis_size(&self, py: Python<'_>) -> PyResult<u64> {
                self.gate.read(py, false, |filter| filter.size())
            }

            /// How many layers it has; RedisBloom says filters.
            #[getter]
            fn num_layers(&self, py: Python<'_>) -> PyResult<usize> {
                self.gate.read(py, false, |filter| filter.layers().len())
            }

            /// True if it is mapped from a file.
            #[getter]
            fn read_only(&self, py: Python<'_>) -> PyResult<bool> {
                self.gate.read(py, false, |filter| filter.kept().frozen)
            }

            fn __contains__(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
                self.contains(py, key)
            }

            $($own)*
        }
    };
}

/// Bytes that the filter of a dump's header will need.
fn bytes_of<T: Layered>(py: Python<'_>, dump: &[u8]) -> PyResult<u64> {
    let plan = T::plan(dump).map_err(|e| malformed(py, T::KIND, e))?;
    Ok(T::sizes(&plan).iter().sum())
}

/// How many bytes the first layer of a `Chain` takes.
#[pyfunction]
pub fn redisbloom_bytes(py: Python<'_>, error_rate: f64, capacity: u64) -> PyResult<u64> {
    let dump = core::Chain::plan_new(error_rate, capacity, 2, false);
    bytes_of::<core::Chain>(py, &dump.map_err(|refusal| refused(py, refusal))?)
}

/// How many bytes the first layer of a `Cuckoo` takes.
#[pyfunction]
pub fn rediscuckoo_bytes(py: Python<'_>, capacity: u64, bucket_size: u16) -> PyResult<u64> {
    let dump = core::Cuckoo::plan_new(capacity, bucket_size, 20, 1);
    bytes_of::<core::Cuckoo>(py, &dump.map_err(|refusal| refused(py, refusal))?)
}

methods! { Chain {
    /// The dump's header of an empty filter.
    #[staticmethod]
    fn _plan(
        py: Python<'_>,
        error_rate: f64,
        capacity: u64,
        expansion: u32,
        nonscaling: bool,
    ) -> PyResult<Bound<'_, PyBytes>> {
        let dump = core::Chain::plan_new(error_rate, capacity, expansion, nonscaling);
        dump.map(|dump| PyBytes::new(py, &dump)).map_err(|refusal| refused(py, refusal))
    }

    /// Add the key; True if it is definitely new, False if it may have been there.
    fn add(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let hashes = self.hashes(key);
        let done = self.gate.write(py, false, |filter| filter.add(hashes));
        done?.map_err(|refusal| refused(py, refusal))
    }

    /// False: definitely not there. True: maybe.
    fn contains(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let hashes = self.hashes(key);
        self.gate.read(py, false, |filter| filter.contains(hashes))
    }

    /// A key's two hashes, as a log keeps them.
    fn _hashes_of<'py>(&self, py: Python<'py>, key: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.hashes(key).map(u64::to_le_bytes).as_flattened())
    }

    /// Bits of each hash: 32 of filters from before RedisBloom 2.
    #[getter]
    fn hash_width(&self) -> u32 {
        if self.hash_64 { 64 } else { 32 }
    }

    /// Adds keys by their hashes, 16 bytes each; how many were new.
    fn _add_hashes(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        let pairs = replay::pairs(py, data)?;
        let done = self.gate.write(py, pairs.len() >= replay::LONG, |filter| {
            each(filter, pairs, |f, key| f.prefetch(pair(key)), |f, key| f.add(pair(key)))
        });
        done?.map_err(|refusal| refused(py, refusal))
    }

    /// Keys that were new when they came.
    #[getter]
    fn estimated_count(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.read(py, false, |filter| filter.keys())
    }

    /// How many times larger each layer is than the one before; None if it is not to grow.
    #[getter]
    fn expansion(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.gate.read(py, false, |filter| filter.expansion())
    }

    fn _layers(&self, py: Python<'_>) -> PyResult<Vec<ChainLayer>> {
        self.gate.read(py, false, |filter| {
            let numbers = filter.layers().iter().map(|layer| &layer.numbers);
            numbers.map(|n| (n.num_bits, n.num_hashes, n.capacity, n.keys, n.error_rate)).collect()
        })
    }
} }

methods! { Cuckoo {
    /// The dump's header of an empty filter.
    #[staticmethod]
    fn _plan(
        py: Python<'_>,
        capacity: u64,
        bucket_size: u16,
        max_iterations: u16,
        expansion: u16,
    ) -> PyResult<Bound<'_, PyBytes>> {
        let dump = core::Cuckoo::plan_new(capacity, bucket_size, max_iterations, expansion);
        dump.map(|dump| PyBytes::new(py, &dump)).map_err(|refusal| refused(py, refusal))
    }

    /// Add the key once more; FilterFull if there is no room.
    fn add(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        let h = core::Cuckoo::hash(key);
        let done = self.gate.write(py, false, |filter| filter.add(h));
        done?.map_err(|refusal| refused(py, refusal))
    }

    /// Add the key if it is definitely not there; True if so.
    fn add_new(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let h = core::Cuckoo::hash(key);
        let done = self.gate.write(py, false, |filter| filter.add_new(h));
        done?.map_err(|refusal| refused(py, refusal))
    }

    /// False: definitely not there. True: maybe.
    fn contains(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let h = core::Cuckoo::hash(key);
        self.gate.read(py, false, |filter| filter.contains(h))
    }

    /// How often the key was added: sometimes more, never less.
    fn count(&self, py: Python<'_>, key: &[u8]) -> PyResult<u64> {
        let h = core::Cuckoo::hash(key);
        self.gate.read(py, false, |filter| filter.count(h))
    }

    /// Take one copy of the key out if it is there; True if it was.
    fn discard(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let h = core::Cuckoo::hash(key);
        let done = self.gate.write(py, false, |filter| filter.remove(h));
        done?.map_err(|refusal| refused(py, refusal))
    }

    /// Move what newer layers hold to older ones where there is room.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let done = self.gate.write(py, true, |filter| filter.compact());
        done?.map_err(|refusal| refused(py, refusal))
    }

    /// A key's hash, as a log keeps it.
    #[staticmethod]
    fn _hashes_of<'py>(py: Python<'py>, key: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &core::Cuckoo::hash(key).to_le_bytes())
    }

    /// Adds keys by their hashes, 8 bytes each; how many there was room for.
    fn _add_hashes(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        let hashes = replay::hashes(py, data)?;
        let done = self.gate.write(py, hashes.len() >= replay::LONG, |filter| {
            let prefetch = |f: &core::Cuckoo, h| f.prefetch(u64::from_le_bytes(h));
            each(filter, hashes, prefetch, |f, h| f.add(u64::from_le_bytes(h)).map(|()| true))
        });
        done?.map_err(|refusal| refused(py, refusal))
    }

    /// Takes one copy of each out; how many were there.
    fn _remove_hashes(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        let hashes = replay::hashes(py, data)?;
        let done = self.gate.write(py, hashes.len() >= replay::LONG, |filter| {
            let prefetch = |f: &core::Cuckoo, h| f.prefetch(u64::from_le_bytes(h));
            each(filter, hashes, prefetch, |f, h| f.remove(u64::from_le_bytes(h)))
        });
        done?.map_err(|refusal| refused(py, refusal))
    }

    /// Keys, each as often as it was added.
    #[getter]
    fn estimated_count(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.read(py, false, |filter| filter.numbers().keys)
    }

    /// Keys removed since the last compaction.
    #[getter]
    fn num_removed(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.read(py, false, |filter| filter.numbers().removed)
    }

    /// How many fingerprints a bucket has room for.
    #[getter]
    fn bucket_size(&self, py: Python<'_>) -> PyResult<u16> {
        self.gate.read(py, false, |filter| filter.numbers().bucket_size)
    }

    /// How many fingerprints are moved before a layer counts as full.
    #[getter]
    fn max_iterations(&self, py: Python<'_>) -> PyResult<u16> {
        self.gate.read(py, false, |filter| filter.numbers().max_iterations)
    }

    /// How many times larger each layer is than the one before; 0 if it is not to grow.
    #[getter]
    fn expansion(&self, py: Python<'_>) -> PyResult<u16> {
        self.gate.read(py, false, |filter| filter.numbers().expansion)
    }

    /// Buckets of the first layer.
    #[getter]
    fn num_buckets(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.read(py, false, |filter| filter.numbers().buckets)
    }
} }

//! Spark's own Bloom filter as Python calls it: keys are what Spark puts in, 64-bit integers, text
//! and bytes.

use bloomery_core::batch::BLOCK;
use bloomery_core::hash::{Domain, HashKind, KeyHasher};
use bloomery_core::spark::{SparkFilter, Version};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

use crate::errors::{error, in_row, invalid, no_memory, null_error, too_many_rows};
use crate::filters::gate::Gate;
use crate::filters::sections::give_turn;
use crate::keys::arrow;
use crate::keys::arrow_rows::Reading;
use crate::keys::batch::{Options, Threads};
use crate::keys::column::{Column, Data};
use crate::keys::key::hash_key;
use crate::keys::mask::Mask;
use crate::keys::source::{self, Source};

/// Rows between two looks at what else there is to do; a batch of fewer than a few thousand is done
/// before another thread could take over.
const TURN: usize = 1 << 17;
const DETACH_FROM: usize = 2048;

#[pyclass(subclass, frozen, module = "bloomery._native")]
pub struct SparkBits {
    gate: Gate<SparkFilter>,
    hasher: KeyHasher,
    version: Version,
    num_hashes: u32,
    num_words: usize,
}

#[pymethods]
impl SparkBits {
    #[new]
    #[pyo3(signature = (version, num_hashes, seed, num_words, body=None))]
    fn new(
        py: Python<'_>,
        version: u8,
        num_hashes: u32,
        seed: i32,
        num_words: usize,
        body: Option<&[u8]>,
    ) -> PyResult<Self> {
        let version = match version {
            1 => Version::V1,
            2 => Version::V2,
            _ => return Err(invalid(py, format!("version is {version}, must be 1 or 2"))),
        };
        let made = SparkFilter::new(version, num_hashes, num_words);
        let mut made = made.ok_or_else(|| no_memory(py, num_words as u64 * 8))?;
        if body.is_some_and(|body| !made.load(body)) {
            let message = format!("{num_words} words of 8 bytes were expected");
            return Err(error(py, "CorruptData", message));
        }
        let hasher = KeyHasher { kind: HashKind::Spark, seed: u128::from(seed as u32) };
        Ok(SparkBits { gate: Gate::new(made), hasher, version, num_hashes, num_words })
    }

    /// Add the key; True if it is definitely new, False if it may have been there.
    fn add(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let hashes = self.hashes(key)?;
        self.gate.write(key.py(), false, |filter| filter.add(hashes))
    }

    /// False: definitely not there. True: maybe.
    fn contains(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let hashes = self.hashes(key)?;
        self.gate.read(key.py(), false, |filter| filter.contains(hashes))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.contains(key)
    }

    /// Add every key of a batch or column; True where it is definitely new.
    #[pyo3(signature = (keys, *, nulls="error"))]
    fn add_many<'py>(&self, keys: &Bound<'py, PyAny>, nulls: &str) -> PyResult<Bound<'py, PyAny>> {
        let mask = self.batch(keys, nulls, &mut |py, long, hashes, answers| {
            self.gate.write(py, long, |filter| {
                hashes.iter().zip(answers).for_each(|(h, answer)| *answer = filter.add(*h).into());
            })
        });
        mask?.into_python(keys.py())
    }

    /// False where a key of a batch or column is definitely not there, True: maybe.
    #[pyo3(signature = (keys, *, nulls="error"))]
    fn contains_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        nulls: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mask = self.batch(keys, nulls, &mut |py, long, hashes, answers| {
            self.gate.read(py, long, |filter| {
                let each = hashes.iter().zip(answers);
                each.for_each(|(h, answer)| *answer = filter.contains(*h).into());
            })
        });
        mask?.into_python(keys.py())
    }

    /// Takes the other's bits as well; False if the two do not agree on where a key's bits are.
    fn _merge(&self, other: &Bound<'_, SparkBits>) -> PyResult<bool> {
        let theirs = other.get();
        let same = self.hasher == theirs.hasher;
        let done = self
            .gate
            .write_beside(other.py(), &theirs.gate, |mine, theirs| same && mine.merge(theirs))?;
        Ok(done.unwrap_or(true)) // with itself
    }

    /// The words as Spark writes them.
    fn _words<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, 8 * self.num_words, |out| {
            self.gate.read(py, false, |filter| filter.save(out))
        })
    }

    fn _bits_set(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.read(py, true, SparkFilter::bits_set)
    }

    /// Of Spark's format: 1, or 2 since Spark 4.1.
    #[getter]
    fn version(&self) -> u8 {
        self.version as u8
    }

    /// The number of bits, m.
    #[getter]
    fn num_bits(&self) -> u64 {
        self.num_words as u64 * 64
    }

    /// How many bits a key has, k.
    #[getter]
    fn num_hashes(&self) -> u32 {
        self.num_hashes
    }

    /// What the first hash begins with.
    #[getter]
    fn seed(&self) -> i32 {
        self.hasher.seed as i32
    }
}

/// Asks for, or adds, some keys by their hashes, and puts down the answers.
type Each<'a> = dyn FnMut(Python<'_>, bool, &[u64], &mut [u8]) -> PyResult<()> + 'a;

impl SparkBits {
    fn hashes(&self, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        if key.is_instance_of::<PyString>()
            || key.is_instance_of::<PyBytes>()
            || key.is_instance_of::<PyByteArray>()
            || key.is_instance_of::<PyMemoryView>()
        {
            return hash_key(key.as_borrowed(), &self.hasher);
        }
        let py = key.py();
        key.extract::<i64>().map(|value| self.hasher.hash_i64(value)).map_err(|problem| {
            if problem.is_instance_of::<PyOverflowError>(py) {
                let message = "the int has more than 64 bits, which Spark's filters do not hold";
                return error(py, "InvalidKey", message.into());
            }
            let name = key.get_type().name().map_or("this".into(), |name| name.to_string());
            error(py, "UnsupportedKey", format!("{name} {KEYS}"))
        })
    }

    fn batch(&self, keys: &Bound<'_, PyAny>, nulls: &str, each: &mut Each<'_>) -> PyResult<Mask> {
        let py = keys.py();
        let skip_nulls = Options::new(py, nulls, Threads(1))?.skip_nulls;
        let mut mask = Mask { rows: Vec::new(), array: true };
        match source::find(keys)? {
            Source::Arrow(exported) => {
                let reading = Reading { skip_nulls, views_later: false };
                arrow::each_chunk(py, &exported, &self.hasher, reading, &mut |chunk| {
                    self.column(py, &chunk, &mut mask.rows, each)
                })?;
            }
            Source::Array(column, _held) => self.column(py, &column, &mut mask.rows, each)?,
            Source::Objects(list) => {
                self.objects(py, list.iter().map(Ok), skip_nulls, &mut mask, each)?;
            }
            Source::Iterator(iterator) => {
                mask.array = false;
                self.objects(py, iterator, skip_nulls, &mut mask, each)?;
            }
        }
        Ok(mask)
    }

    fn column(
        &self,
        py: Python<'_>,
        column: &Column,
        mask: &mut Vec<u8>,
        each: &mut Each<'_>,
    ) -> PyResult<()> {
        if !is_sparks(&column.data) {
            return Err(error(py, "UnsupportedBatch", format!("a column of this type {KEYS}")));
        }
        let (start, keys) = (mask.len(), column.keys());
        mask.try_reserve(column.len).map_err(|_| too_many_rows(py, column.len))?;
        mask.resize(start + column.len, 0);
        let mut hashes = vec![0; keys.min(TURN)];
        let mut answers = vec![0; keys.min(TURN)];
        for from in (0..keys).step_by(TURN) {
            let count = TURN.min(keys - from);
            let (hashes, answers) = (&mut hashes[..count], &mut answers[..count]);
            for (i, block) in hashes.chunks_mut(BLOCK).enumerate() {
                column.hash(&self.hasher, from + i * BLOCK, block);
            }
            each(py, keys >= DETACH_FROM, hashes, answers)?;
            match &column.valid {
                None => mask[start + from..start + from + count].copy_from_slice(answers),
                Some(valid) => valid.spread(from, answers, &mut mask[start..]),
            }
            give_turn(py)?;
        }
        Ok(())
    }

    fn objects<'py>(
        &self,
        py: Python<'py>,
        keys: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
        skip_nulls: bool,
        mask: &mut Mask,
        each: &mut Each<'_>,
    ) -> PyResult<()> {
        for (row, key) in keys.enumerate() {
            let key = key?;
            let mut answer = [0];
            if !key.is_none() {
                let hashes = self.hashes(&key).map_err(|problem| in_row(py, row, problem))?;
                each(py, false, &[hashes], &mut answer)?;
            } else if !skip_nulls {
                return Err(null_error(py, row));
            }
            mask.rows.push(answer[0]);
        }
        Ok(())
    }
}

const KEYS: &str = "is no key of Spark's filters: they hold ints of 64 signed bits, str and bytes";

/// Does Spark put such rows into its filters?
fn is_sparks(data: &Data) -> bool {
    match data {
        Data::Ints { kind, .. } => kind.signed || kind.truth || kind.width < 8,
        Data::Offsets { .. } | Data::Views { .. } | Data::Ucs4 { .. } => true,
        Data::Fixed { domain, .. } => *domain == Domain::Bytes,
        Data::Dictionary(dictionary) => is_sparks(&dictionary.values.data),
    }
}

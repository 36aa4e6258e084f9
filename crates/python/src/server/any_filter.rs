//! A filter of any kind, as the server's hot path uses it: hashes in, a byte an answer out.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bloomery_core::batch::BLOCK;
use bloomery_core::bits::Bits;
use bloomery_core::format::KindId;
use bloomery_core::kind::{AnyKind, Refusal, Removal};
use bloomery_core::redisbloom as redis;
use bloomery_core::redisbloom::dump::Layered;
use bloomery_core::scan::{Figures, Scan};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors::error;
use crate::filters::bank::Bank;
use crate::filters::bloom::Bloom;
use crate::filters::family::Family;
use crate::filters::redisbloom::{Chain, Cuckoo};
use crate::filters::slots::OneKey;
use crate::keys::hashes::append_hashes;
use crate::keys::key::hash_key;
use crate::server::apply::Done;

pub enum AnyFilter {
    Bloom(Py<Bloom>),
    Family(Py<Family>),
    Chain(Py<Chain>),
    Cuckoo(Py<Cuckoo>),
    /// Its keys are `user TAB key`, as on the command line.
    Bank(Py<Bank>),
}

/// A cuckoo filter of RedisBloom's that has so many layers takes no more keys. For the server's own
/// clients only: in a replay what was taken is taken again.
pub static MOST_LAYERS: AtomicUsize = AtomicUsize::new(32);

/// Up to here keys are taken one by one.
const FEW: usize = 4;

/// Bytes of a filter: to grow a larger one takes milliseconds, some 50 ns a key.
const LARGE: usize = 256 << 10;

/// Two words of hash a key.
#[inline(always)]
fn pairs(hashes: &[u64]) -> impl Iterator<Item = [u64; 2]> {
    hashes.chunks_exact(2).map(|pair| [pair[0], pair[1]])
}

impl AnyFilter {
    pub fn new(filter: &Bound<'_, PyAny>) -> Option<AnyFilter> {
        if let Ok(bloom) = filter.cast::<Bloom>() {
            return Some(AnyFilter::Bloom(bloom.clone().unbind()));
        }
        if let Ok(chain) = filter.cast::<Chain>() {
            return Some(AnyFilter::Chain(chain.clone().unbind()));
        }
        if let Ok(cuckoo) = filter.cast::<Cuckoo>() {
            return Some(AnyFilter::Cuckoo(cuckoo.clone().unbind()));
        }
        if let Ok(bank) = filter.cast::<Bank>() {
            return Some(AnyFilter::Bank(bank.clone().unbind()));
        }
        filter.cast::<Family>().ok().map(|family| AnyFilter::Family(family.clone().unbind()))
    }

    pub fn clone_ref(&self, py: Python<'_>) -> AnyFilter {
        match self {
            AnyFilter::Bloom(filter) => AnyFilter::Bloom(filter.clone_ref(py)),
            AnyFilter::Family(filter) => AnyFilter::Family(filter.clone_ref(py)),
            AnyFilter::Chain(filter) => AnyFilter::Chain(filter.clone_ref(py)),
            AnyFilter::Cuckoo(filter) => AnyFilter::Cuckoo(filter.clone_ref(py)),
            AnyFilter::Bank(filter) => AnyFilter::Bank(filter.clone_ref(py)),
        }
    }

    /// Is it the same filter?
    pub fn is(&self, other: &AnyFilter) -> bool {
        self.object() == other.object()
    }

    fn object(&self) -> *mut ffi::PyObject {
        match self {
            AnyFilter::Bloom(filter) => filter.as_ptr(),
            AnyFilter::Family(filter) => filter.as_ptr(),
            AnyFilter::Chain(filter) => filter.as_ptr(),
            AnyFilter::Cuckoo(filter) => filter.as_ptr(),
            AnyFilter::Bank(filter) => filter.as_ptr(),
        }
    }

    /// Words of hash a key.
    #[inline(always)]
    pub fn width(&self) -> usize {
        if matches!(self, AnyFilter::Chain(_) | AnyFilter::Bank(_)) { 2 } else { 1 }
    }

    #[inline(always)]
    pub fn hash(&self, key: &[u8], out: &mut Vec<u64>) {
        match self {
            AnyFilter::Bloom(bloom) => out.push(bloom.get().hasher.hash_bytes(key)),
            AnyFilter::Family(family) => out.push(family.get().hasher.hash_bytes(key)),
            AnyFilter::Chain(chain) => out.extend(chain.get().hashes(key)),
            AnyFilter::Cuckoo(_) => out.push(redis::Cuckoo::hash(key)),
            AnyFilter::Bank(bank) => {
                let tab = memchr::memchr(b'\t', key).unwrap_or(0);
                let key_at = if key.get(tab) == Some(&b'\t') { tab + 1 } else { 0 };
                let hasher = bank.get().key_hasher();
                out.extend([hasher.hash_bytes(&key[..tab]), hasher.hash_bytes(&key[key_at..])]);
            }
        }
    }

    /// As `hash`, of whatever Python may call a key; RedisBloom's filters know bytes only.
    pub fn hash_any(&self, key: &Bound<'_, PyAny>, out: &mut Vec<u64>) -> PyResult<()> {
        let hasher = match self {
            AnyFilter::Bloom(bloom) => &bloom.get().hasher,
            AnyFilter::Family(family) => &family.get().hasher,
            AnyFilter::Chain(_) | AnyFilter::Cuckoo(_) | AnyFilter::Bank(_) => {
                if let Ok(bytes) = key.cast::<PyBytes>() {
                    self.hash(bytes.as_bytes(), out);
                } else if let Ok(text) = key.cast::<PyString>() {
                    self.hash(text.to_str()?.as_bytes(), out);
                } else {
                    let message = "a key of this kind of filter must be str or bytes";
                    return Err(error(key.py(), "UnsupportedKey", message.into()));
                }
                return Ok(());
            }
        };
        out.push(hash_key(key.as_borrowed(), hasher)?);
        Ok(())
    }

    /// Hashes every key of a batch, whatever the library takes as one.
    pub fn hash_all(&self, keys: &Bound<'_, PyAny>, out: &mut Vec<u64>) -> PyResult<()> {
        let hasher = match self {
            AnyFilter::Bloom(bloom) => bloom.get().hasher,
            AnyFilter::Family(family) => family.get().hasher,
            AnyFilter::Chain(_) | AnyFilter::Cuckoo(_) | AnyFilter::Bank(_) => {
                // Columns become lists: these hash bytes in ways of their own.
                let listed = match keys.getattr("to_pylist").or_else(|_| keys.getattr("tolist")) {
                    Ok(list) => list.call0()?,
                    Err(_) => keys.clone(),
                };
                for key in listed.try_iter()? {
                    self.hash_any(&key?, out)?;
                }
                return Ok(());
            }
        };
        append_hashes(keys, hasher, false, out).map(|_| ())
    }

    /// How full it is, from a look at a part of it; of a bank there is nothing to tell.
    pub fn figures(&self, py: Python<'_>, scan: Scan) -> PyResult<Figures> {
        Ok(match self {
            AnyFilter::Bloom(bloom) => bloom.get().figures(scan),
            AnyFilter::Family(family) => {
                let family = family.get();
                family.pass_time(py)?;
                family.gate.read(py, false, |state| state.kind.figures(scan))?
            }
            AnyFilter::Chain(chain) => {
                chain.get().gate.read(py, false, |chain| chain.figures(scan))?
            }
            AnyFilter::Cuckoo(cuckoo) => {
                cuckoo.get().gate.read(py, false, |held| held.figures(scan))?
            }
            AnyFilter::Bank(bank) => {
                let count = bank.get().read(py, false, |bank| Ok(bank.keys()))? as f64;
                Figures { count, error_rate: f64::NAN, fill_ratio: f64::NAN }
            }
        })
    }

    pub fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(match self {
            AnyFilter::Bloom(bloom) => bloom.get().bits.nbytes(),
            AnyFilter::Family(family) => family
                .get()
                .gate
                .read(py, false, |state| state.kind.sections().iter().map(Bits::nbytes).sum())?,
            AnyFilter::Chain(chain) => {
                chain.get().gate.read(py, false, |chain| chain.size() as usize)?
            }
            AnyFilter::Cuckoo(cuckoo) => {
                cuckoo.get().gate.read(py, false, |held| held.size() as usize)?
            }
            AnyFilter::Bank(bank) => bank.get().read(py, false, |bank| Ok(bank.nbytes()))?,
        })
    }

    /// How many of so many random keys, 16 bytes each, which nobody has added, may be there. None of
    /// a bank: a user whom nobody has added has no keys to be wrong about.
    pub fn probe(
        &self,
        py: Python<'_>,
        probes: usize,
        seed: u64,
        hashes: &mut Vec<u64>,
        answers: &mut Vec<u8>,
    ) -> PyResult<Option<u64>> {
        if matches!(self, AnyFilter::Bank(_)) {
            return Ok(None);
        }
        let mut state = seed;
        let mut next = || {
            // splitmix64
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let x = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            x ^ (x >> 31)
        };
        for _ in 0..probes {
            let key = u128::from(next()) << 64 | u128::from(next());
            self.hash(&key.to_le_bytes(), hashes);
        }
        self.contains(py, hashes, answers)?;
        Ok(Some(answers.iter().map(|answer| u64::from(*answer)).sum()))
    }

    /// Returns whether adding this many keys makes a large filter grow, which takes long.
    #[inline(always)]
    pub fn needs_room(&self, py: Python<'_>, keys: usize) -> bool {
        let keys = keys as u64;
        let lacks = |nbytes: Option<u64>| nbytes.is_some_and(|nbytes| nbytes > LARGE as u64);
        let large = match self {
            // It uses the time of the record, which others move while a thread works.
            AnyFilter::Family(family) if family.get().kind_id() == KindId::Rotating => {
                return false;
            }
            AnyFilter::Family(family) => family.get().gate.read(py, false, |state| {
                state.kind.room() < keys
                    && state.kind.sections().iter().map(Bits::nbytes).sum::<usize>() > LARGE
            }),
            AnyFilter::Chain(chain) => {
                chain.get().gate.read(py, false, |chain| lacks(chain.lacks(keys)))
            }
            AnyFilter::Bloom(_) | AnyFilter::Cuckoo(_) | AnyFilter::Bank(_) => return false,
        };
        large.unwrap_or(false) // who adds to it is told what is wrong
    }

    /// Gets memory ahead for the next layer of a RedisBloom filter; layers themselves follow the keys.
    pub fn make_room(&self, py: Python<'_>, keys: usize) -> PyResult<()> {
        match self {
            AnyFilter::Chain(chain) => chain.get().make_room(py, keys as u64),
            _ => Ok(()),
        }
    }

    /// Returns how many keys to add between two looks at the clock: a key of a full cuckoo filter
    /// can take a millisecond.
    pub fn keys_per_look(&self, py: Python<'_>) -> usize {
        match self {
            AnyFilter::Cuckoo(cuckoo) if cuckoo.get().is_slow(py) => 1,
            AnyFilter::Cuckoo(_) => 16,
            _ => 1024,
        }
    }

    /// Returns about how many bytes the filter allocates to take this many more keys.
    pub fn growth_bytes(&self, py: Python<'_>, keys: usize) -> u64 {
        let keys = keys as u64;
        let growth = match self {
            AnyFilter::Bloom(_) => return 0,
            AnyFilter::Family(family) => family.get().gate.read(py, false, |state| {
                let nbytes = || state.kind.sections().iter().map(Bits::nbytes).sum::<usize>();
                // The next table is an eighth larger, and the old one stays until keys are copied.
                if state.kind.room() < keys { nbytes() as u64 / 8 * 9 + 1 } else { 0 }
            }),
            AnyFilter::Chain(chain) => {
                chain.get().gate.read(py, false, |chain| chain.lacks(keys).unwrap_or(0))
            }
            AnyFilter::Cuckoo(cuckoo) => {
                cuckoo.get().gate.read(py, false, |cuckoo| cuckoo.next_bytes(keys))
            }
            AnyFilter::Bank(_) => return 1,
        };
        growth.unwrap_or(0) // a broken filter reports it when it is used
    }

    /// Does adding what is there already change anything?
    #[inline(always)]
    pub fn every_add_counts(&self) -> bool {
        match self {
            AnyFilter::Bloom(_) | AnyFilter::Chain(_) | AnyFilter::Bank(_) => false,
            AnyFilter::Family(family) => family.get().kind_id() != KindId::Scalable,
            AnyFilter::Cuckoo(_) => true,
        }
    }

    #[inline(always)]
    pub fn contains(&self, py: Python<'_>, hashes: &[u64], answers: &mut Vec<u8>) -> PyResult<()> {
        match self {
            AnyFilter::Bloom(bloom) if hashes.len() <= FEW => {
                for h in hashes {
                    answers.push(u8::from(bloom.get().contains(py, *h)?));
                }
            }
            AnyFilter::Bloom(bloom) => bloom.get().contains_hashes(hashes, answers),
            AnyFilter::Family(family) => {
                let family = family.get();
                family.pass_time(py)?;
                family.gate.read(py, false, |state| {
                    if hashes.len() <= FEW {
                        answers.extend(hashes.iter().map(|h| u8::from(state.kind.contains(*h))));
                    } else {
                        state.kind.contains_all(&mut blocks_of(hashes), &mut |some| {
                            answers.extend_from_slice(some);
                        });
                    }
                })?;
            }
            AnyFilter::Chain(chain) => chain.get().gate.read(py, false, |chain| {
                answers.extend(pairs(hashes).map(|pair| u8::from(chain.contains(pair))));
            })?,
            AnyFilter::Cuckoo(cuckoo) => cuckoo.get().gate.read(py, false, |cuckoo| {
                answers.extend(hashes.iter().map(|h| u8::from(cuckoo.contains(*h))));
            })?,
            AnyFilter::Bank(bank) => {
                return bank.get().read(py, false, |bank| {
                    for [user, h] in pairs(hashes) {
                        answers.push(u8::from(bank.contains(user, h)?));
                    }
                    Ok(())
                });
            }
        }
        Ok(())
    }

    /// Refuses a cuckoo filter of RedisBloom's that has grown as often as it may: as there, before
    /// the first key of a command, and not before each.
    #[inline(always)]
    pub fn check_layers(&self, py: Python<'_>) -> Result<(), Refusal> {
        let AnyFilter::Cuckoo(cuckoo) = self else { return Ok(()) };
        let layers = cuckoo.get().gate.read(py, false, |cuckoo| cuckoo.layers().len());
        if layers.map_err(|problem| refusal(&problem))? < MOST_LAYERS.load(Relaxed) {
            return Ok(());
        }
        Err(Refusal::Full("Maximum expansions reached".into()))
    }

    /// Adds keys. After a refusal, the answers to the keys before it stand.
    #[inline(always)]
    pub fn try_add(&self, py: Python<'_>, hashes: &[u64], answers: &mut Vec<u8>) -> Done {
        match self {
            AnyFilter::Bloom(bloom) if hashes.len() <= FEW => {
                for h in hashes {
                    answers.push(u8::from(bloom.get().add(py, *h)?));
                }
                Ok(Ok(()))
            }
            AnyFilter::Bloom(bloom) => bloom.get().add_hashes(py, hashes, answers).map(Ok),
            AnyFilter::Family(family) => {
                let before = answers.len();
                change(py, family, |kind| {
                    let left = &hashes[answers.len() - before..];
                    if hashes.len() <= FEW {
                        for h in left {
                            answers.push(u8::from(kind.add(*h)?));
                        }
                        return Ok(());
                    }
                    kind.add_all(&mut blocks_of(left), &mut |some| answers.extend_from_slice(some))
                })
            }
            AnyFilter::Chain(chain) => chain.get().gate.write(py, false, |chain| {
                for pair in pairs(hashes) {
                    answers.push(u8::from(chain.add(pair)?));
                }
                Ok(())
            }),
            AnyFilter::Cuckoo(cuckoo) => cuckoo.get().gate.write(py, false, |cuckoo| {
                for h in hashes {
                    cuckoo.add(*h)?;
                    answers.push(1);
                }
                Ok(())
            }),
            AnyFilter::Bank(bank) => {
                let added = bank.get().write(py, false, |bank| {
                    for [user, h] in pairs(hashes) {
                        answers.push(u8::from(bank.add(user, h)?));
                    }
                    Ok(())
                });
                added.map(Ok)
            }
        }
    }

    /// Removes one copy of each key.
    pub fn try_remove(&self, py: Python<'_>, hashes: &[u64], answers: &mut Vec<u8>) -> Done {
        match self {
            AnyFilter::Bloom(_) | AnyFilter::Chain(_) | AnyFilter::Bank(_) => {
                Ok(Err(Refusal::Never(
                    "this kind of filter cannot remove keys: counting, deletable and cuckoo ones can",
                )))
            }
            AnyFilter::Family(family) => change(py, family, |kind| {
                for h in hashes {
                    answers.push(u8::from(kind.remove(*h)? == Removal::Removed));
                }
                Ok(())
            }),
            AnyFilter::Cuckoo(cuckoo) => cuckoo.get().gate.write(py, false, |cuckoo| {
                for h in hashes {
                    answers.push(u8::from(cuckoo.remove(*h)?));
                }
                Ok(())
            }),
        }
    }

    pub fn count(&self, py: Python<'_>, hash: &[u64]) -> PyResult<u64> {
        match self {
            AnyFilter::Family(family) => {
                let family = family.get();
                family.pass_time(py)?;
                family.gate.read(py, false, |state| state.kind.count(hash[0]))
            }
            AnyFilter::Cuckoo(cuckoo) => {
                cuckoo.get().gate.read(py, false, |cuckoo| cuckoo.count(hash[0]))
            }
            AnyFilter::Bloom(_) | AnyFilter::Chain(_) | AnyFilter::Bank(_) => {
                let mut answers = Vec::with_capacity(1);
                self.contains(py, hash, &mut answers)?;
                Ok(answers.first().map_or(0, |answer| u64::from(*answer)))
            }
        }
    }
}

/// `work` may be called again, and is to go on where it stopped (`Family::change`).
#[inline(always)]
fn change<T: Send>(
    py: Python<'_>,
    family: &Py<Family>,
    work: impl FnMut(&mut dyn AnyKind) -> Result<T, Refusal> + Send,
) -> PyResult<Result<T, Refusal>> {
    let family = family.get();
    if family.is_read_only() {
        return Ok(Err(Refusal::Never("this filter is read-only")));
    }
    family.pass_time(py)?;
    family.try_change(py, false, work)
}

/// What a filter said when it could not be written.
#[cold]
fn refusal(problem: &PyErr) -> Refusal {
    Refusal::Full(problem.to_string())
}

/// Hashes as a batch takes them.
pub fn blocks_of(hashes: &[u64]) -> impl FnMut(&mut [u64; BLOCK]) -> Result<usize, Infallible> {
    let mut rest = hashes;
    move |block: &mut [u64; BLOCK]| {
        let (now, later) = rest.split_at(rest.len().min(BLOCK));
        block[..now.len()].copy_from_slice(now);
        rest = later;
        Ok(now.len())
    }
}

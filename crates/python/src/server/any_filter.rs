//! The filters of the library as the server uses them (`bloomery_server::filter::Filter`), and what
//! Python asks of them besides.

use std::any::Any;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bloomery_core::batch::BLOCK;
use bloomery_core::bits::Bits;
use bloomery_core::format::KindId;
use bloomery_core::kind::{Refusal, Removal};
use bloomery_core::redisbloom as redis;
use bloomery_core::redisbloom::dump::Layered;
use bloomery_core::scan::{Figures, Scan};
use bloomery_server::filter::{Done, Fault, Filter};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors::{LATER, error, no_memory};
use crate::filters::bank::Bank;
use crate::filters::bloom::Bloom;
use crate::filters::counted;
use crate::filters::family::Family;
use crate::filters::redisbloom::{Chain, Cuckoo, make_room};
use crate::keys::hashes::append_hashes;
use crate::keys::key::hash_key;

/// A filter that is counted in at its gate until it is dropped.
pub struct AnyFilter(Kind);

enum Kind {
    Bloom(Py<Bloom>),
    Family(Py<Family>),
    Chain(Py<Chain>),
    Cuckoo(Py<Cuckoo>),
    /// Its keys are `user TAB key`, as on the command line.
    Bank(Py<Bank>),
}

/// A RedisBloom cuckoo filter that has this many layers accepts no more keys from clients. A replay
/// applies what was accepted.
pub static MOST_LAYERS: AtomicUsize = AtomicUsize::new(32);

/// Up to here keys are looked for one by one.
const FEW: usize = 4;

/// Bytes of a filter: to grow a larger one takes milliseconds, some 50 ns per key.
const LARGE: usize = 256 << 10;

/// Two words of hash per key.
#[inline(always)]
fn pairs(hashes: &[u64]) -> impl Iterator<Item = [u64; 2]> {
    hashes.chunks_exact(2).map(|pair| [pair[0], pair[1]])
}

impl AnyFilter {
    pub fn new(filter: &Bound<'_, PyAny>) -> Option<AnyFilter> {
        let py = filter.py();
        let kind = if let Ok(bloom) = filter.cast::<Bloom>() {
            Kind::Bloom(bloom.clone().unbind())
        } else if let Ok(chain) = filter.cast::<Chain>() {
            chain.get().gate.count_in(py);
            Kind::Chain(chain.clone().unbind())
        } else if let Ok(cuckoo) = filter.cast::<Cuckoo>() {
            cuckoo.get().gate.count_in(py);
            Kind::Cuckoo(cuckoo.clone().unbind())
        } else if let Ok(bank) = filter.cast::<Bank>() {
            bank.get().gate.count_in(py);
            Kind::Bank(bank.clone().unbind())
        } else {
            let family = filter.cast::<Family>().ok()?;
            family.get().gate.count_in(py);
            Kind::Family(family.clone().unbind())
        };
        Some(AnyFilter(kind))
    }

    /// Returns whether it is the same object.
    pub fn is(&self, other: &AnyFilter) -> bool {
        self.object() == other.object()
    }

    fn object(&self) -> *mut ffi::PyObject {
        match &self.0 {
            Kind::Bloom(filter) => filter.as_ptr(),
            Kind::Family(filter) => filter.as_ptr(),
            Kind::Chain(filter) => filter.as_ptr(),
            Kind::Cuckoo(filter) => filter.as_ptr(),
            Kind::Bank(filter) => filter.as_ptr(),
        }
    }

    /// As `hash`, of whatever Python may call a key; RedisBloom's filters know bytes only.
    pub fn hash_any(&self, key: &Bound<'_, PyAny>, out: &mut Vec<u64>) -> PyResult<()> {
        let hasher = match &self.0 {
            Kind::Bloom(bloom) => &bloom.get().hasher,
            Kind::Family(family) => &family.get().hasher,
            Kind::Chain(_) | Kind::Cuckoo(_) | Kind::Bank(_) => {
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
        let hasher = match &self.0 {
            Kind::Bloom(bloom) => bloom.get().hasher,
            Kind::Family(family) => family.get().hasher,
            Kind::Chain(_) | Kind::Cuckoo(_) | Kind::Bank(_) => {
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
        Ok(match &self.0 {
            Kind::Bloom(bloom) => bloom.get().figures(scan),
            Kind::Family(family) => {
                let family = family.get();
                family.pass_time(py)?;
                family.gate.read(py, false, |state| state.kind.figures(scan))?
            }
            Kind::Chain(chain) => chain.get().gate.read(py, false, |chain| chain.figures(scan))?,
            Kind::Cuckoo(cuckoo) => cuckoo.get().gate.read(py, false, |held| held.figures(scan))?,
            Kind::Bank(bank) => {
                let count = bank.get().read(py, false, |bank| Ok(bank.keys()))? as f64;
                Figures { count, error_rate: f64::NAN, fill_ratio: f64::NAN }
            }
        })
    }

    pub fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(match &self.0 {
            Kind::Bloom(bloom) => bloom.get().bits.nbytes(),
            Kind::Family(family) => family
                .get()
                .gate
                .read(py, false, |state| state.kind.sections().iter().map(Bits::nbytes).sum())?,
            Kind::Chain(chain) => {
                chain.get().gate.read(py, false, |chain| chain.size() as usize)?
            }
            Kind::Cuckoo(cuckoo) => {
                cuckoo.get().gate.read(py, false, |held| held.size() as usize)?
            }
            Kind::Bank(bank) => bank.get().read(py, false, |bank| Ok(bank.nbytes()))?,
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
        if matches!(self.0, Kind::Bank(_)) {
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
        self.contains(hashes, answers).map_err(|fault| raise(py, fault))?;
        Ok(Some(answers.iter().map(|answer| u64::from(*answer)).sum()))
    }
}

impl Drop for AnyFilter {
    fn drop(&mut self) {
        match &self.0 {
            Kind::Bloom(_) => {}
            Kind::Family(family) => family.get().gate.count_out(),
            Kind::Chain(chain) => chain.get().gate.count_out(),
            Kind::Cuckoo(cuckoo) => cuckoo.get().gate.count_out(),
            Kind::Bank(bank) => bank.get().gate.count_out(),
        }
    }
}

/// A fault as Python has it.
#[cold]
pub fn raise(py: Python<'_>, fault: Fault) -> PyErr {
    match fault {
        Fault::Broken(message) => error(py, "CorruptData", message),
        Fault::NoMemory(nbytes) => no_memory(py, nbytes),
        Fault::Later => error(py, "BloomeryError", LATER.into()),
    }
}

impl Filter for AnyFilter {
    #[inline(always)]
    fn width(&self) -> usize {
        if matches!(self.0, Kind::Chain(_) | Kind::Bank(_)) { 2 } else { 1 }
    }

    #[inline(always)]
    fn hash(&self, key: &[u8], out: &mut Vec<u64>) {
        match &self.0 {
            Kind::Bloom(bloom) => out.push(bloom.get().hasher.hash_bytes(key)),
            Kind::Family(family) => out.push(family.get().hasher.hash_bytes(key)),
            Kind::Chain(chain) => out.extend(chain.get().hashes(key)),
            Kind::Cuckoo(_) => out.push(redis::Cuckoo::hash(key)),
            Kind::Bank(bank) => {
                let tab = memchr::memchr(b'\t', key).unwrap_or(0);
                let key_at = if key.get(tab) == Some(&b'\t') { tab + 1 } else { 0 };
                let hasher = bank.get().key_hasher();
                out.extend([hasher.hash_bytes(&key[..tab]), hasher.hash_bytes(&key[key_at..])]);
            }
        }
    }

    #[inline(always)]
    fn contains(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Result<(), Fault> {
        match &self.0 {
            Kind::Bloom(bloom) if hashes.len() <= FEW => {
                let bloom = bloom.get();
                answers.extend(hashes.iter().map(|h| u8::from(bloom.contains_hash(*h))));
            }
            Kind::Bloom(bloom) => bloom.get().contains_hashes(hashes, answers),
            Kind::Family(family) => {
                let family = family.get();
                family.pass_time_counted()?;
                counted::read(&family.gate, |state| {
                    if hashes.len() <= FEW {
                        answers.extend(hashes.iter().map(|h| u8::from(state.kind.contains(*h))));
                    } else {
                        state.kind.contains_all(&mut blocks_of(hashes), &mut |some| {
                            answers.extend_from_slice(some);
                        });
                    }
                })?;
            }
            Kind::Chain(chain) => counted::read(&chain.get().gate, |chain| {
                answers.extend(pairs(hashes).map(|pair| u8::from(chain.contains(pair))));
            })?,
            Kind::Cuckoo(cuckoo) => counted::read(&cuckoo.get().gate, |cuckoo| {
                answers.extend(hashes.iter().map(|h| u8::from(cuckoo.contains(*h))));
            })?,
            Kind::Bank(bank) => {
                return bank.get().read_counted(|bank| {
                    for [user, h] in pairs(hashes) {
                        answers.push(u8::from(bank.contains(user, h)?));
                    }
                    Ok(())
                });
            }
        }
        Ok(())
    }

    fn count(&self, hash: &[u64]) -> Result<u64, Fault> {
        match &self.0 {
            Kind::Family(family) => {
                let family = family.get();
                family.pass_time_counted()?;
                counted::read(&family.gate, |state| state.kind.count(hash[0]))
            }
            Kind::Cuckoo(cuckoo) => {
                counted::read(&cuckoo.get().gate, |cuckoo| cuckoo.count(hash[0]))
            }
            Kind::Bloom(_) | Kind::Chain(_) | Kind::Bank(_) => {
                let mut answers = Vec::with_capacity(1);
                self.contains(hash, &mut answers)?;
                Ok(answers.first().map_or(0, |answer| u64::from(*answer)))
            }
        }
    }

    #[inline(always)]
    fn try_add(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Done {
        match &self.0 {
            Kind::Bloom(bloom) => Ok(bloom.get().add_hashes(hashes, answers)),
            Kind::Family(family) => {
                let family = family.get();
                if family.is_read_only() {
                    return Ok(Err(READ_ONLY));
                }
                family.pass_time_counted()?;
                family.change_counted(|kind| {
                    if hashes.len() <= FEW {
                        for h in hashes {
                            answers.push(u8::from(kind.add(*h)?));
                        }
                        return Ok(());
                    }
                    let mut out = |some: &[u8]| answers.extend_from_slice(some);
                    kind.add_all(&mut blocks_of(hashes), &mut out)
                })
            }
            Kind::Chain(chain) => counted::write(&chain.get().gate, |chain| {
                for pair in pairs(hashes) {
                    answers.push(u8::from(chain.add(pair)?));
                }
                Ok(())
            }),
            Kind::Cuckoo(cuckoo) => counted::write(&cuckoo.get().gate, |cuckoo| {
                for h in hashes {
                    cuckoo.add(*h)?;
                    answers.push(1);
                }
                Ok(())
            }),
            Kind::Bank(bank) => bank.get().write_counted(|bank| {
                for [user, h] in pairs(hashes) {
                    answers.push(u8::from(bank.add(user, h)?));
                }
                Ok(())
            }),
        }
    }

    fn try_remove(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Done {
        match &self.0 {
            Kind::Bloom(_) | Kind::Chain(_) | Kind::Bank(_) => Ok(Err(Refusal::Never(
                "this kind of filter cannot remove keys: counting, deletable and cuckoo ones can",
            ))),
            Kind::Family(family) => {
                let family = family.get();
                if family.is_read_only() {
                    return Ok(Err(READ_ONLY));
                }
                family.pass_time_counted()?;
                family.change_counted(|kind| {
                    for h in hashes {
                        answers.push(u8::from(kind.remove(*h)? == Removal::Removed));
                    }
                    Ok(())
                })
            }
            Kind::Cuckoo(cuckoo) => counted::write(&cuckoo.get().gate, |cuckoo| {
                for h in hashes {
                    answers.push(u8::from(cuckoo.remove(*h)?));
                }
                Ok(())
            }),
        }
    }

    #[inline(always)]
    fn every_add_counts(&self) -> bool {
        match &self.0 {
            Kind::Bloom(_) | Kind::Chain(_) | Kind::Bank(_) => false,
            Kind::Family(family) => family.get().kind_id() != KindId::Scalable,
            Kind::Cuckoo(_) => true,
        }
    }

    #[inline(always)]
    fn needs_room(&self, keys: usize) -> bool {
        let keys = keys as u64;
        let lacks = |nbytes: Option<u64>| nbytes.is_some_and(|nbytes| nbytes > LARGE as u64);
        let large = match &self.0 {
            // It uses the time of the record, which others change while a thread works.
            Kind::Family(family) if family.get().kind_id() == KindId::Rotating => return false,
            Kind::Family(family) => counted::read(&family.get().gate, |state| {
                state.kind.room() < keys
                    && state.kind.sections().iter().map(Bits::nbytes).sum::<usize>() > LARGE
            }),
            Kind::Chain(chain) => {
                counted::read(&chain.get().gate, |chain| lacks(chain.lacks(keys)))
            }
            Kind::Cuckoo(cuckoo) => {
                counted::read(&cuckoo.get().gate, |cuckoo| lacks(cuckoo.lacks(keys)))
            }
            Kind::Bloom(_) | Kind::Bank(_) => return false,
        };
        large.unwrap_or(false) // a broken filter reports it when it is used
    }

    /// For the next layer of a RedisBloom filter. Layers themselves follow the keys.
    fn make_room(&self, keys: usize) -> Result<(), Fault> {
        match &self.0 {
            Kind::Chain(chain) => make_room(&chain.get().gate, keys as u64),
            Kind::Cuckoo(cuckoo) => make_room(&cuckoo.get().gate, keys as u64),
            _ => Ok(()),
        }
    }

    fn growth_bytes(&self, keys: usize) -> u64 {
        let keys = keys as u64;
        let growth = match &self.0 {
            Kind::Bloom(_) => return 0,
            Kind::Family(family) => counted::read(&family.get().gate, |state| {
                let nbytes = || state.kind.sections().iter().map(Bits::nbytes).sum::<usize>();
                // The next table is an eighth larger, and the old one stays until keys are copied.
                if state.kind.room() < keys { nbytes() as u64 / 8 * 9 + 1 } else { 0 }
            }),
            Kind::Chain(chain) => {
                counted::read(&chain.get().gate, |chain| chain.lacks(keys).unwrap_or(0))
            }
            Kind::Cuckoo(cuckoo) => {
                counted::read(&cuckoo.get().gate, |cuckoo| cuckoo.next_bytes(keys))
            }
            Kind::Bank(_) => return 1,
        };
        growth.unwrap_or(0) // a broken filter reports it when it is used
    }

    /// Layers stay when the next one comes; a table is replaced. A bank has no limit but the
    /// server's: it grows with each of its users.
    fn grown_bytes(&self, keys: usize) -> u64 {
        let growth = self.growth_bytes(keys);
        let size = match &self.0 {
            _ if growth == 0 => return 0,
            Kind::Bloom(_) | Kind::Bank(_) => return 0,
            Kind::Family(_) => return growth,
            Kind::Chain(chain) => counted::read(&chain.get().gate, |chain| chain.size()),
            Kind::Cuckoo(cuckoo) => counted::read(&cuckoo.get().gate, |cuckoo| cuckoo.size()),
        };
        size.unwrap_or(0).saturating_add(growth)
    }

    /// A key of a full cuckoo filter can take a millisecond.
    fn keys_per_look(&self) -> usize {
        match &self.0 {
            Kind::Cuckoo(cuckoo) if cuckoo.get().is_slow() => 1,
            Kind::Cuckoo(_) => 16,
            _ => 1024,
        }
    }

    fn is_quick(&self) -> bool {
        match &self.0 {
            Kind::Bloom(_) | Kind::Chain(_) | Kind::Bank(_) => true,
            Kind::Family(family) => family.get().kind_id() != KindId::Rotating,
            Kind::Cuckoo(cuckoo) => !cuckoo.get().is_slow(),
        }
    }

    /// As RedisBloom does, before the first key of a command and not before each.
    #[inline(always)]
    fn check_layers(&self) -> Result<(), Refusal> {
        let Kind::Cuckoo(cuckoo) = &self.0 else { return Ok(()) };
        match counted::read(&cuckoo.get().gate, |cuckoo| cuckoo.layers().len()) {
            Ok(layers) if layers < MOST_LAYERS.load(Relaxed) => Ok(()),
            Ok(_) => Err(Refusal::Full("Maximum expansions reached".into())),
            Err(Fault::Broken(message)) => Err(Refusal::Full(message)),
            Err(Fault::NoMemory(nbytes)) => Err(Refusal::NoMemory(nbytes)),
            Err(Fault::Later) => Err(Refusal::Later),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

const READ_ONLY: Refusal = Refusal::Never("this filter is read-only");

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

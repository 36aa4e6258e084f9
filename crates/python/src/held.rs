//! A filter of any kind, as the server's hot path uses it: hashes in, a byte an answer out.

use bloomery_core::batch::BLOCK;
use bloomery_core::format::KindId;
use bloomery_core::kind::{AnyKind, Refusal, Removal};
use pyo3::prelude::*;

use crate::bloom::Bloom;
use crate::family::Family;
use crate::key::hash_key;
use crate::slots::OneKey;

pub enum Held {
    Bloom(Py<Bloom>),
    Family(Py<Family>),
}

/// Up to here keys are taken one by one.
const FEW: usize = 4;

impl Held {
    pub fn new(filter: &Bound<'_, PyAny>) -> Option<Held> {
        if let Ok(bloom) = filter.cast::<Bloom>() {
            return Some(Held::Bloom(bloom.clone().unbind()));
        }
        filter.cast::<Family>().ok().map(|family| Held::Family(family.clone().unbind()))
    }

    /// Words of hash a key.
    #[inline(always)]
    pub fn width(&self) -> usize {
        1
    }

    #[inline(always)]
    pub fn hash(&self, key: &[u8], out: &mut Vec<u64>) {
        out.push(match self {
            Held::Bloom(bloom) => bloom.get().hasher.hash_bytes(key),
            Held::Family(family) => family.get().hasher.hash_bytes(key),
        });
    }

    /// As `hash`, of whatever Python may call a key.
    pub fn hash_any(&self, key: &Bound<'_, PyAny>, out: &mut Vec<u64>) -> PyResult<()> {
        let hasher = match self {
            Held::Bloom(bloom) => &bloom.get().hasher,
            Held::Family(family) => &family.get().hasher,
        };
        out.push(hash_key(key.as_borrowed(), hasher)?);
        Ok(())
    }

    /// Does adding what is there already change anything?
    #[inline(always)]
    pub fn every_add_counts(&self) -> bool {
        match self {
            Held::Bloom(_) => false,
            Held::Family(family) => family.get().kind_id() != KindId::Scalable,
        }
    }

    #[inline(always)]
    pub fn contains(&self, py: Python<'_>, hashes: &[u64], answers: &mut Vec<u8>) -> PyResult<()> {
        match self {
            Held::Bloom(bloom) if hashes.len() <= FEW => {
                for h in hashes {
                    answers.push(u8::from(bloom.get().contains(py, *h)?));
                }
            }
            Held::Bloom(bloom) => bloom.get().contains_hashes(hashes, answers),
            Held::Family(family) => {
                let family = family.get();
                family.pass_time(py)?;
                family.gate.read(py, false, |state| {
                    if hashes.len() <= FEW {
                        answers.extend(hashes.iter().map(|h| u8::from(state.kind.contains(*h))));
                    } else {
                        state.kind.contains_all(&mut fill(hashes), &mut |some| {
                            answers.extend_from_slice(some);
                        });
                    }
                });
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub fn add(
        &self,
        py: Python<'_>,
        hashes: &[u64],
        answers: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        match self {
            Held::Bloom(bloom) if hashes.len() <= FEW => {
                for h in hashes {
                    answers.push(u8::from(bloom.get().add(py, *h).map_err(|e| refusal(&e))?));
                }
                Ok(())
            }
            Held::Bloom(bloom) => {
                bloom.get().add_hashes(py, hashes, answers).map_err(|e| refusal(&e))
            }
            Held::Family(family) => self.change(py, family, |kind| {
                if hashes.len() <= FEW {
                    for h in hashes {
                        answers.push(u8::from(kind.add(*h)?));
                    }
                    return Ok(());
                }
                kind.add_all(&mut fill(hashes), &mut |some| answers.extend_from_slice(some))
            }),
        }
    }

    pub fn remove(
        &self,
        py: Python<'_>,
        hashes: &[u64],
        answers: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        match self {
            Held::Bloom(_) => Err(Refusal::Never(
                "a plain filter cannot remove keys: use kind counting, deletable or cuckoo",
            )),
            Held::Family(family) => self.change(py, family, |kind| {
                for h in hashes {
                    answers.push(u8::from(kind.remove(*h)? == Removal::Removed));
                }
                Ok(())
            }),
        }
    }

    pub fn count(&self, py: Python<'_>, hash: &[u64]) -> PyResult<u64> {
        match self {
            Held::Bloom(bloom) => Ok(u64::from(bloom.get().contains(py, hash[0])?)),
            Held::Family(family) => {
                let family = family.get();
                family.pass_time(py)?;
                Ok(family.gate.read(py, false, |state| state.kind.count(hash[0])))
            }
        }
    }

    #[inline(always)]
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        family: &Py<Family>,
        work: impl FnOnce(&mut dyn AnyKind) -> Result<T, Refusal> + Send,
    ) -> Result<T, Refusal> {
        let family = family.get();
        family.pass_time(py).map_err(|e| refusal(&e))?;
        family.try_change(py, work)
    }
}

/// What a filter said when it could not be written.
#[cold]
fn refusal(problem: &PyErr) -> Refusal {
    Refusal::Full(problem.to_string())
}

/// Hashes as a batch takes them.
pub fn fill(
    hashes: &[u64],
) -> impl FnMut(&mut [u64; BLOCK]) -> Result<usize, std::convert::Infallible> {
    let mut rest = hashes;
    move |block: &mut [u64; BLOCK]| {
        let (now, later) = rest.split_at(rest.len().min(BLOCK));
        block[..now.len()].copy_from_slice(now);
        rest = later;
        Ok(now.len())
    }
}

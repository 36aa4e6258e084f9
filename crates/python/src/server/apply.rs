//! Applies records of the log to a filter. A server and every node follow the same rule, key by key
//! and regardless of batches: equal filters stay equal and give equal answers.

use bloomery_core::budget::{may_grow, without_growth};
use bloomery_core::kind::Refusal;
use pyo3::prelude::*;

use crate::errors::{no_memory, refused};
use crate::server::names::{
    ADD, ADD_IN_PLACE, ADD_NEW, ADD_NEW_IN_PLACE, Entry, NO_ROOM, REMOVE, count,
};

/// The answer to a key that the filter refused. The keys after it are still applied.
pub const REFUSED: u8 = 3;

/// Keys that are looked for before all are.
const FEW: usize = 8;

/// A refusal of a filter, or an error that leaves it unknown how many keys were applied.
pub type Done = PyResult<Result<(), Refusal>>;

/// The outcome of the keys of one record, as far as they are applied.
#[derive(Default)]
pub struct Applied {
    pub answers: Vec<u8>,
    /// The first refusal.
    pub refusal: Option<Refusal>,
}

impl Entry {
    /// Adds or removes some hashed keys of a record. An error is this process's own, such as too
    /// little memory or a broken filter.
    pub fn apply(
        &mut self,
        py: Python<'_>,
        op: u8,
        hashes: &[u64],
        applied: &mut Applied,
        reached: &mut Vec<u64>,
    ) -> PyResult<()> {
        let before = applied.answers.len();
        let done = match op {
            ADD_IN_PLACE => without_growth(|| self.apply_each(py, ADD, hashes, applied)),
            ADD_NEW_IN_PLACE => without_growth(|| self.apply_each(py, ADD_NEW, hashes, applied)),
            _ => self.apply_each(py, op, hashes, applied),
        };
        let answers = &applied.answers[before..];
        if op == REMOVE {
            self.items = self.items.saturating_sub(count(answers));
        } else {
            let refused = [REFUSED, NO_ROOM];
            let accepted = answers.iter().filter(|answer| !refused.contains(answer)).count();
            self.count_added(count(answers), accepted as u64, reached);
        }
        done
    }

    fn apply_each(
        &self,
        py: Python<'_>,
        op: u8,
        hashes: &[u64],
        applied: &mut Applied,
    ) -> PyResult<()> {
        if hashes.is_empty() {
            return Ok(());
        }
        let (width, before) = (self.filter.width(), applied.answers.len());
        let room = self.limit.saturating_sub(self.items) >= (hashes.len() / width) as u64;
        // All at once, which stops at the first refused key; the others follow one by one.
        if op == REMOVE {
            let done = self.filter.try_remove(py, hashes, &mut applied.answers);
            settle(py, done, applied)?;
        } else if op == ADD && room {
            let done = self.filter.try_add(py, hashes, &mut applied.answers);
            settle(py, done, applied)?;
        }
        let mut items = self.items + count(&applied.answers[before..]);
        for one in hashes[(applied.answers.len() - before) * width..].chunks_exact(width) {
            let done = match op {
                REMOVE => self.filter.try_remove(py, one, &mut applied.answers),
                _ => self.apply_add(py, op, items, one, &mut applied.answers),
            };
            settle(py, done, applied)?;
            items += u64::from(applied.answers.last() == Some(&1));
        }
        Ok(())
    }

    /// Adds one key to a filter that has this many items.
    fn apply_add(
        &self,
        py: Python<'_>,
        op: u8,
        items: u64,
        hashes: &[u64],
        answers: &mut Vec<u8>,
    ) -> Done {
        let full = items >= self.limit;
        if full || op == ADD_NEW {
            self.filter.contains(py, hashes, answers)?;
            let known = answers.pop() == Some(1);
            // Where copies are counted, another copy counts: it can be removed once more.
            if known && (op == ADD_NEW || !self.filter.every_add_counts()) {
                answers.push(0);
                return Ok(Ok(()));
            }
            if full && !known {
                return Ok(Err(Refusal::Full(self.full.clone())));
            }
        }
        self.filter.try_add(py, hashes, answers)
    }

    /// Returns whether a record with these keys would change nothing. It does not count as a check.
    pub fn is_unchanged_by(&self, py: Python<'_>, op: u8, hashes: &[u64]) -> PyResult<bool> {
        let new_only = matches!(op, ADD_NEW | ADD_NEW_IN_PLACE);
        let enough = new_only || (op != REMOVE && !self.filter.every_add_counts());
        // The new filter of a rebuild gets what the log has.
        if !enough || self.loading || self.followed {
            return Ok(false);
        }
        // Most keys are new, which the first few show.
        let few = hashes.len().min(FEW * self.filter.width());
        let mut answers = Vec::with_capacity(hashes.len());
        for some in [&hashes[..few], &hashes[few..]] {
            self.filter.contains(py, some, &mut answers)?;
            if answers.contains(&0) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Answers the key that was refused, if one was.
fn settle(py: Python<'_>, done: Done, applied: &mut Applied) -> PyResult<()> {
    let refusal = match done {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(Refusal::Later)) => return Err(refused(py, Refusal::Later)),
        Ok(Err(Refusal::NoMemory(_))) if !may_grow() => {
            applied.answers.push(NO_ROOM);
            return Ok(());
        }
        Err(problem) if !may_grow() && is_a(py, &problem, "NotEnoughMemory") => {
            applied.answers.push(NO_ROOM);
            return Ok(());
        }
        // No machine has u64::MAX bytes: the filter is as large as its kind can be.
        Ok(Err(Refusal::NoMemory(nbytes))) if nbytes < u64::MAX => {
            return Err(no_memory(py, nbytes));
        }
        Ok(Err(refusal)) => refusal,
        // A bank without room raises it.
        Err(problem) if is_a(py, &problem, "FilterFull") => Refusal::Full(problem.to_string()),
        Err(problem) => return Err(problem),
    };
    applied.answers.push(REFUSED);
    applied.refusal.get_or_insert(refusal);
    Ok(())
}

fn is_a(py: Python<'_>, problem: &PyErr, class: &str) -> bool {
    problem.get_type(py).name().is_ok_and(|name| name == class)
}

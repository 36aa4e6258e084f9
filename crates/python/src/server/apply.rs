//! What an entry of a shared log says, done to a filter. Every node does it by the same rule, each
//! key on its own and whatever batch it comes in: filters that were equal stay equal, and give equal
//! answers.

use bloomery_core::kind::Refusal;
use pyo3::prelude::*;

use crate::errors::{no_memory, refused};
use crate::server::names::{ADD, ADD_NEW, Entry, REMOVE, Work, count};

/// The answer to a key that the filter refused; those behind it had their turn.
pub const REFUSED: u8 = 3;

/// Keys that are looked for before all are.
const FEW: usize = 8;

/// A refusal of an operation of a filter, or an error: nobody knows how far it came.
pub type Done = PyResult<Result<(), Refusal>>;

impl Entry {
    /// Adds or removes the hashed keys, and counts them; nothing is noted for the log. Returns the
    /// first refusal. An error is this node's own (it has no memory, or the filter is broken): what
    /// others answer it cannot say.
    pub fn apply(
        &mut self,
        py: Python<'_>,
        op: u8,
        work: &mut Work<'_>,
    ) -> PyResult<Option<Refusal>> {
        let mut first = None;
        let done = self.apply_each(py, op, work, &mut first);
        if op == REMOVE {
            self.items = self.items.saturating_sub(count(work.answers));
        } else {
            let taken = work.answers.iter().filter(|answer| **answer != REFUSED).count();
            self.count_added(work, taken);
        }
        done.map(|()| first)
    }

    fn apply_each(
        &self,
        py: Python<'_>,
        op: u8,
        work: &mut Work<'_>,
        first: &mut Option<Refusal>,
    ) -> PyResult<()> {
        let Work { hashes, answers, .. } = work;
        if hashes.is_empty() {
            return Ok(()); // of no key it cannot be said that it was refused
        }
        let width = self.filter.width();
        let room = self.limit.saturating_sub(self.items) >= (hashes.len() / width) as u64;
        // All at once, which stops at the first that is refused; what is left goes one by one.
        if op == REMOVE {
            settle(py, self.filter.try_remove(py, hashes, answers), answers, first)?;
        } else if op == ADD && room {
            settle(py, self.filter.try_add(py, hashes, answers), answers, first)?;
        }
        let mut items = self.items + count(answers);
        for one in hashes[answers.len() * width..].chunks_exact(width) {
            let done = match op {
                REMOVE => self.filter.try_remove(py, one, answers),
                _ => self.apply_add(py, op, items, one, answers),
            };
            settle(py, done, answers, first)?;
            items += count(&answers[answers.len() - 1..]);
        }
        Ok(())
    }

    /// Adds one key to a filter that has so many by now.
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
            let there = answers.pop() == Some(1);
            // Where copies are counted one more copy counts: it will be removed once more.
            if there && (op == ADD_NEW || !self.filter.every_add_counts()) {
                answers.push(0);
                return Ok(Ok(()));
            }
            if full && !there {
                return Ok(Err(Refusal::Full(self.full.clone())));
            }
        }
        self.filter.try_add(py, hashes, answers)
    }

    /// Would it change nothing, wherever it is done: are all hashed keys there, in a filter in which
    /// that is enough? It counts as no check.
    pub fn is_unchanged_by(&self, py: Python<'_>, op: u8, work: &mut Work<'_>) -> PyResult<bool> {
        let enough = op == ADD_NEW || (op == ADD && !self.filter.every_add_counts());
        // A successor that is being built gets what the log has.
        if !enough || self.loading || self.followed {
            return Ok(false);
        }
        // Most adds are of new keys, which the first few show: the others are not looked for then.
        let few = work.hashes.len().min(FEW * self.filter.width());
        for some in [&work.hashes[..few], &work.hashes[few..]] {
            self.filter.contains(py, some, work.answers)?;
            if work.answers.contains(&0) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Answers the key that was refused, if one was.
fn settle(
    py: Python<'_>,
    done: Done,
    answers: &mut Vec<u8>,
    first: &mut Option<Refusal>,
) -> PyResult<()> {
    let refusal = match done {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(Refusal::Later)) => return Err(refused(py, Refusal::Later)),
        // So many bytes no machine has: it is as large as a filter of its kind can be.
        Ok(Err(Refusal::NoMemory(nbytes))) if nbytes < u64::MAX => {
            return Err(no_memory(py, nbytes));
        }
        Ok(Err(refusal)) => refusal,
        Err(problem) if is_full(py, &problem) => Refusal::Full(problem.to_string()),
        Err(problem) => return Err(problem),
    };
    answers.push(REFUSED);
    first.get_or_insert(refusal);
    Ok(())
}

/// A bank that has no room raises it.
fn is_full(py: Python<'_>, problem: &PyErr) -> bool {
    problem.get_type(py).name().is_ok_and(|name| name == "FilterFull")
}

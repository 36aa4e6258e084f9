//! Applies records of the log to a filter. A server and every node follow the same rule, key by key
//! and regardless of batches: equal filters stay equal and give equal answers.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bloomery_core::budget::{may_grow, with_deferred_growth, without_growth};
use bloomery_core::kind::Refusal;

use crate::filter::{Done, Fault};
use crate::keyspace::{
    ADD, ADD_IN_PLACE, ADD_NEW, ADD_NEW_IN_PLACE, Entry, Keyspace, NO_ROOM, Names, REMOVE, count,
    has_keys, split_name,
};

/// The answer to a key that the filter refused. The keys after it are still applied.
pub const REFUSED: u8 = 3;

/// Keys that are looked for before all are.
const FEW: usize = 8;

/// The outcome of the keys of one record, as far as they are applied.
#[derive(Default, Clone)]
pub struct Applied {
    pub answers: Vec<u8>,
    /// The first refusal: a code and a message.
    pub refusal: Option<(String, String)>,
}

/// The outcome of a record.
#[derive(Clone)]
pub enum Outcome {
    Keys(Applied),
    /// The error reply of the commands in it.
    Error(Vec<u8>),
    /// Another command changed the name first, so nothing was applied.
    Conflict,
    /// A thread of the control plane still applies it, or its result is not about keys.
    Unfinished,
}

/// How far a call of `Keyspace::apply` came.
#[derive(PartialEq, Eq, Debug)]
pub enum Progress {
    Done,
    /// The time is over.
    Late,
    /// The control plane must apply the next record.
    Control,
}

/// A refusal as a code of `bloomery.errors` and a message.
pub fn code_and_message(refusal: Refusal) -> (String, String) {
    let (code, message) = match refusal {
        Refusal::Full(message) => ("filter-full", message),
        Refusal::Copies(message) => ("too-many-copies", message),
        Refusal::NoMemory(nbytes) => ("not-enough-memory", format!("{nbytes} bytes")),
        Refusal::Never(message) => ("read-only-filter", message.into()),
        Refusal::Later => ("error", LATER.into()),
    };
    (code.into(), message)
}

/// A caller that gets `Refusal::Later` continues on its own, so no client should ever read this.
pub const LATER: &str = "internal error: the filter was not given the time to grow";

/// Reads the hashes of a record for a filter; false if they are truncated.
pub fn read_hashes(width: usize, data: &[u8], out: &mut Vec<u64>) -> bool {
    out.clear();
    out.extend(data.as_chunks().0.iter().map(|hash| u64::from_le_bytes(*hash)));
    data.len().is_multiple_of(8 * width)
}

impl Keyspace {
    /// Applies records of keys, from the first without an outcome on, and appends their outcomes. A
    /// record that was begun continues (`Keyspace::begun`).
    pub fn apply<'a>(
        &self,
        names: &Names,
        records: impl Iterator<Item = (u64, u8, &'a [u8])>,
        outcomes: &mut Vec<Outcome>,
        until: Option<Instant>,
    ) -> Result<Progress, Fault> {
        let is_late = || until.is_some_and(|until| Instant::now() >= until);
        let (mut hashes, mut late) = (Vec::new(), false);
        for (id, op, data) in records {
            if late {
                return Ok(Progress::Late);
            }
            if !has_keys(op) {
                return Ok(Progress::Control);
            }
            let Some((name, keys)) = split_name(data) else { return Ok(Progress::Control) };
            if names.busy.contains(name) {
                return Ok(Progress::Control);
            }
            let begun = self.take_begun(id);
            let Some(entry) = names.get(name).filter(|entry| entry.id == id) else {
                outcomes.push(Outcome::Conflict);
                continue;
            };
            let width = entry.filter.width();
            if !read_hashes(width, keys, &mut hashes) {
                return Ok(Progress::Control);
            }
            let keys = hashes.len() / width;
            let needs_control = |done: usize| {
                let grows = op != REMOVE && entry.filter.needs_room(keys - done);
                entry.loading || entry.followed || grows
            };
            if begun.is_none() && needs_control(0) {
                return Ok(Progress::Control);
            }
            let mut applied = begun.unwrap_or_default();
            let chunk = entry.filter.keys_per_look() * width;
            for some in hashes[applied.answers.len() * width..].chunks(chunk) {
                if late {
                    self.put_begun(id, applied);
                    return Ok(Progress::Late);
                }
                match with_deferred_growth(|| entry.apply(self, op, some, &mut applied)) {
                    Err(Fault::Later) => {
                        self.put_begun(id, applied);
                        return Ok(Progress::Control);
                    }
                    done => done?,
                }
                late = is_late();
            }
            outcomes.push(Outcome::Keys(applied));
        }
        Ok(Progress::Done)
    }
}

impl Entry {
    /// Adds or removes the hashed keys of a record that have no answer yet, however long it takes.
    pub fn apply_all(
        &self,
        keyspace: &Keyspace,
        op: u8,
        hashes: &[u64],
        applied: &mut Applied,
    ) -> Result<(), Fault> {
        if !matches!(op, ADD_IN_PLACE | ADD_NEW_IN_PLACE) {
            self.filter.make_room(hashes.len() / self.filter.width())?;
        }
        let done = applied.answers.len() * self.filter.width();
        self.apply(keyspace, op, &hashes[done..], applied)
    }

    /// Adds or removes some hashed keys of a record.
    pub fn apply(
        &self,
        keyspace: &Keyspace,
        op: u8,
        hashes: &[u64],
        applied: &mut Applied,
    ) -> Result<(), Fault> {
        let before = applied.answers.len();
        let done = match op {
            ADD_IN_PLACE => without_growth(|| self.apply_each(ADD, hashes, applied)),
            ADD_NEW_IN_PLACE => without_growth(|| self.apply_each(ADD_NEW, hashes, applied)),
            _ => self.apply_each(op, hashes, applied),
        };
        let (answers, counters) = (&applied.answers[before..], &self.counters);
        let items = counters.items.load(Relaxed);
        if op == REMOVE {
            counters.items.store(items.saturating_sub(count(answers)), Relaxed);
        } else {
            let refused = [REFUSED, NO_ROOM];
            let accepted = answers.iter().filter(|answer| !refused.contains(answer)).count();
            let items = items + count(answers);
            counters.items.store(items, Relaxed);
            counters.adds.fetch_add(accepted as u64, Relaxed);
            if items >= counters.threshold.load(Relaxed) {
                counters.threshold.store(u64::MAX, Relaxed);
                keyspace.reached().push(self.id);
            }
        }
        done
    }

    fn apply_each(&self, op: u8, hashes: &[u64], applied: &mut Applied) -> Result<(), Fault> {
        if hashes.is_empty() {
            return Ok(());
        }
        let (width, before) = (self.filter.width(), applied.answers.len());
        let items = self.counters.items.load(Relaxed);
        let room = self.limit.saturating_sub(items) >= (hashes.len() / width) as u64;
        // All at once, which stops at the first refused key; the others follow one by one.
        if op == REMOVE {
            settle(self.filter.try_remove(hashes, &mut applied.answers), applied)?;
        } else if op == ADD && room {
            settle(self.filter.try_add(hashes, &mut applied.answers), applied)?;
        }
        let mut items = items + count(&applied.answers[before..]);
        for one in hashes[(applied.answers.len() - before) * width..].chunks_exact(width) {
            let done = match op {
                REMOVE => self.filter.try_remove(one, &mut applied.answers),
                _ => self.apply_add(op, items, one, &mut applied.answers),
            };
            settle(done, applied)?;
            items += u64::from(applied.answers.last() == Some(&1));
        }
        Ok(())
    }

    /// Adds one key to a filter that has this many items.
    fn apply_add(&self, op: u8, items: u64, hashes: &[u64], answers: &mut Vec<u8>) -> Done {
        let full = items >= self.limit;
        if full || op == ADD_NEW {
            self.filter.contains(hashes, answers)?;
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
        self.filter.try_add(hashes, answers)
    }

    /// Returns whether a record with these keys would change nothing. It does not count as a check.
    pub fn is_unchanged_by(&self, op: u8, hashes: &[u64]) -> Result<bool, Fault> {
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
            self.filter.contains(some, &mut answers)?;
            if answers.contains(&0) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Answers the key that was refused, if one was.
fn settle(done: Done, applied: &mut Applied) -> Result<(), Fault> {
    let refusal = match done {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(Refusal::NoMemory(_))) | Err(Fault::NoMemory(_)) if !may_grow() => {
            applied.answers.push(NO_ROOM);
            return Ok(());
        }
        Ok(Err(Refusal::Later)) => return Err(Fault::Later),
        // No machine has u64::MAX bytes: the filter is as large as its kind can be.
        Ok(Err(Refusal::NoMemory(nbytes))) if nbytes < u64::MAX => {
            return Err(Fault::NoMemory(nbytes));
        }
        Ok(Err(refusal)) => refusal,
        Err(fault) => return Err(fault),
    };
    applied.answers.push(REFUSED);
    if applied.refusal.is_none() {
        applied.refusal = Some(code_and_message(refusal));
    }
    Ok(())
}

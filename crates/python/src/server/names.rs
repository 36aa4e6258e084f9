//! Filters by name: what a command does to one, what is counted, and what is to be logged.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bloomery_core::kind::Refusal;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::server::any_filter::AnyFilter;
use crate::server::run::Run;

/// As `service/domain/operations.py` numbers them.
pub const ADD: u8 = 1;
pub const REMOVE: u8 = 2;
/// Unless it may be there.
pub const ADD_NEW: u8 = 15;

/// A record is cut here, so that none becomes larger than a replay takes at once.
const MOST_RECORD: usize = 1 << 20;

/// The answer to a key for which there was no memory.
pub const NO_ROOM: u8 = 2;

/// After a filter could not grow it is not asked to again for so long: finding out takes a look at
/// all of it.
const STARVED: Duration = Duration::from_secs(1);

/// Whose commands a filter answers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CommandFamily {
    Bf,
    Cf,
}

pub struct Entry {
    pub id: u64,
    pub filter: AnyFilter,
    pub family: CommandFamily,
    /// Keys that were new when they were added.
    pub items: u64,
    /// How many of those it takes at most.
    pub limit: u64,
    /// With so many somebody wants to know, once.
    pub threshold: u64,
    /// What is said to a new key beyond that.
    pub full: String,
    /// Not yet whole: it was announced and its bytes are coming.
    pub loading: bool,
    /// Every key that is added is noted for the log, whether it changed anything here or not: the
    /// successor that is being built has to get it too.
    pub followed: bool,
    /// When there was last no memory for it to grow.
    pub starved: Option<Instant>,
    pub adds: u64,
    pub checks: u64,
    pub maybes: u64,
}

/// What is noted of an operation: hashes that were gathered here, or what Python gave, as it is.
pub enum Noted {
    Hashes(Vec<u8>),
    Given(Py<PyBytes>),
}

#[derive(Default)]
pub struct Names {
    pub entries: HashMap<Vec<u8>, Entry>,
    pub log: Vec<(u64, u8, Noted)>,
    /// Filters that have reached their threshold.
    pub reached: Vec<u64>,
    /// No write is taken now.
    pub refusing: bool,
    /// Python sees every command.
    pub bypassed: bool,
    /// Writes of clients are noted for the log and done later, when a shared log has them.
    pub deferring: bool,
    /// How often the log was taken.
    pub turn: u64,
    /// Names whose filters a thread or a transaction works on: their commands go to Python, and wait.
    pub locked: HashSet<Vec<u8>>,
    pub commands: u64,
    /// Room for hashes and answers, kept from one command to the next.
    pub hashes: Vec<u64>,
    pub answers: Vec<u8>,
    pub run: Run,
}

impl Names {
    #[inline(always)]
    pub fn get(&mut self, name: &[u8]) -> Option<&mut Entry> {
        self.entries.get_mut(name)
    }

    #[inline(always)]
    pub fn is_locked(&self, name: &[u8]) -> bool {
        !self.locked.is_empty() && self.locked.contains(name)
    }

    /// Borrows an entry and the work buffers together, which the borrow checker refuses through `get`.
    #[inline(always)]
    pub fn split(&mut self, name: &[u8]) -> (Option<&mut Entry>, Work<'_>) {
        let Names { entries, log, reached, hashes, answers, .. } = self;
        let entry = entries.get_mut(name);
        hashes.clear();
        answers.clear();
        (entry, Work { log, reached, hashes, answers })
    }
}

/// What a command needs beside the filter.
pub struct Work<'a> {
    log: &'a mut Vec<(u64, u8, Noted)>,
    reached: &'a mut Vec<u64>,
    pub hashes: &'a mut Vec<u64>,
    pub answers: &'a mut Vec<u8>,
}

impl Work<'_> {
    fn record(&mut self, id: u64, op: u8, width: usize, keep: impl Fn(u8) -> bool) {
        self.begin_record(id, op);
        let Some((_, _, Noted::Hashes(data))) = self.log.last_mut() else { return };
        for (hashes, answer) in self.hashes.chunks_exact(width).zip(self.answers.iter()) {
            if keep(*answer) {
                hashes.iter().for_each(|h| data.extend_from_slice(&h.to_le_bytes()));
            }
        }
        if data.is_empty() {
            self.log.pop();
        }
    }

    /// Lets the log end with a record of this operation that has room.
    #[inline(always)]
    fn begin_record(&mut self, id: u64, op: u8) {
        let fits = |(before, what, noted): &&mut (u64, u8, Noted)| {
            let room = matches!(noted, Noted::Hashes(data) if data.len() < MOST_RECORD);
            (*before, *what) == (id, op) && room
        };
        if self.log.last_mut().filter(fits).is_none() {
            self.log.push((id, op, Noted::Hashes(Vec::new())));
        }
    }

    /// Notes all hashed keys, in one record, as what is to be done. Returns the record's place in
    /// the log, and that of the first key in the record.
    pub fn defer(&mut self, id: u64, op: u8, width: usize) -> (usize, usize) {
        self.begin_record(id, op);
        let record = self.log.len() - 1;
        let Some((_, _, Noted::Hashes(data))) = self.log.last_mut() else { return (record, 0) };
        let first = data.len() / (8 * width);
        data.extend(self.hashes.iter().flat_map(|hash| hash.to_le_bytes()));
        (record, first)
    }
}

impl Entry {
    /// Would adding so many keys have it grow for long? Then Python lets it grow in a thread before.
    #[inline(always)]
    pub fn needs_room(&self, py: Python<'_>, keys: usize) -> bool {
        self.filter.needs_room(py, keys)
            && self.items < self.limit
            && self.starved.is_none_or(|since| since.elapsed() >= STARVED)
    }

    /// Answers for the hashed keys.
    #[inline(always)]
    pub fn contains(&mut self, py: Python<'_>, work: &mut Work<'_>) -> PyResult<()> {
        self.filter.contains(py, work.hashes, work.answers)?;
        self.checks += work.answers.len() as u64;
        self.maybes += count(work.answers);
        Ok(())
    }

    /// Adds the hashed keys and notes them for the log; after a refusal, those before it are in. A
    /// key for which there is no memory is answered with NO_ROOM, and the others still have their
    /// turn, as in RedisBloom.
    #[inline(always)]
    pub fn add(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        self.filter.check_layers(py)?;
        self.add_more(py, work)
    }

    /// As `add`, for a further part of the same command.
    #[inline(always)]
    pub fn add_more(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        let keys = (work.hashes.len() / self.filter.width()) as u64;
        let result = if self.limit.saturating_sub(self.items) < keys {
            self.add_within(py, work)
        } else if self.starved.is_some_and(|since| since.elapsed() < STARVED) {
            self.add_nothing(py, work)
        } else {
            match self.filter.add(py, work.hashes, work.answers) {
                Err(Refusal::NoMemory(_)) => {
                    self.starved = Some(Instant::now());
                    self.add_nothing(py, work)
                }
                other => other,
            }
        };
        let always = self.followed || self.filter.every_add_counts();
        self.note_added(work, |answer| answer == 1 || (always && answer != NO_ROOM));
        result
    }

    /// Adds those of the hashed keys that are definitely not there; one for which there is no room
    /// is answered with NO_ROOM.
    pub fn add_new(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        for hashes in work.hashes.chunks_exact(self.filter.width()) {
            self.filter.contains(py, hashes, work.answers).map_err(failed)?;
            if work.answers.pop() == Some(1) {
                work.answers.push(0);
            } else if self.filter.add(py, hashes, work.answers).is_err() {
                work.answers.push(NO_ROOM);
            }
        }
        self.note_added(work, |answer| answer == 1);
        Ok(())
    }

    /// Counts what was added, and notes for the log the keys whose answers are to be kept.
    #[inline(always)]
    fn note_added(&mut self, work: &mut Work<'_>, keep: impl Fn(u8) -> bool) {
        self.count_added(work, work.answers.len());
        work.record(self.id, ADD, self.filter.width(), keep);
    }

    /// Counts what was added, of so many that the filter took.
    #[inline(always)]
    pub fn count_added(&mut self, work: &mut Work<'_>, taken: usize) {
        self.items += count(work.answers);
        self.adds += taken as u64;
        if self.items >= self.threshold {
            self.threshold = u64::MAX;
            work.reached.push(self.id);
        }
    }

    /// Answers for the keys that are left without adding any.
    #[cold]
    fn add_nothing(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        let width = self.filter.width();
        for hashes in work.hashes[work.answers.len() * width..].chunks_exact(width) {
            if !self.filter.every_add_counts() {
                self.filter.contains(py, hashes, work.answers).map_err(failed)?;
                if work.answers.pop() == Some(1) {
                    work.answers.push(0);
                    continue;
                }
            }
            work.answers.push(NO_ROOM);
        }
        Ok(())
    }

    /// A filter that is not to grow takes as many keys as it was made for.
    fn add_within(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        let width = self.filter.width();
        let mut new = 0;
        for hashes in work.hashes.chunks_exact(width) {
            if self.items + new >= self.limit {
                self.filter.contains(py, hashes, work.answers).map_err(failed)?;
                if work.answers.pop() == Some(0) {
                    return Err(Refusal::Full(self.full.clone()));
                }
                // Where copies are counted one more copy counts: it will be removed once more.
                if !self.filter.every_add_counts() {
                    work.answers.push(0);
                    continue;
                }
            }
            self.filter.add(py, hashes, work.answers)?;
            new += u64::from(work.answers.last() == Some(&1));
        }
        Ok(())
    }

    #[inline(always)]
    pub fn remove(&mut self, py: Python<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        let result = self.filter.remove(py, work.hashes, work.answers);
        self.items = self.items.saturating_sub(count(work.answers));
        work.record(self.id, REMOVE, self.filter.width(), |answer| answer == 1);
        result
    }
}

/// How many of the answers are a yes.
#[inline(always)]
pub fn count(answers: &[u8]) -> u64 {
    answers.iter().map(|answer| u64::from(*answer == 1)).sum()
}

/// A clock that raised, say: there is no such thing in a server.
pub fn failed(problem: PyErr) -> Refusal {
    Refusal::Full(problem.to_string())
}

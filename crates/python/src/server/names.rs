//! The filters of a server by name, and the records that wait for the log.

use std::collections::{HashMap, HashSet};

use bloomery_core::budget;
use bloomery_core::kind::Refusal;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::server::any_filter::AnyFilter;
use crate::server::apply::Applied;
use crate::server::pipeline::Run;

/// As `service/domain/operations.py` numbers them.
pub const ADD: u8 = 1;
pub const REMOVE: u8 = 2;
/// Adds the keys that are definitely new.
pub const ADD_NEW: u8 = 15;
/// As ADD and ADD_NEW, if the filter need not grow: decided before the record was written, because
/// memory was short.
pub const ADD_IN_PLACE: u8 = 18;
pub const ADD_NEW_IN_PLACE: u8 = 19;

/// Returns whether an operation adds or removes keys.
pub fn has_keys(op: u8) -> bool {
    matches!(op, ADD | REMOVE | ADD_NEW | ADD_IN_PLACE | ADD_NEW_IN_PLACE)
}

/// Bytes of hashes after which the next write starts a new record.
const MAX_RECORD: usize = 64 << 10;

/// The answer to a key for which there was no memory.
pub const NO_ROOM: u8 = 2;

/// The commands that a filter answers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CommandFamily {
    Bf,
    Cf,
}

pub struct Entry {
    pub id: u64,
    pub filter: AnyFilter,
    pub family: CommandFamily,
    /// Keys that were new when they were added, minus keys removed.
    pub items: u64,
    /// The most items that the filter accepts.
    pub limit: u64,
    /// The number of items at which the policy runs, once.
    pub threshold: u64,
    /// The error for a new key beyond the limit.
    pub full: String,
    /// The filter is incomplete: more chunks of it follow.
    pub loading: bool,
    /// A rebuild is under way: its new filter gets every key that is added.
    pub followed: bool,
    pub adds: u64,
    pub checks: u64,
    pub maybes: u64,
}

/// The data of a record.
pub enum Data {
    /// The filter's name after its length, then hashes of keys. The name ends at the offset.
    Keys(Vec<u8>, usize),
    /// Bytes from Python.
    Given(Py<PyBytes>),
}

/// An operation for the log.
pub struct Record {
    pub id: u64,
    pub op: u8,
    pub data: Data,
}

pub struct Names {
    pub entries: HashMap<Vec<u8>, Entry>,
    /// Records that the log has not yet received.
    pub log: Vec<Record>,
    /// Some of these records remove keys.
    pub removes: bool,
    /// The number of the batch that these records will be.
    pub batch: u64,
    /// Filters that have reached their threshold.
    pub reached: Vec<u64>,
    /// The server rejects writes; Python knows why.
    pub refusing: bool,
    /// Python handles every command.
    pub bypassed: bool,
    /// No other process writes the log, so a key that is present needs no record.
    pub exclusive: bool,
    /// Bytes that all filters together may use.
    pub memory_limit: u64,
    /// Names that a thread or a transaction works on: Python handles their commands.
    pub locked: HashSet<Vec<u8>>,
    /// Names that a thread applies a record to: Python applies their next records, after it.
    pub busy: HashSet<Vec<u8>>,
    pub commands: u64,
    /// Buffers that are reused from one command to the next.
    pub hashes: Vec<u64>,
    pub answers: Vec<u8>,
    pub run: Run,
    /// The record that `Shelf.apply` has applied in part.
    pub partial: Option<Applied>,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            entries: HashMap::new(),
            log: Vec::new(),
            removes: false,
            batch: 0,
            reached: Vec::new(),
            refusing: false,
            bypassed: false,
            exclusive: false,
            memory_limit: u64::MAX,
            locked: HashSet::new(),
            busy: HashSet::new(),
            commands: 0,
            hashes: Vec::new(),
            answers: Vec::new(),
            run: Run::default(),
            partial: None,
        }
    }
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

    /// Returns whether adding keys that are present needs no record. A removal in this batch may be
    /// of the same client, before its ADD_NEW of that key.
    #[inline(always)]
    pub fn present_is_enough(&self, op: u8) -> bool {
        self.exclusive && !(matches!(op, ADD_NEW | ADD_NEW_IN_PLACE) && self.removes)
    }

    /// Returns whether native code may note a write of this many keys to a filter.
    #[inline(always)]
    pub fn takes_writes(
        &mut self,
        py: Python<'_>,
        name: &[u8],
        family: CommandFamily,
        adds: usize,
    ) -> bool {
        if self.refusing || self.is_locked(name) {
            return false;
        }
        let limit = self.memory_limit;
        self.get(name).is_some_and(|entry| {
            entry.family == family
                && !entry.loading
                && (adds == 0
                    || (entry.filter.check_layers(py).is_ok() && entry.has_memory(py, adds, limit)))
        })
    }

    /// Borrows an entry and the buffers together, which the borrow checker refuses through `get`.
    #[inline(always)]
    pub fn split(&mut self, name: &[u8]) -> (Option<&mut Entry>, Work<'_>) {
        let Names { entries, log, reached, hashes, answers, .. } = self;
        let entry = entries.get_mut(name);
        hashes.clear();
        answers.clear();
        (entry, Work { log, reached, hashes, answers })
    }
}

/// What a command needs in addition to the filter.
pub struct Work<'a> {
    log: &'a mut Vec<Record>,
    pub reached: &'a mut Vec<u64>,
    pub hashes: &'a mut Vec<u64>,
    pub answers: &'a mut Vec<u8>,
}

impl Work<'_> {
    /// Notes keys for the log, those for which `keep` is true. Returns the index of the record and
    /// of the first key in it.
    #[inline(always)]
    pub fn note(
        &mut self,
        id: u64,
        op: u8,
        name: &[u8],
        width: usize,
        keep: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let fits = |record: &&mut Record| {
            let named = matches!(&record.data, Data::Keys(data, start)
                if data.len() - start < MAX_RECORD && &data[2..*start] == name);
            (record.id, record.op) == (id, op) && named
        };
        if self.log.last_mut().filter(fits).is_none() {
            let mut data = Vec::with_capacity(2 + name.len() + 8 * self.hashes.len());
            data.extend_from_slice(&(name.len() as u16).to_le_bytes());
            data.extend_from_slice(name);
            let start = data.len();
            self.log.push(Record { id, op, data: Data::Keys(data, start) });
        }
        let index = self.log.len() - 1;
        let Some(Record { data: Data::Keys(data, start), .. }) = self.log.last_mut() else {
            return (index, 0);
        };
        let first = (data.len() - *start) / (8 * width);
        for (at, hashes) in self.hashes.chunks_exact(width).enumerate() {
            if keep(at) {
                hashes.iter().for_each(|hash| data.extend_from_slice(&hash.to_le_bytes()));
            }
        }
        (index, first)
    }
}

/// Splits a record's data into the filter's name and the rest.
pub fn split_name(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_le_bytes(*length).into())
}

impl Entry {
    /// Returns whether there is memory for this many more keys.
    #[inline(always)]
    pub fn has_memory(&self, py: Python<'_>, keys: usize, limit: u64) -> bool {
        limit == u64::MAX || {
            let growth = self.filter.growth_bytes(py, keys);
            growth == 0 || budget::used().saturating_add(growth) <= limit
        }
    }

    /// Returns the same filter and its items, without the other counts.
    pub fn counters(&self, py: Python<'_>) -> Entry {
        Entry {
            filter: self.filter.clone_ref(py),
            full: self.full.clone(),
            adds: 0,
            checks: 0,
            maybes: 0,
            ..*self
        }
    }

    /// Answers for the hashed keys.
    #[inline(always)]
    pub fn contains(&mut self, py: Python<'_>, work: &mut Work<'_>) -> PyResult<()> {
        self.filter.contains(py, work.hashes, work.answers)?;
        self.checks += work.answers.len() as u64;
        self.maybes += count(work.answers);
        Ok(())
    }

    /// Returns whether adding a key that is present changes nothing.
    #[inline(always)]
    pub fn ignores_known(&self) -> bool {
        !self.followed && !self.loading && !self.filter.every_add_counts()
    }

    /// Counts added keys, of which `accepted` were not refused.
    #[inline(always)]
    pub fn count_added(&mut self, new: u64, accepted: u64, reached: &mut Vec<u64>) {
        self.items += new;
        self.adds += accepted;
        if self.items >= self.threshold {
            self.threshold = u64::MAX;
            reached.push(self.id);
        }
    }
}

/// Counts the answers that are 1.
#[inline(always)]
pub fn count(answers: &[u8]) -> u64 {
    answers.iter().map(|answer| u64::from(*answer == 1)).sum()
}

/// Turns an error of a filter (a broken one, say) into a refusal.
pub fn failed(problem: PyErr) -> Refusal {
    Refusal::Full(problem.to_string())
}

//! The filters of a server by name, and the records that wait for the log.
//!
//! A session holds `names` for reading while it processes a chunk of input. The thread that takes a
//! batch holds it for writing, so no batch is taken in the middle of a chunk. The control plane
//! holds it for writing while it changes which filters exist.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use bloomery_core::budget;

use crate::apply::Applied;
use crate::filter::{Fault, Filter};
use crate::histogram::Histogram;
use crate::sequencer::{Clock, Role};
use crate::sync::{AtomicBool, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

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
    pub filter: Arc<dyn Filter>,
    pub family: CommandFamily,
    /// The most items that the filter accepts.
    pub limit: u64,
    /// The error for a new key beyond the limit.
    pub full: String,
    /// The filter is incomplete: more chunks of it follow.
    pub loading: bool,
    /// A rebuild is under way: its new filter gets every key that is added.
    pub followed: bool,
    pub counters: Arc<Counters>,
}

#[derive(Default)]
pub struct Counters {
    /// Keys that were new when they were added, minus keys removed.
    pub items: AtomicU64,
    /// The number of items at which the policy runs, once.
    pub threshold: AtomicU64,
    pub adds: AtomicU64,
    pub checks: AtomicU64,
    pub maybes: AtomicU64,
}

impl Counters {
    /// Returns items, adds, checks and maybes.
    pub fn read(&self) -> (u64, u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        (load(&self.items), load(&self.adds), load(&self.checks), load(&self.maybes))
    }
}

/// An operation for the log. Its data starts with the filter's name after its length.
pub struct Record {
    pub id: u64,
    pub op: u8,
    pub data: Data,
}

/// The data of a record.
pub enum Data {
    /// The name, and from the offset on the hashes of keys.
    Keys(Vec<u8>, usize),
    /// Data of the control plane.
    Given(Box<dyn Payload>),
}

/// Bytes that the control plane owns.
pub trait Payload: Any + Send + Sync {
    fn bytes(&self) -> &[u8];
}

/// A client whose writes wait for a batch, and the worker that owns its connection.
pub struct Waiter {
    pub worker: usize,
    pub client: u64,
}

/// What the next batch will have.
#[derive(Default)]
pub struct Pending {
    pub records: Vec<Record>,
    pub waiters: Vec<Waiter>,
    /// Some of the records remove keys.
    pub removes: bool,
    /// The control plane waits for some of the records, so it must take the batch.
    pub control: bool,
}

impl Pending {
    /// Appends keys, those for which `keep` is true. Returns the index of the record and of the
    /// first key in it.
    #[inline(always)]
    pub fn append(
        &mut self,
        (id, op, name): (u64, u8, &[u8]),
        hashes: &[u64],
        width: usize,
        keep: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let fits = |record: &Record| {
            let named = matches!(&record.data, Data::Keys(data, start)
                if data.len() - start < MAX_RECORD && &data[2..*start] == name);
            (record.id, record.op) == (id, op) && named
        };
        if !self.records.last().is_some_and(fits) {
            let mut data = Vec::with_capacity(2 + name.len() + 8 * hashes.len());
            data.extend_from_slice(&(name.len() as u16).to_le_bytes());
            data.extend_from_slice(name);
            let start = data.len();
            self.records.push(Record { id, op, data: Data::Keys(data, start) });
        }
        self.removes |= op == REMOVE;
        let index = self.records.len() - 1;
        let Some(Record { data: Data::Keys(data, start), .. }) = self.records.last_mut() else {
            return (index, 0);
        };
        let first = (data.len() - *start) / (8 * width);
        for (at, words) in hashes.chunks_exact(width).enumerate() {
            if keep(at) {
                words.iter().for_each(|hash| data.extend_from_slice(&hash.to_le_bytes()));
            }
        }
        (index, first)
    }

    /// Returns whether adding keys that are present needs no record. A removal in this batch may be
    /// of the same client, before its ADD_NEW of that key.
    pub fn needs_no_record(&self, op: u8) -> bool {
        !(matches!(op, ADD_NEW | ADD_NEW_IN_PLACE) && self.removes)
    }
}

/// Splits a record's data into the filter's name and the rest.
pub fn split_name(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_le_bytes(*length).into())
}

#[derive(Default)]
pub struct Names {
    pub entries: HashMap<Vec<u8>, Arc<Entry>>,
    /// Names that a thread or a transaction works on: the control plane handles their commands.
    pub locked: HashSet<Vec<u8>>,
    /// Names that a thread applies a record to: the control plane applies their next records.
    pub busy: HashSet<Vec<u8>>,
}

impl Names {
    #[inline(always)]
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    #[inline(always)]
    pub fn is_locked(&self, name: &[u8]) -> bool {
        !self.locked.is_empty() && self.locked.contains(name)
    }
}

/// The control plane must answer the command.
pub struct ForControl;

pub struct Keyspace {
    names: RwLock<Names>,
    pending: Mutex<Pending>,
    reached: Mutex<Vec<u64>>,
    /// The outcomes so far of records that are applied in part, by the number of the filter. Records
    /// of one filter are applied one after the other, so it has one at most.
    begun: Mutex<HashMap<u64, Applied>>,
    /// The server rejects writes; the control plane knows why.
    pub refusing: AtomicBool,
    /// The control plane handles every command.
    pub bypassed: AtomicBool,
    /// From then on the control plane handles every command: a filter expires or rotates, or the
    /// copy of a node is too old.
    due: Deadline,
    stale: Deadline,
    /// No other process writes the log, so a key that is present needs no record.
    pub exclusive: AtomicBool,
    /// Bytes that all filters together may use.
    pub memory_limit: AtomicU64,
    /// Bytes that one filter may grow to.
    pub filter_limit: AtomicU64,
    /// Who takes the next batch.
    pub role: Role,
    /// Workers may write and apply short batches.
    pub inline: AtomicBool,
    /// The time of their records.
    pub clock: Clock,
    /// Of batches, from when they are taken until they are applied.
    pub batch_latency: Histogram,
    /// Commands that were answered natively.
    pub commands: AtomicU64,
    /// Native reads whose filter existed, and those whose filter did not.
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    /// Of commands, from the arrival of a chunk until its replies are sent.
    pub latency: Histogram,
}

impl Default for Keyspace {
    fn default() -> Self {
        Keyspace {
            names: RwLock::default(),
            pending: Mutex::default(),
            reached: Mutex::default(),
            begun: Mutex::default(),
            refusing: AtomicBool::default(),
            bypassed: AtomicBool::default(),
            due: Deadline::default(),
            stale: Deadline::default(),
            exclusive: AtomicBool::default(),
            memory_limit: AtomicU64::new(u64::MAX),
            filter_limit: AtomicU64::new(u64::MAX),
            role: Role::default(),
            inline: AtomicBool::default(),
            clock: Clock::default(),
            batch_latency: Histogram::default(),
            commands: AtomicU64::default(),
            hits: AtomicU64::default(),
            misses: AtomicU64::default(),
            latency: Histogram::default(),
        }
    }
}

/// A time that one thread sets and others compare with.
struct Deadline {
    base: Instant,
    /// Microseconds after the base; u64::MAX for never.
    at: AtomicU64,
}

impl Default for Deadline {
    fn default() -> Self {
        Deadline { base: Instant::now(), at: AtomicU64::new(u64::MAX) }
    }
}

impl Deadline {
    /// None: never.
    fn set(&self, at: Option<Instant>) {
        let after = at.map(|at| at.saturating_duration_since(self.base).as_micros());
        let after = after.and_then(|after| u64::try_from(after).ok());
        self.at.store(after.unwrap_or(u64::MAX), Relaxed);
    }

    fn is_over(&self, now: Instant) -> bool {
        let at = self.at.load(Relaxed);
        at != u64::MAX && now.saturating_duration_since(self.base).as_micros() >= u128::from(at)
    }
}

impl Keyspace {
    /// Hands all commands to the control plane from this time on. None: never.
    pub fn set_due(&self, at: Option<Instant>) {
        self.due.set(at);
    }

    /// As `set_due`, when the copy of a node is too old.
    pub fn set_stale(&self, at: Option<Instant>) {
        self.stale.set(at);
    }

    /// Returns whether the control plane handles every command now.
    pub fn is_bypassed(&self, now: Instant) -> bool {
        self.bypassed.load(Relaxed) || self.due.is_over(now) || self.stale.is_over(now)
    }

    pub fn names(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn names_mut(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch. A thread that needs both locks takes `names` first.
    pub fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next batch. No session is in the middle of a chunk then.
    pub fn take(&self) -> Pending {
        let _names = self.names_mut();
        std::mem::take(&mut *self.pending())
    }

    /// Filters that have reached their threshold, each once.
    pub fn reached(&self) -> MutexGuard<'_, Vec<u64>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is applied of the next record of a filter.
    pub fn take_begun(&self, id: u64) -> Option<Applied> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }

    /// Keeps what is applied of the next record of a filter.
    pub fn put_begun(&self, id: u64, applied: Applied) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(id, applied);
    }

    /// Returns whether native code may accept a write of this many keys to a filter.
    #[inline(always)]
    pub fn takes_writes(
        &self,
        names: &Names,
        name: &[u8],
        family: CommandFamily,
        adds: usize,
    ) -> bool {
        if self.refusing.load(Relaxed) || names.is_locked(name) {
            return false;
        }
        names.get(name).is_some_and(|entry| {
            entry.family == family
                && !entry.loading
                && (adds == 0
                    || (entry.filter.check_layers().is_ok() && self.has_memory(entry, adds)))
        })
    }

    /// Returns whether a filter may grow for this many more keys.
    #[inline(always)]
    pub fn has_memory(&self, entry: &Entry, keys: usize) -> bool {
        let (limit, each) = (self.memory_limit.load(Relaxed), self.filter_limit.load(Relaxed));
        (limit == u64::MAX && each == u64::MAX) || {
            let growth = entry.filter.growth_bytes(keys);
            growth == 0
                || (budget::used().saturating_add(growth) <= limit
                    && (each == u64::MAX || entry.filter.grown_bytes(keys) <= each))
        }
    }

    /// Returns the entry of a name for a native read.
    #[inline(always)]
    pub fn readable<'a>(
        &self,
        names: &'a Names,
        name: &[u8],
        family: CommandFamily,
    ) -> Result<Option<&'a Arc<Entry>>, ForControl> {
        match names.get(name) {
            _ if names.is_locked(name) => Err(ForControl),
            Some(entry) if entry.family != family || entry.loading => Err(ForControl),
            found => Ok(found),
        }
    }
}

impl Entry {
    /// Appends an answer for each key, and counts them as checks.
    #[inline(always)]
    pub fn contains(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Result<(), Fault> {
        let before = answers.len();
        self.filter.contains(hashes, answers)?;
        let answers = &answers[before..];
        self.counters.checks.fetch_add(answers.len() as u64, Relaxed);
        self.counters.maybes.fetch_add(count(answers), Relaxed);
        Ok(())
    }

    /// Returns whether adding a key that is present changes nothing.
    #[inline(always)]
    pub fn ignores_known(&self) -> bool {
        !self.followed && !self.loading && !self.filter.every_add_counts()
    }

    /// Counts keys that were added without a record, because they are present.
    #[inline(always)]
    pub fn count_known(&self, keys: usize) {
        self.counters.adds.fetch_add(keys as u64, Relaxed);
    }
}

/// Counts the answers that are 1.
#[inline(always)]
pub fn count(answers: &[u8]) -> u64 {
    answers.iter().map(|answer| u64::from(*answer == 1)).sum()
}

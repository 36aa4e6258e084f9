//! The sequencer: takes the next batch, appends it to the log, applies it, and answers. One batch is
//! on its way at a time.
//!
//! A worker does that for a short batch of keys while the disk is fast. The control plane does it
//! for all others: operations on whole filters, growth of large filters, a slow disk, nodes. The
//! holder of the role takes the next batch, so no record overtakes another.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::apply::{Outcome, Progress};
use crate::filter::Fault;
use crate::keyspace::{Data, Keyspace, Names, Pending, Record, Waiter, split_name};
use crate::log::{Batch, Log};
use crate::sync::{AtomicBool, Defect, Mutex, has};

/// Bytes of records that a worker writes and applies: some 0.5 ms.
const MAX_BYTES: usize = 64 << 10;
/// A slower write had to wait for the disk.
const FAST: Duration = Duration::from_millis(5);
/// After a slow write the control plane writes, in a thread.
const WARY: Duration = Duration::from_secs(3);
/// Age of the oldest write that is not on the disk at which batches wait.
const LATE: f64 = 2.0;

/// The role of the sequencer: who has it takes batches.
#[derive(Default)]
pub struct Role {
    taken: AtomicBool,
    /// The control plane waits for the role.
    wanted: AtomicBool,
}

impl Role {
    pub fn try_take(&self) -> bool {
        !self.taken.swap(true, SeqCst)
    }

    /// Takes the role, or has its holder wake the control plane when it is free.
    pub fn take_or_want(&self) -> bool {
        if self.try_take() {
            return true;
        }
        self.wanted.store(true, SeqCst);
        !has(Defect::NoSecondTry) && self.try_take() // it may have been released before it was wanted
    }

    /// Returns whether the control plane waits for the role.
    pub fn release(&self) -> bool {
        self.taken.store(false, SeqCst);
        self.wanted.swap(false, SeqCst)
    }

    pub fn is_taken(&self) -> bool {
        self.taken.load(SeqCst)
    }
}

/// The log as workers use it.
pub trait BatchLog {
    /// Returns whether a worker may write: it would not wait for the disk.
    fn is_fast(&self) -> bool;

    /// Writes the records; an error means that nothing was written.
    fn write(&self, records: &[Record], at: f64) -> Result<(), String>;
}

/// The log of a server in files.
pub struct FileLog {
    log: Arc<Log>,
    /// A monotonic time in seconds, which the control plane uses, and when it was that.
    monotonic: (f64, Instant),
    slow_until: Mutex<Option<Instant>>,
}

impl FileLog {
    pub fn new(log: Arc<Log>, monotonic: f64) -> FileLog {
        FileLog { log, monotonic: (monotonic, Instant::now()), slow_until: Mutex::default() }
    }

    fn now(&self) -> f64 {
        self.monotonic.0 + self.monotonic.1.elapsed().as_secs_f64()
    }
}

impl BatchLog for FileLog {
    fn is_fast(&self) -> bool {
        let until = *self.slow_until.lock().unwrap_or_else(PoisonError::into_inner);
        let late = self.log.oldest_unsynced().is_some_and(|since| self.now() - since > LATE);
        !late && until.is_none_or(|until| Instant::now() >= until)
    }

    fn write(&self, records: &[Record], at: f64) -> Result<(), String> {
        let nbytes = records.iter().map(|record| record.bytes().len()).sum();
        let mut batch = Batch::with_capacity(records.len(), nbytes);
        for record in records {
            let pushed = batch.push(at, record.id, record.op, record.bytes());
            pushed.map_err(|problem| format!("a record of {} bytes is too long", problem.0))?;
        }
        let started = Instant::now();
        let written = self.log.write(&mut batch, self.now());
        if started.elapsed() > FAST {
            let mut until = self.slow_until.lock().unwrap_or_else(PoisonError::into_inner);
            *until = Some(started + WARY);
        }
        written.map(|_| ()).map_err(|problem| problem.0)
    }
}

/// A batch that a worker has started and the control plane must finish. It has the role.
pub struct Handed {
    pub records: Vec<Record>,
    pub waiters: Vec<Waiter>,
    /// Of the records that are applied.
    pub outcomes: Vec<Outcome>,
    /// The time of the records.
    pub at: f64,
    pub problem: Option<Problem>,
}

pub enum Problem {
    /// The log was not written, so nothing is applied.
    Log(String),
    /// The record after those with outcomes could not be applied.
    Fault(Fault),
}

pub enum Sequenced {
    /// There is nothing to do, or the holder of the role will do it.
    Nothing,
    /// The control plane must take the batch.
    Leave,
    Applied(Arc<Vec<Outcome>>, Vec<Waiter>),
    Handed(Box<Handed>),
}

impl Record {
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Keys(data, _) => data,
            Data::Given(payload) => payload.bytes(),
        }
    }
}

impl Keyspace {
    /// Appends the next batch to the log and applies it, if it is short and the disk is fast. The
    /// caller releases the role after `Applied`, and calls again: a worker that did not get the role
    /// counts on that.
    pub fn sequence(&self, log: Option<&impl BatchLog>) -> Sequenced {
        loop {
            if self.pending().records.is_empty() {
                return Sequenced::Nothing;
            }
            let Some(log) = log.filter(|log| self.inline.load(Relaxed) && log.is_fast()) else {
                return Sequenced::Leave;
            };
            if !self.role.try_take() {
                return Sequenced::Nothing; // its holder looks for records after the release
            }
            match self.take_short() {
                Some(batch) if !batch.records.is_empty() => {
                    return self.write_and_apply(log, batch);
                }
                Some(_) if !self.role.release() => {} // another worker was faster
                Some(_) => return Sequenced::Leave,
                None => {
                    self.role.release();
                    return Sequenced::Leave;
                }
            }
        }
    }

    /// Takes the next batch if it is short and workers may still write: the control plane stops
    /// them, and when it then sees no batch, it counts on the log to stay as it is.
    fn take_short(&self) -> Option<Pending> {
        let names = self.names_mut();
        let mut pending = self.pending();
        let may_take = self.inline.load(Relaxed) && is_short(&names, &pending);
        may_take.then(|| std::mem::take(&mut *pending))
    }

    fn write_and_apply(&self, log: &impl BatchLog, batch: Pending) -> Sequenced {
        let started = Instant::now();
        let Pending { records, waiters, .. } = batch;
        let (at, mut outcomes) = (self.clock.tick(), Vec::with_capacity(records.len()));
        let problem = match log.write(&records, at) {
            Err(message) => Some(Problem::Log(message)),
            Ok(()) => {
                if has(Defect::EarlyRelease) {
                    self.role.release();
                }
                let each = records.iter().map(|record| (record.id, record.op, record.bytes()));
                let names = self.names();
                match self.apply(&names, each, &mut outcomes, None) {
                    Ok(Progress::Done) => {
                        self.batch_latency.add(started.elapsed(), 1);
                        return Sequenced::Applied(Arc::new(outcomes), waiters);
                    }
                    Ok(Progress::Control | Progress::Late) => None,
                    Err(fault) => Some(Problem::Fault(fault)),
                }
            }
        };
        Sequenced::Handed(Box::new(Handed { records, waiters, outcomes, at, problem }))
    }
}

/// Returns whether a worker may write and apply a batch: keys only, and few of them, to filters that
/// no thread works on, and that take the same time for every key.
fn is_short(names: &Names, pending: &Pending) -> bool {
    let nbytes: usize = pending.records.iter().map(|record| record.bytes().len()).sum();
    let is_quick = |record: &Record| {
        let name = split_name(record.bytes()).map(|(name, _)| name);
        let entry =
            name.filter(|name| !names.busy.contains(*name)).and_then(|name| names.get(name));
        entry.is_none_or(|entry| !entry.loading && !entry.followed && entry.filter.is_quick())
    };
    !pending.control && nbytes <= MAX_BYTES && pending.records.iter().all(is_quick)
}

/// The server's time, which the control plane sets now and then.
pub struct Clock {
    /// Seconds at an instant, and how many pass per second.
    set: Mutex<(f64, Instant, f64)>,
    /// The time of the last batch: none is earlier.
    last: Mutex<f64>,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { set: Mutex::new((0.0, Instant::now(), 1.0)), last: Mutex::default() }
    }
}

impl Clock {
    pub fn set(&self, now: f64, rate: f64) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = (now, Instant::now(), rate);
    }

    /// Returns the time of the last batch of a worker.
    pub fn last(&self) -> f64 {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of a new batch. It is no earlier than that of the batch before.
    fn tick(&self) -> f64 {
        let (now, since, rate) = *self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now + since.elapsed().as_secs_f64() * rate;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.max(now);
        *last
    }
}

//! Applies a log to the filters of a keyspace again, as `Keyspace::apply` did live. The control
//! plane applies the records that are not about keys, and those for filters that are not there.

use std::collections::HashMap;
use std::sync::Arc;

use crate::apply::Applied;
use crate::filter::Fault;
use crate::keyspace::{ADD, Entry, Keyspace, Names, has_keys, split_name};
use crate::log::{Chunk, Cursor, LogError, LogReader, Record};

/// Bytes of the log after which `Replay::step` returns, so that others run.
const STEP_BYTES: usize = 4 << 20;
/// Hashes that are added to a filter at once. Records of one key each then take as long per key as
/// batches. Which records are joined makes no difference: ADDs of other filters commute with them.
const JOINED: usize = 4096;

/// A record that the control plane must apply.
pub struct LeftRecord {
    pub seq: u64,
    pub at: f64,
    pub filter: u64,
    pub op: u8,
    pub data: Vec<u8>,
}

#[derive(Debug)]
pub enum ReplayError {
    Log(LogError),
    /// A failure of this process, which leaves the filter incomplete.
    Fault(Fault),
}

/// A log that is replayed.
pub struct Replay {
    pub reader: LogReader,
    chunk: Option<(Chunk, Cursor)>,
    /// The latest time of a record that was applied here.
    pub latest: f64,
}

impl Replay {
    pub fn new(reader: LogReader) -> Self {
        Self { reader, chunk: None, latest: 0.0 }
    }

    /// Applies the next records, up to one that the control plane must apply: that one and others
    /// after it are appended to `left`. Returns false at the end of the log.
    pub fn step(
        &mut self,
        keyspace: &Keyspace,
        left: &mut Vec<LeftRecord>,
    ) -> Result<bool, ReplayError> {
        let names = keyspace.names();
        let mut joined = Joined { keyspace, hashes: HashMap::new(), applied: Applied::default() };
        let (mut nbytes, mut more) = (0, true);
        while more && nbytes < STEP_BYTES && left.is_empty() {
            if self.chunk.is_none() {
                let chunk = self.reader.next_chunk().map_err(ReplayError::Log)?;
                nbytes += chunk.as_ref().map_or(0, Chunk::nbytes);
                self.chunk = chunk.map(|chunk| {
                    let start = chunk.start();
                    (chunk, start)
                });
            }
            more = self.chunk.is_some();
            self.apply_chunk(&names, &mut joined, left).map_err(ReplayError::Fault)?;
        }
        joined.finish().map_err(ReplayError::Fault)?;
        Ok(more)
    }

    /// Applies the rest of the chunk, or up to where the control plane must continue.
    fn apply_chunk(
        &mut self,
        names: &Names,
        joined: &mut Joined<'_>,
        left: &mut Vec<LeftRecord>,
    ) -> Result<(), Fault> {
        let Some((chunk, cursor)) = &mut self.chunk else { return Ok(()) };
        loop {
            let before = *cursor;
            let Some(record) = chunk.next(cursor) else { break };
            match target(names, &record) {
                Some((entry, keys)) if left.is_empty() => {
                    joined.apply(entry, record.op, keys)?;
                    self.latest = self.latest.max(record.at);
                }
                Some(_) => {
                    *cursor = before;
                    return Ok(());
                }
                None => {
                    let Record { seq, at, filter, op, data } = record;
                    left.push(LeftRecord { seq, at, filter, op, data: data.to_vec() });
                    if has_keys(op) {
                        return Ok(()); // more for this filter may follow, which will be there
                    }
                }
            }
        }
        self.chunk = None;
        Ok(())
    }
}

/// The filter of a record of keys, and its hashes; `None` if the control plane must apply it.
fn target<'a>(names: &'a Names, record: &Record<'a>) -> Option<(&'a Arc<Entry>, &'a [u8])> {
    let (name, keys) = split_name(record.data).filter(|_| has_keys(record.op))?;
    let entry = names.get(name).filter(|entry| entry.id == record.filter)?;
    let complete = keys.len().is_multiple_of(8 * entry.filter.width());
    (complete && !entry.loading && !entry.followed).then_some((entry, keys))
}

/// Hashes of ADDs that are still to be applied, by filter.
struct Joined<'a> {
    keyspace: &'a Keyspace,
    hashes: HashMap<u64, (Arc<Entry>, Vec<u64>)>,
    applied: Applied,
}

impl Joined<'_> {
    /// Applies the keys of a record, ADDs later.
    fn apply(&mut self, entry: &Arc<Entry>, op: u8, keys: &[u8]) -> Result<(), Fault> {
        let (_, hashes) =
            self.hashes.entry(entry.id).or_insert_with(|| (entry.clone(), Vec::new()));
        if op != ADD {
            add(self.keyspace, entry, ADD, hashes, &mut self.applied)?;
        }
        hashes.extend(keys.as_chunks().0.iter().map(|hash| u64::from_le_bytes(*hash)));
        if op != ADD || hashes.len() >= JOINED {
            add(self.keyspace, entry, op, hashes, &mut self.applied)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Fault> {
        for (entry, hashes) in self.hashes.values_mut() {
            add(self.keyspace, entry, ADD, hashes, &mut self.applied)?;
        }
        Ok(())
    }
}

/// Applies hashes, and empties them. A key that was refused live is refused again.
fn add(
    keyspace: &Keyspace,
    entry: &Entry,
    op: u8,
    hashes: &mut Vec<u64>,
    applied: &mut Applied,
) -> Result<(), Fault> {
    if !hashes.is_empty() {
        applied.answers.clear();
        applied.refusal = None;
        entry.apply_all(keyspace, op, hashes, applied)?;
        hashes.clear();
    }
    Ok(())
}

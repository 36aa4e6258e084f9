//! Commands of a pipeline that do the same with one key each, in one filter. They form a batch,
//! which finds the filter once and fetches memory ahead.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use bloomery_core::resp::Parser;

use crate::commands::{KeyCommand, Native};
use crate::keyspace::{ADD, Keyspace, Names};
use crate::output::Output;
use crate::session::Buffers;
use crate::writes::{PendingWrites, Slot};

/// Hashes and answers of this many commands stay in the nearest cache.
const MAX_COMMANDS: usize = 512;

#[derive(Default)]
pub struct Run {
    command: Option<Native>,
    name: Vec<u8>,
    /// Positions in the input: of each command, and of its key.
    places: Vec<(Range<usize>, Range<usize>)>,
}

impl Run {
    /// Takes the command that the parser has read, if it continues this run.
    #[inline(always)]
    pub fn joins(
        &mut self,
        found: Native,
        parser: &Parser,
        input: &[u8],
        at: Range<usize>,
    ) -> bool {
        self.command == Some(found)
            && self.places.len() < MAX_COMMANDS
            && self.name == parser.argument(&input[at.clone()], 1)
            && self.push(parser, at)
    }

    /// Starts with a command of one key; false if the control plane must see it. The run before
    /// must have ended.
    #[inline(always)]
    pub fn starts(
        &mut self,
        found: Native,
        (keyspace, names): (&Keyspace, &Names),
        parser: &Parser,
        input: &[u8],
        at: Range<usize>,
    ) -> bool {
        let name = parser.argument(&input[at.clone()], 1);
        let usable = match found.act {
            KeyCommand::Add => keyspace.takes_writes(names, name, found.family, MAX_COMMANDS),
            KeyCommand::Contains => {
                keyspace.readable(names, name, found.family).is_ok_and(|entry| entry.is_some())
            }
            _ => false,
        };
        if found.several || !usable || !self.push(parser, at) {
            return false;
        }
        self.command = Some(found);
        self.name.clear();
        self.name.extend_from_slice(name);
        true
    }

    #[inline(always)]
    fn push(&mut self, parser: &Parser, at: Range<usize>) -> bool {
        let Some(key) = parser.place(2) else { return false };
        self.places.push((at.clone(), at.start + key.start..at.start + key.end));
        true
    }

    /// Answers the reads, or appends the writes to the next batch.
    #[inline(always)]
    pub fn end(
        &mut self,
        (keyspace, names): (&Keyspace, &Names),
        input: &[u8],
        Buffers { hashes, answers }: &mut Buffers,
        output: &mut Output,
        writes: &mut PendingWrites,
    ) {
        let Some(found) = self.command.take() else { return };
        // It existed when the run started, and the names are still locked.
        let Some(entry) = names.get(&self.name) else { return };
        hashes.clear();
        answers.clear();
        for (_, key) in &self.places {
            entry.filter.hash(&input[key.clone()], hashes);
        }
        if found.act == KeyCommand::Contains {
            let keys = self.places.len();
            self.places.clear();
            keyspace.hits.fetch_add(keys as u64, Relaxed);
            match entry.contains(hashes, answers) {
                Ok(()) => output.answers(found.family, answers),
                Err(fault) => (0..keys).for_each(|_| output.fault(found.family, &fault)),
            }
            return;
        }
        if keyspace.exclusive.load(Relaxed) && entry.ignores_known() {
            // A fault shows again when the keys are applied.
            let _ = entry.filter.contains(hashes, answers);
        }
        answers.resize(self.places.len(), 0);
        let mut pending = keyspace.pending();
        let (record, mut key) = if answers.iter().all(|known| *known == 1) {
            (0, 0)
        } else {
            let (what, width) = ((entry.id, ADD, &self.name[..]), entry.filter.width());
            pending.append(what, hashes, width, |at| answers[at] == 0)
        };
        drop(pending);
        for ((command, _), known) in self.places.drain(..).zip(&*answers) {
            if *known == 1 {
                entry.count_known(1);
                writes.push_known(found, 1, output);
            } else {
                let slot = Slot::new(found, record, key, 1);
                writes.push(slot, &input[command]);
                key += 1;
            }
        }
    }
}

//! Commands of a pipeline that do the same with one key each, in one filter. They form a batch,
//! which finds the filter once and fetches memory ahead.

use std::ops::Range;

use bloomery_core::resp::Parser;
use pyo3::prelude::*;

use crate::server::commands::{KeyCommand, Native};
use crate::server::names::{ADD, Names, failed};
use crate::server::output::{Output, text};
use crate::server::writes::{PendingWrites, Slot};

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

    /// Starts with a command of one key; false if something about the filter needs Python. The run
    /// before must have ended.
    #[inline(always)]
    pub fn starts(
        &mut self,
        py: Python<'_>,
        found: Native,
        names: &mut Names,
        parser: &Parser,
        input: &[u8],
        at: Range<usize>,
    ) -> bool {
        let name = parser.argument(&input[at.clone()], 1);
        let usable = match found.act {
            KeyCommand::Add => names.takes_writes(py, name, found.family, MAX_COMMANDS),
            KeyCommand::Contains => {
                !names.is_locked(name)
                    && names
                        .get(name)
                        .is_some_and(|entry| entry.family == found.family && !entry.loading)
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

    /// Answers the reads, or notes the writes.
    #[inline(always)]
    pub fn end(
        &mut self,
        py: Python<'_>,
        names: &mut Names,
        input: &[u8],
        output: &mut Output,
        writes: &mut PendingWrites,
    ) {
        let Some(found) = self.command.take() else { return };
        let (exclusive, batch) = (names.exclusive, names.batch);
        let (entry, mut work) = names.split(&self.name);
        // It existed when the run started, and no other code has had the names since.
        let Some(entry) = entry else { return };
        for (_, key) in &self.places {
            entry.filter.hash(&input[key.clone()], work.hashes);
        }
        if found.act == KeyCommand::Contains {
            self.places.clear();
            match entry.contains(py, &mut work) {
                Ok(()) => output.answers(found.family, work.answers),
                Err(problem) => {
                    let error = text(found.family, &failed(problem));
                    let keys = work.hashes.len() / entry.filter.width();
                    (0..keys).for_each(|_| output.error(&error));
                }
            }
            return;
        }
        if exclusive && entry.ignores_known() {
            // An error shows again when the keys are applied.
            let _ = entry.filter.contains(py, work.hashes, work.answers);
        }
        work.answers.resize(self.places.len(), 0);
        let known = std::mem::take(work.answers);
        let width = entry.filter.width();
        let all_known = known.iter().all(|known| *known == 1);
        let (record, mut key) = if all_known {
            (0, 0)
        } else {
            work.note(entry.id, ADD, &self.name, width, |at| known[at] == 0)
        };
        for ((command, _), known) in self.places.drain(..).zip(&known) {
            if *known == 1 {
                entry.adds += 1;
                writes.push_known(found, 1, output);
            } else {
                let slot = Slot::new(found, record, key, 1);
                writes.push(slot, &input[command], batch);
                key += 1;
            }
        }
        *work.answers = known;
    }
}

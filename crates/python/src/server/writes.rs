//! Writes of a client that wait for the log. A write is noted for the log, applied when the log has
//! it, and then answered. Until then it is a slot, in the order of the client's commands.

use std::ops::Range;

use bloomery_core::resp::{Limits, Parser, Step};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::errors::invalid;
use crate::server::apply::REFUSED;
use crate::server::commands::{KeyCommand, Native};
use crate::server::names::{ADD, ADD_NEW, Names, REMOVE};
use crate::server::output::{Output, explain};

/// Where the keys of a write are in the batch, and how to answer them.
pub struct Slot {
    command: Native,
    /// None: the keys are present, so the log has no record of them.
    record: Option<usize>,
    first: usize,
    keys: usize,
    /// Where the text of the command is kept.
    text: Range<usize>,
}

impl Slot {
    pub fn new(command: Native, record: usize, first: usize, keys: usize) -> Slot {
        Slot { command, record: Some(record), first, keys, text: 0..0 }
    }
}

/// The open slots of a client.
#[derive(Default)]
pub struct PendingWrites {
    slots: Vec<Slot>,
    /// The batch that has them: they are answered before the client writes in another.
    batch: u64,
    /// A command waits for the answers.
    pub stopped: bool,
    /// Replies that follow the slots.
    after: Vec<u8>,
    /// The text of the commands. If another filter has the name by the time a write is applied,
    /// the command runs again: its hashes belong to the filter that is gone.
    commands: Vec<u8>,
}

/// The buffer for commands shrinks to this size.
const KEEP: usize = 1 << 16;

/// The outcome of a record.
enum Outcome<'py> {
    Answers(Bound<'py, PyBytes>, Option<(String, String)>),
    Error(Bound<'py, PyBytes>),
    /// Another command changed the name first, so nothing was applied.
    Conflict,
    /// A thread still applies it.
    Unfinished,
}

/// What follows the answers to a client's writes.
pub enum Answered<'py> {
    /// All are answered.
    Done,
    /// The words of commands that must run again.
    Conflicts(Vec<Vec<Bound<'py, PyBytes>>>),
    /// A thread still applies some.
    Unfinished,
}

/// Notes the keys of a native write for the log; false if Python must handle the command.
#[inline(always)]
pub fn note(
    py: Python<'_>,
    names: &mut Names,
    command: Native,
    parser: &Parser,
    input: &[u8],
    output: &mut Output,
    writes: &mut PendingWrites,
) -> bool {
    let op = match command.act {
        KeyCommand::Add => ADD,
        KeyCommand::AddNew => ADD_NEW,
        KeyCommand::Remove => REMOVE,
        KeyCommand::Contains | KeyCommand::Count => return false,
    };
    let (name, keys) = (parser.argument(input, 1), parser.len() - command.first);
    let adds = if op == REMOVE { 0 } else { keys };
    if !names.takes_writes(py, name, command.family, adds) {
        return false;
    }
    let (present_is_enough, batch) = (names.present_is_enough(op), names.batch);
    let (entry, mut work) = names.split(name);
    let Some(entry) = entry else { return false };
    for index in command.first..parser.len() {
        entry.filter.hash(parser.argument(input, index), work.hashes);
    }
    if present_is_enough && entry.is_unchanged_by(py, op, work.hashes).unwrap_or(false) {
        entry.adds += keys as u64;
        writes.push_known(command, keys, output);
        return true;
    }
    let (record, first) = work.note(entry.id, op, name, entry.filter.width(), |_| true);
    writes.push(Slot::new(command, record, first, keys), input, batch);
    names.removes |= op == REMOVE;
    true
}

impl PendingWrites {
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn push(&mut self, slot: Slot, command: &[u8], batch: u64) {
        self.batch = batch;
        let start = self.commands.len();
        self.commands.extend_from_slice(command);
        self.slots.push(Slot { text: start..self.commands.len(), ..slot });
    }

    /// Answers a write of keys that are present: at once, or after the slots before it.
    #[inline(always)]
    pub fn push_known(&mut self, command: Native, keys: usize, output: &mut Output) {
        if self.is_empty() {
            output.known(command, keys);
        } else {
            self.slots.push(Slot { command, record: None, first: 0, keys, text: 0..0 });
        }
    }

    /// Returns whether the client's next command must wait for the answers.
    #[inline(always)]
    pub fn waits(&self, batch: u64) -> bool {
        !self.is_empty() && (self.stopped || self.batch != batch)
    }

    /// Keeps a reply until the replies before it exist; false if none are missing.
    pub fn keep(&mut self, data: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        self.stopped = true;
        self.after.extend_from_slice(data);
        true
    }

    /// Replies to every slot by the outcome of its record, and closes them. Commands in conflict are
    /// answered by `again`, in order. If there are more of them, or a thread still applies a record,
    /// nothing is answered. After an error nothing has changed: the results are not those of the
    /// batch.
    pub fn answer<'py>(
        &mut self,
        output: &mut Output,
        results: &Bound<'py, PyList>,
        again: &[Bound<'py, PyBytes>],
        limits: &Limits,
    ) -> PyResult<Answered<'py>> {
        let before = output.bytes.len();
        let replied = self.reply_to_each(output, results, again);
        if matches!(&replied, Ok(Some(conflicts)) if conflicts.len() <= again.len()) {
            self.close(output);
            return Ok(Answered::Done);
        }
        output.bytes.truncate(before);
        let Some(conflicts) = replied? else { return Ok(Answered::Unfinished) };
        let words = conflicts.into_iter().map(|text| self.words(results.py(), text, limits));
        Ok(Answered::Conflicts(words.collect()))
    }

    /// Splits the text of a command into words.
    fn words<'py>(
        &self,
        py: Python<'py>,
        text: Range<usize>,
        limits: &Limits,
    ) -> Vec<Bound<'py, PyBytes>> {
        let (command, mut parser) = (&self.commands[text], Parser::default());
        match parser.step(command, limits) {
            Ok(Step::Command(_)) => {
                (0..parser.len()).map(|i| PyBytes::new(py, parser.argument(command, i))).collect()
            }
            _ => Vec::new(), // it was a command when it arrived
        }
    }

    /// Replies to every slot; returns the texts of the commands in conflict, or None if a thread
    /// still applies a record.
    fn reply_to_each(
        &self,
        output: &mut Output,
        results: &Bound<'_, PyList>,
        again: &[Bound<'_, PyBytes>],
    ) -> PyResult<Option<Vec<Range<usize>>>> {
        let py = results.py();
        let wrong = || invalid(py, "the results are not those of the batch".into());
        let mut last: Option<(usize, Outcome<'_>)> = None;
        let mut conflicts = Vec::new();
        for Slot { command, record, first, keys, text } in &self.slots {
            let Some(record) = *record else {
                output.known(*command, *keys);
                continue;
            };
            if last.as_ref().is_none_or(|(of, _)| *of != record) {
                let result = results.get_item(record).map_err(|_| wrong())?;
                last = Some((record, parse_result(result)?));
            }
            let Some((_, outcome)) = &last else { return Err(wrong()) };
            let (answers, refusal) = match outcome {
                Outcome::Answers(answers, refusal) => (answers.as_bytes(), refusal),
                Outcome::Error(error) => {
                    output.bytes.extend_from_slice(error.as_bytes());
                    continue;
                }
                Outcome::Unfinished => return Ok(None),
                Outcome::Conflict => {
                    if let Some(reply) = again.get(conflicts.len()) {
                        output.bytes.extend_from_slice(reply.as_bytes());
                    }
                    conflicts.push(text.clone());
                    continue;
                }
            };
            let answers = answers.get(*first..first + keys).ok_or_else(wrong)?;
            let refused = answers.iter().position(|answer| *answer == REFUSED);
            let error = match (refused, refusal) {
                (None, _) => None,
                (Some(_), Some((code, message))) => Some(explain(command.family, code, message)),
                (Some(_), None) => return Err(wrong()),
            };
            let answers = &answers[..refused.unwrap_or(*keys)];
            output.replies(command.family, command.several, answers, error.as_deref());
        }
        Ok(Some(conflicts))
    }

    /// Replies to every slot with this error, and closes them.
    pub fn fail(&mut self, output: &mut Output, error: &[u8]) {
        for slot in &self.slots {
            match slot.record {
                Some(_) => output.bytes.extend_from_slice(error),
                None => output.known(slot.command, slot.keys),
            }
        }
        self.close(output);
    }

    fn close(&mut self, output: &mut Output) {
        self.slots.clear();
        self.commands.clear();
        self.commands.shrink_to(KEEP);
        self.stopped = false;
        output.bytes.append(&mut self.after);
    }
}

fn parse_result(result: Bound<'_, PyAny>) -> PyResult<Outcome<'_>> {
    if let Ok(error) = result.cast::<PyBytes>() {
        return Ok(Outcome::Error(error.clone()));
    }
    if result.is_none() {
        return Ok(Outcome::Conflict);
    }
    if !result.is_instance_of::<PyTuple>() {
        return Ok(Outcome::Unfinished);
    }
    let (answers, refusal) = result.extract()?;
    Ok(Outcome::Answers(answers, refusal))
}

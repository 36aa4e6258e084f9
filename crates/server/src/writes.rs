//! Writes of a client that wait for the log. A write is appended to the next batch, applied when the
//! log has it, and then answered. Until then it is a slot, in the order of the client's commands.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use bloomery_core::resp::{Limits, Parser, Step};

use crate::apply::{Outcome, REFUSED};
use crate::commands::{KeyCommand, Native};
use crate::keyspace::{ADD, ADD_NEW, Keyspace, Names, REMOVE};
use crate::output::{Output, explain};
use crate::session::{Buffers, Words};

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

/// What follows the answers to a client's writes.
pub enum Answered {
    /// All are answered.
    Done,
    /// Commands that must run again.
    Conflicts(Vec<Words>),
    /// A thread still applies some.
    Unfinished,
}

/// Appends the keys of a native write to the next batch; false if the control plane must handle the
/// command.
#[inline(always)]
pub fn append(
    (keyspace, names): (&Keyspace, &Names),
    command: Native,
    (parser, input): (&Parser, &[u8]),
    buffers: &mut Buffers,
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
    if !keyspace.takes_writes(names, name, command.family, adds) {
        return false;
    }
    let Some(entry) = names.get(name) else { return false };
    buffers.hashes.clear();
    for index in command.first..parser.len() {
        entry.filter.hash(parser.argument(input, index), &mut buffers.hashes);
    }
    let needs_no_record =
        keyspace.exclusive.load(Relaxed) && keyspace.pending().needs_no_record(op);
    if needs_no_record && entry.is_unchanged_by(op, &buffers.hashes).unwrap_or(false) {
        entry.count_known(keys);
        writes.push_known(command, keys, output);
        return true;
    }
    let mut pending = keyspace.pending();
    let (what, width) = ((entry.id, op, name), entry.filter.width());
    let (record, first) = pending.append(what, &buffers.hashes, width, |_| true);
    drop(pending);
    writes.push(Slot::new(command, record, first, keys), input);
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

    pub fn push(&mut self, slot: Slot, command: &[u8]) {
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
    /// nothing is answered. None, without an effect: the outcomes are not those of the batch.
    pub fn answer(
        &mut self,
        output: &mut Output,
        outcomes: &[Outcome],
        again: &[Vec<u8>],
        limits: &Limits,
    ) -> Option<Answered> {
        let before = output.bytes.len();
        let replied = self.reply_to_each(output, outcomes, again);
        if matches!(&replied, Some(Replied::All(conflicts)) if conflicts.len() <= again.len()) {
            self.close(output);
            return Some(Answered::Done);
        }
        output.bytes.truncate(before);
        Some(match replied? {
            Replied::Unfinished => Answered::Unfinished,
            Replied::All(conflicts) => Answered::Conflicts(
                conflicts.into_iter().map(|text| self.words(text, limits)).collect(),
            ),
        })
    }

    /// Splits the text of a command into words.
    fn words(&self, text: Range<usize>, limits: &Limits) -> Words {
        let (command, mut parser, mut words) =
            (&self.commands[text], Parser::default(), Words::default());
        if let Ok(Step::Command(_)) = parser.step(command, limits) {
            (0..parser.len()).for_each(|index| words.push(parser.argument(command, index)));
        }
        words
    }

    fn reply_to_each(
        &self,
        output: &mut Output,
        outcomes: &[Outcome],
        again: &[Vec<u8>],
    ) -> Option<Replied> {
        let mut conflicts = Vec::new();
        for Slot { command, record, first, keys, text } in &self.slots {
            let Some(record) = *record else {
                output.known(*command, *keys);
                continue;
            };
            let applied = match outcomes.get(record)? {
                Outcome::Keys(applied) => applied,
                Outcome::Error(error) => {
                    output.bytes.extend_from_slice(error);
                    continue;
                }
                Outcome::Unfinished => return Some(Replied::Unfinished),
                Outcome::Conflict => {
                    if let Some(reply) = again.get(conflicts.len()) {
                        output.bytes.extend_from_slice(reply);
                    }
                    conflicts.push(text.clone());
                    continue;
                }
            };
            let answers = applied.answers.get(*first..first + keys)?;
            let refused = answers.iter().position(|answer| *answer == REFUSED);
            let error = match (refused, &applied.refusal) {
                (None, _) => None,
                (Some(_), Some((code, message))) => Some(explain(command.family, code, message)),
                (Some(_), None) => return None,
            };
            let answers = &answers[..refused.unwrap_or(*keys)];
            output.replies(command.family, command.several, answers, error.as_deref());
        }
        Some(Replied::All(conflicts))
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

/// What became of the slots.
enum Replied {
    /// All have a reply but these commands, which are in conflict.
    All(Vec<Range<usize>>),
    /// A thread still applies a record.
    Unfinished,
}

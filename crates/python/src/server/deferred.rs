//! Writes of a client that are answered later: on a node a write is done when the shared log has it
//! and its turn has come there. Until then it is a slot, in the order of the client's commands.

use std::ops::Range;

use bloomery_core::resp::{Limits, Parser, Step};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::invalid;
use crate::server::apply::REFUSED;
use crate::server::names::{ADD, ADD_NEW, CommandFamily, Names, REMOVE};
use crate::server::output::{Output, explain};
use crate::server::sliced::MANY;
use crate::server::usual::{KeyCommand, usual};

/// Where the keys of a write are in the turn's log, and how it is to be answered.
pub struct Slot {
    record: usize,
    first: usize,
    keys: usize,
    act: KeyCommand,
    family: CommandFamily,
    several: bool,
    /// Where the command itself is kept.
    command: Range<usize>,
}

/// What is to become of a command.
pub enum Fate {
    Deferred(Slot),
    /// A write that Python must see.
    Unusual,
    NoWrite,
}

/// The open slots of a client.
#[derive(Default)]
pub struct Deferred {
    slots: Vec<Slot>,
    /// The turn in whose log they are: they are answered before the client writes in another.
    turn: u64,
    /// Something waits for the answers; nothing is begun before.
    pub stopped: bool,
    /// Replies that came behind the slots, and whether each is to a write.
    behind: Vec<(Vec<u8>, bool)>,
    /// The commands of the slots as they came: hashes are of one filter, and if that was dropped by
    /// then the command is for the filter that has its name.
    commands: Vec<u8>,
}

/// Room for commands is given back beyond this.
const KEEP: usize = 1 << 16;

/// What became of a record.
enum Applied<'py> {
    Answers(Bound<'py, PyBytes>, Option<(String, String)>),
    Error(Bound<'py, PyBytes>),
    /// Its filter was dropped before the log came to it: nothing was done.
    Dropped,
}

/// Notes the keys of a usual write for the turn's log. `hidden`: Python must see whatever it is.
#[inline(never)] // the hot path of a server alone is beside it
pub fn defer(
    py: Python<'_>,
    names: &mut Names,
    parser: &Parser,
    command: &[u8],
    hidden: bool,
) -> Fate {
    let Some((act, family, several)) = usual(parser.argument(command, 0)) else {
        return Fate::NoWrite;
    };
    let op = match act {
        KeyCommand::Add => ADD,
        KeyCommand::AddNew => ADD_NEW,
        KeyCommand::Remove => REMOVE,
        KeyCommand::Contains | KeyCommand::Count => return Fate::NoWrite,
    };
    let arguments = parser.len();
    if hidden
        || names.refusing
        || !(3..=MANY).contains(&arguments)
        || (!several && arguments > 3)
        || names.is_locked(parser.argument(command, 1))
    {
        return Fate::Unusual;
    }
    let (entry, mut work) = names.split(parser.argument(command, 1));
    let Some(entry) = entry.filter(|entry| {
        let may_grow = || act == KeyCommand::Remove || entry.filter.check_layers(py).is_ok();
        entry.family == family && !entry.loading && may_grow()
    }) else {
        return Fate::Unusual;
    };
    for index in 2..arguments {
        entry.filter.hash(parser.argument(command, index), work.hashes);
    }
    let (record, first) = work.defer(entry.id, op, entry.filter.width());
    Fate::Deferred(Slot { record, first, keys: arguments - 2, act, family, several, command: 0..0 })
}

impl Deferred {
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn push(&mut self, slot: Slot, command: &[u8], turn: u64) {
        self.turn = turn;
        let start = self.commands.len();
        self.commands.extend_from_slice(command);
        self.slots.push(Slot { command: start..self.commands.len(), ..slot });
    }

    /// Must the client's next command wait for the answers?
    #[inline(always)]
    pub fn waits(&self, turn: u64) -> bool {
        !self.is_empty() && (self.stopped || self.turn != turn)
    }

    /// Keeps a reply until those before it are there; false if there are none to wait for.
    pub fn keep(&mut self, data: &[u8], write: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        self.stopped = true; // what comes next is answered behind it
        self.behind.push((data.to_vec(), write));
        true
    }

    /// Replies to every slot by what became of its record, and closes them. Those whose filter was
    /// dropped are answered by `again`, in order; if there are more of them, nothing is answered and
    /// their commands are returned, to be done again. After an error, which says that the results
    /// are not those of the turn, nothing has changed.
    pub fn answer<'py>(
        &mut self,
        output: &mut Output,
        results: &Bound<'py, PyList>,
        again: &[Bound<'py, PyBytes>],
        limits: &Limits,
    ) -> PyResult<Vec<Vec<Bound<'py, PyBytes>>>> {
        let before = (output.bytes.len(), output.writes.len());
        let replied = self.reply_to_each(output, results, again);
        if !matches!(&replied, Ok(dropped) if dropped.len() <= again.len()) {
            output.bytes.truncate(before.0);
            output.writes.truncate(before.1);
            let py = results.py();
            return Ok(replied?.into_iter().map(|place| self.words(py, place, limits)).collect());
        }
        self.close(output);
        Ok(Vec::new())
    }

    /// The arguments of a command that is kept.
    fn words<'py>(
        &self,
        py: Python<'py>,
        place: Range<usize>,
        limits: &Limits,
    ) -> Vec<Bound<'py, PyBytes>> {
        let (command, mut parser) = (&self.commands[place], Parser::default());
        match parser.step(command, limits) {
            Ok(Step::Command(_)) => {
                (0..parser.len()).map(|i| PyBytes::new(py, parser.argument(command, i))).collect()
            }
            _ => Vec::new(), // it was one when it came
        }
    }

    /// Replies to every slot; the places of commands whose filter was dropped.
    fn reply_to_each(
        &self,
        output: &mut Output,
        results: &Bound<'_, PyList>,
        again: &[Bound<'_, PyBytes>],
    ) -> PyResult<Vec<Range<usize>>> {
        let py = results.py();
        let wrong = || invalid(py, "the results are not those of the turn's records".into());
        let mut known = None;
        let mut dropped = Vec::new();
        for Slot { record, first, keys, act, family, several, command } in &self.slots {
            if known.as_ref().is_none_or(|(of, _)| of != record) {
                let result = results.get_item(*record).map_err(|_| wrong())?;
                known = Some((*record, parse_result(result)?));
            }
            let Some((_, applied)) = &known else { return Err(wrong()) };
            let (answers, refusal) = match applied {
                Applied::Answers(answers, refusal) => (answers.as_bytes(), refusal),
                Applied::Error(error) => {
                    output.push(error.as_bytes(), true);
                    continue;
                }
                Applied::Dropped => {
                    if let Some(reply) = again.get(dropped.len()) {
                        output.push(reply.as_bytes(), true);
                    }
                    dropped.push(command.clone());
                    continue;
                }
            };
            let answers = answers.get(*first..first + keys).ok_or_else(wrong)?;
            let done = answers.iter().position(|answer| *answer == REFUSED);
            let error = match (done, refusal) {
                (None, _) => None,
                (Some(_), Some((code, message))) => Some(explain(*family, code, message)),
                (Some(_), None) => return Err(wrong()),
            };
            output.one(*act, |output| {
                let answers = &answers[..done.unwrap_or(*keys)];
                output.replies(*family, *several, answers, error.as_deref());
            });
        }
        Ok(dropped)
    }

    /// Replies to every slot with this error, and closes them.
    pub fn fail(&mut self, output: &mut Output, error: &[u8]) {
        self.slots.iter().for_each(|_| output.push(error, true));
        self.close(output);
    }

    fn close(&mut self, output: &mut Output) {
        self.slots.clear();
        self.commands.clear();
        self.commands.shrink_to(KEEP);
        self.stopped = false;
        self.behind.drain(..).for_each(|(data, write)| output.push(&data, write));
    }
}

fn parse_result(result: Bound<'_, PyAny>) -> PyResult<Applied<'_>> {
    if let Ok(error) = result.cast::<PyBytes>() {
        return Ok(Applied::Error(error.clone()));
    }
    if result.is_none() {
        return Ok(Applied::Dropped);
    }
    let (answers, refusal) = result.extract()?;
    Ok(Applied::Answers(answers, refusal))
}

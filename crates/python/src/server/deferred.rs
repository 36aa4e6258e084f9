//! Writes of a client that are answered later: on a node a write is done when the shared log has it
//! and its turn has come there. Until then it is a slot, in the order of the client's commands.

use bloomery_core::resp::Parser;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::invalid;
use crate::server::apply::REFUSED;
use crate::server::names::{ADD, ADD_NEW, CommandFamily, Names, REMOVE};
use crate::server::output::{Output, told};
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
}

/// What became of a record.
enum Told<'py> {
    Answers(Bound<'py, PyBytes>, Option<(String, String)>),
    Error(Bound<'py, PyBytes>),
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
    Fate::Deferred(Slot { record, first, keys: arguments - 2, act, family, several })
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

    pub fn push(&mut self, slot: Slot, turn: u64) {
        self.turn = turn;
        self.slots.push(slot);
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

    /// Replies to every slot by what became of its record, and closes them. After an error, which
    /// says that the results are not those of the turn, nothing has changed.
    pub fn answer(&mut self, output: &mut Output, results: &Bound<'_, PyList>) -> PyResult<()> {
        let before = (output.bytes.len(), output.writes.len());
        if let Err(problem) = self.reply_to_each(output, results) {
            output.bytes.truncate(before.0);
            output.writes.truncate(before.1);
            return Err(problem);
        }
        self.close(output);
        Ok(())
    }

    fn reply_to_each(&self, output: &mut Output, results: &Bound<'_, PyList>) -> PyResult<()> {
        let py = results.py();
        let wrong = || invalid(py, "the results are not those of the turn's records".into());
        let mut known = None;
        for Slot { record, first, keys, act, family, several } in &self.slots {
            if known.as_ref().is_none_or(|(of, _)| of != record) {
                let result = results.get_item(*record).map_err(|_| wrong())?;
                known = Some((*record, told_of(result)?));
            }
            let Some((_, told_here)) = &known else { return Err(wrong()) };
            let (answers, refusal) = match told_here {
                Told::Answers(answers, refusal) => (answers.as_bytes(), refusal),
                Told::Error(error) => {
                    output.push(error.as_bytes(), true);
                    continue;
                }
            };
            let answers = answers.get(*first..first + keys).ok_or_else(wrong)?;
            let done = answers.iter().position(|answer| *answer == REFUSED);
            let error = match (done, refusal) {
                (None, _) => None,
                (Some(_), Some((code, message))) => Some(told(*family, code, message)),
                (Some(_), None) => return Err(wrong()),
            };
            output.one(*act, |output| {
                let answers = &answers[..done.unwrap_or(*keys)];
                output.replies(*family, *several, answers, error.as_deref());
            });
        }
        Ok(())
    }

    /// Replies to every slot with this error, and closes them.
    pub fn fail(&mut self, output: &mut Output, error: &[u8]) {
        self.slots.iter().for_each(|_| output.push(error, true));
        self.close(output);
    }

    fn close(&mut self, output: &mut Output) {
        self.slots.clear();
        self.stopped = false;
        self.behind.drain(..).for_each(|(data, write)| output.push(&data, write));
    }
}

fn told_of(result: Bound<'_, PyAny>) -> PyResult<Told<'_>> {
    if let Ok(error) = result.cast::<PyBytes>() {
        return Ok(Told::Error(error.clone()));
    }
    let (answers, refusal) = result.extract()?;
    Ok(Told::Answers(answers, refusal))
}

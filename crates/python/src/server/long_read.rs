//! A command of many arguments, in slices between which other clients are served.

use std::time::Instant;

use bloomery_core::resp::Parser;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::server::commands::{KeyCommand, Native};
use crate::server::names::{Names, failed};
use crate::server::output::{Output, text};

/// A command with at most this many arguments runs in well under a millisecond.
pub const MANY: usize = 4096;
/// Arguments between two looks at the clock.
const STEP: usize = 1024;

pub enum Progress<'py> {
    /// The command is answered.
    Done,
    /// These are the words of a command for Python.
    Words(Vec<Bound<'py, PyBytes>>),
    /// More follows in the next tick.
    More,
    /// It waits until the filter is unlocked.
    Waits,
}

pub enum LongCommand {
    /// A read. The filter had this number when the command arrived; None if it did not exist.
    Keys { command: Native, id: Option<u64>, done: usize, replies: Output },
    /// The words of a command for Python.
    Words(Vec<Py<PyBytes>>),
}

impl LongCommand {
    /// Starts a read that native code answers; None if Python must handle it.
    pub fn read(
        names: &mut Names,
        command: Native,
        parser: &Parser,
        input: &[u8],
        output: &Output,
    ) -> Option<LongCommand> {
        let entry = names.get(parser.argument(input, 1));
        if command.act != KeyCommand::Contains
            || entry.as_ref().is_some_and(|entry| entry.family != command.family || entry.loading)
        {
            return None;
        }
        let replies = Output { resp3: output.resp3, ..Output::default() };
        Some(LongCommand::Keys { command, id: entry.map(|entry| entry.id), done: 0, replies })
    }

    /// Continues until that time.
    pub fn resume<'py>(
        &mut self,
        py: Python<'py>,
        names: &mut Names,
        parser: &Parser,
        input: &[u8],
        output: &mut Output,
        until: Instant,
    ) -> Progress<'py> {
        match self {
            LongCommand::Words(words) => loop {
                if words.len() == parser.len() {
                    let words = std::mem::take(words).into_iter();
                    return Progress::Words(words.map(|word| word.into_bound(py)).collect());
                }
                for index in words.len()..parser.len().min(words.len() + STEP) {
                    words.push(PyBytes::new(py, parser.argument(input, index)).unbind());
                }
                if Instant::now() >= until {
                    return Progress::More;
                }
            },
            LongCommand::Keys { command, id, done, replies } => {
                let name = parser.argument(input, 1);
                while 2 + *done < parser.len() {
                    if names.is_locked(name) {
                        return Progress::Waits;
                    }
                    let last = parser.len().min(2 + *done + STEP);
                    if let Err(error) =
                        answer(py, names, *command, *id, replies, (parser, input, 2 + *done, last))
                    {
                        output.error(&error);
                        return Progress::Done;
                    }
                    *done = last - 2;
                    if Instant::now() >= until {
                        return Progress::More;
                    }
                }
                output.number(b'*', *done as u64);
                output.bytes.append(&mut replies.bytes);
                Progress::Done
            }
        }
    }
}

/// Answers the arguments from one index to another.
fn answer(
    py: Python<'_>,
    names: &mut Names,
    command: Native,
    id: Option<u64>,
    replies: &mut Output,
    (parser, input, from, to): (&Parser, &[u8], usize, usize),
) -> Result<(), String> {
    let (entry, mut work) = names.split(parser.argument(input, 1));
    let entry = entry.filter(|entry| entry.family == command.family && !entry.loading);
    match entry {
        entry if entry.as_ref().map(|entry| entry.id) != id => {
            return Err("ERR the filter was dropped while the command ran; send it again".into());
        }
        Some(entry) => {
            for index in from..to {
                entry.filter.hash(parser.argument(input, index), work.hashes);
            }
            let answered = entry.contains(py, &mut work);
            answered.map_err(|problem| text(command.family, &failed(problem)))?;
        }
        None => work.answers.resize(to - from, 0),
    }
    replies.answers(command.family, work.answers);
    Ok(())
}

//! A command of many arguments, in slices: other clients have their turn between two of them.

use std::time::Instant;

use bloomery_core::resp::Parser;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::server::names::{CommandFamily, Entry, Names, failed};
use crate::server::output::{Output, text};
use crate::server::usual::{KeyCommand, usual};

/// Arguments: a command with fewer is done at once, in well under a millisecond.
pub const MANY: usize = 4096;
/// Between two looks at the clock.
const STEP: usize = 1024;

/// How far one has come.
pub enum Progress {
    /// It is answered.
    Done,
    /// It is for Python, and here are its arguments.
    Words(Vec<Py<PyBytes>>),
    /// There is more to do, in the next round of the loop.
    More,
    /// It waits until the filter is no longer locked.
    Waits,
}

pub enum Sliced {
    /// Keys of a filter, which had this number when they came; None: there was none.
    Keys {
        act: KeyCommand,
        family: CommandFamily,
        id: Option<u64>,
        done: usize,
        replies: Output,
    },
    Words(Vec<Py<PyBytes>>),
}

impl Sliced {
    /// Begins with the command that the parser has read; `seen`: Python is to see it anyway.
    pub fn new(
        py: Python<'_>,
        names: &mut Names,
        parser: &Parser,
        command: &[u8],
        output: &Output,
        seen: bool,
    ) -> Sliced {
        if let Some((act, family, true)) = usual(parser.argument(command, 0)).filter(|_| !seen) {
            let entry = names.get(parser.argument(command, 1));
            let entry = entry.filter(|entry| entry.family == family);
            let loading = entry.as_ref().is_some_and(|entry| entry.loading);
            let grows = |entry: &&mut Entry| act.writes() && entry.needs_room(py, parser.len());
            let id = entry.filter(|entry| !grows(entry)).map(|entry| entry.id);
            if !loading && (id.is_some() || !act.writes()) {
                let replies = Output { resp3: output.resp3, ..Output::default() };
                return Sliced::Keys { act, family, id, done: 0, replies };
            }
        }
        Sliced::Words(Vec::new())
    }

    /// Does some of it, until that time.
    pub fn go_on(
        &mut self,
        py: Python<'_>,
        names: &mut Names,
        parser: &Parser,
        command: &[u8],
        output: &mut Output,
        until: Instant,
    ) -> Progress {
        match self {
            Sliced::Words(words) => loop {
                if words.len() == parser.len() {
                    return Progress::Words(std::mem::take(words));
                }
                for index in words.len()..parser.len().min(words.len() + STEP) {
                    words.push(PyBytes::new(py, parser.argument(command, index)).unbind());
                }
                if Instant::now() >= until {
                    return Progress::More;
                }
            },
            Sliced::Keys { act, family, id, done, replies } => {
                let (act, family) = (*act, *family);
                let name = parser.argument(command, 1);
                let refusal = loop {
                    let next = 2 + *done;
                    if next == parser.len() {
                        break None;
                    }
                    if names.is_locked(name) {
                        return Progress::Waits;
                    }
                    let refusing = names.refusing && act.writes();
                    let (entry, mut work) = names.split(name);
                    let now =
                        entry.as_ref().filter(|entry| entry.family == family && !entry.loading);
                    if now.map(|entry| entry.id) != *id || refusing {
                        let why = "ERR the filter was dropped, or the log cannot be written";
                        output.one(act, |output| output.error(why));
                        return Progress::Done;
                    }
                    let last = parser.len().min(next + STEP);
                    let result = match entry.filter(|_| id.is_some()) {
                        Some(entry) => {
                            for index in next..last {
                                entry.filter.hash(parser.argument(command, index), work.hashes);
                            }
                            match act {
                                KeyCommand::Contains => {
                                    entry.contains(py, &mut work).map_err(failed)
                                }
                                _ => entry.add(py, &mut work),
                            }
                        }
                        None => {
                            work.answers.resize(last - next, 0);
                            Ok(())
                        }
                    };
                    work.answers.iter().for_each(|answer| replies.answer(family, *answer));
                    *done += work.answers.len();
                    if let Err(refusal) = result {
                        break Some(refusal);
                    }
                    if Instant::now() >= until {
                        return Progress::More;
                    }
                };
                output.one(act, |output| {
                    output.number(b'*', *done as u64 + u64::from(refusal.is_some()));
                    output.bytes.append(&mut replies.bytes);
                    if let Some(refusal) = refusal {
                        output.error(&text(family, &refusal));
                    }
                });
                Progress::Done
            }
        }
    }
}

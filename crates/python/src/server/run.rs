//! A run: commands of a pipeline that do the same with one key each, in one filter. They wait for one
//! another and are done as a batch, which looks the filter up once and fetches memory ahead.

use std::ops::Range;

use bloomery_core::resp::Parser;
use pyo3::prelude::*;

use crate::server::names::{CommandFamily, Names, failed};
use crate::server::output::{Output, text};
use crate::server::usual::KeyCommand;

/// As long as the hashes and answers stay in the nearest cache.
const MOST: usize = 512;

#[derive(Default)]
pub struct Run {
    doing: Option<(KeyCommand, CommandFamily)>,
    name: Vec<u8>,
    /// Where the keys lie in what the client sent.
    keys: Vec<Range<usize>>,
}

impl Run {
    /// Takes in the command that the parser has read, if it goes on with this run.
    #[inline(always)]
    pub fn joins(
        &mut self,
        doing: (KeyCommand, CommandFamily),
        parser: &Parser,
        command: &[u8],
        at: usize,
    ) -> bool {
        if self.doing != Some(doing)
            || self.keys.len() == MOST
            || self.name != parser.argument(command, 1)
        {
            return false;
        }
        self.push(parser, at)
    }

    /// Begins with a command, if it is one of those that can wait: of one key, and nothing about the
    /// filter is unusual. The run before must have ended.
    #[inline(always)]
    pub fn begins(
        &mut self,
        py: Python<'_>,
        doing: (KeyCommand, CommandFamily),
        names: &mut Names,
        parser: &Parser,
        command: &[u8],
        at: usize,
    ) -> bool {
        let (act, family) = doing;
        let name = parser.argument(command, 1);
        if !matches!(act, KeyCommand::Contains | KeyCommand::Add)
            || (names.refusing && act == KeyCommand::Add)
            || names.is_locked(name)
            || !names.get(name).is_some_and(|entry| {
                let slow = || entry.filter.is_slow(py) || entry.needs_room(py, MOST);
                entry.family == family && !entry.loading && !(act == KeyCommand::Add && slow())
            })
            || !self.push(parser, at)
        {
            return false;
        }
        self.doing = Some(doing);
        self.name.clear();
        self.name.extend_from_slice(name);
        true
    }

    #[inline(always)]
    fn push(&mut self, parser: &Parser, at: usize) -> bool {
        let Some(place) = parser.place(2) else { return false };
        self.keys.push(at + place.start..at + place.end);
        true
    }

    /// Does what waits, and replies to each command.
    #[inline(always)]
    pub fn end(&mut self, py: Python<'_>, names: &mut Names, input: &[u8], output: &mut Output) {
        let Some((act, family)) = self.doing.take() else { return };
        let (entry, mut work) = names.split(&self.name);
        let keys = self.keys.drain(..);
        // It was there when the run began, and nobody else has had the shelf since.
        let Some(entry) = entry else { return };
        keys.for_each(|place| entry.filter.hash(&input[place], work.hashes));
        loop {
            let result = match act {
                KeyCommand::Contains => entry.contains(py, &mut work).map_err(failed),
                _ => entry.add(py, &mut work),
            };
            for answer in work.answers.iter() {
                output.one(act, |output| output.answer(family, *answer));
            }
            let Err(refusal) = result else { return };
            // One was refused; each of those behind it is a command of its own.
            output.one(act, |output| output.error(&text(family, &refusal)));
            let done = (work.answers.len() + 1) * entry.filter.width();
            work.hashes.drain(..done.min(work.hashes.len()));
            work.answers.clear();
            if work.hashes.is_empty() {
                return;
            }
        }
    }
}

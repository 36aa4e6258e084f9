//! The native commands: those that need no Python.

use bloomery_core::resp::Parser;
use pyo3::prelude::*;

use crate::server::names::{CommandFamily, Entry, Names, Work};
use crate::server::output::Output;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyCommand {
    Add,
    /// Adds the key if it is definitely new.
    AddNew,
    Contains,
    Remove,
    Count,
}

impl KeyCommand {
    #[inline(always)]
    pub fn writes(self) -> bool {
        !matches!(self, KeyCommand::Contains | KeyCommand::Count)
    }
}

/// A command of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Native {
    pub act: KeyCommand,
    pub family: CommandFamily,
    /// It takes any number of keys, and replies with an array.
    pub several: bool,
    /// Where its keys start.
    pub first: usize,
}

/// Finds a command by its name.
#[inline(always)]
pub fn native(name: &[u8]) -> Option<Native> {
    let mut upper = [0u8; 10];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let (act, family, several) = match &*upper {
        b"BF.EXISTS" => (KeyCommand::Contains, CommandFamily::Bf, false),
        b"BF.ADD" => (KeyCommand::Add, CommandFamily::Bf, false),
        b"BF.MEXISTS" => (KeyCommand::Contains, CommandFamily::Bf, true),
        b"BF.MADD" => (KeyCommand::Add, CommandFamily::Bf, true),
        b"BF.INSERT" => {
            let (act, family) = (KeyCommand::Add, CommandFamily::Bf);
            return Some(Native { act, family, several: true, first: 3 });
        }
        b"BF.DEL" => (KeyCommand::Remove, CommandFamily::Bf, false),
        b"CF.EXISTS" => (KeyCommand::Contains, CommandFamily::Cf, false),
        b"CF.ADD" => (KeyCommand::Add, CommandFamily::Cf, false),
        b"CF.ADDNX" => (KeyCommand::AddNew, CommandFamily::Cf, false),
        b"CF.MEXISTS" => (KeyCommand::Contains, CommandFamily::Cf, true),
        b"CF.DEL" => (KeyCommand::Remove, CommandFamily::Cf, false),
        b"CF.COUNT" => (KeyCommand::Count, CommandFamily::Cf, false),
        _ => return None,
    };
    Some(Native { act, family, several, first: 2 })
}

/// Finds the command that the parser has read, if it has as many arguments as it needs. BF.INSERT is
/// native without options: `BF.INSERT key ITEMS …`.
#[inline(always)]
pub fn find(parser: &Parser, command: &[u8]) -> Option<Native> {
    let found = native(parser.argument(command, 0))?;
    if found.first == 3 && !(parser.len() > 3 && is_items(parser.argument(command, 2))) {
        return None;
    }
    let keys = parser.len().saturating_sub(found.first);
    (keys == 1 || (found.several && keys > 1)).then_some(found)
}

fn is_items(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ITEMS")
}

/// Answers a command that only reads; false if Python must handle it.
#[inline(always)]
pub fn read(
    py: Python<'_>,
    names: &mut Names,
    Native { act, family, several, first }: Native,
    parser: &Parser,
    input: &[u8],
    output: &mut Output,
) -> bool {
    let (name, arguments) = (parser.argument(input, 1), parser.len());
    if names.is_locked(name) {
        return false;
    }
    let (entry, mut work) = names.split(name);
    if entry.as_ref().is_some_and(|entry| entry.family != family || entry.loading) {
        return false;
    }
    let Some(entry) = entry else {
        // A filter that does not exist contains no key.
        match act {
            KeyCommand::Count => output.number(b':', 0),
            _ => {
                work.answers.resize(arguments - first, 0);
                output.replies(family, several, work.answers, None);
            }
        }
        return true;
    };
    for index in first..arguments {
        entry.filter.hash(parser.argument(input, index), work.hashes);
    }
    match answer(py, entry, &mut work, act) {
        Ok(Some(count)) => output.number(b':', count),
        Ok(None) => output.replies(family, several, work.answers, None),
        Err(_) => return false, // Python meets the same error, and reports it
    }
    true
}

/// Answers in `work`, or returns a count.
#[inline(always)]
fn answer(
    py: Python<'_>,
    entry: &mut Entry,
    work: &mut Work<'_>,
    act: KeyCommand,
) -> PyResult<Option<u64>> {
    if act == KeyCommand::Count {
        return entry.filter.count(py, work.hashes).map(Some);
    }
    entry.contains(py, work)?;
    Ok(None)
}

//! The usual commands, which need no Python.

use bloomery_core::kind::Refusal;
use bloomery_core::resp::Parser;
use pyo3::prelude::*;

use crate::server::names::{CommandFamily, Entry, Names, Work, failed};
use crate::server::output::Output;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyCommand {
    Add,
    /// Unless it may be there.
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

/// The usual commands: what to do, of which family of commands, and with how many keys.
#[inline(always)]
pub fn usual(name: &[u8]) -> Option<(KeyCommand, CommandFamily, bool)> {
    let mut upper = [0u8; 10];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    Some(match &*upper {
        b"BF.EXISTS" => (KeyCommand::Contains, CommandFamily::Bf, false),
        b"BF.ADD" => (KeyCommand::Add, CommandFamily::Bf, false),
        b"BF.MEXISTS" => (KeyCommand::Contains, CommandFamily::Bf, true),
        b"BF.MADD" => (KeyCommand::Add, CommandFamily::Bf, true),
        b"BF.DEL" => (KeyCommand::Remove, CommandFamily::Bf, false),
        b"CF.EXISTS" => (KeyCommand::Contains, CommandFamily::Cf, false),
        b"CF.ADD" => (KeyCommand::Add, CommandFamily::Cf, false),
        b"CF.ADDNX" => (KeyCommand::AddNew, CommandFamily::Cf, false),
        b"CF.MEXISTS" => (KeyCommand::Contains, CommandFamily::Cf, true),
        b"CF.DEL" => (KeyCommand::Remove, CommandFamily::Cf, false),
        b"CF.COUNT" => (KeyCommand::Count, CommandFamily::Cf, false),
        _ => return None,
    })
}

/// The usual commands of one key.
#[inline(always)]
pub fn one_key(parser: &Parser, command: &[u8]) -> Option<(KeyCommand, CommandFamily)> {
    if parser.len() != 3 {
        return None;
    }
    let (act, family, several) = usual(parser.argument(command, 0))?;
    (!several).then_some((act, family))
}

/// Does a usual command, its arguments being those of the parser; false if Python must see it: it
/// is not a usual one, or something about it is not as usual.
#[inline(always)]
pub fn run(
    py: Python<'_>,
    names: &mut Names,
    parser: &Parser,
    input: &[u8],
    output: &mut Output,
) -> bool {
    let name = parser.argument(input, 0);
    let Some((act, family, several)) = usual(name) else {
        if parser.len() == 1 && name.eq_ignore_ascii_case(b"PING") {
            output.bytes.extend_from_slice(b"+PONG\r\n");
            return true;
        }
        return false;
    };
    let reads = !act.writes();
    let arguments = parser.len();
    if arguments < 3 || (!several && arguments > 3) || (names.refusing && !reads) {
        return false;
    }
    if names.is_locked(parser.argument(input, 1)) {
        return false;
    }
    let (entry, mut work) = names.split(parser.argument(input, 1));
    if entry.as_ref().is_some_and(|entry| entry.family != family) {
        return false; // Python knows what to say of a filter of the other family
    }
    let Some(entry) = entry else {
        // What is not there holds no key.
        match act {
            KeyCommand::Contains => {
                work.answers.resize(arguments - 2, 0);
                output.answers(family, several, work.answers, Ok(()));
            }
            KeyCommand::Count => output.number(b':', 0),
            _ => {}
        }
        return reads;
    };
    if entry.loading || (act == KeyCommand::Add && entry.needs_room(py, arguments)) {
        return false;
    }
    for index in 2..arguments {
        entry.filter.hash(parser.argument(input, index), work.hashes);
    }
    if reads {
        return match answer(py, entry, &mut work, act) {
            Ok(Some(count)) => {
                output.number(b':', count);
                true
            }
            Ok(None) => {
                output.answers(family, several, work.answers, Ok(()));
                true
            }
            Err(_) => false, // Python will see it too
        };
    }
    let result = change(py, entry, &mut work, act);
    output.one(act, |output| output.answers(family, several, work.answers, result));
    true
}

/// Answers in `work`, or a count.
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

#[inline(always)]
fn change(
    py: Python<'_>,
    entry: &mut Entry,
    work: &mut Work<'_>,
    act: KeyCommand,
) -> Result<(), Refusal> {
    match act {
        KeyCommand::Remove => entry.remove(py, work),
        KeyCommand::AddNew => {
            entry.filter.check_layers(py)?;
            entry.contains(py, work).map_err(failed)?;
            if work.answers.pop() == Some(1) {
                work.answers.push(0);
                return Ok(());
            }
            entry.add(py, work)
        }
        _ => entry.add(py, work),
    }
}

//! The native commands: those that need no control plane.

use std::sync::atomic::Ordering::Relaxed;

use bloomery_core::resp::Parser;

use crate::keyspace::{CommandFamily, Keyspace, Names};
use crate::output::Output;
use crate::session::Buffers;

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

/// Answers a command that only reads; false if the control plane must handle it.
#[inline(always)]
pub fn read(
    keyspace: &Keyspace,
    names: &Names,
    Native { act, family, several, first }: Native,
    (parser, input): (&Parser, &[u8]),
    Buffers { hashes, answers }: &mut Buffers,
    output: &mut Output,
) -> bool {
    let (name, arguments) = (parser.argument(input, 1), parser.len());
    let Ok(entry) = keyspace.readable(names, name, family) else { return false };
    hashes.clear();
    answers.clear();
    let Some(entry) = entry else {
        keyspace.misses.fetch_add(1, Relaxed);
        // A filter that does not exist contains no key.
        match act {
            KeyCommand::Count => output.number(b':', 0),
            _ => {
                answers.resize(arguments - first, 0);
                output.replies(family, several, answers, None);
            }
        }
        return true;
    };
    for index in first..arguments {
        entry.filter.hash(parser.argument(input, index), hashes);
    }
    // The control plane meets the same fault, and reports it.
    if act == KeyCommand::Count {
        let Ok(count) = entry.filter.count(hashes) else { return false };
        output.number(b':', count);
    } else if entry.contains(hashes, answers).is_ok() {
        output.replies(family, several, answers, None);
    } else {
        return false;
    }
    keyspace.hits.fetch_add(1, Relaxed);
    true
}

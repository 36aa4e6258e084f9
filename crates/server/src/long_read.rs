//! A command of many arguments, in slices between which other clients are served.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bloomery_core::resp::Parser;

use crate::commands::{KeyCommand, Native};
use crate::keyspace::{Keyspace, Names};
use crate::output::Output;
use crate::session::{Buffers, Words};

/// A command with at most this many arguments runs in well under a millisecond.
pub const MANY: usize = 4096;
/// Arguments between two looks at the clock.
const STEP: usize = 1024;

pub enum Progress {
    /// The command is answered.
    Done,
    /// These are the words of a command for the control plane.
    Words(Words),
    /// More follows in the next tick.
    More,
    /// It waits until the filter is unlocked.
    Waits,
}

pub enum LongCommand {
    /// A read. The filter had this number when the command arrived; None if it did not exist.
    Keys { command: Native, id: Option<u64>, done: usize, replies: Output },
    /// The words of a command for the control plane.
    Words(Words),
}

impl LongCommand {
    /// Starts a read that native code answers; None if the control plane must handle it.
    pub fn read(
        (keyspace, names): (&Keyspace, &Names),
        command: Native,
        parser: &Parser,
        input: &[u8],
        output: &Output,
    ) -> Option<LongCommand> {
        if command.act != KeyCommand::Contains {
            return None;
        }
        let name = parser.argument(input, 1);
        let entry = keyspace.readable(names, name, command.family).ok()?;
        let counter = if entry.is_some() { &keyspace.hits } else { &keyspace.misses };
        counter.fetch_add(1, Relaxed);
        let replies = Output { resp3: output.resp3, ..Output::default() };
        Some(LongCommand::Keys { command, id: entry.map(|entry| entry.id), done: 0, replies })
    }

    /// Continues until that time.
    pub fn resume(
        &mut self,
        (keyspace, names): (&Keyspace, &Names),
        (parser, input): (&Parser, &[u8]),
        buffers: &mut Buffers,
        output: &mut Output,
        until: Instant,
    ) -> Progress {
        match self {
            LongCommand::Words(words) => loop {
                if words.len() == parser.len() {
                    return Progress::Words(std::mem::take(words));
                }
                for index in words.len()..parser.len().min(words.len() + STEP) {
                    words.push(parser.argument(input, index));
                }
                if Instant::now() >= until {
                    return Progress::More;
                }
            },
            LongCommand::Keys { command, id, done, replies } => {
                while 2 + *done < parser.len() {
                    let Ok(entry) =
                        keyspace.readable(names, parser.argument(input, 1), command.family)
                    else {
                        return Progress::Waits;
                    };
                    if entry.map(|entry| entry.id) != *id {
                        output.error(DROPPED);
                        return Progress::Done;
                    }
                    let last = parser.len().min(2 + *done + STEP);
                    buffers.hashes.clear();
                    buffers.answers.clear();
                    if let Some(entry) = entry {
                        for index in 2 + *done..last {
                            entry.filter.hash(parser.argument(input, index), &mut buffers.hashes);
                        }
                        if let Err(fault) = entry.contains(&buffers.hashes, &mut buffers.answers) {
                            output.fault(command.family, &fault);
                            return Progress::Done;
                        }
                    } else {
                        buffers.answers.resize(last - 2 - *done, 0);
                    }
                    replies.answers(command.family, &buffers.answers);
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

const DROPPED: &str = "ERR the filter was dropped while the command ran; send it again";

//! A batch as commands, for each shard its own, and the answers to it as the replies come.
//!
//! Measured, 8 bits a key and 1,000 keys (thousand keys a second; redis-py reads): one SETBIT a bit
//! 84, one BITFIELD a key 179, one for four keys 294, for sixteen 289, for sixty-four 161; to ask,
//! one GETBIT a bit 55, one BITFIELD for four keys 220, one GETRANGE of the key's line 352.

use super::Places;
use super::resp::Words;
use crate::bits::{LINE_BITS, LINE_BYTES};

const KEYS_PER_COMMAND: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Add,
    Contains,
    /// By a script, which takes one key at a time.
    Remove,
}

/// A part of a reply: the key that it is about, and how many of its cells, or which of its lines.
struct Entry {
    key: usize,
    what: u64,
}

/// What one shard is asked.
#[derive(Default)]
pub struct Part {
    pub data: Vec<u8>,
    words: Words,
    entries: Vec<Entry>,
    /// For each command, where its entries end.
    ends: Vec<usize>,
    /// Commands that were answered.
    done: usize,
}

impl Part {
    /// Replies that its commands will have.
    pub fn replies(&self) -> usize {
        self.ends.len()
    }

    /// Entries of the command that is being written.
    fn waiting(&self) -> usize {
        self.entries.len() - self.ends.last().unwrap_or(&0)
    }

    fn begin(&mut self, words: &[&[u8]]) {
        words.iter().for_each(|word| self.words.word(word));
    }

    fn end(&mut self) {
        if !self.words.is_empty() {
            self.words.end(&mut self.data);
            self.ends.push(self.entries.len());
        }
    }

    /// The entries of the next reply.
    fn next(&mut self) -> Option<&[Entry]> {
        let end = *self.ends.get(self.done)?;
        let start = if self.done == 0 { 0 } else { self.ends[self.done - 1] };
        self.done += 1;
        Some(&self.entries[start..end])
    }
}

/// One batch on its way.
pub struct Commands {
    places: Places,
    doing: Doing,
    hashes: Vec<u64>,
    pub parts: Vec<Part>,
    /// For each key. Add: 1 where it is new. Contains: the least of its cells, 0 where it is
    /// definitely not there. Remove: what the script says.
    pub answers: Vec<u8>,
    cells: Vec<u64>,
}

impl Commands {
    /// `names` are those of the strings, one a shard. A shard that is asked tells first how long its
    /// string is: one that is gone would deny every key.
    pub fn new(
        places: Places,
        doing: Doing,
        hashes: Vec<u64>,
        names: &[&[u8]],
        script: &[u8],
    ) -> Self {
        let answers = vec![if doing == Doing::Contains { u8::MAX } else { 0 }; hashes.len()];
        let parts = names.iter().map(|_| Part::default()).collect();
        let mut made = Commands { places, doing, hashes, parts, answers, cells: Vec::new() };
        let by_line = doing == Doing::Contains && places.in_lines();
        let mut cells = Vec::new();
        for key in 0..made.hashes.len() {
            places.cells(made.hashes[key], &mut cells);
            let mut left = &cells[..];
            while let Some(first) = left.first() {
                let shard = places.shard(*first).0;
                let together = |bit: &&u64| match by_line {
                    true => **bit / LINE_BITS == first / LINE_BITS,
                    false => places.shard(**bit).0 == shard,
                };
                let (some, rest) = left.split_at(left.iter().take_while(together).count());
                left = rest;
                // As many names as shards: the caller has seen to it.
                let (Some(part), Some(name)) = (made.parts.get_mut(shard), names.get(shard)) else {
                    continue;
                };
                if part.ends.is_empty() && part.words.is_empty() {
                    part.begin(&[b"STRLEN", name]);
                    part.end();
                }
                match by_line {
                    true => ask_line(part, &places, name, key, first / LINE_BITS),
                    false => write(part, &places, doing, (name, script), key, some),
                }
            }
        }
        made.parts.iter_mut().for_each(Part::end);
        made
    }

    /// Takes the next reply of a shard, which is a list of numbers; false if it is not what was
    /// asked for.
    pub fn numbers(&mut self, shard: usize, values: &[i64]) -> bool {
        // BITFIELD tells what was there before it set a bit, and what a counter was raised to.
        let empty = if self.places.width == 1 { 0 } else { 1 };
        let Some(entries) = self.parts.get_mut(shard).and_then(Part::next) else { return false };
        let mut left = values;
        for entry in entries {
            let count = if self.doing == Doing::Remove { 1 } else { entry.what as usize };
            let Some((values, rest)) = left.split_at_checked(count) else { return false };
            left = rest;
            let answer = &mut self.answers[entry.key];
            let least = values.iter().min().map_or(0, |least| (*least).clamp(0, 255) as u8);
            match self.doing {
                Doing::Add => *answer |= u8::from(values.contains(&empty)),
                Doing::Contains => *answer = least.min(*answer),
                Doing::Remove => *answer = least,
            }
        }
        left.is_empty()
    }

    /// Takes the next reply of a shard, which is a line; false if it is not what was asked for.
    pub fn line(&mut self, shard: usize, bytes: &[u8]) -> bool {
        let Some([entry]) = self.parts.get_mut(shard).and_then(Part::next) else { return false };
        let answer = &mut self.answers[entry.key];
        self.places.cells(self.hashes[entry.key], &mut self.cells);
        for bit in self.cells.iter().filter(|bit| *bit / LINE_BITS == entry.what) {
            *answer = self.places.value(bytes, *bit).min(*answer);
        }
        bytes.len() == LINE_BYTES
    }

    /// How long a shard's string should be.
    pub fn bytes_of(&self, shard: usize) -> u64 {
        self.places.bytes_of(shard as u64)
    }

    /// Do replies come as lines?
    pub fn by_line(&self) -> bool {
        self.doing == Doing::Contains && self.places.in_lines()
    }

    /// Skips the reply to a shard's first command.
    pub fn skip(&mut self, shard: usize) {
        self.parts.get_mut(shard).and_then(Part::next);
    }
}

fn ask_line(part: &mut Part, places: &Places, name: &[u8], key: usize, line: u64) {
    let from = line * LINE_BYTES as u64 % places.shard_bytes;
    part.begin(&[b"GETRANGE", name]);
    part.words.number(from);
    part.words.number(from + LINE_BYTES as u64 - 1);
    part.entries.push(Entry { key, what: line });
    part.end();
}

/// Changes cells, or asks for them one by one; several keys share a command.
fn write(
    part: &mut Part,
    places: &Places,
    doing: Doing,
    (name, script): (&[u8], &[u8]),
    key: usize,
    cells: &[u64],
) {
    let counters = places.width > 1;
    if part.waiting() == 0 {
        match doing {
            Doing::Add if counters => part.begin(&[b"BITFIELD", name, b"OVERFLOW", b"SAT"]),
            Doing::Add => part.begin(&[b"BITFIELD", name]),
            Doing::Contains => part.begin(&[b"BITFIELD_RO", name]),
            Doing::Remove => part.begin(&[b"EVALSHA", script, b"1", name]),
        }
        if doing == Doing::Remove {
            part.words.number(places.width);
        }
    }
    let before: &[u8] = match (doing, places.width) {
        (Doing::Add, 1) => b"$3\r\nSET\r\n$2\r\nu1\r\n",
        (Doing::Add, 4) => b"$6\r\nINCRBY\r\n$2\r\nu4\r\n",
        (Doing::Add, _) => b"$6\r\nINCRBY\r\n$2\r\nu8\r\n",
        _ => b"$3\r\nGET\r\n$2\r\nu1\r\n",
    };
    for cell in cells {
        if doing != Doing::Remove {
            part.words.ready(2, before);
        }
        part.words.number(places.offset(places.shard(*cell).1));
        if doing == Doing::Add {
            part.words.ready(1, b"$1\r\n1\r\n");
        }
    }
    part.entries.push(Entry { key, what: cells.len() as u64 });
    if doing == Doing::Remove || part.waiting() == KEYS_PER_COMMAND {
        part.end();
    }
}

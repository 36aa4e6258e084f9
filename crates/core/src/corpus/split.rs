//! Lines of JSON, or plain texts, to units and their keys.

use std::ops::Range;

use memchr::memchr;

use super::document::{Fault, document};
use super::minhash::MinHash;
use super::text::{Words, characters, paragraphs, unescape};
use crate::hash::KeyHasher;

/// What is compared.
#[derive(Clone, Debug)]
pub enum By {
    /// Texts as they are.
    Text,
    /// Runs of so many words: a unit goes when this share of them was seen.
    Ngrams { words: usize, share: f64 },
    /// MinHash signatures of runs of so many words: a unit goes when a band was seen.
    Near { words: usize, minhash: MinHash },
}

/// How a corpus is split.
#[derive(Clone, Debug)]
pub struct Splitter {
    /// The name of the member that has the text.
    pub field: Vec<u8>,
    /// By paragraph, or whole documents?
    pub paragraphs: bool,
    pub by: By,
}

/// A document or a paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// How many keys it has; none if it has no words, or is a blank line, and then it stays.
    pub keys: u32,
    /// How many of them must have been seen for it to go.
    pub enough: u32,
    pub seen: u32,
    /// Where it is written, in the text of its document.
    pub span: Range<usize>,
    /// Its characters, without the newline behind it.
    pub characters: usize,
}

impl Unit {
    #[inline(always)]
    pub fn goes(&self) -> bool {
        self.keys > 0 && self.seen >= self.enough
    }
}

/// A document, and which units are its own.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The line, without its newline.
    pub line: Range<usize>,
    pub text: Range<usize>,
    pub id: Option<Range<usize>>,
    pub units: Range<usize>,
    /// Its line among those of the chunk, from 0.
    pub number: usize,
}

/// Documents in order, with their units and the keys of these.
#[derive(Default)]
pub struct Split {
    pub pieces: Vec<Piece>,
    pub units: Vec<Unit>,
    pub keys: Vec<u64>,
    /// Bytes that were used: up to behind the last whole line.
    pub used: usize,
    /// Lines, blank ones among them.
    pub lines: usize,
    /// Lines that are no documents, by number from 0, and why; the first alone unless all are wanted.
    pub faults: Vec<(usize, Fault)>,
}

/// Room that is used again for every text.
#[derive(Default)]
pub struct Scratch {
    text: Vec<u8>,
    words: Words,
    shingles: Vec<u64>,
    signature: Vec<u64>,
}

impl Splitter {
    /// Splits all whole lines; at the `last` bytes of an input, these too. With `pass` it goes on
    /// behind a line that is no document.
    pub fn lines(&self, data: &[u8], last: bool, pass: bool, hasher: &KeyHasher) -> Split {
        let (mut split, mut scratch) = (Split::default(), Scratch::default());
        while split.used < data.len() {
            let begin = split.used;
            let end = match memchr(b'\n', &data[begin..]) {
                Some(length) => begin + length,
                None if last => data.len(),
                None => break,
            };
            split.used = (end + 1).min(data.len());
            let number = split.lines;
            split.lines += 1;
            if data[begin..end].trim_ascii().is_empty() {
                continue;
            }
            if let Err(fault) =
                self.line(data, begin..end, number, hasher, &mut split, &mut scratch)
            {
                split.faults.push((number, fault));
                if !pass {
                    break;
                }
            }
        }
        split
    }

    fn line(
        &self,
        data: &[u8],
        line: Range<usize>,
        number: usize,
        hasher: &KeyHasher,
        split: &mut Split,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let found = document(&data[line.clone()], &self.field)?;
        let moved = |range: Range<usize>| line.start + range.start..line.start + range.end;
        let text = moved(found.text);
        let (units, keys) = (split.units.len(), split.keys.len());
        if let Err(fault) = self.text(&data[text.clone()], true, hasher, split, scratch) {
            // Nothing of it is left.
            split.units.truncate(units);
            split.keys.truncate(keys);
            return Err(fault);
        }
        let units = units..split.units.len();
        split.pieces.push(Piece {
            line: line.clone(),
            text,
            id: found.id.map(moved),
            units,
            number,
        });
        Ok(())
    }

    /// Adds the units of a text; `written` inside of a JSON string, or as it is.
    pub fn text(
        &self,
        text: &[u8],
        written: bool,
        hasher: &KeyHasher,
        split: &mut Split,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let Scratch { text: room, .. } = scratch;
        let mut room = std::mem::take(room);
        let (units, keys) = (split.units.len(), split.keys.len());
        let done = if self.paragraphs {
            let done = paragraphs(text, written, &mut room, |span, text| {
                self.unit(span, text, hasher, split, scratch);
            });
            // Blank lines stay where they are between others; texts of nothing else are all equal.
            if matches!(self.by, By::Text)
                && split.keys.len() == keys
                && let Some(first) = split.units.get_mut(units)
            {
                first.keys = 1;
                split.keys.push(hasher.hash_bytes(b""));
            }
            done
        } else {
            room.clear();
            let escaped = written && memchr(b'\\', text).is_some();
            let unescaped = if escaped { unescape(text, &mut room) } else { Ok(()) };
            unescaped.map(|()| {
                let plain = if escaped { &room } else { text };
                self.unit(0..text.len(), plain, hasher, split, scratch);
            })
        };
        scratch.text = room;
        done
    }

    #[inline]
    fn unit(
        &self,
        span: Range<usize>,
        text: &[u8],
        hasher: &KeyHasher,
        split: &mut Split,
        scratch: &mut Scratch,
    ) {
        let before = split.keys.len();
        let mut enough = 1;
        match &self.by {
            By::Text => {
                let key = if self.paragraphs { text.trim_ascii() } else { text };
                if !self.paragraphs || !key.is_empty() {
                    split.keys.push(hasher.hash_bytes(key));
                }
            }
            By::Ngrams { words, share } => {
                scratch.words.clear();
                scratch.words.take(text, hasher);
                let keys = &mut split.keys;
                scratch.words.ngrams(*words, |key| keys.push(key));
                let count = split.keys.len() - before;
                // 0.8 of ten is eight, though 0.8 as a float is a little more.
                enough = ((share * count as f64 - 1e-9).ceil() as u32).max(1);
            }
            By::Near { words, minhash } => {
                let Scratch { words: own, shingles, signature, .. } = scratch;
                own.clear();
                own.take(text, hasher);
                shingles.clear();
                own.ngrams(*words, |shingle| shingles.push(shingle));
                if !shingles.is_empty() {
                    minhash.signature(shingles, signature);
                    minhash.keys(signature, hasher, &mut split.keys);
                }
            }
        }
        let keys = (split.keys.len() - before) as u32;
        split.units.push(Unit { keys, enough, seen: 0, span, characters: characters(text) });
    }

    /// The MinHash signature of a text; empty if it has no words, or is not compared by one.
    pub fn signature(&self, text: &[u8], hasher: &KeyHasher) -> Vec<u64> {
        let mut signature = Vec::new();
        if let By::Near { words: n, minhash } = &self.by {
            let (mut words, mut shingles) = (Words::default(), Vec::new());
            words.take(text, hasher);
            words.ngrams(*n, |shingle| shingles.push(shingle));
            if !shingles.is_empty() {
                minhash.signature(&shingles, &mut signature);
            }
        }
        signature
    }
}

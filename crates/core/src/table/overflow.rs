//! Entries that found their bucket full while their table grew. An eighth of all entries may be among
//! them, so they are packed, and their memory goes as they are taken.

use std::collections::VecDeque;

/// Bytes that are allocated and freed together.
const CHUNK: usize = 64 << 10;
/// A number of 64 bits takes ten bytes at most, and an entry has two.
const MOST_ENTRY: usize = 20;

/// A queue of buckets, each at least as high as the one before, and values.
#[derive(Default)]
pub(super) struct Overflow {
    chunks: VecDeque<Vec<u8>>,
    /// The bucket that was last pushed, and the one that was last taken.
    pushed: u64,
    taken: u64,
    /// Bytes of the first chunk that are taken.
    at: usize,
}

impl Overflow {
    pub(super) fn push(&mut self, bucket: u64, value: u64) {
        if self.chunks.back().is_none_or(|chunk| chunk.len() + MOST_ENTRY > CHUNK) {
            self.chunks.push_back(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            write_number(chunk, bucket - self.pushed);
            write_number(chunk, value);
            self.pushed = bucket;
        }
    }

    /// Takes up to `most` entries from the front; false if there were none.
    pub(super) fn pop(&mut self, entries: &mut Vec<(u64, u64)>, most: usize) -> bool {
        while entries.len() < most
            && let Some(chunk) = self.chunks.front()
        {
            self.taken += read_number(chunk, &mut self.at);
            entries.push((self.taken, read_number(chunk, &mut self.at)));
            if self.at == chunk.len() {
                self.chunks.pop_front();
                self.at = 0;
            }
        }
        !entries.is_empty()
    }

    /// Bytes of memory that it has.
    #[cfg(test)]
    pub(super) fn nbytes(&self) -> usize {
        self.chunks.len() * CHUNK
    }
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_taken_in_order() {
        let entries: Vec<(u64, u64)> = (0..50_000u64)
            .map(|i| (i * i % 7 + (i << (i / 4000)), u64::MAX >> (i % 64)))
            .scan(0, |highest, (bucket, value)| {
                *highest = bucket.max(*highest);
                Some((*highest, value))
            })
            .collect();
        let (mut overflow, mut taken) = (Overflow::default(), Vec::new());
        entries.iter().for_each(|(bucket, value)| overflow.push(*bucket, *value));
        let mut block = Vec::new();
        while overflow.pop(&mut block, 33) {
            assert!(block.len() <= 33);
            taken.append(&mut block);
        }
        assert_eq!(taken, entries);
        assert_eq!(overflow.nbytes(), 0);
    }
}

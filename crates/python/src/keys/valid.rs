//! Which rows of a column hold a key, where some are null: runs of rows that do, so that columns with
//! few nulls are hashed and answered almost as those without.

use std::collections::TryReserveError;
use std::ops::Range;

/// Rows that hold a key, in order. The keys are numbered without the rows between them.
#[derive(Default)]
pub struct Valid {
    runs: Vec<Run>,
    keys: usize,
}

/// The first of the rows of a run, and the number of its key.
#[derive(Clone, Copy)]
struct Run {
    row: usize,
    key: usize,
}

impl Valid {
    /// Of so many rows, those that `word` has a bit for: it is asked for 64 rows at a time, and for
    /// the rest of them one by one.
    pub fn of(len: usize, word: impl Fn(usize, usize) -> u64) -> Result<Valid, TryReserveError> {
        let mut valid = Valid::default();
        let mut next = None; // the row that a run would go on with
        let mut row = 0;
        while row < len {
            let count = if len - row >= 64 { 64 } else { 1 };
            let (mut left, mut bits) = (count, word(row, count));
            while left > 0 {
                let nulls = (bits.trailing_zeros() as usize).min(left);
                if nulls > 0 {
                    (row, left, bits) = (row + nulls, left - nulls, shifted(bits, nulls));
                    continue;
                }
                let keys = (bits.trailing_ones() as usize).min(left);
                if next != Some(row) {
                    valid.runs.try_reserve(1)?;
                    valid.runs.push(Run { row, key: valid.keys });
                }
                valid.keys += keys;
                (row, left, bits) = (row + keys, left - keys, shifted(bits, keys));
                next = Some(row);
            }
        }
        Ok(valid)
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// The first row that holds none, if there are so many and one of them does not.
    pub fn first_null(&self, rows: usize) -> Option<usize> {
        let first = self.runs(0..self.keys).next().filter(|(_, rows)| rows.start == 0);
        let end = first.map_or(0, |(_, rows)| rows.end);
        (end < rows).then_some(end)
    }

    /// The rows of these keys, a run at a time, each with the number of its first key.
    pub fn runs(&self, keys: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let first = self.runs.partition_point(|run| run.key <= keys.start).saturating_sub(1);
        let runs = self.runs[first..].iter().take_while(move |run| run.key < keys.end);
        let ends = self.runs[(first + 1).min(self.runs.len())..].iter().map(|run| run.key);
        runs.zip(ends.chain([self.keys])).filter_map(move |(run, end)| {
            let (start, end) = (run.key.max(keys.start), end.min(keys.end));
            (start < end).then(|| (start, run.row + start - run.key..run.row + end - run.key))
        })
    }

    /// The rows of these keys.
    pub fn rows(&self, keys: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        self.runs(keys).flat_map(|(_, rows)| rows)
    }

    /// Puts the answers of the keys from the `from`th on into the places of their rows.
    pub fn spread(&self, from: usize, answers: &[u8], mask: &mut [u8]) {
        for (key, rows) in self.runs(from..from + answers.len()) {
            let some = &answers[key - from..key - from + rows.len()];
            mask[rows].copy_from_slice(some);
        }
    }
}

fn shifted(bits: u64, by: usize) -> u64 {
    bits.checked_shr(by as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs, rows and places are those of a list of bools, whatever the pattern and its length.
    #[test]
    fn as_a_list_of_bools() {
        let mut state = 1u64;
        for len in (0..140).chain([192, 1000]) {
            for share in [0, 1, 8, 32, 63, 64] {
                let bools: Vec<bool> = (0..len)
                    .map(|_| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                        state >> 58 < share
                    })
                    .collect();
                let word = |row: usize, count: usize| {
                    (0..count).map(|i| u64::from(bools[row + i]) << i).sum()
                };
                let valid = Valid::of(len, word).unwrap();
                let rows: Vec<usize> = (0..len).filter(|row| bools[*row]).collect();
                assert_eq!(valid.keys(), rows.len());
                assert_eq!(valid.first_null(len), bools.iter().position(|held| !held));
                for from in [0, 1, 7, rows.len() / 2, rows.len()] {
                    let from = from.min(rows.len());
                    for to in [from, (from + 5).min(rows.len()), rows.len()] {
                        assert!(valid.rows(from..to).eq(rows[from..to].iter().copied()));
                    }
                    let mut mask = vec![0; len];
                    valid.spread(from, &vec![1; rows.len() - from], &mut mask);
                    let set: Vec<usize> = (0..len).filter(|row| mask[*row] == 1).collect();
                    assert_eq!(set, rows[from..]);
                }
            }
        }
    }
}

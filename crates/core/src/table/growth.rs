//! More buckets, or other slots: a table grows without its keys.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::geometry::stream_bits;
use super::{Geometry, MAX_SLOT_BITS, MOST_BUCKETS, MOST_PAIR, MOST_STREAM_BITS, Table, low};
use crate::bits::Bits;
use crate::budget;
use crate::kind::Refusal;

/// The usual step, the smallest there is, and the largest.
pub const GROWTH: f64 = 1.125;
pub const MOST_GROWTH: f64 = 2.0;
/// Sizes tried before a table gives up growing: up to twice the buckets of sixteen slots a pair, which
/// seven copies of each key need.
const MOST_STEPS: u32 = 8;
/// From so many bytes on what touches all of a table may be deferred: growing takes some 5 ms.
pub const LARGE: u64 = 128 << 10;
/// Keys chosen to collide, which a table cannot hold however large it becomes.
#[cold]
pub fn colliding() -> Refusal {
    Refusal::Full("too many of its keys collide: use hasher=\"siphash\" with a secret seed".into())
}

/// How many entries keep how many bits of their streams.
#[derive(Default)]
struct KeptBits([u64; MOST_STREAM_BITS as usize + 1]);

impl KeptBits {
    #[inline(always)]
    fn count(&mut self, table: &Table<false>, value: u64) {
        self.0[table.kept(value) as usize] += 1;
    }

    fn rate(&self, table: &Table<false>) -> f64 {
        let named = table.geometry.tag_bits + table.level;
        let weight = |kept: usize| 2f64.powi(1 - named as i32 - kept as i32);
        self.0.iter().enumerate().map(|(kept, count)| *count as f64 * weight(kept)).sum()
    }
}

/// Writes slots into zeroed memory from front to back, a whole word at a time. (Each as a change of
/// the eight bytes that it lies in took five times as long: a load that meets half of the store
/// before it waits for it.)
struct Writer<'a> {
    words: &'a [AtomicU64],
    /// Words that are written, and what comes next, of so many bits.
    done: usize,
    word: u64,
    filled: u64,
}

impl<'a> Writer<'a> {
    fn over(bits: &'a Bits) -> Writer<'a> {
        Writer { words: bits.words(), done: 0, word: 0, filled: 0 }
    }

    /// Writes the lowest bits of a value, which has no others: 1 to 56 of them.
    #[inline(always)]
    fn push(&mut self, value: u64, bits: u64) {
        self.word |= value << self.filled;
        self.filled += bits;
        if self.filled >= 64 {
            self.words[self.done].store(self.word, Relaxed);
            self.filled -= 64;
            self.done += 1;
            self.word = value >> (bits - self.filled);
        }
    }

    /// Leaves so many bits empty behind what is written.
    #[inline(always)]
    fn skip_after(&mut self, bits: u64, write: impl FnOnce(&mut Self)) {
        write(self);
        self.filled += bits;
        while self.filled >= 64 {
            self.words[self.done].store(self.word, Relaxed);
            (self.word, self.filled, self.done) = (0, self.filled - 64, self.done + 1);
        }
    }

    fn end(self) {
        if self.filled > 0 {
            self.words[self.done].store(self.word, Relaxed);
        }
    }
}

impl Table<false> {
    /// Is it time to grow before the next entry?
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.entries >= self.most_entries
    }

    /// Entries that it takes before it is time.
    #[inline(always)]
    pub fn room(&self) -> u64 {
        self.most_entries.saturating_sub(self.entries)
    }

    /// Grows to at most `growth` times its size, and one size at least, or further if entries chosen
    /// to collide do not fit; nothing has changed if there is no memory for it. Slots become wide
    /// enough to keep the error rate within `limit`.
    #[cold]
    pub fn grow(&mut self, growth: f64, limit: f64) -> Result<(), Refusal> {
        if !budget::may_grow() {
            return Err(Refusal::NoMemory(0)); // before anything goes through the table
        }
        if self.defers() {
            return Err(Refusal::Later);
        }
        let most = self.geometry.slots() as f64 * growth.min(MOST_GROWTH);
        let mut next = self.geometry.next();
        while next.next().slots() as f64 <= most {
            next = next.next();
        }
        let mut next = self.with_slots(next, limit)?;
        for _ in 0..MOST_STEPS {
            let Some(mut grown) = Table::<false>::empty(next) else {
                return Err(Refusal::NoMemory(next.nbytes()));
            };
            if self.copy_into(&mut grown) {
                *self = Table { defer: self.defer, ..grown };
                return Ok(());
            }
            next = self.with_slots(next.next(), limit)?;
            if next.buckets > 2 * self.geometry.buckets {
                break;
            }
        }
        Err(colliding())
    }

    /// A later size, with slots as wide as the error rate asks for.
    fn with_slots(&self, mut next: Geometry, limit: f64) -> Result<Geometry, Refusal> {
        if next.buckets > MOST_BUCKETS {
            return Err(Refusal::Full("a table of 2^40 buckets grows no more".into()));
        }
        let new = (next.slots() - self.geometry.slots()) as f64 * self.fresh_weight;
        if next.buckets > self.geometry.buckets || self.rate + new > limit {
            next.stream_bits = self.planned_stream_bits(next, limit);
        }
        Ok(next)
    }

    /// Puts every entry into an empty table of a later size; false if one of them did not fit.
    pub fn copy_into(&self, grown: &mut Table<false>) -> bool {
        let same = Geometry { pair: self.geometry.pair, ..grown.geometry } == self.geometry;
        if same {
            self.copy_buckets(grown);
        }
        same || self.deal_entries(grown)
    }

    /// The same entries in larger buckets: bits are copied, as many at a time as a word holds.
    fn copy_buckets(&self, grown: &mut Table<false>) {
        (grown.entries, grown.rate) = (self.entries, self.rate);
        let width = u64::from(self.slot_bits);
        let together = u64::from(MAX_SLOT_BITS) / width;
        let mut writer = Writer::over(&grown.bits);
        let mut bit = 0;
        for bucket in 0..self.geometry.buckets {
            let mut slots = self.count(bucket);
            writer.skip_after((grown.count(bucket) - slots) * width, |writer| {
                while slots > 0 {
                    let some = together.min(slots);
                    writer.push(self.read(bit) & low((some * width) as u32), some * width);
                    (bit, slots) = (bit + some * width, slots - some);
                }
            });
        }
        writer.end();
    }

    /// The entries one by one, each where it belongs in the grown table and as it looks there. Both
    /// halves of a bucket are neighbours, so the grown table is written from front to back.
    fn deal_entries(&self, grown: &mut Table<false>) -> bool {
        const MOST: usize = MOST_PAIR as usize / 2;
        let deeper = grown.level - self.level; // 0 or 1: a later size is never two levels up
        let width = u64::from(grown.slot_bits);
        // Entries that found their half full; with a tenth of the slots free they will find others.
        let mut left = Vec::new();
        let mut kept = KeptBits::default();
        let mut writer = Writer::over(&grown.bits);
        let mut bit = 0;
        for bucket in 0..self.geometry.buckets {
            let (mut dealt, mut counts) = ([[0; MOST]; 2], [0; 2]);
            for _ in 0..self.count(bucket) {
                let value = self.read(bit) & self.slot_mask;
                bit += u64::from(self.slot_bits);
                // Kept only if the count moves on: no branch that depends on the entry.
                for (half, value) in self.halves(value, grown).into_iter().enumerate() {
                    dealt[half][counts[half] % MOST] = value;
                    counts[half] += usize::from(value != 0);
                }
            }
            for half in 0..=deeper as usize {
                let there = bucket << deeper | half as u64;
                let room = grown.count(there);
                let (all, fit) = (counts[half], counts[half].min(room as usize));
                left.extend(dealt[half][fit..all].iter().map(|value| (there, *value)));
                writer.skip_after((room - fit as u64) * width, |writer| {
                    for value in &dealt[half][..fit] {
                        writer.push(*value, width);
                        kept.count(grown, *value);
                    }
                });
                grown.entries += fit as u64;
            }
        }
        writer.end();
        grown.rate = kept.rate(grown);
        left.into_iter().all(|(bucket, value)| {
            let (other, there) = grown.moved(bucket, value);
            grown.place([bucket, other], [value, there], grown.weight(value))
        })
    }

    /// What an entry looks like in the grown table: in its bucket, or in the near and the far half of
    /// it. It is in both if it knows no bit to choose by.
    #[inline(always)]
    fn halves(&self, value: u64, grown: &Table<false>) -> [u64; 2] {
        let (mut field, mut kept) = (value & self.field_mask, self.kept(value));
        let above = value >> self.tag_shift << grown.tag_shift;
        let first = field >> self.geometry.stream_bits;
        let void = kept == 0;
        if grown.level > self.level {
            // A void field is the one that ends it: there is nothing to take.
            (field, kept) =
                if void { (field, 0) } else { (field << 1 & self.field_mask, kept - 1) };
        }
        let (mine, theirs) = (self.geometry.stream_bits, grown.geometry.stream_bits);
        let cut = if kept > theirs { self.cut(field, theirs) } else { field };
        let fitted = if theirs > mine { cut << (theirs - mine) } else { cut >> (mine - theirs) };
        let value = above | fitted;
        match (grown.level > self.level, void, first) {
            (false, ..) => [value, 0],
            (true, true, _) => [value, value],
            (true, false, 0) => [value, 0],
            (true, false, _) => [0, value],
        }
    }

    /// How many bits of a stream entries should keep from here on: as few as leave enough of the
    /// error rate for later growth.
    fn planned_stream_bits(&self, next: Geometry, limit: f64) -> u32 {
        let mut kept = KeptBits::default();
        for spot in 0..self.geometry.slots() {
            let value = self.get(spot);
            if value != 0 {
                kept.count(self, value);
            }
        }
        // Doubling the buckets takes a bit of each stream: one that had 6 has 5 to be cut.
        let deeper = next.buckets.ilog2() - self.level;
        let named = (self.geometry.tag_bits + self.level) as i32;
        let rate_with = |most: u32| {
            let weight =
                |bits: usize| 2f64.powi(1 - named - (bits as i32).min((most + deeper) as i32));
            kept.0.iter().enumerate().map(|(bits, count)| *count as f64 * weight(bits)).sum::<f64>()
        };
        stream_bits(next, |most| limit - rate_with(most))
    }
}

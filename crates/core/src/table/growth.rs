//! More buckets, or other slots: a table grows without its keys.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::geometry::stream_bits;
use super::overflow::Overflow;
use super::{Geometry, MAX_SLOT_BITS, MOST_BUCKETS, MOST_PAIR, MOST_STREAM_BITS, Table, low};
use crate::bits::Bits;
use crate::budget;
use crate::kind::Refusal;

/// The usual step, the smallest there is, and the largest.
pub const GROWTH: f64 = 1.125;
pub const MOST_GROWTH: f64 = 2.0;
/// Buckets that are moved before their memory is given back.
const PIECE: u64 = 1 << 14;
/// Entries whose other buckets are asked for before the first of them is placed.
const SETTLED_TOGETHER: usize = 32;
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

/// The buckets of a table in pieces.
fn pieces(buckets: u64) -> impl Iterator<Item = Range<u64>> {
    (0..buckets).step_by(PIECE as usize).map(move |start| start..buckets.min(start + PIECE))
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
    /// to collide do not fit. Nothing has changed if it is refused. Slots become wide
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
        let next = self.with_slots(next, limit)?;
        let Some(mut grown) = Table::<false>::made(next, Bits::zeroed_by_writer) else {
            return Err(Refusal::NoMemory(next.nbytes()));
        };
        let overflow = self.move_into(&mut grown);
        *self = Table { defer: self.defer, ..grown };
        self.settle(overflow);
        Ok(())
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

    /// Moves every entry into an empty table of a later size, and gives this one's memory back piece
    /// by piece: both tables together take little more than the larger one. Returns the entries
    /// that found their bucket full.
    pub(super) fn move_into(&mut self, grown: &mut Table<false>) -> Overflow {
        let same = Geometry { pair: self.geometry.pair, ..grown.geometry } == self.geometry;
        if same {
            self.move_buckets(grown);
            return Overflow::default();
        }
        self.deal_entries(grown)
    }

    /// The same entries in larger buckets: bits are copied, as many at a time as a word holds.
    fn move_buckets(&mut self, grown: &mut Table<false>) {
        (grown.entries, grown.rate) = (self.entries, self.rate);
        let width = u64::from(self.slot_bits);
        let together = u64::from(MAX_SLOT_BITS) / width;
        let mut writer = Writer::over(&grown.bits);
        let (mut bit, mut released) = (0, 0);
        for piece in pieces(self.geometry.buckets) {
            for bucket in piece {
                let mut slots = self.count(bucket);
                writer.skip_after((grown.count(bucket) - slots) * width, |writer| {
                    while slots > 0 {
                        let some = together.min(slots);
                        writer.push(self.read(bit) & low((some * width) as u32), some * width);
                        (bit, slots) = (bit + some * width, slots - some);
                    }
                });
            }
            released = self.bits.release(released..(bit / 8) as usize);
        }
        writer.end();
    }

    /// The entries one by one, each where it belongs in the grown table and as it looks there. Both
    /// halves of a bucket are neighbours, so the grown table is written from front to back.
    fn deal_entries(&mut self, grown: &mut Table<false>) -> Overflow {
        const MOST: usize = MOST_PAIR as usize / 2;
        let deeper = grown.level - self.level; // 0 or 1: a later size is never two levels up
        let width = u64::from(grown.slot_bits);
        let mut overflow = Overflow::default();
        let mut kept = KeptBits::default();
        let mut writer = Writer::over(&grown.bits);
        let (mut bit, mut released) = (0, 0);
        for piece in pieces(self.geometry.buckets) {
            for bucket in piece {
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
                    dealt[half][fit..all].iter().for_each(|value| overflow.push(there, *value));
                    // Empty slots too, which are 0: a loop of as many steps for every bucket.
                    for value in &dealt[half][..room as usize] {
                        writer.push(*value, width);
                        kept.count(grown, *value);
                    }
                    grown.entries += fit as u64;
                }
            }
            released = self.bits.release(released..(bit / 8) as usize);
        }
        writer.end();
        kept.0[0] -= grown.geometry.slots() - grown.entries; // empty slots keep none
        grown.rate = kept.rate(grown);
        overflow
    }

    /// Puts entries that found their bucket full into another one. Where that takes too long, since
    /// keys were chosen to collide or have many copies, buckets become larger. With 16 slots a pair
    /// there is room for all: no bucket was given more entries than the one they came from had.
    pub(super) fn settle(&mut self, mut overflow: Overflow) {
        let mut block = Vec::with_capacity(SETTLED_TOGETHER);
        while overflow.pop(&mut block, SETTLED_TOGETHER) {
            for (bucket, value) in &block {
                self.prefetch_bucket(self.moved(*bucket, *value).0);
            }
            for (bucket, value) in block.drain(..) {
                let (other, there) = self.moved(bucket, value);
                while !self.place([bucket, other], [value, there], self.weight(value)) {
                    if self.geometry.pair == MOST_PAIR {
                        self.clear_way([bucket, other]);
                    } else {
                        self.widen();
                    }
                }
            }
        }
    }

    /// Gives each pair of buckets one slot more, also if all filters then have more memory than they
    /// may: some entries have no slot yet, and the table they came from is gone.
    fn widen(&mut self) {
        let next = self.geometry.next();
        // A panic marks the filter as broken, so that it never answers a wrong no.
        let mut grown = Table::<false>::made(next, Bits::zeroed_beyond_budget)
            .expect("memory to end a growth that has begun");
        self.move_buckets(&mut grown);
        *self = Table { defer: self.defer, ..grown };
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

//! More buckets, or other slots: a table grows without its keys.

use super::geometry::{MOST_ENTRIES, stream_bits};
use super::{
    Geometry, LEAST_PAIR, MAX_LOAD, MAX_SLOT_BITS, MOST_BUCKETS, MOST_PAIR, MOST_STREAM_BITS,
    Table, low,
};
use crate::kind::Refusal;

/// The usual step, the smallest there is, and the largest.
pub const GROWTH: f64 = 1.125;
pub const MOST_GROWTH: f64 = 2.0;
/// Sizes tried before a table gives up growing: up to the next doubling, and no further.
const MOST_STEPS: u32 = 7;
/// From so many bytes on what touches all of a table may be deferred: growing takes some 5 ms.
pub const LARGE: u64 = 128 << 10;
/// Keys chosen to collide, which a table cannot hold however large it becomes.
#[cold]
pub fn colliding() -> Refusal {
    Refusal::Full("too many of its keys collide: use hasher=\"siphash\" with a secret seed".into())
}

impl Table<false> {
    /// Is it time to grow before the next entry?
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.entries as f64 >= MAX_LOAD * self.geometry.slots() as f64
    }

    /// Entries that it takes before it is time.
    pub fn room(&self) -> u64 {
        ((MAX_LOAD * self.geometry.slots() as f64) as u64).saturating_sub(self.entries)
    }

    /// Grows ahead, if there is no room for so many entries.
    pub fn grow_ahead(&mut self, entries: u64, growth: f64, limit: f64) -> Result<(), Refusal> {
        while self.room() < entries {
            self.grow(growth, limit)?;
        }
        Ok(())
    }

    /// Grows to at most `growth` times its size, and one size at least, or further if entries chosen
    /// to collide do not fit; nothing has changed if there is no memory for it. Slots become wide
    /// enough to keep the error rate within `limit`.
    #[cold]
    pub fn grow(&mut self, growth: f64, limit: f64) -> Result<(), Refusal> {
        if self.defers() {
            return Err(Refusal::Later);
        }
        let mut next = self.next_geometry(self.geometry, limit)?;
        let most = self.geometry.slots() as f64 * growth.min(MOST_GROWTH);
        while let Ok(larger) = self.next_geometry(next, limit)
            && larger.slots() as f64 <= most
        {
            next = larger;
        }
        for _ in 0..MOST_STEPS {
            let Some(mut grown) = Table::<false>::empty(next) else {
                return Err(Refusal::NoMemory(next.nbytes()));
            };
            if self.copy_into(&mut grown) {
                *self = Table { defer: self.defer, ..grown };
                return Ok(());
            }
            next = self.next_geometry(next, limit)?;
            if next.buckets > 2 * self.geometry.buckets {
                break;
            }
        }
        Err(colliding())
    }

    /// The size that comes after `from`, which is this table's or larger.
    pub fn next_geometry(&self, from: Geometry, limit: f64) -> Result<Geometry, Refusal> {
        let mut next = match from.pair {
            MOST_PAIR => Geometry { buckets: from.buckets * 2, pair: LEAST_PAIR, ..from },
            pair => Geometry { pair: pair + 1, ..from },
        };
        if next.buckets > MOST_BUCKETS {
            return Err(Refusal::Full("a table of 2^40 buckets grows no more".into()));
        }
        let new = (next.slots() - self.geometry.slots()) as f64 * self.fresh_weight();
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
        for bucket in 0..self.geometry.buckets {
            let (from, to) = (self.spots(bucket), grown.spots(bucket).start);
            let width = u64::from(self.slot_bits);
            let together = u64::from(MAX_SLOT_BITS) / width;
            let mut done = 0;
            while done < from.end - from.start {
                let slots = together.min(from.end - from.start - done);
                let mask = low((slots * width) as u32);
                let value = self.read((from.start + done) * width) & mask;
                grown.write((to + done) * width, mask, value);
                done += slots;
            }
        }
    }

    /// The entries one by one, each where it belongs in the grown table and as it looks there.
    fn deal_entries(&self, grown: &mut Table<false>) -> bool {
        // Entries that found their half full; with a tenth of the slots free they will find others.
        let mut left = Vec::new();
        for bucket in 0..self.geometry.buckets {
            let deeper = grown.level - self.level; // 0 or 1: a later size is never two levels up
            let halves = [bucket << deeper, bucket << deeper | u64::from(deeper)];
            let mut rooms = halves.map(|half| grown.spots(half));
            for spot in self.spots(bucket) {
                let value = self.get(spot);
                if value == 0 {
                    continue;
                }
                for (half, value) in self.halves(value, grown).into_iter().enumerate() {
                    if value == 0 {
                        continue;
                    }
                    match rooms[half].next() {
                        Some(free) => grown.enter(free, value),
                        None => left.push((halves[half], value)),
                    }
                }
            }
        }
        left.into_iter().all(|(bucket, value)| {
            let (other, there) = grown.moved(bucket, value);
            grown.place([bucket, other], [value, there])
        })
    }

    fn enter(&mut self, spot: u64, value: u64) {
        self.put(spot, value);
        self.entries += 1;
        self.rate += self.weight(value);
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

    /// What a new entry adds to the error rate.
    fn fresh_weight(&self) -> f64 {
        2f64.powi(1 - self.level as i32 - self.geometry.kept())
    }

    /// How many bits of a stream entries should keep from here on: as few as leave enough of the
    /// error rate for later growth.
    fn planned_stream_bits(&self, next: Geometry, limit: f64) -> u32 {
        let mut kept = [0u64; MOST_STREAM_BITS as usize + 1];
        for spot in 0..self.geometry.slots() {
            let value = self.get(spot);
            if value != 0 {
                kept[self.kept(value) as usize] += 1;
            }
        }
        // Doubling the buckets takes a bit of each stream: one that had 6 has 5 to be cut.
        let deeper = next.buckets.ilog2() - self.level;
        let named = (self.geometry.tag_bits + self.level) as i32;
        let rate_with = |most: u32| {
            let weight =
                |bits: usize| 2f64.powi(1 - named - (bits as i32).min((most + deeper) as i32));
            kept.iter().enumerate().map(|(bits, count)| *count as f64 * weight(bits)).sum::<f64>()
        };
        let to_come = (MOST_ENTRIES / self.entries.max(1) as f64).log2().max(3.0);
        stream_bits(next, to_come, |most| limit - rate_with(most))
    }
}

//! More buckets, or other slots: a table grows without its keys.

use super::{
    Geometry, LEAST_PAIR, MAX_LOAD, MAX_SLOT_BITS, MOST_BUCKETS, MOST_PAIR, MOST_STREAM_BITS,
    MOST_TAG_BITS, RING_PAIR, Table, low,
};
use crate::kind::Refusal;

/// The usual step, the smallest there is, and the largest.
pub const GROWTH: f64 = 1.125;
pub const MOST_GROWTH: f64 = 2.0;
/// New entries from one doubling of the buckets to the next, four a bucket, each found by two
/// streams: what a doubling adds to the error rate if entries kept no bits.
const RATE_PER_DOUBLING: f64 = 2.0 * MAX_LOAD * MOST_PAIR as f64 / 4.0;
/// Up to this many bytes wide slots cost little, and what they save of the error rate is there for
/// the doublings to come.
const SMALL: u64 = 1 << 18;
/// Sizes tried before a table gives up growing: up to the next doubling, and no further.
const MOST_STEPS: u32 = 7;
/// Shorter tags lead to too few buckets to fill a ring: with 7 bits 4 M slots were refused a key at
/// 91% load, with 8 at 94%, with 9 at 96%. In small ones it is chance: of 1,000 with 64 slots, the
/// first was full at 83%, with 256 at 92%, with 1,000 at 94.5%.
const LEAST_RING_TAG: u32 = 8;
const RING_LOAD: f64 = 0.93;
/// Tables are planned to grow up to here.
const MOST_ENTRIES: f64 = 1e12;

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

    /// Grows to at most `growth` times its size, and one size at least, or further if entries chosen
    /// to collide do not fit; nothing has changed if there is no memory for it. Slots become wide
    /// enough to keep the error rate within `limit`.
    pub fn grow(&mut self, growth: f64, limit: f64) -> Result<(), Refusal> {
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
                *self = grown;
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

/// The fewest bits of a stream for which a doubling takes no more than its share of what is `left`
/// of the error rate: a third, or what it would be if all doublings `to_come` took the same.
fn stream_bits(geometry: Geometry, to_come: f64, left: impl Fn(u32) -> f64) -> u32 {
    let enough = |bits: &u32| {
        let wide = Geometry { stream_bits: *bits, ..geometry };
        let small = wide.nbytes() < SMALL;
        let share = if small { 1.0 / 32.0 } else { 0.4f64.max(1.0 / to_come) };
        RATE_PER_DOUBLING * 2f64.powi(-wide.kept()) <= share * left(*bits)
    };
    let most = geometry.most_stream_bits();
    (1..=most).find(enough).unwrap_or(most)
}

impl Geometry {
    /// Bits of a hash that a new entry keeps in its slot.
    fn kept(&self) -> i32 {
        (self.tag_bits + self.stream_bits) as i32
    }

    /// A table that is to grow from `capacity` entries on, however far.
    pub fn growing(capacity: u64, error_rate: f64) -> Geometry {
        let start = Geometry::growable(capacity, error_rate, 0);
        let to_come = (MOST_ENTRIES / capacity as f64).log2().max(3.0);
        Geometry { stream_bits: stream_bits(start, to_come, |_| error_rate), ..start }
    }

    /// A table that is made for `capacity` entries and grows only if there are more.
    pub fn roomy(capacity: u64, error_rate: f64, mark_bits: u32) -> Geometry {
        let start = Geometry::growable(capacity, error_rate, mark_bits);
        let each = 2.0 * MAX_LOAD * start.slots() as f64 / start.buckets as f64;
        let fits = |bits: &u32| {
            let kept = Geometry { stream_bits: *bits, ..start }.kept();
            each * 2f64.powi(-kept) <= error_rate
        };
        let most = start.most_stream_bits();
        let stream_bits = (1..=most).find(fits).unwrap_or(most);
        Geometry { stream_bits, ..start }
    }

    /// Tags need a few bits to spread the entries of a bucket over others (with 5 instead of 6 the
    /// search gives up at up to 5% less load); the rest is better kept as stream, which growth uses.
    fn growable(capacity: u64, error_rate: f64, mark_bits: u32) -> Geometry {
        let tag_bits = ((1.0 / error_rate).log2().ceil() as u32).saturating_sub(2).clamp(6, 28);
        let slots = (capacity as f64 / MAX_LOAD).ceil() as u64;
        let pairs = slots.div_ceil(u64::from(MOST_PAIR)).next_power_of_two();
        let pair = slots.div_ceil(pairs).max(u64::from(LEAST_PAIR)) as u32;
        Geometry { buckets: 2 * pairs, pair, tag_bits, stream_bits: 1, mark_bits, ring: false }
    }

    /// A table of just this size: tags only, as short as the error rate allows.
    pub fn ring(capacity: u64, error_rate: f64) -> Geometry {
        let looks = f64::from(RING_PAIR) * MAX_LOAD;
        let fits = |bits: &u32| 1.0 - (1.0 - 1.0 / low(*bits) as f64).powf(looks) <= error_rate;
        let tag_bits = (LEAST_RING_TAG..=MOST_TAG_BITS).find(fits).unwrap_or(MOST_TAG_BITS);
        let load = if tag_bits == LEAST_RING_TAG { RING_LOAD } else { MAX_LOAD };
        let count = capacity as f64;
        let slots = (count / load).max((count + 1.25 * count.sqrt() + 4.0) / 0.97).ceil() as u64;
        let (buckets, pair) = (2 * slots.div_ceil(RING_PAIR.into()), RING_PAIR);
        Geometry { buckets, pair, tag_bits, stream_bits: 0, mark_bits: 0, ring: true }
    }
}

//! Entries: adding, removing, marking, and what each lets through.

use super::{Added, Places, RING_PAIR, Table, low};

impl<const RING: bool> Table<RING> {
    /// How many bits of its stream an entry keeps.
    #[inline(always)]
    pub(super) fn kept(&self, value: u64) -> u32 {
        // Hostile bytes may have no one to end the field; they count as if they had.
        let field = value & self.field_mask | 1 << self.geometry.stream_bits;
        self.geometry.stream_bits - field.trailing_zeros()
    }

    /// The share of all keys that an entry lets through: by either stream, 2^(1 - known bits).
    #[inline(always)]
    pub(super) fn weight(&self, value: u64) -> f64 {
        if RING {
            return self.fresh_weight;
        }
        let known = self.geometry.tag_bits + self.level + self.kept(value);
        f64::from_bits(u64::from(1024 - known) << 52) // the power of two, by its exponent's bits
    }

    /// Adds an entry for the key, with this mark; false if no slot for it was found, and then
    /// nothing has changed.
    #[inline(always)]
    pub fn insert(&mut self, h: u64, mark: u64) -> bool {
        let Places { buckets, entries } = self.places(h);
        let mark = mark << self.mark_shift();
        self.place(buckets, [entries[0] | mark, entries[1] | mark], self.fresh_weight)
    }

    /// Adds an entry for a key that is definitely new, where that takes no more than a look at its
    /// two buckets, a word each; false if it did not, and then nothing has changed.
    #[inline(always)]
    pub fn insert_new(&mut self, h: u64) -> bool {
        if !RING || self.slot_bits > 14 {
            return false;
        }
        let Places { buckets, entries } = self.places(h);
        self.add_word(buckets.map(|bucket| self.first_bit(bucket)), entries[0]) == Added::New
    }

    /// As `insert`, of a key that has no free slot in either bucket, and without a mark.
    #[inline(never)]
    pub fn insert_crowded(&mut self, h: u64) -> bool {
        let Places { buckets, entries } = self.places(h);
        let Some((which, spot)) = self.make_room(buckets) else { return false };
        self.put(spot, entries[which]);
        self.entries += 1;
        self.rate += self.fresh_weight;
        true
    }

    /// As `add_planned`, for a ring whose buckets are a word each, by their first bits.
    #[inline(always)]
    pub(super) fn add_word(&mut self, [a, b]: [u64; 2], tag: u64) -> Added {
        let lanes = *self.lanes(u64::from(RING_PAIR) / 2);
        let [left, right] = [self.read(a) & lanes.compared, self.read(b) & lanes.compared];
        let tags = lanes.ones.wrapping_mul(tag);
        if lanes.any_zero(left ^ tags) | lanes.any_zero(right ^ tags) {
            return Added::Found;
        }
        // The lowest empty slot of each; the emptier bucket is the one where it comes first.
        let empty = |word: u64| word.wrapping_sub(lanes.ones) & !word & lanes.tops;
        let [l, r] = [empty(left).trailing_zeros(), empty(right).trailing_zeros()];
        let (bit, top) = if r < l { (b, r) } else { (a, l) };
        if top == 64 {
            return Added::NoSlot;
        }
        let at = bit + u64::from(top + 1 - self.slot_bits);
        self.write(at, self.slot_mask, tag);
        self.entries += 1;
        self.rate += self.fresh_weight;
        Added::New
    }

    /// Puts an entry into one of two buckets, as it looks in either: into the emptier one, so that
    /// few searches are needed later. It adds so much to the error rate.
    #[inline(always)]
    pub(super) fn place(&mut self, buckets: [u64; 2], entries: [u64; 2], weight: f64) -> bool {
        let found = match (self.free(buckets[0]), self.free(buckets[1])) {
            (Some(a), Some(b)) => {
                let (taken, there) =
                    (a - self.spots(buckets[0]).start, self.spots(buckets[1]).start);
                Some(if b - there < taken { (1, b) } else { (0, a) })
            }
            (Some(a), None) => Some((0, a)),
            (None, Some(b)) => Some((1, b)),
            (None, None) => self.make_room(buckets),
        };
        let Some((which, spot)) = found else { return false };
        self.put(spot, entries[which]);
        self.entries += 1;
        self.rate += weight;
        true
    }

    /// Where the mark begins in a slot.
    pub fn mark_shift(&self) -> u32 {
        self.tag_shift + self.geometry.tag_bits
    }

    pub fn mark(&self, value: u64) -> u64 {
        value >> self.mark_shift()
    }

    pub fn set_mark(&mut self, spot: u64, mark: u64) {
        let value = self.get(spot) & low(self.mark_shift()) | mark << self.mark_shift();
        self.put(spot, value);
    }

    /// Takes out the entry of the key of which most is known. Whatever shorter entry also matches
    /// the key then stays, and covers whoever the longer one may have belonged to.
    pub fn remove(&mut self, h: u64) -> bool {
        let longest = self.matches(h).max_by_key(|(_, value)| self.kept(*value));
        if let Some((spot, _)) = longest {
            self.empty_slot(spot);
        }
        longest.is_some()
    }

    /// Empties every slot that `gone` says so of.
    pub fn sweep(&mut self, gone: impl Fn(u64) -> bool) {
        for spot in 0..self.geometry.slots() {
            let value = self.get(spot);
            if value != 0 && gone(value) {
                self.empty_slot(spot);
            }
        }
    }

    fn empty_slot(&mut self, spot: u64) {
        let weight = self.weight(self.get(spot));
        self.put(spot, 0);
        self.entries = self.entries.saturating_sub(1);
        self.rate = if self.entries == 0 { 0.0 } else { (self.rate - weight).max(0.0) };
    }

    /// Where no slot can be had though most are free, because somebody chose keys that collide: an
    /// entry of the same tag forgets the bits in which it differs from the key, and covers both. It
    /// takes the key's mark, which is the newer one.
    pub fn absorb(&mut self, h: u64, mark: u64) -> bool {
        let Places { buckets, entries } = self.places(h);
        let mut best = None;
        for (bucket, entry) in buckets.into_iter().zip(entries) {
            for spot in self.spots(bucket) {
                let value = self.get(spot);
                let differs = (value ^ entry) & low(self.mark_shift());
                if value & self.field_mask != 0 && differs >> self.tag_shift == 0 {
                    let equal = self.tag_shift - (64 - differs.leading_zeros());
                    best = best.max(Some((equal.min(self.kept(value)), spot, entry)));
                }
            }
        }
        let Some((common, spot, entry)) = best else { return false };
        let old = self.get(spot);
        let tag = old & low(self.mark_shift()) & !self.field_mask;
        let field = self.cut(entry & self.field_mask, common);
        let new = mark << self.mark_shift() | tag | field;
        self.rate += self.weight(new) - self.weight(old);
        self.put(spot, new);
        true
    }

    /// A field that keeps no more than so many bits.
    #[inline(always)]
    pub(super) fn cut(&self, field: u64, most: u32) -> u64 {
        let drop = self.geometry.stream_bits - most.min(self.geometry.stream_bits);
        (field | 1 << drop) & !low(drop)
    }
}

//! The filter that grows: a table of fingerprints that takes what it is given.

use crate::bits::Bits;
use crate::format::{FormatError, Header};
use crate::kind::{AnyKind, Fact, Keys, Kind, Refusal};
use crate::table::{Added, Adder, GROWTH, Geometry, MOST_GROWTH, Plan, Table, add_each, colliding};

pub struct Scalable {
    table: Table<false>,
    /// As it was made: hasher, first capacity, error rate.
    made: Header,
    /// Keys that were new when they were added.
    keys: u64,
    /// How much larger it becomes at a time.
    growth: f64,
}

pub fn open(header: &Header, body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    let table = Table::open(header, body)?;
    if table.geometry().mark_bits != 0 {
        return Err(FormatError::Corrupt(
            "a scalable filter's table grows and has no marks".into(),
        ));
    }
    let growth = f64::from_bits(header.extra[4]);
    if !(GROWTH..=MOST_GROWTH).contains(&growth) || header.extra[5] != 0 {
        let message = format!("growth is {growth}, must be {GROWTH} to {MOST_GROWTH}");
        return Err(FormatError::Corrupt(message));
    }
    Ok(Box::new(Scalable { table, made: *header, keys: header.extra[3], growth }))
}

/// Adds an entry to a table that may grow. One that is not even half full and still has no slot for
/// a key was given keys that collide on purpose: growing would not part them, however far.
pub(crate) fn insert(
    table: &mut Table<false>,
    h: u64,
    mark: u64,
    growth: f64,
    limit: f64,
) -> Result<(), Refusal> {
    if table.is_full() {
        table.grow(growth, limit)?;
    }
    while !table.insert(h, mark) {
        if table.load() < 0.5 {
            return if table.absorb(h, mark) { Ok(()) } else { Err(colliding()) };
        }
        table.grow(growth, limit)?;
    }
    Ok(())
}

impl Adder<false> for Scalable {
    #[inline(always)]
    fn table(&mut self) -> &mut Table<false> {
        &mut self.table
    }

    #[inline(always)]
    fn add_planned(&mut self, h: u64, plan: &Plan) -> Result<bool, Refusal> {
        if self.table.is_full() {
            return self.add(h);
        }
        match self.table.add_planned(plan) {
            Added::New => {}
            Added::NoSlot if self.table.insert_crowded(h) => {}
            Added::Found => return Ok(false),
            Added::NoSlot | Added::Unknown => return self.add(h),
        }
        self.keys = self.keys.saturating_add(1);
        Ok(true)
    }
}

impl Kind for Scalable {
    fn room(&self) -> u64 {
        self.table.room()
    }

    #[inline(always)]
    fn prefetch(&self, h: u64) {
        self.table.prefetch(h);
    }

    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        self.table.contains(h)
    }

    fn contains_each(&self, keys: Keys<'_>, answers: &mut [u8]) -> bool {
        self.table.contains_each(keys, answers);
        true
    }

    #[inline(always)]
    fn add(&mut self, h: u64) -> Result<bool, Refusal> {
        // A key that is found is covered by the entry that was found, however the table grows: an
        // entry only ever forgets bits.
        if self.table.contains(h) {
            return Ok(false);
        }
        insert(&mut self.table, h, 0, self.growth, self.made.error_rate)?;
        self.keys = self.keys.saturating_add(1); // a header may have said anything
        Ok(true)
    }

    fn add_each(
        &mut self,
        hashes: &[u64],
        answers: &mut [u8],
    ) -> Option<(usize, Result<(), Refusal>)> {
        Some(add_each(self, hashes, answers))
    }

    fn defer_growth(&mut self, defer: bool) {
        self.table.defer_growth(defer);
    }

    fn clear(&mut self) -> Result<(), Refusal> {
        let start = Geometry::growing(self.made.capacity, self.made.error_rate);
        self.table.restart(start)?;
        self.keys = 0;
        Ok(())
    }

    fn header(&self) -> Header {
        let mut header = self.made;
        self.table.describe(&mut header);
        header.extra[3] = self.keys;
        header
    }

    fn sections(&self) -> Vec<Bits> {
        vec![self.table.bits().clone()]
    }

    fn facts(&self) -> Vec<(&'static str, Fact)> {
        let rate = self.table.rate().min(1.0);
        vec![
            ("estimated_count", Fact::Int(self.keys)),
            ("estimated_error_rate", Fact::Float(rate)),
            ("fill_ratio", Fact::Float(self.table.load())),
            ("growth", Fact::Float(self.growth)),
            ("slot_bits", Fact::Int(self.table.geometry().slot_bits().into())),
        ]
    }
}

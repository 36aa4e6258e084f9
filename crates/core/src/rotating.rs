//! The filter that forgets: a table of fingerprints, each marked with the generation in which its
//! key was last added.
//!
//! There are `generations` whole ones and the current one. A key added in a generation is there until
//! as many more have passed after it: for the window at least, and for one generation more at most.
//! All share one table, so one look tells in which of them a key was seen, and a burst in one of them
//! takes the room that the others leave.

use crate::bits::Bits;
use crate::format::{FormatError, Header};
use crate::kind::{AnyKind, Fact, Kind, Refusal};
use crate::scalable::insert;
use crate::table::{GROWTH, Geometry, Table};

pub const MOST_GENERATIONS: u64 = 254;
/// Seconds; of a shorter one, generations pass faster than clocks go.
pub const LEAST_WINDOW: f64 = 1e-3;
/// Seconds before or after 1970, some 30,000 years. (A clock of milliseconds is past it, and noticed.)
pub const MOST_TIME: f64 = 1e12;

pub struct Rotating {
    table: Table<false>,
    made: Header,
    generations: u64,
    /// Seconds; 0 if it rotates by fill.
    window: f64,
    /// Unix time at which the current generation began.
    started: f64,
    /// The current generation's mark.
    current: u64,
    /// Keys added to, or seen again in, the current generation.
    filled: u64,
    /// Generations that have passed over a memory that must not be written, if it must not.
    lapsed: Option<u64>,
}

/// Bits of a mark: there is one for each whole generation and one for the current one.
pub fn mark_bits(generations: u64) -> u32 {
    (generations + 1).next_power_of_two().ilog2()
}

/// The table for so many keys in the window: the current generation comes on top.
pub fn geometry(capacity: u64, error_rate: f64, generations: u64) -> Geometry {
    let most = capacity.saturating_add(capacity.div_ceil(generations));
    Geometry::roomy(most, error_rate, mark_bits(generations))
}

pub fn open(header: &Header, body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    let corrupt = |message: String| Err(FormatError::Corrupt(message));
    let table = Table::open(header, body)?;
    let (window, started) = (f64::from_bits(header.extra[3]), f64::from_bits(header.extra[4]));
    let packed = header.extra[5];
    let (generations, current, filled) = (packed & 255, packed >> 8 & 255, packed >> 16);
    if generations == 0 || generations > MOST_GENERATIONS {
        return corrupt(format!("{generations} generations, must be 1 to {MOST_GENERATIONS}"));
    }
    let marks = table.geometry().mark_bits;
    if marks != mark_bits(generations) || current >> marks != 0 {
        return corrupt(format!("mark {current} of {marks} bits, for {generations} generations"));
    }
    let timed = window == 0.0 || (LEAST_WINDOW..=MOST_TIME).contains(&window);
    if !timed || !(-MOST_TIME..=MOST_TIME).contains(&started) {
        return corrupt(format!("a window of {window} seconds, begun at {started}"));
    }
    let made = *header;
    let lapsed = None;
    Ok(Box::new(Rotating { table, made, generations, window, started, current, filled, lapsed }))
}

impl Rotating {
    fn generation_seconds(&self) -> f64 {
        self.window / self.generations as f64
    }

    /// When the current generation began, where time began it.
    fn began(&self) -> f64 {
        self.after(self.lapsed.unwrap_or_default() as f64)
    }

    /// When so many generations will have passed. Rounded up: none may be shorter than its share of
    /// the window, or a key is forgotten early.
    fn after(&self, passed: f64) -> f64 {
        let seconds = passed * self.generation_seconds();
        let end = self.started + seconds;
        if end - self.started < seconds { end.next_up() } else { end }
    }

    /// How many generations ago an entry was last added.
    fn age(&self, value: u64) -> u64 {
        let marks = (1 << self.table.geometry().mark_bits) - 1;
        let age = self.current.wrapping_sub(self.table.mark(value)) & marks;
        age + self.lapsed.unwrap_or_default()
    }

    /// How many generations ago the key was last added, if that is not too long ago.
    fn last_seen(&self, h: u64) -> Option<u64> {
        let ages = self.table.matches(h).map(|(_, value)| self.age(value));
        ages.min().filter(|age| *age <= self.generations)
    }

    /// Begins a new generation and forgets the oldest.
    fn rotate(&mut self) {
        let marks = (1 << self.table.geometry().mark_bits) - 1;
        self.current = (self.current + 1) & marks;
        self.filled = 0;
        let (shift, next, most) = (self.table.mark_shift(), self.current, self.generations);
        // What has the new mark already is as old as marks go; others may be older than allowed.
        self.table.sweep(|value| {
            let age = next.wrapping_sub(value >> shift) & marks;
            age == 0 || age > most
        });
    }

    /// Entries that are not too old: all, unless time has passed over a memory that is not written.
    fn live(&self) -> u64 {
        if self.lapsed.unwrap_or_default() == 0 {
            return self.table.entries();
        }
        let slots = (0..self.table.geometry().slots()).map(|spot| self.table.get(spot));
        slots.filter(|value| *value != 0 && self.age(*value) <= self.generations).count() as u64
    }

    /// Keys that fill a generation, where that is what rotates it.
    fn keys_each(&self) -> u64 {
        self.made.capacity.div_ceil(self.generations)
    }
}

impl Kind for Rotating {
    fn room(&self) -> u64 {
        self.table.room()
    }

    #[inline(always)]
    fn prefetch(&self, h: u64) {
        self.table.prefetch(h);
    }

    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        match self.lapsed {
            None => self.table.contains(h),
            Some(_) => self.last_seen(h).is_some(),
        }
    }

    fn add(&mut self, h: u64) -> Result<bool, Refusal> {
        let newest = self.table.matches(h).min_by_key(|(_, value)| self.age(*value));
        let rotates = self.window == 0.0 && self.filled + 1 >= self.keys_each();
        match newest {
            Some((_, value)) if self.table.mark(value) == self.current => return Ok(false),
            _ if rotates && self.table.defers() => return Err(Refusal::Later),
            Some((spot, _)) => self.table.set_mark(spot, self.current),
            None => insert(&mut self.table, h, self.current, GROWTH, self.made.error_rate)?,
        }
        self.filled += 1;
        if rotates {
            self.rotate();
        }
        Ok(newest.is_none())
    }

    fn defer_growth(&mut self, defer: bool) {
        self.table.defer_growth(defer);
    }

    fn clear(&mut self) -> Result<(), Refusal> {
        let start = geometry(self.made.capacity, self.made.error_rate, self.generations);
        self.table.restart(start)?;
        self.filled = 0;
        Ok(())
    }

    /// When the current generation ends.
    fn due(&self) -> f64 {
        if self.window == 0.0 {
            return f64::INFINITY;
        }
        self.after(self.lapsed.unwrap_or_default() as f64 + 1.0)
    }

    /// What is mapped forgets as well: entries stay where they are, and too old ones do not count.
    fn freeze(&mut self) -> bool {
        self.lapsed = Some(0);
        true
    }

    /// Rotates once for every generation that has passed; a clock that goes back waits.
    fn tick(&mut self, now: f64) -> Result<(), Refusal> {
        let mut passed = ((now - self.started) / self.generation_seconds()).floor();
        if self.after(passed) > now {
            passed -= 1.0;
        }
        if self.window == 0.0 || passed < 1.0 || passed.is_nan() {
            return Ok(());
        }
        if self.lapsed.is_some() {
            self.lapsed = Some(passed as u64);
            return Ok(());
        }
        let began = self.after(passed);
        if passed > self.generations as f64 {
            self.table.clear(); // all of it is older than the window and a generation
            self.filled = 0;
        } else {
            (0..passed as u64).for_each(|_| self.rotate());
        }
        self.started = began;
        Ok(())
    }

    fn header(&self) -> Header {
        let mut header = self.made;
        self.table.describe(&mut header);
        header.extra[3] = self.window.to_bits();
        header.extra[4] = self.started.to_bits();
        header.extra[5] = self.generations | self.current << 8 | self.filled << 16;
        header
    }

    fn sections(&self) -> Vec<Bits> {
        vec![self.table.bits().clone()]
    }

    fn facts(&self) -> Vec<(&'static str, Fact)> {
        let live = self.live();
        let share = live as f64 / self.table.entries().max(1) as f64;
        vec![
            ("estimated_count", Fact::Int(live)),
            ("estimated_error_rate", Fact::Float((share * self.table.rate()).min(1.0))),
            ("fill_ratio", Fact::Float(share * self.table.load())),
            ("generations", Fact::Int(self.generations)),
            ("window", Fact::Float(self.window)),
            ("generation_started", Fact::Float(self.began())),
            ("generation_count", Fact::Int(self.filled)),
            ("slot_bits", Fact::Int(self.table.geometry().slot_bits().into())),
        ]
    }

    /// `generation`: how many generations ago the key was last added.
    fn ask(&self, what: &str, h: u64) -> Option<Fact> {
        if what == "generation" { self.last_seen(h).map(Fact::Int) } else { None }
    }

    /// `rotate`: a new generation begins now (at the time given, where time rotates it).
    fn act(&mut self, what: &str, value: f64) -> Result<Option<Fact>, Refusal> {
        if what != "rotate" {
            return Ok(None);
        }
        self.rotate();
        if self.window != 0.0 && value.is_finite() {
            self.started = value;
        }
        Ok(Some(Fact::Int(self.table.entries())))
    }
}

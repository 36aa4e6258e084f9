//! What every kind of filter but the plain one is to the rest of the program: hashes in, answers
//! out. Each kind is one module with an `open`, which makes an empty filter or takes a saved one.
//!
//! Writers have the filter to themselves (`&mut`): unlike the plain filter's bits, fingerprints
//! move and counters go down, so a reader must not look on. The Python side keeps them apart.

use crate::bits::{Bits, LINE_BYTES};
use crate::format::{FormatError, Header, KindId};
pub use crate::loops::{AnyKind, Ints, Keys};
use crate::scan::{Figures, Scan};
use crate::{counting, cuckoo, deletable, exact, fuse, rotating, scalable};

/// Why a filter did not do what it was asked to; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No room, and it is not to grow.
    Full(String),
    /// This key is in it as often as a key can be; there may be room for others.
    Copies(String),
    /// Growing needs this many bytes, which could not be had.
    NoMemory(u64),
    /// This kind cannot do that, ever; the message says what can.
    Never(&'static str),
    /// It takes long: go on, from where this stopped, where nobody waits for it
    /// (`Kind::defer_growth`). Never told to the user.
    Later,
}

/// What became of a key that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It was definitely not there.
    Absent,
    /// One copy was taken out.
    Removed,
    /// It may be there and cannot be taken out (a collision, a saturated counter).
    Kept,
}

/// How two filters become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    Union,
    Intersection,
}

/// A figure for `info()`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fact {
    Int(u64),
    Float(f64),
    Bool(bool),
}

pub trait Kind: Send + Sync + 'static {
    /// Asks for the memory that this key will touch first.
    fn prefetch(&self, h: u64);

    fn contains(&self, h: u64) -> bool;

    /// Answers for all keys, if the kind has a faster way than one after the other; false if not.
    fn contains_each(&self, _keys: Keys<'_>, _answers: &mut [u8]) -> bool {
        false
    }

    /// Adds the key; true if it is definitely new.
    fn add(&mut self, h: u64) -> Result<bool, Refusal>;

    /// As `contains` and `add`, for loops that are compiled for AVX2: a kind that asks the processor
    /// for each key, and calls what it has for it, need not do so here.
    ///
    /// # Safety
    /// The processor has all that `has_avx2` asks for.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn contains_wide(&self, h: u64) -> bool {
        self.contains(h)
    }

    /// # Safety
    /// As for `contains_wide`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn add_wide(&mut self, h: u64) -> Result<bool, Refusal> {
        self.add(h)
    }

    /// Does it work on whole lines, so that its loops are worth compiling for AVX-512?
    #[cfg(target_arch = "x86_64")]
    fn is_wide() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Adds keys in order, if the kind has a faster way than one after the other: how many it took,
    /// and why no more. Of those there is an answer.
    fn add_each(
        &mut self,
        _hashes: &[u64],
        _answers: &mut [u8],
    ) -> Option<(usize, Result<(), Refusal>)> {
        None
    }

    /// Keys that it takes before its memory has to grow, which goes through all of it.
    fn room(&self) -> u64 {
        u64::MAX
    }

    fn remove(&mut self, _h: u64) -> Result<Removal, Refusal> {
        Err(Refusal::Never("this kind of filter cannot remove keys"))
    }

    /// How often the key was added, at most.
    fn count(&self, h: u64) -> u64 {
        u64::from(self.contains(h))
    }

    fn clear(&mut self) -> Result<(), Refusal>;

    /// The header as it would be saved now, but for its checksum.
    fn header(&self) -> Header;

    /// The memory in the order in which it is saved; `header().nbytes` in all.
    fn sections(&self) -> Vec<Bits>;

    /// What `info()` tells beside the header's figures. Every kind gives `estimated_count`,
    /// `estimated_error_rate` and `fill_ratio`.
    fn facts(&self) -> Vec<(&'static str, Fact)>;

    /// How full it is, as far as a look at a part tells; kinds that keep count need none.
    fn figures(&self, _scan: Scan) -> Figures {
        Figures::of(&self.facts())
    }

    /// Unix time at which `tick` is next wanted.
    fn due(&self) -> f64 {
        f64::INFINITY
    }

    /// Tells the filter that its memory must never be written (it is mapped). True if time can pass
    /// all the same: `tick` then forgets without writing.
    fn freeze(&mut self) -> bool {
        false
    }

    /// Lets time pass (rotation).
    fn tick(&mut self, _now: f64) -> Result<(), Refusal> {
        Ok(())
    }

    /// While true, a large table that has to grow says `Refusal::Later` instead.
    fn defer_growth(&mut self, _defer: bool) {}

    /// What only this kind can tell of a key, by name (removable, …); `None` if it has no such thing.
    fn ask(&self, _what: &str, _h: u64) -> Option<Fact> {
        None
    }

    /// The numbers of the key's cells, in the order in which they are drawn.
    fn positions(&self, _h: u64) -> Vec<u64> {
        Vec::new()
    }

    /// What only this kind can do, by name (rotate, …); `None` if it has no such thing.
    fn act(&mut self, _what: &str, _value: f64) -> Result<Option<Fact>, Refusal> {
        Ok(None)
    }

    /// Takes in another filter, which the caller has found to be of the same kind, hasher and seed;
    /// its sizes are still to be checked.
    fn merge(&mut self, _other: &dyn Kind, _how: Merge) -> Result<(), Refusal> {
        Err(Refusal::Never("filters of this kind cannot be merged: add the keys to one of them"))
    }
}

/// An empty filter as the header describes it (`body` is `None`), or a saved one. The body may be
/// memory that must not be written, and that another process changes.
pub fn open(header: &Header, body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    let found = body.as_ref().map_or(header.nbytes, |body| body.nbytes() as u64);
    if found != header.nbytes || !found.is_multiple_of(LINE_BYTES as u64) {
        let message = format!("{found} bytes, expected {} in whole lines", header.nbytes);
        return Err(FormatError::Corrupt(message));
    }
    match header.kind {
        KindId::Bloom
        | KindId::Bank
        | KindId::RedisBloom
        | KindId::RedisCuckoo
        | KindId::Signatures => {
            let message = format!("a {} filter has its own class", header.kind.name());
            Err(FormatError::Corrupt(message))
        }
        KindId::Scalable => scalable::open(header, body),
        KindId::Counting => counting::open(header, body),
        KindId::Deletable => deletable::open(header, body),
        KindId::Cuckoo => cuckoo::open(header, body),
        KindId::Rotating => rotating::open(header, body),
        KindId::Static => fuse::open(header, body),
        KindId::Exact => exact::open(header, body),
    }
}

//! What every kind of filter but the plain one is to the rest of the program: hashes in, answers
//! out. Each kind is one module with an `open`, which makes an empty filter or takes a saved one.
//!
//! Writers have the filter to themselves (`&mut`): unlike the plain filter's bits, fingerprints
//! move and counters go down, so a reader must not look on. The Python side keeps them apart.

use crate::batch::{BLOCK, Fill};
use crate::bits::Bits;
use crate::format::{FormatError, Header, KindId};

/// Why a filter did not do what it was asked to; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No room, and it is not to grow.
    Full(String),
    /// Growing needs this many bytes, which could not be had.
    NoMemory(u64),
    /// This kind cannot do that, ever; the message says what can.
    Never(&'static str),
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

    /// Adds the key; true if it is definitely new.
    fn add(&mut self, h: u64) -> Result<bool, Refusal>;

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

    /// What `info()` tells beside the header's figures. Every kind gives `estimated_count` and
    /// `estimated_error_rate`.
    fn facts(&self) -> Vec<(&'static str, Fact)>;

    /// Unix time at which `tick` is next wanted.
    fn due(&self) -> f64 {
        f64::INFINITY
    }

    /// Lets time pass (rotation).
    fn tick(&mut self, _now: f64) -> Result<(), Refusal> {
        Ok(())
    }

    /// What only this kind can do, by name (rotate, removable, …); `None` if it has no such thing.
    fn ask(&self, _what: &str, _h: u64) -> Option<Fact> {
        None
    }
}

/// Int64 keys that lie side by side, hashed in the loop that probes.
#[derive(Clone, Copy)]
pub struct Ints {
    pub start: *const i64,
    pub flip: u64,
}

/// `Kind` with its loops compiled in: what a `dyn` can be asked for a whole batch.
pub trait AnyKind: Kind {
    fn contains_all(&self, fill: &mut Fill<'_, Refusal>, out: &mut dyn FnMut(&[u8]));
    fn add_all(
        &mut self,
        fill: &mut Fill<'_, Refusal>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal>;
}

/// How many keys ahead to prefetch: untuned, as for the plain filter's ring.
const AHEAD: usize = 48;

impl<K: Kind> AnyKind for K {
    fn contains_all(&self, fill: &mut Fill<'_, Refusal>, out: &mut dyn FnMut(&[u8])) {
        let _ = ring(&mut &*self, fill, out, |k, h| k.prefetch(h), |k, h| Ok(k.contains(h)));
    }

    fn add_all(
        &mut self,
        fill: &mut Fill<'_, Refusal>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        ring(&mut &mut *self, fill, out, |k, h| k.prefetch(h), |k, h| k.add(h))
    }
}

/// As in batch.rs: two blocks of hashes, one probed while the next is asked for. After a refusal
/// the answers so far are handed out.
#[inline(always)]
fn ring<T>(
    target: &mut T,
    fill: &mut Fill<'_, Refusal>,
    out: &mut dyn FnMut(&[u8]),
    prefetch: impl Fn(&T, u64),
    mut one: impl FnMut(&mut T, u64) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let mut ring = [[0u64; BLOCK]; 2];
    let mut answers = [0u8; BLOCK];
    let mut have = fill(&mut ring[0])?;
    ring[0][..AHEAD].iter().for_each(|h| prefetch(target, *h));
    while have > 0 {
        let next = if have == BLOCK { fill(&mut ring[1]) } else { Ok(0) };
        let flat = ring.as_flattened();
        for i in 0..have {
            prefetch(target, flat[i + AHEAD]);
            match one(target, flat[i]) {
                Ok(answer) => answers[i] = u8::from(answer),
                Err(refusal) => {
                    out(&answers[..i]);
                    return Err(refusal);
                }
            }
        }
        out(&answers[..have]);
        have = next?;
        ring.swap(0, 1);
    }
    Ok(())
}

/// An empty filter as the header describes it (`body` is `None`), or a saved one.
pub fn open(header: &Header, _body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    match header.kind {
        KindId::Bloom | KindId::Bank => {
            let message = format!("a {} filter has its own class", header.kind.name());
            Err(FormatError::Corrupt(message))
        }
        other => Err(FormatError::Newer(format!("filter kind {}", other.name()))),
    }
}

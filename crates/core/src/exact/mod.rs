//! The exact set: right about every key that it was built with, on either side, in little more than
//! the bits that telling them apart takes.
//!
//! Two levels. The first is a static filter of one side, the *held* one: it finds all of these keys
//! and, by chance, a few of the other side. The second has the held keys and those few: three cells
//! of one bit each come to 0 for the first and to 1 for the second. So an answer costs a look at the
//! first level and, for a key that it finds, one at the second, whose bit is the answer. A key of
//! neither side is answered by chance, as if it were held, 1 in 2^(width + 1) times.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use crate::bits::Bits;
use crate::format::{FormatError, Header, KindId};
use crate::fuse::build::build_values;
pub use crate::fuse::packed::MAX_WIDTH;
use crate::fuse::packed::{Packed, nbytes};
use crate::fuse::positions::{Positions, REACH_BITS};
use crate::hash::KeyHasher;
use crate::kind::{AnyKind, Fact, Keys, Kind, Merge, Refusal, Removal};
use crate::probe::prefetch;

const FIXED: Refusal =
    Refusal::Never("an exact set cannot be changed: build a new one from all keys");

/// The second level mixes hashes anew: what the first says by chance says nothing about the second.
const SECOND_SEED: u64 = 1 << 32;

/// How a set is to be built.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Bits of a fingerprint of the first level; 0: no first level.
    pub width: u32,
    /// The first level holds the non-members.
    pub inverted: bool,
    /// As the header is to have it.
    pub error_rate: f64,
}

pub struct ExactSet {
    first: Option<Packed>,
    second: Packed,
    /// Distinct ones.
    members: u64,
    non_members: u64,
    inverted: bool,
    error_rate: f64,
    hasher: KeyHasher,
}

/// The bytes of a level of so many distinct keys, if the first attempt succeeds.
pub fn level_nbytes(count: u64, width: u32) -> u64 {
    nbytes(Positions::plan(count, 0).cells() * u64::from(width))
}

/// How many hashes two lists have in common, and the first such; each list is in order, and has a
/// hash once.
pub fn common(a: &[u64], b: &[u64]) -> (usize, Option<u64>) {
    let (mut i, mut j, mut count, mut first) = (0, 0, 0, None);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            Ordering::Less => i += 1,
            Ordering::Greater => j += 1,
            Ordering::Equal => {
                first = first.or(Some(a[i]));
                (count, i, j) = (count + 1, i + 1, j + 1);
            }
        }
    }
    (count, first)
}

/// The set, as its header and its memory. Each list is in order and has a hash once, and no hash is
/// in both. The bytes depend on which hashes there are alone.
pub fn build(
    members: Vec<u64>,
    non_members: Vec<u64>,
    choice: Choice,
    hasher: KeyHasher,
) -> Result<(Header, Bits), Refusal> {
    let Choice { width, inverted, error_rate } = choice;
    let (counts, held, others) = match inverted {
        false => ((members.len(), non_members.len()), members, non_members),
        true => ((members.len(), non_members.len()), non_members, members),
    };
    let first = match width {
        0 => None,
        _ => Some(build_values(held.clone(), width, 0, |_| 0)?.0),
    };
    let found = |h: &u64| first.as_ref().is_none_or(|first| first.contains(*h));
    // Of no held keys nothing is asked.
    let mut both: Vec<u64> = match held.is_empty() {
        true => Vec::new(),
        false => others.into_iter().filter(found).chain(held.iter().copied()).collect(),
    };
    both.sort_unstable();
    let value = |h: u64| u64::from(held.binary_search(&h).is_err());
    let (second, _) = build_values(both, 1, SECOND_SEED, value)?;
    let set = ExactSet {
        first,
        second,
        members: counts.0 as u64,
        non_members: counts.1 as u64,
        inverted,
        error_rate,
        hasher,
    };
    let header = set.header();
    let body = Bits::zeroed(header.nbytes as usize).ok_or(Refusal::NoMemory(header.nbytes))?;
    let mut offset = 0;
    for section in set.sections() {
        body.part(offset, section.nbytes())
            .ok_or(Refusal::NoMemory(header.nbytes))?
            .or_with(&section);
        offset += section.nbytes();
    }
    Ok((header, body))
}

/// What the header says of a level: its cells and how a key finds them.
fn positions(name: &str, cells: u64, exponent: u64, seed: u64) -> Result<Positions, FormatError> {
    let corrupt = |message: String| Err(FormatError::Corrupt(message));
    if exponent > u64::from(REACH_BITS) {
        return corrupt(format!(
            "the {name} level's reach is 2^{exponent}, at most 2^{REACH_BITS}"
        ));
    }
    let reach = 1 << exponent;
    match cells.checked_sub(3 * reach).filter(|starts| *starts > 0) {
        Some(starts) => Ok(Positions { starts, reach, seed }),
        None => corrupt(format!(
            "the {name} level has {cells} cells, must be more than 3 times its reach of {reach}"
        )),
    }
}

pub fn open(header: &Header, body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    let corrupt = |message: String| Err(FormatError::Corrupt(message));
    let [members, non_members, shape, seed, second_seed, cells] = header.extra;
    if (header.lines_per_key, header.num_hashes) != (0, 3) || header.layout > 1 {
        return corrupt("an exact set has layout 0 or 1, 0 lines and 3 hashes a key".into());
    }
    let [width, exponent, second_exponent, _key_type, rest @ ..] = shape.to_le_bytes();
    if u32::from(width) > MAX_WIDTH || rest != [0; 4] {
        return corrupt(format!(
            "levels of shape {shape:#x}, fingerprints have 0 to {MAX_WIDTH} bits"
        ));
    }
    let first_bits = cells.checked_mul(u64::from(width)).filter(|bits| *bits <= header.num_bits);
    let Some(first_bits) = first_bits else {
        return corrupt(format!("{cells} cells of {width} bits in {} bits", header.num_bits));
    };
    let (inverted, second_cells) = (header.layout == 1, header.num_bits - first_bits);
    let held = if inverted { non_members } else { members };
    let first = match width {
        0 if (exponent, seed, cells) != (0, 0, 0) => {
            return corrupt(
                "a first level without fingerprints has cells, a reach or a seed".into(),
            );
        }
        0 => None,
        _ => Some(positions("first", cells, exponent.into(), seed)?),
    };
    let second = positions("second", second_cells, second_exponent.into(), second_seed)?;
    if held > second_cells || first.is_some() && held > cells {
        return corrupt(format!("{held} keys in {cells} and {second_cells} cells"));
    }
    if header.capacity != members.max(1) {
        return corrupt(format!("{members} members and a capacity of {}", header.capacity));
    }
    let (first_bytes, second_bytes) =
        (first.map_or(0, |_| nbytes(first_bits)), nbytes(second_cells));
    if first_bytes + second_bytes != header.nbytes {
        let (bits, bytes) = (header.num_bits, header.nbytes);
        return corrupt(format!("{bits} bits of two levels in {bytes} bytes"));
    }
    let body = match body {
        Some(body) => body,
        None if held > 0 => return corrupt(format!("{held} keys, but no cells")),
        None => Bits::zeroed(header.nbytes as usize).ok_or(FormatError::NoMemory(header.nbytes))?,
    };
    let level = |offset: u64, bytes: u64, bits: u64, positions: Positions, width: u32| match body
        .part(offset as usize, bytes as usize)
    {
        Some(part) if part.padding_is_clear(bits) => Ok(Packed { bits: part, positions, width }),
        _ => Err(FormatError::Corrupt("bits are set after the last cell of a level".into())),
    };
    Ok(Box::new(ExactSet {
        first: first
            .map(|positions| level(0, first_bytes, first_bits, positions, width.into()))
            .transpose()?,
        second: level(first_bytes, second_bytes, second_cells, second, 1)?,
        members,
        non_members,
        inverted,
        error_rate: header.error_rate,
        hasher: header.hasher,
    }))
}

impl ExactSet {
    fn held(&self) -> u64 {
        if self.inverted { self.non_members } else { self.members }
    }

    /// The share of keys of neither side that are answered with a yes.
    fn unknown_yes(&self) -> f64 {
        let width = self.first.as_ref().map_or(0, |first| first.width);
        let found = if self.held() == 0 { 0.0 } else { 0.5f64.powi(width as i32 + 1) };
        if self.inverted { 1.0 - found } else { found }
    }
}

impl Kind for ExactSet {
    #[inline(always)]
    fn prefetch(&self, h: u64) {
        self.first.as_ref().unwrap_or(&self.second).addresses(h).into_iter().for_each(prefetch);
    }

    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        let found = self.held() > 0
            && self.first.as_ref().is_none_or(|first| first.contains(h))
            && self.second.contains(h);
        found != self.inverted
    }

    fn contains_each(&self, keys: Keys<'_>, answers: &mut [u8]) -> bool {
        let invert = u8::from(self.inverted);
        if self.held() == 0 {
            answers.fill(invert);
            return true;
        }
        let Some(first) = &self.first else {
            self.second.contains_each(keys, answers);
            answers.iter_mut().for_each(|answer| *answer ^= invert);
            return true;
        };
        let settle = |answer: &mut u8, h: &dyn Fn() -> u64| {
            *answer = u8::from(*answer == 1 && self.second.contains(h())) ^ invert;
        };
        match keys {
            Keys::Hashes(hashes) => {
                first.contains_each(Keys::Hashes(hashes), answers);
                answers.iter_mut().zip(hashes).for_each(|(answer, h)| settle(answer, &|| *h));
            }
            Keys::Ints(ints) => {
                first.contains_each(Keys::Ints(ints), answers);
                let rows = answers.iter_mut().zip(ints.keys);
                rows.for_each(|(answer, key)| settle(answer, &|| ints.hash(key)));
            }
        }
        true
    }

    fn add(&mut self, _h: u64) -> Result<bool, Refusal> {
        Err(FIXED)
    }

    fn remove(&mut self, _h: u64) -> Result<Removal, Refusal> {
        Err(FIXED)
    }

    fn clear(&mut self) -> Result<(), Refusal> {
        Err(FIXED)
    }

    fn merge(&mut self, _other: &dyn Kind, _how: Merge) -> Result<(), Refusal> {
        Err(Refusal::Never("exact sets cannot be merged: build one from the keys of both"))
    }

    fn header(&self) -> Header {
        let exponent = |packed: &Packed| u64::from(packed.positions.reach.trailing_zeros());
        let second = self.second.positions;
        let (mut shape, mut seed, mut cells) = (exponent(&self.second) << 16, 0, 0);
        let mut num_bits = second.cells();
        if let Some(first) = &self.first {
            shape |= u64::from(first.width) | exponent(first) << 8;
            (seed, cells) = (first.positions.seed, first.positions.cells());
            num_bits += cells * u64::from(first.width);
        }
        Header {
            kind: KindId::Exact,
            layout: u8::from(self.inverted),
            lines_per_key: 0,
            num_hashes: 3,
            num_bits,
            hasher: self.hasher,
            capacity: self.members.max(1),
            error_rate: self.error_rate,
            nbytes: self.sections().iter().map(|section| section.nbytes() as u64).sum(),
            extra: [self.members, self.non_members, shape, seed, second.seed, cells],
            checksum: 0,
        }
    }

    fn sections(&self) -> Vec<Bits> {
        let levels = self.first.iter().chain([&self.second]);
        levels.map(|level| level.bits.clone()).collect()
    }

    fn facts(&self) -> Vec<(&'static str, Fact)> {
        let width = self.first.as_ref().map_or(0, |first| first.width);
        let cells = self.first.as_ref().unwrap_or(&self.second).positions.cells();
        vec![
            ("estimated_count", Fact::Int(self.members)),
            ("estimated_error_rate", Fact::Float(self.unknown_yes())),
            ("fill_ratio", Fact::Float(self.held() as f64 / cells as f64)),
            ("non_members", Fact::Int(self.non_members)),
            ("fingerprint_bits", Fact::Int(width.into())),
            ("holds_non_members", Fact::Bool(self.inverted)),
        ]
    }
}

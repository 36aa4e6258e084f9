//! The static filter, a binary fuse filter: built once from all keys, and the smallest. A key's three
//! cells, combined, must come to its fingerprint; an absent key's do so by chance.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub(crate) mod build;
pub(crate) mod packed;
pub(crate) mod positions;
#[cfg(test)]
mod tests;

use self::packed::{MAX_WIDTH, Packed};
use self::positions::{Positions, REACH_BITS};
use crate::bits::Bits;
use crate::format::{FormatError, Header, KindId};
use crate::hash::KeyHasher;
use crate::kind::{AnyKind, Fact, Keys, Kind, Merge, Refusal, Removal};
use crate::probe::prefetch;

const FIXED: Refusal =
    Refusal::Never("a static filter cannot be changed: build a new one from all keys");

pub struct StaticFilter {
    packed: Packed,
    /// Distinct keys.
    count: u64,
    error_rate: f64,
    hasher: KeyHasher,
}

/// Bits of a fingerprint, so that at most this share of absent keys has the same by chance.
fn width(error_rate: f64) -> u32 {
    let enough = |width: &u32| 0.5f64.powi(*width as i32) <= error_rate;
    (1..MAX_WIDTH).find(enough).unwrap_or(MAX_WIDTH)
}

/// The filter of all keys with these hashes; a hash that comes again is the same key. It takes
/// memory for about three times the hashes meanwhile.
pub fn build(
    hashes: Vec<u64>,
    error_rate: f64,
    hasher: KeyHasher,
) -> Result<StaticFilter, Refusal> {
    let (packed, count) = build::build(hashes, width(error_rate))?;
    Ok(StaticFilter { packed, count, error_rate, hasher })
}

pub fn open(header: &Header, body: Option<Bits>) -> Result<Box<dyn AnyKind>, FormatError> {
    let corrupt = |message: String| Err(FormatError::Corrupt(message));
    let [count, seed, width, reach, spare @ ..] = header.extra;
    if (header.layout, header.lines_per_key, header.num_hashes, spare) != (0, 0, 3, [0; 2]) {
        return corrupt("a static filter has layout 0, 0 lines and 3 hashes a key".into());
    }
    if !(1..=u64::from(MAX_WIDTH)).contains(&width) {
        return corrupt(format!("fingerprints of {width} bits, must be 1 to {MAX_WIDTH}"));
    }
    if !reach.is_power_of_two() || reach > 1 << REACH_BITS {
        return corrupt(format!("a reach of {reach}, must be a power of two to 2^{REACH_BITS}"));
    }
    let cells = header.num_bits / width;
    let Some(starts) = cells.checked_sub(3 * reach).filter(|starts| *starts > 0) else {
        return corrupt(format!("{cells} cells, must be more than 3 times the reach of {reach}"));
    };
    if cells * width != header.num_bits || packed::nbytes(header.num_bits) != header.nbytes {
        let (bits, bytes) = (header.num_bits, header.nbytes);
        return corrupt(format!("{bits} bits in {bytes} bytes are no cells of {width} bits"));
    }
    if count > cells || header.capacity != count.max(1) {
        let capacity = header.capacity;
        return corrupt(format!("{count} keys, a capacity of {capacity} and {cells} cells"));
    }
    let bits = match body {
        Some(bits) if bits.padding_is_clear(header.num_bits) => bits,
        Some(_) => return corrupt("bits are set after the last cell".into()),
        None if count > 0 => return corrupt(format!("{count} keys, but no cells")),
        None => Bits::zeroed(header.nbytes as usize).ok_or(FormatError::NoMemory(header.nbytes))?,
    };
    let packed = Packed { bits, positions: Positions { starts, reach, seed }, width: width as u32 };
    let (error_rate, hasher) = (header.error_rate, header.hasher);
    Ok(Box::new(StaticFilter { packed, count, error_rate, hasher }))
}

impl Kind for StaticFilter {
    #[inline(always)]
    fn prefetch(&self, h: u64) {
        self.packed.addresses(h).into_iter().for_each(prefetch);
    }

    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        self.count > 0 && self.packed.contains(h)
    }

    fn contains_each(&self, keys: Keys<'_>, answers: &mut [u8]) -> bool {
        match self.count {
            0 => answers.fill(0),
            _ => self.packed.contains_each(keys, answers),
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
        Err(Refusal::Never("static filters cannot be merged: build one from the keys of both"))
    }

    fn header(&self) -> Header {
        let Packed { bits, positions, width } = &self.packed;
        Header {
            kind: KindId::Static,
            layout: 0,
            lines_per_key: 0,
            num_hashes: 3,
            num_bits: positions.cells() * u64::from(*width),
            hasher: self.hasher,
            capacity: self.count.max(1),
            error_rate: self.error_rate,
            nbytes: bits.nbytes() as u64,
            extra: [self.count, positions.seed, u64::from(*width), positions.reach, 0, 0],
            checksum: 0,
        }
    }

    fn sections(&self) -> Vec<Bits> {
        vec![self.packed.bits.clone()]
    }

    fn facts(&self) -> Vec<(&'static str, Fact)> {
        let rate = if self.count == 0 { 0.0 } else { 0.5f64.powi(self.packed.width as i32) };
        vec![
            ("estimated_count", Fact::Int(self.count)),
            ("estimated_error_rate", Fact::Float(rate)),
            ("fill_ratio", Fact::Float(self.count as f64 / self.packed.positions.cells() as f64)),
            ("fingerprint_bits", Fact::Int(u64::from(self.packed.width))),
        ]
    }
}

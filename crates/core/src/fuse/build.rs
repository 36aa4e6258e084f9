//! Solving for the fingerprints. Every key gets a cell of its own among its three, in an order in
//! which no later key has its own among the three of an earlier one; filled from the last key to the
//! first, each cell makes its key come out right and no other wrong.

use super::packed::{Packed, nbytes};
use super::positions::Positions;
use crate::bits::Bits;
use crate::kind::Refusal;

/// Far more than keys can need whose hashes differ at random.
const ATTEMPTS: u64 = 64;

/// Cells looked at before their keys are followed: several keys side by side need not wait for one
/// another. At a million keys 512 took a fifth less time than 16, and 4096 hardly less than 512.
const LOOK: usize = 512;

/// A cell's number in little memory: 4 bytes where that is enough.
pub trait Number: Copy + Default {
    fn new(cell: usize) -> Self;
    fn cell(self) -> usize;
}

macro_rules! numbers {
    ($($int:ty),*) => {$(
        impl Number for $int {
            fn new(cell: usize) -> Self {
                cell as $int
            }

            fn cell(self) -> usize {
                self as usize
            }
        }
    )*};
}
numbers!(u32, u64);

/// Cells in which every hash is found, and how many distinct ones there are. The bytes depend on
/// which hashes there are, not on their order or how often each comes.
pub fn build(mut hashes: Vec<u64>, width: u32) -> Result<(Packed, u64), Refusal> {
    hashes.sort_unstable();
    hashes.dedup();
    build_values(hashes, width, 0, |_| 0)
}

/// As `build`, of hashes that are distinct and in order: the cells of each come to its fingerprint
/// and its value, added without carry, so that where a value is not 0 the hash is certainly not
/// found. The seeds of the attempts begin with `first_seed`.
pub fn build_values(
    mut hashes: Vec<u64>,
    width: u32,
    first_seed: u64,
    value: impl Fn(u64) -> u64,
) -> Result<(Packed, u64), Refusal> {
    let count = hashes.len() as u64;
    let mut before = Positions::plan(count, 0);
    for attempt in 0..ATTEMPTS {
        let seed = first_seed + attempt;
        let positions = Positions { seed, ..Positions::plan(count, attempt) };
        if seed > 0 {
            hashes.iter_mut().for_each(|h| *h = positions.mix(before.unmix(*h)));
            hashes.sort_unstable();
        }
        let solved = match u32::try_from(positions.cells()) {
            Ok(_) => solve::<u32>(&hashes, positions, width, &value)?,
            Err(_) => solve::<u64>(&hashes, positions, width, &value)?,
        };
        if let Some(packed) = solved {
            return Ok((packed, count));
        }
        before = positions;
    }
    Err(Refusal::Never("these keys cannot be told apart: build with another seed, or siphash"))
}

fn zeroes<T: Copy + Default>(len: usize) -> Result<Vec<T>, Refusal> {
    let mut made = Vec::new();
    let no_memory = |_| Refusal::NoMemory((len * size_of::<T>()) as u64);
    made.try_reserve_exact(len).map_err(no_memory)?;
    made.resize(len, T::default());
    Ok(made)
}

/// `hashes` are mixed and distinct; in order, so that memory is gone through in order. `value` has
/// what those that are not mixed come to. `None` if some keys block one another.
pub fn solve<N: Number>(
    hashes: &[u64],
    positions: Positions,
    width: u32,
    value: impl Fn(u64) -> u64,
) -> Result<Option<Packed>, Refusal> {
    let cells = positions.cells() as usize;
    let (mut sums, mut degrees) = (zeroes(cells)?, zeroes(cells)?);
    for h in hashes {
        for cell in positions.of(*h) {
            sums[cell] ^= h;
            degrees[cell] = u8::saturating_add(degrees[cell], 1);
        }
    }
    if degrees.contains(&u8::MAX) {
        return Ok(None); // more keys than it can count
    }
    let owned = peel::<N>(&positions, &mut sums, &mut degrees)?;
    if owned.len() != hashes.len() {
        return Ok(None);
    }
    drop(degrees);
    let bytes = nbytes(positions.cells() * u64::from(width));
    let bits = Bits::zeroed(bytes as usize).ok_or(Refusal::NoMemory(bytes))?;
    let packed = Packed { bits, positions, width };
    for own in owned.iter().rev().map(|number| number.cell()) {
        packed.settle(sums[own], own, value(positions.unmix(sums[own])));
    }
    Ok(Some(packed))
}

/// Takes keys away one by one, each when it is the only one left at some cell, which becomes its
/// own: that cell's sum is then, and stays, its hash. Returns the owned cells in that order. Follows
/// the keys that are freed before it looks at further cells, and so stays in one neighbourhood.
fn peel<N: Number>(
    positions: &Positions,
    sums: &mut [u64],
    degrees: &mut [u8],
) -> Result<Vec<N>, Refusal> {
    // Owned cells first, then those to be looked at: no cell comes twice, and one write is vain.
    let mut cells: Vec<N> = zeroes(degrees.len() + 1)?;
    let mut owned = 0;
    for start in (0..degrees.len()).step_by(LOOK) {
        let (mut next, mut end) = (owned, owned);
        for (i, degree) in degrees[start..].iter().take(LOOK).enumerate() {
            cells[end] = N::new(start + i);
            end += usize::from(*degree == 1);
        }
        while next < end {
            let own = cells[next].cell();
            next += 1;
            if degrees[own] != 1 {
                continue; // its key has got another
            }
            let h = sums[own];
            for cell in positions.of(h) {
                sums[cell] ^= h;
                degrees[cell] -= 1;
                cells[end] = N::new(cell);
                end += usize::from(degrees[cell] == 1);
            }
            sums[own] = h;
            cells[owned] = N::new(own);
            owned += 1;
        }
    }
    cells.truncate(owned);
    Ok(cells)
}

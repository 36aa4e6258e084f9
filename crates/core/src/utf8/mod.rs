//! Text as CPython holds it, with 1, 2 or 4 bytes for each character, to UTF-8.
//!
//! Most text that is not ASCII has some that is, which goes over a word at a time. Room is asked for
//! once, for all that there could be.

#[cfg(target_arch = "x86_64")]
mod avx512;

use std::mem::MaybeUninit;

use crate::hash::KeyHasher;
#[cfg(target_arch = "x86_64")]
use crate::probe::has_avx512;

/// A character may be written as 4 bytes though it takes fewer, and a word as 8.
const SPARE: usize = 8;

/// A code point of 1, 2 or 4 bytes.
pub trait Unit: Copy + Into<u32> {
    /// Bytes that it takes in UTF-8, at most.
    const MOST: usize;

    /// Writes these units at `out`; how many bytes, or None if one of them is not a character.
    ///
    /// # Safety
    /// `room` bytes can be written at `out`.
    unsafe fn write(units: &[Self], out: *mut u8) -> Option<usize>;

    /// The hash of few units, where there is a faster way to it than their bytes; None if there is
    /// not, or one of them is not a character.
    #[inline(always)]
    fn hash_few(_units: &[Self], _hasher: &KeyHasher) -> Option<u64> {
        None
    }
}

/// The room that `encode` wants for so many units.
pub const fn room<U: Unit>(units: usize) -> usize {
    units.saturating_mul(U::MOST).saturating_add(SPARE)
}

/// Writes UTF-8 and returns how many bytes it takes; None if a unit is not a character (a lone
/// surrogate), or there is less `room`.
#[inline(always)]
pub fn encode<U: Unit>(units: &[U], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
    if out.len() < room::<U>(units.len()) {
        return None;
    }
    // SAFETY: there is room.
    unsafe { U::write(units, out.as_mut_ptr().cast()) }
}

/// Appends UTF-8; the index of the first unit that is not a character, if there is one.
pub fn append<U: Unit>(units: &[U], out: &mut Vec<u8>) -> Result<(), usize> {
    out.reserve(room::<U>(units.len()));
    let Some(len) = encode(units, out.spare_capacity_mut()) else {
        let is_character = |unit: &U| char::from_u32((*unit).into()).is_some();
        return Err(units.iter().take_while(|unit| is_character(unit)).count());
    };
    // SAFETY: so many bytes were written behind the last.
    unsafe { out.set_len(out.len() + len) };
    Ok(())
}

/// The lead and the last byte of a character, in the order of memory.
#[inline(always)]
fn two(point: u32) -> u32 {
    0x80C0 | point >> 6 | (point & 0x3F) << 8
}

#[inline(always)]
fn three(point: u32) -> u32 {
    0x80_80E0 | point >> 12 | (point >> 6 & 0x3F) << 8 | (point & 0x3F) << 16
}

#[inline(always)]
fn four(point: u32) -> u32 {
    let tail = (point >> 12 & 0x3F) << 8 | (point >> 6 & 0x3F) << 16 | (point & 0x3F) << 24;
    0x8080_80F0 | point >> 18 | tail
}

/// # Safety
/// `N` bytes can be written there.
#[inline(always)]
unsafe fn put<const N: usize>(at: *mut u8, bytes: [u8; N]) {
    // SAFETY: as promised above.
    unsafe { at.cast::<[u8; N]>().write_unaligned(bytes) };
}

/// Units of which some are hashed at once, where the processor can.
macro_rules! few_at_once {
    () => {
        #[cfg(target_arch = "x86_64")]
        #[inline(always)]
        fn hash_few(units: &[Self], hasher: &KeyHasher) -> Option<u64> {
            let few = units.len() <= <Self as avx512::Narrow>::UNITS && has_avx512();
            // SAFETY: no more units, and the processor was asked.
            if few { unsafe { avx512::hash(units, hasher) } } else { None }
        }
    };
}

impl Unit for u8 {
    const MOST: usize = 2;

    few_at_once!();

    #[inline(always)]
    unsafe fn write(units: &[u8], out: *mut u8) -> Option<usize> {
        let (mut done, mut at) = (0, 0);
        while done < units.len() {
            let left = &units[done..];
            let word = match left.first_chunk::<8>() {
                Some(word) => u64::from_le_bytes(*word),
                // The last ones: the end of a word that ends with them, if there are as many.
                None => match units.last_chunk::<8>() {
                    Some(word) => u64::from_le_bytes(*word) >> (64 - 8 * left.len()),
                    None => left.iter().rev().fold(0, |word, unit| word << 8 | u64::from(*unit)),
                },
            };
            let others = word & 0x8080_8080_8080_8080;
            let ascii = others.trailing_zeros() as usize / 8;
            // SAFETY: within the room, as promised by the caller.
            unsafe { put(out.add(at), word.to_le_bytes()) };
            let plain = ascii.min(left.len());
            (done, at) = (done + plain, at + plain);
            if others != 0 {
                let bytes = two((word >> (8 * ascii)) as u32 & 0xFF) as u16;
                // SAFETY: as above.
                unsafe { put(out.add(at), bytes.to_le_bytes()) };
                (done, at) = (done + 1, at + 2);
            }
        }
        Some(at)
    }
}

impl Unit for u16 {
    const MOST: usize = 3;

    few_at_once!();

    #[inline(always)]
    unsafe fn write(units: &[u16], out: *mut u8) -> Option<usize> {
        let (mut done, mut at) = (0, 0);
        while let Some(unit) = units.get(done) {
            if let Some(word) = units[done..].first_chunk::<4>() {
                let [a, b, c, d] = word.map(u64::from);
                let word = a | b << 16 | c << 32 | d << 48;
                if word & 0xFF80_FF80_FF80_FF80 == 0 {
                    let pairs = word | word >> 8;
                    let bytes = (pairs & 0xFFFF | pairs >> 16 & 0xFFFF_0000) as u32;
                    // SAFETY: within the room, as promised by the caller.
                    unsafe { put(out.add(at), bytes.to_le_bytes()) };
                    (done, at) = (done + 4, at + 4);
                    continue;
                }
            }
            let point = u32::from(*unit);
            let (bytes, len) = match point {
                0..0x80 => (point, 1),
                0x80..0x800 => (two(point), 2),
                0xD800..0xE000 => return None,
                _ => (three(point), 3),
            };
            // SAFETY: as above.
            unsafe { put(out.add(at), bytes.to_le_bytes()) };
            (done, at) = (done + 1, at + len);
        }
        Some(at)
    }
}

impl Unit for u32 {
    const MOST: usize = 4;

    #[inline(always)]
    unsafe fn write(units: &[u32], out: *mut u8) -> Option<usize> {
        let mut at = 0;
        for unit in units {
            let point = u32::from(char::from_u32(*unit)?);
            let (bytes, len) = match point {
                0..0x80 => (point, 1),
                0x80..0x800 => (two(point), 2),
                0x800..0x1_0000 => (three(point), 3),
                _ => (four(point), 4),
            };
            // SAFETY: within the room, as promised by the caller.
            unsafe { put(out.add(at), bytes.to_le_bytes()) };
            at += len;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKind;

    /// Text of so many characters, some of which are ASCII, and none above `most`.
    fn text(len: usize, most: u32, state: &mut u64) -> String {
        let mut random = || {
            *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (*state >> 33) as u32
        };
        let mut character = || {
            let below = if random().is_multiple_of(3) { 0x80 } else { most + 1 };
            char::from_u32(random() % below).unwrap_or('x')
        };
        (0..len).map(|_| character()).collect()
    }

    fn appended<U: Unit>(units: &[U]) -> Result<Vec<u8>, usize> {
        let mut out = vec![7];
        append(units, &mut out).map(|()| out[1..].to_vec())
    }

    /// Of any length, and wherever the characters that are not ASCII stand, it is what `String` holds.
    #[test]
    fn as_a_string_holds_it() {
        let mut state = 1;
        let lengths = (0..40).chain([63, 64, 65, 1000]);
        for len in lengths.take(if cfg!(miri) { 12 } else { 100 }) {
            for most in [0x7F, 0xFF, 0x7FF, 0xFFFF, 0x10_FFFF] {
                let text = text(len, most, &mut state);
                let points: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(appended(&points).as_deref(), Ok(text.as_bytes()));
                if most <= 0xFFFF {
                    let units: Vec<u16> = points.iter().map(|point| *point as u16).collect();
                    assert_eq!(appended(&units).as_deref(), Ok(text.as_bytes()));
                }
                if most <= 0xFF {
                    let units: Vec<u8> = points.iter().map(|point| *point as u8).collect();
                    assert_eq!(appended(&units).as_deref(), Ok(text.as_bytes()));
                }
            }
        }
    }

    /// Every code point alone is as `char` has it; what is none is refused, with its place.
    #[test]
    fn every_code_point() {
        let step = if cfg!(miri) { 997 } else { 1 };
        for point in (0..0x11_0010).step_by(step) {
            let expected = match char::from_u32(point) {
                Some(character) => Ok(character.to_string().into_bytes()),
                None => Err(0),
            };
            assert_eq!(appended(&[point]), expected);
            if let Ok(unit) = u16::try_from(point) {
                assert_eq!(appended(&[unit]), expected);
            }
            if let Ok(unit) = u8::try_from(point) {
                assert_eq!(appended(&[unit]), expected);
            }
        }
        for at in 0..20 {
            let mut units = [0x41u16; 20];
            units[at] = 0xD800 + at as u16;
            assert_eq!(appended(&units), Err(at));
            assert_eq!(appended(&units.map(u32::from)), Err(at));
        }
    }

    /// The hash of few characters is that of their bytes, wherever which of them stand.
    #[test]
    fn few_hash_as_their_bytes() {
        fn check<U: Unit>(units: &[U], text: &str) {
            for (kind, _) in HashKind::ALL {
                let hasher = KeyHasher { kind, seed: 0x1234_5678_9ABC_DEF0_0FED_CBA9_8765_4321 };
                let expected = hasher.hash_bytes(text.as_bytes());
                assert!(U::hash_few(units, &hasher).is_none_or(|h| h == expected), "{text:?}");
            }
        }
        let mut state = 2;
        for round in 0..if cfg!(miri) { 1 } else { 300 } {
            for len in 0..=34 {
                let most = [0x7F, 0xFF, 0x7FF, 0xFFFF][round % 4];
                let text = text(len, most, &mut state);
                let units: Vec<u16> = text.encode_utf16().collect();
                check(&units, &text);
                if most <= 0xFF {
                    check(&units.iter().map(|unit| *unit as u8).collect::<Vec<u8>>(), &text);
                }
            }
        }
        let hasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };
        for at in 0..16 {
            let mut units = [0x7528u16; 16];
            units[at] = 0xD800 + 100 * at as u16;
            assert_eq!(u16::hash_few(&units, &hasher), None);
        }
    }

    /// Every unit of 16 bits, alone and as the last of many, is hashed as `char` has it.
    #[test]
    fn every_unit_hashes() {
        let hasher = KeyHasher { kind: HashKind::Xxh3, seed: 3 };
        for unit in (0..=u16::MAX).step_by(if cfg!(miri) { 9973 } else { 1 }) {
            for before in [0, 9, 15] {
                let units = [vec![0xE9; before], vec![unit]].concat();
                let Ok(text) = String::from_utf16(&units) else {
                    assert_eq!(u16::hash_few(&units, &hasher), None);
                    continue;
                };
                let expected = hasher.hash_bytes(text.as_bytes());
                assert!(u16::hash_few(&units, &hasher).is_none_or(|h| h == expected), "{unit:x}");
            }
        }
    }

    /// Without room for the most that it could take, nothing is written.
    #[test]
    fn room_is_asked_for_first() {
        let mut out = [MaybeUninit::uninit(); 24];
        assert_eq!(encode(&[0xE9u8; 8], &mut out), Some(16));
        assert_eq!(encode(&[0xE9u8; 9], &mut out), None);
        assert_eq!(encode(&[0x7528u16; 5], &mut out), Some(15));
        assert_eq!(encode(&[0x7528u16; 6], &mut out), None);
        assert_eq!(encode(&[0x1_F600u32; 4], &mut out), Some(16));
        assert_eq!(encode(&[0x1_F600u32; 5], &mut out), None);
    }
}

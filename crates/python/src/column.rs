//! Columns: keys that lie in memory as NumPy or Arrow left them, hashed without a Python object.

use bloomery_core::hash::KeyHasher;

use crate::key::utf8;

/// A run of rows that can be hashed from any row on, by several threads at once.
pub struct Column {
    pub data: Data,
    pub len: usize,
    /// The rows that hold a key, where some are null and are to be skipped.
    pub valid: Option<Vec<usize>>,
}

/// Whoever builds one promises that the pointers stay readable for `len` rows while it lives.
pub enum Data {
    Ints {
        start: *const u8,
        stride: isize,
        kind: Int,
    },
    /// Byte strings between offsets; `wide` offsets have 64 bits.
    Offsets {
        offsets: *const u8,
        wide: bool,
        bytes: *const u8,
    },
    /// Arrow's views: 16 bytes a row, short strings within, long ones in one of the buffers.
    Views {
        views: *const u8,
        buffers: Vec<*const u8>,
    },
    /// `width` bytes a row; `trim` drops the NULs at the end, as NumPy does.
    Fixed {
        start: *const u8,
        stride: isize,
        width: usize,
        trim: bool,
    },
    /// NumPy's str: UCS-4, the NULs at the end dropped.
    Ucs4 {
        start: *const u8,
        stride: isize,
        width: usize,
        swapped: bool,
    },
    /// A dictionary's hashes and each row's index into them.
    Dictionary {
        hashes: Vec<u64>,
        start: *const u8,
        kind: Int,
    },
}

// SAFETY: the memory is only read.
unsafe impl Send for Column {}
// SAFETY: as above.
unsafe impl Sync for Column {}

#[derive(Clone, Copy)]
pub struct Int {
    pub width: usize,
    pub signed: bool,
    pub swapped: bool,
}

impl Column {
    pub fn keys(&self) -> usize {
        self.valid.as_ref().map_or(self.len, Vec::len)
    }

    /// The column as what most columns of ints are: 64 bits each, side by side, none of them null;
    /// as bytes, since they may lie at any address.
    pub fn dense_i64(&self) -> Option<&[[u8; 8]]> {
        match self.data {
            Data::Ints {
                start,
                stride: 8,
                kind: Int { width: 8, signed: true, swapped: false },
            } if self.valid.is_none() && self.len > 0 => {
                // SAFETY: as many rows can be read as there are; bytes need no alignment.
                Some(unsafe { std::slice::from_raw_parts(start.cast(), self.len) })
            }
            _ => None,
        }
    }

    /// Hashes the keys from the `from`th on.
    pub fn hash(&self, hasher: &KeyHasher, from: usize, out: &mut [u64]) {
        debug_assert!(from + out.len() <= self.keys());
        match &self.valid {
            None => self.hash_rows(hasher, from, out),
            Some(valid) => {
                for (row, h) in valid[from..].iter().zip(out) {
                    self.hash_rows(hasher, *row, std::slice::from_mut(h));
                }
            }
        }
    }

    fn hash_rows(&self, hasher: &KeyHasher, from: usize, out: &mut [u64]) {
        let rows = from..from + out.len();
        let each = out.iter_mut().zip(rows);
        // SAFETY: these rows exist, as whoever built the column promised.
        unsafe {
            match &self.data {
                Data::Ints { start, stride, kind } => {
                    hash_ints(hasher, start.offset(from as isize * stride), *stride, *kind, out);
                }
                Data::Offsets { offsets, wide, bytes } => {
                    let offset = |row: usize| match wide {
                        true => offsets.cast::<i64>().add(row).read_unaligned() as usize,
                        false => offsets.cast::<i32>().add(row).read_unaligned() as usize,
                    };
                    let mut begin = offset(from);
                    for (h, row) in each {
                        let end = offset(row + 1);
                        *h = hasher.hash_bytes(slice(*bytes, begin, end - begin));
                        begin = end;
                    }
                }
                Data::Views { views, buffers } => {
                    each.for_each(|(h, row)| {
                        *h = hasher.hash_bytes(view(views.add(row * 16), buffers));
                    });
                }
                Data::Fixed { start, stride, width, trim } => {
                    for (h, row) in each {
                        let mut key = slice(start.offset(row as isize * stride), 0, *width);
                        if *trim {
                            let end = key.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
                            key = &key[..end];
                        }
                        *h = hasher.hash_bytes(key);
                    }
                }
                Data::Ucs4 { start, stride, width, swapped } => {
                    let mut key = Vec::with_capacity(*width);
                    for (h, row) in each {
                        let points = ucs4(start.offset(row as isize * stride), *width, *swapped);
                        key.clear();
                        let _ = utf8(points, &mut key); // checked when the column was made
                        *h = hasher.hash_bytes(&key);
                    }
                }
                Data::Dictionary { hashes, start, kind } => {
                    for (h, row) in each {
                        let index = read_int(start.add(row * kind.width), *kind);
                        *h = hashes.get(index as usize).copied().unwrap_or_default();
                    }
                }
            }
        }
    }

    /// The first row of a NumPy str column that is not text, if there is one.
    pub fn first_bad_row(&self) -> Option<usize> {
        let Data::Ucs4 { start, stride, width, swapped } = &self.data else {
            return None;
        };
        (0..self.len).find(|row| {
            // SAFETY: the row exists, as the builder promised.
            let mut points =
                unsafe { ucs4(start.offset(*row as isize * stride), *width, *swapped) };
            points.any(|p| char::from_u32(p).is_none())
        })
    }
}

/// # Safety
/// `len` bytes from `start + begin` on can be read for `'a`; an empty one may point nowhere.
unsafe fn slice<'a>(start: *const u8, begin: usize, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as promised above.
    unsafe { std::slice::from_raw_parts(start.add(begin), len) }
}

/// # Safety
/// 16 bytes at `at` are a view into `buffers`.
unsafe fn view<'a>(at: *const u8, buffers: &[*const u8]) -> &'a [u8] {
    // SAFETY: as promised above.
    unsafe {
        let word = |i: usize| at.cast::<i32>().add(i).read_unaligned() as usize;
        let len = word(0);
        if len <= 12 { slice(at, 4, len) } else { slice(buffers[word(2)], word(3), len) }
    }
}

/// # Safety
/// `width` code points of 4 bytes each lie at `at`.
unsafe fn ucs4<'a>(at: *const u8, width: usize, swapped: bool) -> impl Iterator<Item = u32> + 'a {
    let point = move |i: usize| {
        // SAFETY: as promised above.
        let raw = unsafe { at.cast::<u32>().add(i).read_unaligned() };
        if swapped { raw.swap_bytes() } else { raw }
    };
    let end = (0..width).rev().find(|i| point(*i) != 0).map_or(0, |last| last + 1);
    (0..end).map(point)
}

/// # Safety
/// `kind.width` bytes can be read at `at`.
unsafe fn read_int(at: *const u8, kind: Int) -> i128 {
    let mut raw = [0u8; 8];
    // SAFETY: as promised above; no int is wider than 8 bytes.
    unsafe { std::ptr::copy_nonoverlapping(at, raw.as_mut_ptr(), kind.width) };
    if kind.swapped {
        raw[..kind.width].reverse();
    }
    let value = u64::from_le_bytes(raw);
    let spare = 64 - 8 * kind.width as u32;
    if kind.signed { i128::from((value << spare) as i64 >> spare) } else { i128::from(value) }
}

/// # Safety
/// `out.len()` ints lie from `start` on, `stride` bytes apart.
unsafe fn hash_ints(
    hasher: &KeyHasher,
    start: *const u8,
    stride: isize,
    kind: Int,
    out: &mut [u64],
) {
    macro_rules! dense {
        ($int:ty) => {{
            // SAFETY: as promised above.
            let at = |i: usize| unsafe { start.cast::<$int>().add(i).read_unaligned() };
            hasher.hash_i64s((0..out.len()).map(|i| i64::from(at(i))), out)
        }};
    }
    match (kind.width, kind.signed, stride == kind.width as isize && !kind.swapped) {
        (8, true, true) => dense!(i64),
        (4, true, true) => dense!(i32),
        (4, false, true) => dense!(u32),
        _ => {
            for (i, h) in out.iter_mut().enumerate() {
                // SAFETY: as promised above.
                let value = unsafe { read_int(start.offset(i as isize * stride), kind) };
                *h = match i64::try_from(value) {
                    Ok(small) => hasher.hash_i64(small),
                    Err(_) => hasher.hash_u64(value as u64),
                };
            }
        }
    }
}

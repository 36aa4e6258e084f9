//! Columns: keys that lie in memory as NumPy or Arrow left them, hashed without a Python object.

use std::collections::TryReserveError;
use std::hint::select_unpredictable;

use bloomery_core::hash::{Domain, KeyHasher};
use bloomery_core::utf8;

use crate::keys::valid::Valid;

/// A run of rows that can be hashed from any row on, by several threads at once.
pub struct Column {
    pub data: Data,
    pub len: usize,
    /// The rows that hold a key, where some are null and are to be skipped.
    pub valid: Option<Valid>,
    /// Are its views still to be looked at, by `first_bad_view`, before they are hashed?
    pub unchecked: bool,
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
        texts: Vec<Text>,
    },
    /// `width` bytes a row; `trim` drops the NULs at the end, as NumPy does.
    Fixed {
        start: *const u8,
        stride: isize,
        width: usize,
        trim: bool,
        domain: Domain,
    },
    /// Str as UCS-4; `trim` as above.
    Ucs4 {
        start: *const u8,
        stride: isize,
        width: usize,
        trim: bool,
        swapped: bool,
    },
    Dictionary(Dictionary),
}

/// A buffer that views lead to.
pub struct Text {
    pub start: *const u8,
    /// Of a longer one, as many bytes as a view can reach.
    pub len: u32,
}

/// Values, and for each row where its own is among them.
pub struct Dictionary {
    pub values: Box<Column>,
    pub nulls: Nulls,
    /// Of each value, where there are not more of them than rows; else each row's is made anew, so
    /// that memory is bounded by the rows: values of no width can be claimed in any number.
    hashes: Option<Vec<u64>>,
    pub start: *const u8,
    pub kind: Int,
}

impl Dictionary {
    pub fn new(values: Column, nulls: Nulls, start: *const u8, kind: Int) -> Self {
        Dictionary { values: Box::new(values), nulls, hashes: None, start, kind }
    }

    /// Where the row's value is among the values, if it is.
    ///
    /// # Safety
    /// The row exists.
    pub unsafe fn place(&self, row: usize) -> Option<usize> {
        // SAFETY: as promised above.
        let place = unsafe { read_int(self.start.add(row * self.kind.width), self.kind) };
        usize::try_from(place).ok().filter(|place| *place < self.values.len)
    }
}

/// Which rows are null: bitmaps, each of which has a say, or all of them.
#[derive(Default)]
pub struct Nulls {
    pub all: bool,
    /// Where each begins, and how many bits come before the first row's.
    pub bitmaps: Vec<(*const u8, usize)>,
}

impl Nulls {
    /// # Safety
    /// The bitmaps have a bit for the row.
    pub unsafe fn has(&self, row: usize) -> bool {
        self.all
            || self.bitmaps.iter().any(|(start, offset)| {
                let bit = offset + row;
                // SAFETY: as promised above.
                unsafe { *start.add(bit / 8) >> (bit % 8) & 1 == 0 }
            })
    }

    pub fn none(&self) -> bool {
        !self.all && self.bitmaps.is_empty()
    }

    /// Which of so many rows, 1 or 64, from this one on are not null: a bit each.
    ///
    /// # Safety
    /// The bitmaps have a bit for each of them.
    pub unsafe fn others(&self, row: usize, count: usize) -> u64 {
        if count == 1 {
            // SAFETY: as promised above.
            return u64::from(!unsafe { self.has(row) });
        }
        let none = if self.all { 0 } else { u64::MAX };
        self.bitmaps.iter().fold(none, |bits, (start, offset)| {
            let (byte, bit) = ((offset + row) / 8, (offset + row) % 8);
            // SAFETY: the first bit is in this byte, and the last in the eighth from it, or in the
            // ninth if the first is not the lowest of its byte.
            unsafe {
                let word = start.add(byte).cast::<u64>().read_unaligned() >> bit;
                let last = if bit == 0 { 0 } else { *start.add(byte + 8) };
                // Two shifts: by 64 would be none.
                bits & (word | u64::from(last) << 1 << (63 - bit))
            }
        })
    }
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
    /// Is whatever is not 0 a 1? So it is with bools.
    pub truth: bool,
}

impl Column {
    pub fn keys(&self) -> usize {
        self.valid.as_ref().map_or(self.len, Valid::keys)
    }

    /// The column as what most columns of ints are: 64 bits each, side by side, none of them null;
    /// as bytes, since they may lie at any address.
    pub fn dense_i64(&self) -> Option<&[[u8; 8]]> {
        match self.data {
            Data::Ints {
                start,
                stride: 8,
                kind: Int { width: 8, signed: true, swapped: false, .. },
            } if self.valid.is_none() && self.len > 0 => {
                // SAFETY: as many rows can be read as there are; bytes need no alignment.
                Some(unsafe { std::slice::from_raw_parts(start.cast(), self.len) })
            }
            _ => None,
        }
    }

    /// Hashes the values of a dictionary, once for all rows.
    pub fn hash_values(&mut self, hasher: &KeyHasher) -> Result<(), TryReserveError> {
        let rows = self.len;
        let Data::Dictionary(Dictionary { values, hashes, .. }) = &mut self.data else {
            return Ok(());
        };
        if values.len <= rows {
            let mut made = Vec::new();
            made.try_reserve_exact(values.len)?;
            made.resize(values.len, 0);
            match &values.valid {
                None => values.hash(hasher, 0, &mut made),
                Some(valid) => valid.runs(0..valid.keys()).for_each(|(_, rows)| {
                    values.hash_rows(hasher, rows.start, &mut made[rows]);
                }),
            }
            *hashes = Some(made);
        }
        Ok(())
    }

    /// Hashes the keys from the `from`th on.
    pub fn hash(&self, hasher: &KeyHasher, from: usize, out: &mut [u64]) {
        debug_assert!(from + out.len() <= self.keys());
        match &self.valid {
            None => self.hash_rows(hasher, from, out),
            Some(valid) => {
                for (key, rows) in valid.runs(from..from + out.len()) {
                    let some = &mut out[key - from..key - from + rows.len()];
                    self.hash_rows(hasher, rows.start, some);
                }
            }
        }
    }

    /// The bytes of a row, where the column holds text, binary or what is of a fixed width.
    pub fn bytes(&self, row: usize) -> Option<&[u8]> {
        if row >= self.len {
            return None;
        }
        // SAFETY: the row exists, as whoever built the column promised.
        unsafe {
            match &self.data {
                Data::Offsets { offsets, wide, bytes } => {
                    let (begin, end) = match wide {
                        true => {
                            let at = offsets.cast::<i64>().add(row);
                            (at.read_unaligned() as usize, at.add(1).read_unaligned() as usize)
                        }
                        false => {
                            let at = offsets.cast::<i32>().add(row);
                            (at.read_unaligned() as usize, at.add(1).read_unaligned() as usize)
                        }
                    };
                    Some(slice(*bytes, begin, end - begin))
                }
                Data::Views { views, texts } => Some(view(views.add(row * 16), texts)),
                Data::Fixed { start, stride, width, trim: false, .. } => {
                    Some(slice(start.offset(row as isize * stride), 0, *width))
                }
                _ => None,
            }
        }
    }

    fn hash_rows(&self, hasher: &KeyHasher, from: usize, out: &mut [u64]) {
        if out.is_empty() {
            return; // there may be nothing to read, not even where the first row begins
        }
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
                Data::Views { views, texts } => {
                    for (h, row) in each {
                        *h = hasher.hash_bytes(view(views.add(row * 16), texts));
                    }
                }
                Data::Fixed { start, stride, width, trim, domain } => {
                    for (h, row) in each {
                        let mut key = slice(start.offset(row as isize * stride), 0, *width);
                        if *trim {
                            let end = key.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
                            key = &key[..end];
                        }
                        *h = hasher.hash(*domain, key);
                    }
                }
                Data::Ucs4 { start, stride, width, trim, swapped } => {
                    let (mut points, mut key) = (Vec::new(), Vec::new());
                    for (h, row) in each {
                        let at = start.offset(row as isize * stride);
                        points.clear();
                        points.extend(ucs4(at, *width, *trim, *swapped));
                        key.clear();
                        let _ = utf8::append(&points, &mut key); // checked when the column was made
                        *h = hasher.hash_bytes(&key);
                    }
                }
                Data::Dictionary(dictionary) => {
                    for (h, row) in each {
                        // Checked when the column was made.
                        let place = dictionary.place(row).unwrap_or_default();
                        match &dictionary.hashes {
                            Some(hashes) => *h = hashes.get(place).copied().unwrap_or_default(),
                            None => {
                                let h = std::slice::from_mut(h);
                                dictionary.values.hash_rows(hasher, place, h);
                            }
                        }
                    }
                }
            }
        }
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

/// One of Arrow's views, as it lies there: a length, then up to 12 bytes, or the first four of more
/// of them, and where all are: in which buffer, from which byte on.
#[derive(Clone, Copy)]
pub struct View {
    len: u32,
    text: u32,
    begin: u32,
}

impl View {
    /// # Safety
    /// 16 bytes at `at` can be read.
    #[inline(always)]
    pub unsafe fn read(at: *const u8) -> View {
        // SAFETY: as promised above.
        let [len, _, text, begin] = unsafe { at.cast::<[u32; 4]>().read_unaligned() };
        View { len, text, begin }
    }

    /// Does it lead to bytes that are there? Without a branch, for loops over many: of a short one
    /// `text` is some of its bytes, and no processor foresees whether there is such a text.
    #[inline(always)]
    pub fn leads(self, texts: &[Text]) -> bool {
        let text = self.text as usize;
        let room = texts.get(last(texts).min(text)).map_or(0, |text| text.len);
        (self.len <= 12) | ((text < texts.len()) & self.fits(room))
    }

    /// As `leads`, if it is to this text, of so many bytes: several of these are in a vector register.
    #[inline(always)]
    pub fn leads_to(self, text: u32, room: u32) -> bool {
        (self.len <= 12) | ((self.text == text) & self.fits(room))
    }

    /// The text that it leads to, if it is a long one.
    #[inline(always)]
    pub fn text(self) -> Option<u32> {
        (self.len > 12).then_some(self.text)
    }

    #[inline(always)]
    fn fits(self, room: u32) -> bool {
        // Arrow's numbers have a sign, and none may be negative: two of 31 bits have a sum of 32.
        let positive = (self.len | self.begin) >> 31 == 0;
        positive & (self.begin.wrapping_add(self.len) <= room)
    }
}

fn last(texts: &[Text]) -> usize {
    texts.len().saturating_sub(1)
}

/// What a view shows, of which it is known that it leads somewhere. Where texts of up to 12 bytes and
/// longer ones come in turn no processor foresees which is next, and a branch took 3 ns a row.
///
/// # Safety
/// 16 bytes at `at` can be read, the view leads to one of the texts, and they can be read.
#[inline(always)]
unsafe fn view<'a>(at: *const u8, texts: &[Text]) -> &'a [u8] {
    // SAFETY: as promised above.
    unsafe {
        let View { len, text, begin } = View::read(at);
        // Of a short one these are some of its bytes, and lead anywhere.
        let far = texts
            .get(last(texts).min(text as usize))
            .map_or(at, |text| text.start.wrapping_add(begin as usize));
        let start = select_unpredictable(len > 12, far, at.wrapping_add(4));
        std::slice::from_raw_parts(start, len as usize)
    }
}

/// # Safety
/// `width` code points of 4 bytes each lie at `at`.
pub unsafe fn ucs4<'a>(
    at: *const u8,
    width: usize,
    trim: bool,
    swapped: bool,
) -> impl ExactSizeIterator<Item = u32> + 'a {
    let point = move |i: usize| {
        // SAFETY: as promised above.
        let raw = unsafe { at.cast::<u32>().add(i).read_unaligned() };
        if swapped { raw.swap_bytes() } else { raw }
    };
    let end = match trim {
        true => (0..width).rev().find(|i| point(*i) != 0).map_or(0, |last| last + 1),
        false => width,
    };
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
    if kind.truth {
        return i128::from(value != 0);
    }
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

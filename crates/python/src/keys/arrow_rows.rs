//! One chunk of an Arrow column as rows that can be hashed: all that it says is checked first, but
//! for views that are to be checked later.

use bloomery_core::hash::{Domain, KeyHasher};
use pyo3::prelude::*;

use crate::errors::{null_error, too_many_rows};
use crate::keys::arrow::{Chunk, damaged, pointee};
use crate::keys::arrow_type::KeyType;
use crate::keys::column::{Column, Data, Dictionary, Nulls, Text};
use crate::keys::column_check::Bad;
use crate::keys::valid::Valid;

/// Below this many rows, checking them is done before another thread could have taken over.
const DETACH_FROM: usize = 2048;

/// More bytes than a process can have addresses.
const ADDRESSES: usize = usize::MAX >> 7;

/// How the rows of a column are to be taken.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Or refuse them?
    pub skip_nulls: bool,
    /// Whoever hashes them will have looked at the views, some at a time, while those are in the
    /// cache: 16 bytes a row took 2 ns to read once more. Not where a bad row is to change nothing.
    pub views_later: bool,
}

pub struct Reader<'a, 'py> {
    pub py: Python<'py>,
    pub hasher: &'a KeyHasher,
    pub reading: Reading,
    /// Those of the chunks before.
    pub rows: usize,
}

impl Reader<'_, '_> {
    /// # Safety
    /// What `chunk` points to is there, as the Arrow C data interface says, and outlives the column.
    pub unsafe fn column(&mut self, kind: &KeyType, chunk: &Chunk) -> PyResult<Column> {
        // SAFETY: as promised above.
        let (mut column, nulls) = unsafe {
            let (len, offset) = self.span(chunk)?;
            self.at(kind, chunk, len, offset)?
        };
        if !nulls.none() || column.has_null_values() {
            let in_dictionary = column.has_null_values();
            let valid =
                self.others(column.len, &nulls, |row| in_dictionary && column.points_at_null(row))?;
            let first = valid.first_null(column.len);
            if let (Some(first), false) = (first, self.reading.skip_nulls) {
                return Err(null_error(self.py, self.rows + first));
            }
            column.valid = first.map(|_| valid);
        }
        self.checked(column)
    }

    /// The rows that are not null.
    fn others(
        &self,
        len: usize,
        nulls: &Nulls,
        is_null_too: impl Fn(usize) -> bool,
    ) -> PyResult<Valid> {
        if nulls.all {
            return Ok(Valid::default()); // rows of no width can be claimed in any number
        }
        let valid = Valid::of(len, |row, count| {
            // SAFETY: the bitmaps of a column have a bit for each of its rows.
            let others = unsafe { nulls.others(row, count) };
            let more = (0..count).map(|i| u64::from(is_null_too(row + i)) << i);
            others & !more.sum::<u64>()
        });
        valid.map_err(|_| too_many_rows(self.py, len))
    }

    /// The column, once all of its rows are known to lead somewhere, or are to be looked at later.
    fn checked(&mut self, mut column: Column) -> PyResult<Column> {
        column.unchecked = self.reading.views_later && matches!(column.data, Data::Views { .. });
        let bad = match column.len >= DETACH_FROM {
            _ if column.unchecked => None,
            true => self.py.detach(|| column.first_bad_row()),
            false => column.first_bad_row(),
        };
        if let Some(bad) = bad {
            return Err(bad_row(self.py, self.rows, bad));
        }
        let rows = column.len;
        column.hash_values(self.hasher).map_err(|_| too_many_rows(self.py, rows))?;
        self.rows += column.len;
        Ok(column)
    }

    /// How many rows a chunk has, and how many come before them in its buffers.
    fn span(&self, chunk: &Chunk) -> PyResult<(usize, usize)> {
        let end = chunk.length.checked_add(chunk.offset);
        if chunk.length < 0 || chunk.offset < 0 || end.is_none() {
            return Err(damaged(self.py, "its length or offset is negative, or too large"));
        }
        if chunk.null_count < -1 || chunk.null_count > chunk.length {
            return Err(damaged(self.py, "its number of nulls is not between 0 and its length"));
        }
        Ok((chunk.length as usize, chunk.offset as usize))
    }

    /// The rows of a chunk from `offset` on, as they lie there, and which of them are null.
    ///
    /// # Safety
    /// As for `column`.
    unsafe fn at(
        &self,
        kind: &KeyType,
        chunk: &Chunk,
        len: usize,
        offset: usize,
    ) -> PyResult<(Column, Nulls)> {
        let whole = |data| Column { data, len, valid: None, unchecked: false };
        if let KeyType::Null = kind {
            // Rows of no width: there is nothing to read.
            let start = std::ptr::null();
            let data =
                Data::Fixed { start, stride: 0, width: 0, trim: false, domain: Domain::Bytes };
            return Ok((whole(data), Nulls { all: len > 0, bitmaps: Vec::new() }));
        }
        let mut nulls = Nulls::default();
        let buffers = Buffers { py: self.py, chunk, len, offset };
        // SAFETY: as promised above.
        unsafe {
            if let Some(bitmap) = buffers.bitmap(matches!(kind, KeyType::Only(_)))? {
                nulls.bitmaps.push((bitmap, offset));
            }
            let data = match kind {
                KeyType::Null => return Err(damaged(self.py, "it has no type")),
                KeyType::Only(inner) => {
                    let (column, within) = self.only(inner, chunk, len, offset)?;
                    nulls.all |= within.all;
                    nulls.bitmaps.extend(within.bitmaps);
                    return Ok((column, nulls));
                }
                KeyType::Ints(int) => {
                    let start = buffers.rows(1, int.width, 0)?;
                    Data::Ints { start, stride: int.width as isize, kind: *int }
                }
                KeyType::Offsets { wide } => {
                    let offsets = buffers.rows(1, if *wide { 8 } else { 4 }, 1)?;
                    Data::Offsets { offsets, wide: *wide, bytes: buffers.get(2)? }
                }
                KeyType::Views => {
                    Data::Views { views: buffers.rows(1, 16, 0)?, texts: buffers.texts()? }
                }
                KeyType::Fixed { width, domain } => {
                    let (start, stride) = (buffers.rows(1, *width, 0)?, *width as isize);
                    Data::Fixed { start, stride, width: *width, trim: false, domain: *domain }
                }
                KeyType::Dictionary { index, values } => {
                    let start = buffers.rows(1, index.width, 0)?;
                    let (values, nulls) = self.values(values, chunk)?;
                    Data::Dictionary(Dictionary::new(values, nulls, start, *index))
                }
            };
            Ok((whole(data), nulls))
        }
    }

    /// The only column of a table: as many of its rows as the table has.
    ///
    /// # Safety
    /// As for `column`.
    unsafe fn only(
        &self,
        kind: &KeyType,
        chunk: &Chunk,
        len: usize,
        offset: usize,
    ) -> PyResult<(Column, Nulls)> {
        if chunk.n_children != 1 {
            return Err(damaged(self.py, "its number of columns is not what its schema says"));
        }
        // SAFETY: there is one child.
        unsafe {
            let child = pointee(self.py, *pointee(self.py, chunk.children)?)?;
            let (rows, before) = self.span(child)?;
            if rows < offset + len {
                return Err(damaged(self.py, "it has fewer rows than its table"));
            }
            self.at(kind, child, len, before + offset)
        }
    }

    /// The values of a dictionary, and which of them are null.
    ///
    /// # Safety
    /// As for `column`.
    unsafe fn values(&self, kind: &KeyType, chunk: &Chunk) -> PyResult<(Column, Nulls)> {
        // SAFETY: as promised above.
        unsafe {
            let dictionary = pointee(self.py, chunk.dictionary)?;
            let (len, offset) = self.span(dictionary)?;
            let (mut values, nulls) = self.at(kind, dictionary, len, offset)?;
            if !nulls.none() {
                values.valid = Some(self.others(len, &nulls, |_| false)?);
            }
            Ok((values, nulls))
        }
    }
}

/// A row that cannot be read, in a chunk that has so many before it.
#[cold]
pub fn bad_row(py: Python<'_>, before: usize, (row, what): Bad) -> PyErr {
    let row = before + row;
    let taken = match before {
        0 => String::new(),
        rows => format!("; the {rows} rows of the chunks before were taken"),
    };
    damaged(py, &format!("row {row} {what}{taken}"))
}

/// The buffers of a chunk.
struct Buffers<'a, 'py> {
    py: Python<'py>,
    chunk: &'a Chunk,
    len: usize,
    offset: usize,
}

impl Buffers<'_, '_> {
    /// # Safety
    /// As many pointers as the chunk says are where it says.
    unsafe fn get(&self, i: usize) -> PyResult<*const u8> {
        let known = usize::try_from(self.chunk.n_buffers).unwrap_or(0);
        if i >= known || self.chunk.buffers.is_null() {
            return Err(damaged(self.py, "it has fewer buffers than its type needs"));
        }
        // SAFETY: as promised above.
        Ok(unsafe { self.chunk.buffers.add(i).read_unaligned() }.cast())
    }

    /// The buffer of as many bytes a row, from the first row on; `more` of them follow the last.
    unsafe fn rows(&self, i: usize, width: usize, more: usize) -> PyResult<*const u8> {
        // SAFETY: as promised by the caller.
        let start = unsafe { self.get(i)? };
        if self.len == 0 || width == 0 {
            return Ok(start);
        }
        let end =
            (self.offset + self.len).checked_add(more).and_then(|rows| rows.checked_mul(width));
        if start.is_null() || end.is_none_or(|end| end > ADDRESSES) {
            return Err(damaged(self.py, "a buffer is not there, or larger than any can be"));
        }
        Ok(start.wrapping_add(self.offset * width))
    }

    /// The bitmap of rows that hold something; a table need not have the place for one.
    unsafe fn bitmap(&self, table: bool) -> PyResult<Option<*const u8>> {
        if (table && self.chunk.n_buffers == 0) || self.len == 0 {
            return Ok(None);
        }
        // SAFETY: as promised by the caller.
        let bitmap = unsafe { self.get(0)? };
        match (self.chunk.null_count, bitmap.is_null()) {
            (0, _) | (-1, true) => Ok(None),
            // Rows of no width have no other buffer whose size would tell.
            _ if (self.offset + self.len) / 8 > ADDRESSES => {
                Err(damaged(self.py, "its bitmap of nulls would be larger than any can be"))
            }
            (_, true) => Err(damaged(self.py, "it has nulls, but does not say where")),
            (_, false) => Ok(Some(bitmap)),
        }
    }

    /// What views lead to: all buffers between the views and the last, which has their lengths.
    unsafe fn texts(&self) -> PyResult<Vec<Text>> {
        let last = usize::try_from(self.chunk.n_buffers).unwrap_or(0).saturating_sub(1);
        let mut found = Vec::new();
        // SAFETY: as promised by the caller; the last buffer has a length for each of these.
        unsafe {
            let lengths = self.get(last)?.cast::<i64>();
            if last < 2 || (last > 2 && lengths.is_null()) {
                return Err(damaged(self.py, "its views lead to buffers of unknown length"));
            }
            for i in 2..last {
                let len = usize::try_from(lengths.add(i - 2).read_unaligned());
                let start = self.get(i)?;
                match len {
                    Ok(len) if len == 0 || !start.is_null() => {
                        found.push(Text { start, len: u32::try_from(len).unwrap_or(u32::MAX) });
                    }
                    _ => {
                        return Err(damaged(
                            self.py,
                            "a buffer is not there, or of negative length",
                        ));
                    }
                }
            }
        }
        Ok(found)
    }
}

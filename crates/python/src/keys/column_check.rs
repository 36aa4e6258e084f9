//! What is looked at before a column is hashed: every row leads to bytes that are there.

use std::ops::Range;

use crate::keys::column::{Column, Data, View, ucs4};

/// A row and what is wrong with it.
pub type Bad = (usize, &'static str);

impl Column {
    /// The first row, of those that are not null, that cannot be read; offsets must be in order for
    /// all rows.
    pub fn first_bad_row(&self) -> Option<Bad> {
        match &self.data {
            Data::Ints { .. } | Data::Fixed { .. } => None,
            // SAFETY: there are as many offsets as rows, and one; checked before.
            Data::Offsets { offsets, wide: false, bytes } => unsafe {
                bad_offset::<i32>(offsets.cast(), self.len, bytes.is_null())
            },
            // SAFETY: as above.
            Data::Offsets { offsets, wide: true, bytes } => unsafe {
                bad_offset::<i64>(offsets.cast(), self.len, bytes.is_null())
            },
            Data::Views { .. } => self.first_bad_view(0..self.keys()),
            Data::Ucs4 { start, stride, width, trim, swapped } => {
                let text = |row| {
                    // SAFETY: as above.
                    let points = unsafe {
                        ucs4(start.offset(row as isize * stride), *width, *trim, *swapped)
                    };
                    points.into_iter().all(|point| char::from_u32(point).is_some())
                };
                if *stride == 0 {
                    // Every row is the first, of which there may be more than can be looked at.
                    return (self.len > 0 && !text(0)).then_some((0, NO_TEXT));
                }
                self.first(text, NO_TEXT)
            }
            Data::Dictionary(dictionary) => {
                if let Some((_, what)) = dictionary.values.first_bad_row() {
                    return Some((0, what));
                }
                // SAFETY: as above.
                let leads = |row| unsafe { dictionary.place(row) }.is_some();
                self.first(leads, "leads to a place that its dictionary does not have")
            }
        }
    }

    /// The row of the first of these keys that cannot be read, in a column of views.
    pub fn first_bad_view(&self, keys: Range<usize>) -> Option<Bad> {
        let Data::Views { views, texts } = &self.data else {
            return None;
        };
        // SAFETY: the row exists, as whoever built the column promised.
        let view = |row: usize| unsafe { View::read(views.add(row * 16)) };
        let bad = |row: &usize| !view(*row).leads(texts);
        // Most rows lead to the same text as those around them, which is looked at in half the
        // time; the others are looked at again.
        let first_bad = |rows: Range<usize>| {
            stretches(rows).find_map(|mut rows| {
                let text = rows.clone().find_map(|row| view(row).text()).unwrap_or(0);
                let room = texts.get(text as usize).map_or(0, |text| text.len);
                let elsewhere = |row| !view(row).leads_to(text, room);
                if any(rows.clone(), elsewhere) { rows.find(bad) } else { None }
            })
        };
        let found = match &self.valid {
            None => first_bad(keys),
            Some(valid) => valid.runs(keys).find_map(|(_, rows)| first_bad(rows)),
        };
        found.map(|row| (row, "has a view that leads nowhere"))
    }

    /// The first row, of those that are not null, that is not good.
    fn first(&self, good: impl Fn(usize) -> bool, what: &'static str) -> Option<Bad> {
        let bad = match &self.valid {
            None => (0..self.len).find(|row| !good(*row)),
            Some(valid) => valid.rows(0..valid.keys()).find(|row| !good(*row)),
        };
        bad.map(|row| (row, what))
    }

    /// Are there nulls among the values of a dictionary?
    pub fn has_null_values(&self) -> bool {
        matches!(&self.data, Data::Dictionary(dictionary) if !dictionary.nulls.none())
    }

    /// Is the row's value a null of the dictionary?
    pub fn points_at_null(&self, row: usize) -> bool {
        let Data::Dictionary(dictionary) = &self.data else {
            return false;
        };
        // SAFETY: the row exists, as whoever built the column promised, and so does the place.
        unsafe { dictionary.place(row).is_some_and(|place| dictionary.nulls.has(place)) }
    }
}

const NO_TEXT: &str = "is not valid text (a lone surrogate?)";

/// Rows that are looked at without stopping at a bad one, so that several are in a vector register.
const TOGETHER: usize = 1024;

fn stretches(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    rows.clone().step_by(TOGETHER).map(move |from| from..rows.end.min(from + TOGETHER))
}

/// Is one of them bad? All are looked at.
fn any(rows: Range<usize>, bad: impl Fn(usize) -> bool) -> bool {
    rows.fold(false, |any, row| any | bad(row))
}

/// The first row that ends before it begins, or begins before its buffer does.
///
/// # Safety
/// `len + 1` offsets can be read, if `len` is not 0.
unsafe fn bad_offset<T>(offsets: *const T, len: usize, nowhere: bool) -> Option<Bad>
where
    T: Copy + Default + PartialOrd,
{
    if len == 0 {
        return None;
    }
    // SAFETY: as promised above.
    let at = |row: usize| unsafe { offsets.add(row).read_unaligned() };
    if at(0) < T::default() {
        return Some((0, "begins before its buffer does"));
    }
    let bad = |row: usize| at(row + 1) < at(row);
    let found = stretches(0..len).find(|rows| any(rows.clone(), bad));
    if let Some(row) = found.and_then(|mut rows| rows.find(|row| bad(*row))) {
        return Some((row, "ends before it begins"));
    }
    (nowhere && at(0) < at(len)).then_some((0, "lies in a buffer that is not there"))
}

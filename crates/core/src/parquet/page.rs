//! The headers of a column's pages: of what kind a page is, how long, and how many values it has.
//! The numbers of fields are those of parquet-format's `parquet.thrift`.

use super::thrift::{Reader, Result, STRUCT};

// PageHeader
const KIND: i16 = 1;
const DECODED_BYTES: i16 = 2; // without the header
const NUM_BYTES: i16 = 3; // compressed, without the header
const DATA: i16 = 5;
const DATA_V2: i16 = 8;
// DataPageHeader and DataPageHeaderV2
const NUM_VALUES: i16 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of so many values, nulls too: in a column that is not within lists, of as many rows.
    Data {
        values: i64,
    },
    Dictionary,
    /// Of an index, or of a kind of a later version.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub kind: Kind,
    /// With its header.
    pub num_bytes: u64,
    /// After decompression, as the header says; a reader allocates as many.
    pub decoded_bytes: u64,
}

/// The page whose header the bytes begin with.
pub fn read(bytes: &[u8]) -> Result<Page> {
    let (mut kind, mut num_bytes, mut decoded_bytes) = (None, None, None);
    let (mut data, mut data_v2) = (None, None);
    let mut reader = Reader::new(bytes);
    reader.each_field(|reader, id, field| {
        let values = match id {
            KIND => return reader.number(field, &mut kind),
            NUM_BYTES => return reader.number(field, &mut num_bytes),
            DECODED_BYTES => return reader.number(field, &mut decoded_bytes),
            DATA if field == STRUCT => &mut data,
            DATA_V2 if field == STRUCT => &mut data_v2,
            _ => return Ok(()),
        };
        reader.each_field(|reader, id, field| match id {
            NUM_VALUES => reader.number(field, values),
            _ => Ok(()),
        })
    })?;
    let values =
        |of: Option<i64>| of.filter(|values| *values >= 0).map(|values| Kind::Data { values });
    let kind = match kind.ok_or("a page does not say what it is")? {
        0 => values(data).ok_or("a page does not say how many values it has")?,
        2 => Kind::Dictionary,
        3 => values(data_v2).ok_or("a page does not say how many values it has")?,
        _ => Kind::Other,
    };
    let size = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
    let num_bytes = size(num_bytes).and_then(|body| body.checked_add(reader.at() as u64));
    Ok(Page {
        kind,
        num_bytes: num_bytes.ok_or("a page does not say how long it is")?,
        decoded_bytes: size(decoded_bytes).ok_or("a page does not say how long it is decoded")?,
    })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::thrift::{Field, I32, write_struct};
    use super::*;

    fn header(kind: i64, num_bytes: i64, about: i16, values: i64) -> Vec<u8> {
        let inner = write_struct(&[Field::int(1, I32, values), Field::int(2, I32, 8)]);
        write_struct(&[
            Field::int(1, I32, kind),
            Field::int(2, I32, 100),
            Field::int(3, I32, num_bytes),
            Field { id: about, kind: STRUCT, value: Cow::Owned(inner) },
        ])
    }

    #[test]
    fn pages_say_what_they_are() {
        for (kind, about, found) in [
            (0, 5, Kind::Data { values: 20_000 }),
            (3, 8, Kind::Data { values: 20_000 }),
            (2, 7, Kind::Dictionary),
            (1, 6, Kind::Other),
            (9, 9, Kind::Other),
        ] {
            let mut bytes = header(kind, 60, about, 20_000);
            let num_bytes = bytes.len() as u64 + 60;
            bytes.extend_from_slice(&[7; 60]);
            assert_eq!(read(&bytes), Ok(Page { kind: found, num_bytes, decoded_bytes: 100 }));
        }
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let whole = header(0, 60, 5, 3);
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err());
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = read(&damaged);
            }
        }
        assert!(read(&header(0, -1, 5, 3)).is_err());
        assert!(read(&header(0, 60, 5, -3)).is_err());
        assert!(read(&header(0, 60, 8, 3)).is_err());
    }
}

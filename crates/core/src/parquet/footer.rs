//! A Parquet file's footer: where the filters of its columns lie, and the footer written anew.
//! The numbers of fields are those of parquet-format's `parquet.thrift`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::thrift::{
    Field, I32, I64, LIST, Result, STRUCT, fields, structs, write_struct, write_structs,
};

// FileMetaData
const SCHEMA: i16 = 2;
const ROW_GROUPS: i16 = 4;
const KEY_VALUES: i16 = 5;
const ENCRYPTION: i16 = 8;
const SIGNING_KEY: i16 = 9;
// SchemaElement
const PHYSICAL_TYPE: i16 = 1;
const LOGICAL: [i16; 4] = [6, 7, 8, 10]; // converted type, scale, precision, logical type
// RowGroup
const COLUMNS: i16 = 1;
const NUM_ROWS: i16 = 3;
// ColumnChunk
const FILE_PATH: i16 = 1;
const META_DATA: i16 = 3;
const CRYPTO: [i16; 2] = [8, 9];
// ColumnMetaData
const BLOOM_OFFSET: i16 = 14;
const BLOOM_LENGTH: i16 = 15;

/// What a footer says of a column in a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where its filter begins, and how long it is with its header, as far as it says so.
    pub offset: Option<i64>,
    pub length: Option<i64>,
}

/// A row group: its rows, and its columns in the order of the schema's leaves.
pub struct RowGroup {
    pub rows: i64,
    pub chunks: Vec<Chunk>,
}

pub struct Footer {
    pub row_groups: Vec<RowGroup>,
    /// Encrypted, or signed so that a change would be noticed.
    pub signed: bool,
    /// Some of its columns lie in other files.
    pub external: bool,
}

/// Where filters are, each with its length: by row group and column.
pub type Places = HashMap<(usize, usize), (i64, i32)>;

/// Reads what a footer says about filters.
pub fn read(bytes: &[u8]) -> Result<Footer> {
    let (top, _) = fields(bytes)?;
    let mut footer = Footer {
        row_groups: Vec::new(),
        signed: find(&top, ENCRYPTION).is_some() || find(&top, SIGNING_KEY).is_some(),
        external: false,
    };
    for group in list(&top, ROW_GROUPS)?.ok_or("it has no row groups, not even a list of none")? {
        let (group, _) = fields(group)?;
        let rows = find(&group, NUM_ROWS).and_then(Field::number).filter(|rows| *rows >= 0);
        let rows = rows.ok_or("a row group does not say how many rows it has")?;
        let mut chunks = Vec::new();
        for chunk in list(&group, COLUMNS)?.ok_or("a row group has no columns")? {
            let (chunk, _) = fields(chunk)?;
            footer.signed |= CRYPTO.iter().any(|id| find(&chunk, *id).is_some());
            footer.external |= find(&chunk, FILE_PATH).is_some();
            let (meta, _) = match find(&chunk, META_DATA).filter(|field| field.kind == STRUCT) {
                Some(field) => fields(&field.value)?,
                None => (Vec::new(), 0),
            };
            let number = |id| find(&meta, id).and_then(Field::number);
            chunks.push(Chunk { offset: number(BLOOM_OFFSET), length: number(BLOOM_LENGTH) });
        }
        footer.row_groups.push(RowGroup { rows, chunks });
    }
    Ok(footer)
}

/// The footer with filters at these places; all else is as it was.
pub fn with_filters(bytes: &[u8], places: &Places) -> Result<Vec<u8>> {
    edit(bytes, |top| {
        change_each(top, ROW_GROUPS, |number, group| {
            change_each(group, COLUMNS, |column, chunk| {
                let Some((offset, length)) = places.get(&(number, column)) else {
                    return Ok(());
                };
                let meta = chunk.iter_mut().find(|field| field.id == META_DATA);
                let meta = meta.ok_or("a column has no metadata")?;
                meta.value = Cow::Owned(edit(&meta.value, |meta| {
                    meta.retain(|field| ![BLOOM_OFFSET, BLOOM_LENGTH].contains(&field.id));
                    let at = meta.iter().position(|field| field.id > BLOOM_LENGTH);
                    let at = at.unwrap_or(meta.len());
                    meta.insert(at, Field::int(BLOOM_LENGTH, I32, i64::from(*length)));
                    meta.insert(at, Field::int(BLOOM_OFFSET, I64, *offset));
                    Ok(())
                })?);
                Ok(())
            })
        })
    })
}

/// The footer without logical types: whoever reads by it gets values as they are stored.
pub fn physical(bytes: &[u8]) -> Result<Vec<u8>> {
    edit(bytes, |top| {
        top.retain(|field| field.id != KEY_VALUES);
        change_each(top, SCHEMA, |_, element| {
            if find(element, PHYSICAL_TYPE).is_some() {
                element.retain(|field| !LOGICAL.contains(&field.id));
            }
            Ok(())
        })
    })
}

/// A structure with its fields changed.
fn edit<'a>(
    bytes: &'a [u8],
    change: impl FnOnce(&mut Vec<Field<'a>>) -> Result<()>,
) -> Result<Vec<u8>> {
    let (mut found, _) = fields(bytes)?;
    change(&mut found)?;
    Ok(write_struct(&found))
}

/// Changes every structure of the list that a field is.
fn change_each(
    of: &mut [Field<'_>],
    id: i16,
    mut change: impl FnMut(usize, &mut Vec<Field<'_>>) -> Result<()>,
) -> Result<()> {
    let Some(field) = of.iter_mut().find(|field| field.id == id && field.kind == LIST) else {
        return Err("a list that every footer has is missing".into());
    };
    let changed: Result<Vec<_>> = structs(&field.value)?
        .into_iter()
        .enumerate()
        .map(|(number, element)| {
            let (mut found, _) = fields(element)?;
            change(number, &mut found)?;
            Ok(write_struct(&found))
        })
        .collect();
    field.value = Cow::Owned(write_structs(&changed?));
    Ok(())
}

fn find<'a, 'b>(fields: &'a [Field<'b>], id: i16) -> Option<&'a Field<'b>> {
    fields.iter().find(|field| field.id == id)
}

fn list<'a>(fields: &'a [Field<'_>], id: i16) -> Result<Option<Vec<&'a [u8]>>> {
    match find(fields, id) {
        Some(field) if field.kind == LIST => structs(&field.value).map(Some),
        Some(_) => Err("a field that should be a list is none".into()),
        None => Ok(None),
    }
}

/// The header of a filter of so many bytes: a split-block filter of XXH64, not compressed.
pub fn filter_header(num_bytes: i32) -> Vec<u8> {
    // A union is a structure of one field, and each of these three is an empty structure.
    let chosen = |id| Field { id, kind: STRUCT, value: Cow::Borrowed(&[0x1C, 0, 0][..]) };
    let size = Field::int(1, I32, i64::from(num_bytes));
    write_struct(&[size, chosen(2), chosen(3), chosen(4)])
}

/// How many bytes a filter has, and how many its header, which the bytes begin with; None if it is
/// a kind of filter that is not known here.
pub fn read_filter_header(bytes: &[u8]) -> Result<Option<(i64, usize)>> {
    let (found, len) = fields(bytes)?;
    let size = find(&found, 1).and_then(Field::number).ok_or("it does not say how large it is")?;
    for id in 2..=4 {
        let union = find(&found, id).filter(|field| field.kind == STRUCT);
        let union = union.ok_or("it does not say what kind of filter it is")?;
        let (chosen, _) = fields(&union.value)?;
        if chosen.first().is_none_or(|first| first.id != 1) {
            return Ok(None);
        }
    }
    Ok(Some((size, len)))
}

#[cfg(test)]
mod tests {
    use super::super::thrift::{BINARY, TRUE};
    use super::*;

    /// A footer of one column `a`, an int64, and one row group, with fields that nobody knows.
    fn footer() -> Vec<u8> {
        let text = |id, text: &str| {
            let mut value = vec![text.len() as u8];
            value.extend_from_slice(text.as_bytes());
            Field { id, kind: BINARY, value: Cow::Owned(value) }
        };
        let nested = |id, kind, value| Field { id, kind, value: Cow::Owned(value) };
        let leaf = write_struct(&[
            Field::int(1, I32, 2),
            text(4, "a"),
            Field::int(6, I32, 10),
            nested(10, STRUCT, vec![0]),
            text(99, "unknown"),
        ]);
        let meta = write_struct(&[Field::int(1, I32, 2), Field::int(16, I64, 5), text(77, "kept")]);
        let chunk = write_struct(&[Field::int(2, I64, 4), nested(3, STRUCT, meta)]);
        let group =
            write_struct(&[nested(1, LIST, write_structs(&[chunk])), Field::int(3, I64, 100)]);
        write_struct(&[
            Field::int(1, I32, 1),
            nested(2, LIST, write_structs(&[leaf])),
            Field::int(3, I64, 100),
            nested(4, LIST, write_structs(&[group])),
            nested(5, LIST, write_structs(&[write_struct(&[text(1, "k")])])),
            Field { id: 300, kind: TRUE, value: Cow::Borrowed(&[]) },
            text(-3, "before"),
        ])
    }

    fn contains(bytes: &[u8], text: &str) -> bool {
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }

    #[test]
    fn filters_are_noted_and_the_rest_is_kept() {
        let before = footer();
        let places = Places::from([((0, 0), (1 << 40, 1040))]);
        let after = with_filters(&before, &places).unwrap();
        let chunk = read(&after).unwrap().row_groups[0].chunks[0];
        assert_eq!(chunk, Chunk { offset: Some(1 << 40), length: Some(1040) });
        assert!(["unknown", "kept", "before"].iter().all(|text| contains(&after, text)));
        assert_eq!(with_filters(&after, &places).unwrap(), after);
        assert_eq!(with_filters(&before, &Places::new()).unwrap(), before);
        assert_eq!(read(&before).unwrap().row_groups[0].chunks[0].offset, None);
    }

    #[test]
    fn physical_footers_have_no_logical_types() {
        let after = physical(&footer()).unwrap();
        let (top, _) = fields(&after).unwrap();
        let leaf = list(&top, SCHEMA).unwrap().unwrap()[0];
        let ids: Vec<_> = fields(leaf).unwrap().0.iter().map(|field| field.id).collect();
        assert_eq!(ids, [1, 4, 99]);
        assert!(find(&top, KEY_VALUES).is_none());
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let whole = footer();
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err());
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = read(&damaged);
                let _ = physical(&damaged);
                let _ = with_filters(&damaged, &Places::from([((0, 0), (1, 1))]));
                let _ = read_filter_header(&damaged);
            }
        }
        assert!(read(&[0x4C; 1 << 16]).is_err_and(|problem| problem.contains("deep")));
        assert!(read(&[0x49, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]).is_err());
    }

    #[test]
    fn filter_headers_come_back() {
        for size in [32, 1024, 1 << 27] {
            let mut header = filter_header(size);
            let len = header.len();
            header.extend_from_slice(&[7; 40]);
            assert_eq!(read_filter_header(&header), Ok(Some((i64::from(size), len))));
        }
        // Another algorithm than the first of the union.
        let mut other = filter_header(32);
        let at = other.iter().position(|byte| *byte == 0x1C).unwrap() + 1;
        other[at] = 0x2C;
        assert_eq!(read_filter_header(&other), Ok(None));
    }
}

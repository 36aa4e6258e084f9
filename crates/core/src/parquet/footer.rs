//! A Parquet file's footer: where the filters of its columns lie, and the footer written anew.
//! The numbers of fields are those of parquet-format's `parquet.thrift`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::thrift::{
    Field, I32, I64, LIST, Reader, Result, STRUCT, fields, structs, write_struct, write_structs,
};

// FileMetaData
const SCHEMA: i16 = 2;
const FILE_ROWS: i16 = 3;
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
const NUM_VALUES: i16 = 5;
const NUM_BYTES: i16 = 7; // compressed, with the headers of its pages
const DATA_OFFSET: i16 = 9;
const INDEX_OFFSET: i16 = 10;
const DICTIONARY_OFFSET: i16 = 11;
const BLOOM_OFFSET: i16 = 14;
const BLOOM_LENGTH: i16 = 15;

/// What a footer says of a column in a row group, as far as it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Where its filter begins, and how long it is with its header.
    pub offset: Option<i64>,
    pub length: Option<i64>,
    /// Where its pages begin, those of data and the one of a dictionary before them, and how many
    /// bytes all of them have.
    data: Option<i64>,
    dictionary: Option<i64>,
    num_bytes: Option<i64>,
}

impl Chunk {
    /// Where its pages begin, and how many bytes they have.
    pub fn pages(&self) -> Option<(i64, i64)> {
        let data = self.data?;
        let first = self.dictionary.filter(|at| (1..data).contains(at));
        Some((first.unwrap_or(data), self.num_bytes?))
    }
}

/// A row group: its rows, and its columns in the order of the schema's leaves.
pub struct RowGroup {
    pub rows: i64,
    pub chunks: Vec<Chunk>,
    /// Where in the footer it is described.
    range: Range<usize>,
}

#[derive(Default)]
pub struct Footer {
    pub row_groups: Vec<RowGroup>,
    /// Encrypted, or signed so that a change would be noticed.
    pub signed: bool,
    /// Some of its columns lie in other files.
    pub external: bool,
    /// The footer's fields: number, type, and where.
    top: Vec<(i16, u8, Range<usize>)>,
}

/// Where filters are, each with its length: by row group and column.
pub type Places = HashMap<(usize, usize), (i64, i32)>;

/// Pages that were cut out of a column and stand in another file, the dictionary's first.
pub struct Cut {
    pub start: i64,
    pub values: i64,
    /// Of the dictionary, with its header; 0 if there is none.
    pub dictionary_bytes: i64,
    pub num_bytes: i64,
}

/// Reads what a footer says about filters and pages. Each byte is looked at once: a footer of 100
/// row groups and 8 columns has 96 kB.
pub fn read(bytes: &[u8]) -> Result<Footer> {
    let mut footer = Footer::default();
    let mut found = None;
    let mut reader = Reader::new(bytes);
    reader.each_field(|reader, id, kind| {
        let start = reader.at();
        if id == ROW_GROUPS && found.is_none() {
            let mut groups = Vec::new();
            reader.each_struct(kind, |reader| {
                groups.push(read_group(reader, &mut footer)?);
                Ok(())
            })?;
            found = Some(groups);
        } else {
            reader.pass_over(kind)?;
        }
        footer.signed |= id == ENCRYPTION || id == SIGNING_KEY;
        footer.top.push((id, kind, start..reader.at()));
        Ok(())
    })?;
    footer.row_groups = found.ok_or("it has no row groups, not even a list of none")?;
    Ok(footer)
}

fn read_group(reader: &mut Reader<'_>, footer: &mut Footer) -> Result<RowGroup> {
    let start = reader.at();
    let (mut rows, mut chunks) = (None, None);
    reader.each_field(|reader, id, kind| match id {
        NUM_ROWS => reader.number(kind, &mut rows),
        COLUMNS if chunks.is_none() => {
            let mut found = Vec::new();
            reader.each_struct(kind, |reader| {
                found.push(read_chunk(reader, footer)?);
                Ok(())
            })?;
            chunks = Some(found);
            Ok(())
        }
        _ => Ok(()),
    })?;
    let rows = rows.filter(|rows| *rows >= 0);
    Ok(RowGroup {
        rows: rows.ok_or("a row group does not say how many rows it has")?,
        chunks: chunks.ok_or("a row group has no columns")?,
        range: start..reader.at(),
    })
}

fn read_chunk(reader: &mut Reader<'_>, footer: &mut Footer) -> Result<Chunk> {
    let (mut chunk, mut seen) = (Chunk::default(), false);
    reader.each_field(|reader, id, kind| {
        footer.signed |= CRYPTO.contains(&id);
        footer.external |= id == FILE_PATH;
        if id != META_DATA || kind != STRUCT || seen {
            return Ok(());
        }
        seen = true;
        reader.each_field(|reader, id, kind| match id {
            NUM_BYTES => reader.number(kind, &mut chunk.num_bytes),
            DATA_OFFSET => reader.number(kind, &mut chunk.data),
            DICTIONARY_OFFSET => reader.number(kind, &mut chunk.dictionary),
            BLOOM_OFFSET => reader.number(kind, &mut chunk.offset),
            BLOOM_LENGTH => reader.number(kind, &mut chunk.length),
            _ => Ok(()),
        })
    })?;
    Ok(chunk)
}

impl Footer {
    /// The footer of these row groups alone: a reader then does not go through all the others.
    /// `bytes` are those that it was read from.
    pub fn excerpt(&self, bytes: &[u8], row_groups: &[usize], physical: bool) -> Result<Vec<u8>> {
        let found: Option<Vec<&[u8]>> =
            row_groups.iter().map(|group| self.described(bytes, *group)).collect();
        let found = found.ok_or("it has fewer row groups")?;
        let rows = row_groups.iter().map(|group| self.row_groups[*group].rows);
        let rows = rows.fold(0i64, i64::saturating_add);
        self.with_groups(bytes, write_structs(&found), rows, physical)
    }

    /// The footer of one row group, with just these pages of its columns, by their numbers. Columns
    /// whose pages have other numbers of values are not to be read together.
    pub fn cut(
        &self,
        bytes: &[u8],
        row_group: usize,
        cuts: &HashMap<usize, Cut>,
    ) -> Result<Vec<u8>> {
        let group = self.described(bytes, row_group).ok_or("it has fewer row groups")?;
        let rows = cuts.values().map(|cut| cut.values).max().unwrap_or(0);
        let group = edit(group, |group| {
            set(group, Field::int(NUM_ROWS, I64, rows));
            change_each(group, COLUMNS, |column, chunk| {
                let Some(cut) = cuts.get(&column) else { return Ok(()) };
                change_metadata(chunk, |meta| {
                    meta.retain(|field| ![INDEX_OFFSET, DICTIONARY_OFFSET].contains(&field.id));
                    set(meta, Field::int(NUM_VALUES, I64, cut.values));
                    set(meta, Field::int(NUM_BYTES, I64, cut.num_bytes));
                    let data = cut.start.saturating_add(cut.dictionary_bytes);
                    set(meta, Field::int(DATA_OFFSET, I64, data));
                    if cut.dictionary_bytes > 0 {
                        set(meta, Field::int(DICTIONARY_OFFSET, I64, cut.start));
                    }
                })
            })
        })?;
        self.with_groups(bytes, write_structs(&[group]), rows, false)
    }

    fn described<'a>(&self, bytes: &'a [u8], row_group: usize) -> Option<&'a [u8]> {
        bytes.get(self.row_groups.get(row_group)?.range.clone())
    }

    /// The footer with this list of row groups; if `physical`, without logical types: whoever reads
    /// by it gets values as they are stored.
    fn with_groups(
        &self,
        bytes: &[u8],
        groups: Vec<u8>,
        rows: i64,
        physical: bool,
    ) -> Result<Vec<u8>> {
        let mut top = Vec::with_capacity(self.top.len());
        for (id, kind, range) in self.top.iter().filter(|(id, ..)| *id != ROW_GROUPS) {
            let value = bytes.get(range.clone()).ok_or("it is another footer")?;
            top.push(Field { id: *id, kind: *kind, value: Cow::Borrowed(value) });
        }
        set(&mut top, Field { id: ROW_GROUPS, kind: LIST, value: Cow::Owned(groups) });
        set(&mut top, Field::int(FILE_ROWS, I64, rows));
        if physical {
            top.retain(|field| field.id != KEY_VALUES);
            change_each(&mut top, SCHEMA, |_, element| {
                if find(element, PHYSICAL_TYPE).is_some() {
                    element.retain(|field| !LOGICAL.contains(&field.id));
                }
                Ok(())
            })?;
        }
        Ok(write_struct(&top))
    }
}

/// The footer with filters at these places; all else is as it was.
pub fn with_filters(bytes: &[u8], places: &Places) -> Result<Vec<u8>> {
    edit(bytes, |top| {
        change_each(top, ROW_GROUPS, |number, group| {
            change_each(group, COLUMNS, |column, chunk| {
                let Some((offset, length)) = places.get(&(number, column)) else {
                    return Ok(());
                };
                change_metadata(chunk, |meta| {
                    set(meta, Field::int(BLOOM_OFFSET, I64, *offset));
                    set(meta, Field::int(BLOOM_LENGTH, I32, i64::from(*length)));
                })
            })
        })
    })
}

/// Changes what a column chunk says of its data.
fn change_metadata(
    chunk: &mut [Field<'_>],
    change: impl FnOnce(&mut Vec<Field<'_>>),
) -> Result<()> {
    let meta = chunk.iter_mut().find(|field| field.id == META_DATA);
    let meta = meta.ok_or("a column has no metadata")?;
    meta.value = Cow::Owned(edit(&meta.value, |meta| {
        change(meta);
        Ok(())
    })?);
    Ok(())
}

/// Puts a field in the place of those of its number, or before the next higher.
fn set<'a>(of: &mut Vec<Field<'a>>, field: Field<'a>) {
    of.retain(|old| old.id != field.id);
    let at = of.iter().position(|old| old.id > field.id).unwrap_or(of.len());
    of.insert(at, field);
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
        assert_eq!((chunk.offset, chunk.length), (Some(1 << 40), Some(1040)));
        assert!(["unknown", "kept", "before"].iter().all(|text| contains(&after, text)));
        assert_eq!(with_filters(&after, &places).unwrap(), after);
        assert_eq!(with_filters(&before, &Places::new()).unwrap(), before);
        assert_eq!(read(&before).unwrap().row_groups[0].chunks[0].offset, None);
    }

    fn excerpt(bytes: &[u8], physical: bool) -> Result<Vec<u8>> {
        read(bytes)?.excerpt(bytes, &[0], physical)
    }

    #[test]
    fn physical_footers_have_no_logical_types() {
        let after = excerpt(&footer(), true).unwrap();
        let (top, _) = fields(&after).unwrap();
        let leaf = structs(&find(&top, SCHEMA).unwrap().value).unwrap()[0];
        let ids: Vec<_> = fields(leaf).unwrap().0.iter().map(|field| field.id).collect();
        assert_eq!(ids, [1, 4, 99]);
        assert!(find(&top, KEY_VALUES).is_none());
    }

    #[test]
    fn excerpts_have_the_row_groups_that_are_asked_for() {
        let whole = footer();
        let read_whole = read(&whole).unwrap();
        // A footer of one row group, and a field before the first, which moves.
        assert!(contains(&excerpt(&whole, false).unwrap(), "before"));
        let twice = read_whole.excerpt(&whole, &[0, 0], false).unwrap();
        let twice_read = read(&twice).unwrap();
        assert_eq!(twice_read.row_groups.len(), 2);
        assert_eq!(twice_read.row_groups[1].chunks, read_whole.row_groups[0].chunks);
        let none = read_whole.excerpt(&whole, &[], false).unwrap();
        assert!(read(&none).unwrap().row_groups.is_empty());
        assert!(read_whole.excerpt(&whole, &[1], false).is_err());
        assert!(read_whole.excerpt(&[], &[0], false).is_err());
    }

    #[test]
    fn cuts_say_where_their_pages_are() {
        let whole = footer();
        for (dictionary_bytes, dictionary) in [(0, None), (50, Some(4))] {
            let cut = Cut { start: 4, values: 7, dictionary_bytes, num_bytes: 90 };
            let cuts = HashMap::from([(0, cut)]);
            let after = read(&whole).unwrap().cut(&whole, 0, &cuts).unwrap();
            let group = &read(&after).unwrap().row_groups[0];
            assert_eq!(group.rows, 7);
            assert_eq!(group.chunks[0].dictionary, dictionary);
            assert_eq!(group.chunks[0].data, Some(4 + dictionary_bytes));
            assert_eq!(group.chunks[0].pages(), Some((4, 90)));
            assert!(contains(&after, "kept"));
        }
        assert!(read(&whole).unwrap().cut(&whole, 1, &HashMap::new()).is_err());
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
                let _ = excerpt(&damaged, true);
                if let Ok(found) = read(&damaged) {
                    let cut = Cut { start: 4, values: 1, dictionary_bytes: 1, num_bytes: 1 };
                    let _ = found.cut(&damaged, 0, &HashMap::from([(0, cut)]));
                }
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

//! What the rows of an Arrow column are as keys: its logical type says so, never its storage alone.

use std::ffi::CStr;

use bloomery_core::hash::Domain;
use pyo3::prelude::*;

use crate::errors::error;
use crate::keys::arrow::{Schema, damaged, pointee};
use crate::keys::column::Int;

/// How the rows of a column are read, and as which kind of key.
pub enum KeyType {
    /// Rows, but no key.
    Null,
    Ints(Int),
    /// Text or binary between offsets; `wide` offsets have 64 bits.
    Offsets {
        wide: bool,
    },
    /// Text or binary by views of 16 bytes.
    Views,
    Fixed {
        width: usize,
        domain: Domain,
    },
    Dictionary {
        index: Int,
        values: Box<KeyType>,
    },
    /// The only column of a table, whose rows are structs to Arrow.
    Only(Box<KeyType>),
}

/// The type of a column's keys; of a table or a relation with one column, of that column's.
/// `lossy`: the type it had before Arrow, which only an extension type can hold.
///
/// # Safety
/// What the schema points to is there, as the Arrow C data interface says.
pub unsafe fn key_type(py: Python<'_>, schema: &Schema, lossy: Option<&str>) -> PyResult<KeyType> {
    // SAFETY: as promised above.
    let name = unsafe { Name::of(py, schema)? };
    if name.format != "+s" || name.extension.is_some() {
        // SAFETY: as promised above.
        return unsafe { column_type(py, schema, lossy) };
    }
    if schema.n_children != 1 {
        let message = format!(
            "a table of {} columns is not a batch of keys: pick one column",
            schema.n_children
        );
        return Err(error(py, "UnsupportedBatch", message));
    }
    // SAFETY: as promised above; there is one child.
    unsafe {
        let child = pointee(py, *pointee(py, schema.children)?)?;
        Ok(KeyType::Only(Box::new(column_type(py, child, lossy)?)))
    }
}

/// # Safety
/// As for `key_type`.
unsafe fn column_type(py: Python<'_>, schema: &Schema, lossy: Option<&str>) -> PyResult<KeyType> {
    // SAFETY: as promised above.
    let name = unsafe { Name::of(py, schema)? };
    let found = if schema.dictionary.is_null() {
        name.plain(py)?
    } else {
        let (Some(index), None) = (int(&name.format), &name.extension) else {
            return Err(name.refused(py));
        };
        // SAFETY: as promised above.
        let values = unsafe { Name::of(py, pointee(py, schema.dictionary)?)? };
        if values.dictionary {
            return Err(values.refused(py));
        }
        KeyType::Dictionary { index, values: Box::new(values.plain(py)?) }
    };
    match lossy {
        Some(was) if name.extension.is_none() => {
            let message = format!(
                "a DuckDB column of type {was} is not a batch of keys as it is handed over, for \
                 Arrow does not say its type: run SET arrow_lossless_conversion = true on its \
                 connection, or cast the column to a type whose keys you ask for"
            );
            Err(error(py, "UnsupportedBatch", message))
        }
        _ => Ok(found),
    }
}

/// What a schema says of itself.
struct Name {
    format: String,
    extension: Option<String>,
    dictionary: bool,
}

impl Name {
    /// # Safety
    /// As for `key_type`.
    unsafe fn of(py: Python<'_>, schema: &Schema) -> PyResult<Name> {
        if schema.format.is_null() {
            return Err(damaged(py, "its schema has no format"));
        }
        // SAFETY: a format is a C string, and metadata what `extension` reads.
        let (format, extension) =
            unsafe { (CStr::from_ptr(schema.format), extension(schema.metadata.cast())) };
        Ok(Name {
            format: format.to_string_lossy().into_owned(),
            extension: extension.map_err(|()| damaged(py, "its metadata cannot be read"))?,
            dictionary: !schema.dictionary.is_null(),
        })
    }

    /// The type of keys that lie in the column itself, not in a dictionary.
    fn plain(&self, py: Python<'_>) -> PyResult<KeyType> {
        let format = self.format.as_str();
        let text = matches!(format, "u" | "U" | "vu");
        match self.extension.as_deref() {
            // Its text is what pyarrow and DuckDB show of it.
            Some("arrow.json") if text => {}
            Some("arrow.uuid") if format == "w:16" => {
                return Ok(KeyType::Fixed { width: 16, domain: Domain::Uuid });
            }
            Some(_) => return Err(self.refused(py)),
            None => {}
        }
        Ok(match format {
            "n" => KeyType::Null,
            "u" | "z" => KeyType::Offsets { wide: false },
            "U" | "Z" => KeyType::Offsets { wide: true },
            "vu" | "vz" => KeyType::Views,
            _ => match (int(format), width(format)) {
                (Some(int), _) => KeyType::Ints(int),
                (_, Some(width)) => KeyType::Fixed { width, domain: Domain::Bytes },
                _ => return Err(self.refused(py)),
            },
        })
    }

    #[cold]
    fn refused(&self, py: Python<'_>) -> PyErr {
        let format = self.format.as_str();
        let message = match &self.extension {
            Some(name) => {
                let name: String = name.chars().take(60).collect();
                format!(
                    "an Arrow column of the extension type {name:?} is not a batch of keys: of \
                     these only arrow.uuid and arrow.json are; if what it is stored as is what \
                     you mean, pass that (in pyarrow column.storage), else cast it to strings"
                )
            }
            None => {
                let kind = if self.dictionary { "dictionary".into() } else { type_name(format) };
                let advice = match kind.as_str() {
                    "dictionary" => "decode the dictionary within its dictionary",
                    "bool" => "cast it to int8",
                    "run_end_encoded" => {
                        "decode its runs (in pyarrow pyarrow.compute.run_end_decode)"
                    }
                    "struct" => "pick one of its fields",
                    "timestamp" => "cast it to int64 or string, or pass a list of its datetimes",
                    name if name.starts_with("float") => {
                        "an int column with missing values? use Int64, or drop them; other floats \
                         cast to string"
                    }
                    _ => "cast it to one of these",
                };
                format!(
                    "a column of {kind} is not a batch of keys: ints, strings, binary and UUIDs \
                     are; {advice}"
                )
            }
        };
        error(py, "UnsupportedBatch", message)
    }
}

/// What people call the type of an Arrow format.
fn type_name(format: &str) -> String {
    let name = match format {
        "b" => "bool",
        "e" => "float16",
        "f" => "float32",
        "g" => "float64",
        "tdD" => "date32",
        "tdm" => "date64",
        "+l" | "+L" | "+vl" | "+vL" => "list",
        "+s" => "struct",
        "+m" => "map",
        "+r" => "run_end_encoded",
        _ => match format.get(..2) {
            Some("d:") => "decimal",
            Some("ts") => "timestamp",
            Some("tt") => "time",
            Some("tD") => "duration",
            Some("ti") => "interval",
            Some("+w") => "fixed_size_list",
            Some("+u") => "union",
            _ => {
                let shown: String = format.chars().take(60).collect();
                return format!("the unknown Arrow format {shown:?}");
            }
        },
    };
    name.into()
}

fn int(format: &str) -> Option<Int> {
    let (width, signed) = match format {
        "c" => (1, true),
        "s" => (2, true),
        "i" => (4, true),
        "l" => (8, true),
        "C" => (1, false),
        "S" => (2, false),
        "I" => (4, false),
        "L" => (8, false),
        _ => return None,
    };
    Some(Int { width, signed, swapped: false, truth: false })
}

/// How wide a format of fixed width is; Arrow counts in 32 bits.
fn width(format: &str) -> Option<usize> {
    let width: i32 = format.strip_prefix("w:")?.parse().ok()?;
    usize::try_from(width).ok()
}

/// The name of the extension type in a schema's metadata: a count, then for each key and each value
/// its length and its bytes; counts and lengths have 32 bits.
///
/// # Safety
/// It is null or points to such metadata.
unsafe fn extension(mut at: *const u8) -> Result<Option<String>, ()> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: as promised above.
    unsafe {
        for _ in 0..number(&mut at)? {
            let (key, value) = (text(&mut at)?, text(&mut at)?);
            if key == b"ARROW:extension:name" {
                return Ok(Some(String::from_utf8_lossy(value).into_owned()));
            }
        }
    }
    Ok(None)
}

/// # Safety
/// A number of 32 bits is there.
unsafe fn number(at: &mut *const u8) -> Result<usize, ()> {
    // SAFETY: as promised above.
    let raw = unsafe { at.cast::<i32>().read_unaligned() };
    *at = at.wrapping_add(4);
    usize::try_from(raw).map_err(drop)
}

/// # Safety
/// A length and as many bytes are there for `'a`.
unsafe fn text<'a>(at: &mut *const u8) -> Result<&'a [u8], ()> {
    // SAFETY: as promised above.
    unsafe {
        let len = number(at)?;
        let start = *at;
        *at = at.wrapping_add(len);
        Ok(std::slice::from_raw_parts(start, len))
    }
}

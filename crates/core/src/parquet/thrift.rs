//! Thrift's compact protocol, as far as rewriting needs it: a structure as a list of fields whose
//! values stay bytes. Every byte is hostile: lengths are held against what is there, before memory
//! is asked for, and structures within structures against a limit.

use std::borrow::Cow;

pub const TRUE: u8 = 1;
pub const FALSE: u8 = 2;
pub const I32: u8 = 5;
pub const I64: u8 = 6;
pub const BINARY: u8 = 8;
pub const LIST: u8 = 9;
pub const STRUCT: u8 = 12;

/// Far more than any footer has.
const DEPTH: usize = 64;

pub type Result<T> = std::result::Result<T, String>;

/// A field of a structure: its number, its type, and its value as it lies there. A bool's is in its
/// type.
pub struct Field<'a> {
    pub id: i16,
    pub kind: u8,
    pub value: Cow<'a, [u8]>,
}

impl Field<'_> {
    pub fn int(id: i16, kind: u8, value: i64) -> Field<'static> {
        let mut bytes = Vec::new();
        write_varint(&mut bytes, ((value << 1) ^ (value >> 63)) as u64);
        Field { id, kind, value: Cow::Owned(bytes) }
    }

    /// Its value, if it is a whole number.
    pub fn number(&self) -> Option<i64> {
        matches!(self.kind, I32 | I64).then(|| Reader::new(&self.value).zigzag().ok())?
    }
}

/// The values of a list of structures, each with its end.
pub type Structs<'a> = Vec<&'a [u8]>;

/// The fields of the structure that the bytes begin with, and how many bytes it has.
pub fn fields(bytes: &[u8]) -> Result<(Vec<Field<'_>>, usize)> {
    let mut reader = Reader::new(bytes);
    let (mut found, mut last) = (Vec::new(), 0);
    while let Some((id, kind)) = reader.header(last)? {
        let start = reader.at;
        reader.skip(kind, DEPTH)?;
        found.push(Field { id, kind, value: Cow::Borrowed(&bytes[start..reader.at]) });
        last = id;
    }
    Ok((found, reader.at))
}

/// The elements of a list, which must be structures.
pub fn structs(list: &[u8]) -> Result<Structs<'_>> {
    let mut reader = Reader::new(list);
    let (kind, count) = reader.list()?;
    if kind != STRUCT && count > 0 {
        return Err("a list holds what it should not".into());
    }
    let mut found = Vec::new();
    for _ in 0..count {
        let start = reader.at;
        reader.skip(STRUCT, DEPTH)?;
        found.push(&list[start..reader.at]);
    }
    Ok(found)
}

/// A structure with these fields.
pub fn write_struct(fields: &[Field<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(fields.iter().map(|field| field.value.len() + 2).sum());
    let mut last = 0i16;
    for field in fields {
        match field.id.checked_sub(last) {
            Some(step @ 1..=15) => out.push((step as u8) << 4 | field.kind),
            _ => {
                out.push(field.kind);
                let id = i32::from(field.id);
                write_varint(&mut out, u64::from(((id << 1) ^ (id >> 31)) as u32));
            }
        }
        out.extend_from_slice(&field.value);
        last = field.id;
    }
    out.push(0);
    out
}

/// A list of structures, each with its end.
pub fn write_structs<T: AsRef<[u8]>>(elements: &[T]) -> Vec<u8> {
    let bytes: usize = elements.iter().map(|element| element.as_ref().len()).sum();
    let mut out = Vec::with_capacity(bytes + 6);
    if elements.len() < 15 {
        out.push((elements.len() as u8) << 4 | STRUCT);
    } else {
        out.push(0xF0 | STRUCT);
        write_varint(&mut out, elements.len() as u64);
    }
    elements.iter().for_each(|element| out.extend_from_slice(element.as_ref()));
    out
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Goes through bytes once, from the first to the last.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// How many bytes were gone through.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The fields of a structure, one by one: `each` is given a field's number and type, and takes
    /// its value or leaves it, and then it is passed over.
    pub fn each_field(
        &mut self,
        mut each: impl FnMut(&mut Self, i16, u8) -> Result<()>,
    ) -> Result<()> {
        let mut last = 0;
        while let Some((id, kind)) = self.header(last)? {
            let start = self.at;
            each(self, id, kind)?;
            if self.at == start {
                self.skip(kind, DEPTH)?;
            }
            last = id;
        }
        Ok(())
    }

    /// The elements of a list of structures, each of which `each` must take.
    pub fn each_struct(
        &mut self,
        field: u8,
        mut each: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if field != LIST {
            self.skip(field, DEPTH)?;
            return Err("a field that should be a list is none".into());
        }
        let (kind, count) = self.list()?;
        if kind != STRUCT && count > 0 {
            return Err("a list holds what it should not".into());
        }
        (0..count).try_for_each(|_| each(self))
    }

    /// Takes a whole number into `to`, of a field that is one and came for the first time.
    pub fn number(&mut self, kind: u8, to: &mut Option<i64>) -> Result<()> {
        if matches!(kind, I32 | I64) && to.is_none() {
            *to = Some(self.zigzag()?);
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = self.bytes.get(self.at).copied().ok_or("it ends in the middle of a value")?;
        self.at += 1;
        Ok(byte)
    }

    fn pass(&mut self, count: u64) -> Result<()> {
        let left = (self.bytes.len() - self.at) as u64;
        if count > left {
            return Err(format!("a value of {count} bytes is claimed where {left} are left"));
        }
        self.at += count as usize;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number has more than 64 bits".into())
    }

    fn zigzag(&mut self) -> Result<i64> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// The number and the type of the next field; None at the structure's end.
    fn header(&mut self, last: i16) -> Result<Option<(i16, u8)>> {
        let byte = self.byte()?;
        let kind = byte & 15;
        if byte == 0 {
            return Ok(None);
        }
        let id = match byte >> 4 {
            0 => i16::try_from(self.zigzag()?).ok(),
            step => last.checked_add(i16::from(step)),
        };
        Ok(Some((id.ok_or("a field has a number that none can have")?, kind)))
    }

    /// The type of a list's elements, and how many there are: each has a byte at least.
    fn list(&mut self) -> Result<(u8, u64)> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
        self.plausible(count)?;
        Ok((byte & 15, count))
    }

    fn plausible(&self, count: u64) -> Result<()> {
        let left = (self.bytes.len() - self.at) as u64;
        if count > left {
            return Err(format!("{count} elements are claimed where {left} bytes are left"));
        }
        Ok(())
    }

    /// Passes over a field's value.
    pub fn pass_over(&mut self, kind: u8) -> Result<()> {
        self.skip(kind, DEPTH)
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<()> {
        let depth = depth.checked_sub(1).ok_or("it is nested too deeply")?;
        match kind {
            TRUE | FALSE => Ok(()),
            3 => self.pass(1),
            4 | I32 | I64 => self.varint().map(drop),
            7 => self.pass(8),
            BINARY => {
                let len = self.varint()?;
                self.pass(len)
            }
            LIST | 10 => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.element(kind, depth))
            }
            11 => {
                let count = self.varint()?;
                self.plausible(count)?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.element(kinds >> 4, depth)?;
                    self.element(kinds & 15, depth)
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some((id, kind)) = self.header(last)? {
                    self.skip(kind, depth)?;
                    last = id;
                }
                Ok(())
            }
            13 => self.pass(16),
            _ => Err(format!("a value has the unknown type {kind}")),
        }
    }

    /// An element of a list, where a bool has a byte of its own.
    fn element(&mut self, kind: u8, depth: usize) -> Result<()> {
        match kind {
            TRUE | FALSE => self.pass(1),
            _ => self.skip(kind, depth),
        }
    }
}

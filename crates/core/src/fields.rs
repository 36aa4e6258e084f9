//! The field of a line that is its key: a member of a JSON object, or a column of CSV.
//!
//! A line is read as far as the field and no further: nothing is built and nothing else is checked,
//! so a line that is damaged behind its field is as good as another. What is not there, and what
//! cannot be read up to the field, has no key.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr2};

/// One step into a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The member of this name: the first, where an object has the name twice.
    Member(Vec<u8>),
    /// The element of this number, from 0.
    Element(usize),
}

/// Where in a line its key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A value inside a line of JSON.
    Json(Vec<Step>),
    /// A column, from 0, of a record of CSV, whose quoted fields may have line ends in them.
    Csv { column: usize, delimiter: u8 },
}

/// A line, or a record of CSV, without its line end.
pub struct Record<'a> {
    /// Where it is.
    pub span: Range<usize>,
    /// Where the next one begins.
    pub next: usize,
    /// The field's text, decoded; None if it has none.
    pub key: Option<Cow<'a, [u8]>>,
}

impl Field {
    /// The record that begins here. None if there is none, or the end of it is not there yet;
    /// at the `last` bytes of an input a record ends with them.
    pub fn record<'a>(&self, text: &'a [u8], begin: usize, last: bool) -> Option<Record<'a>> {
        if begin >= text.len() {
            return None;
        }
        let (end, key) = match self {
            Field::Json(path) => {
                let end = match memchr(b'\n', &text[begin..]) {
                    Some(length) => begin + length,
                    None if last => text.len(),
                    None => return None,
                };
                (end, json(&text[begin..end], path))
            }
            Field::Csv { column, delimiter } => csv(text, begin, *column, *delimiter, last)?,
        };
        Some(Record { span: begin..end, next: (end + 1).min(text.len()), key })
    }
}

/// The text of the value at the end of the path: a string's characters, anything else as it is
/// written. A null is as good as no value: all lines that have one would be one key.
fn json<'a>(line: &'a [u8], path: &[Step]) -> Option<Cow<'a, [u8]>> {
    let mut at = blank(line, 0);
    for step in path {
        at = match step {
            Step::Member(name) => member(line, at, name)?,
            Step::Element(number) => element(line, at, *number)?,
        };
    }
    match line.get(at)? {
        b'"' => unescape(&line[at + 1..string(line, at)? - 1]),
        b'[' | b'{' => Some(Cow::Borrowed(&line[at..value(line, at)?])),
        b',' | b':' | b']' | b'}' => None,
        _ => match &line[at..value(line, at)?] {
            b"null" => None,
            written => Some(Cow::Borrowed(written)),
        },
    }
}

/// Where the value of an object's member begins.
fn member(line: &[u8], brace: usize, name: &[u8]) -> Option<usize> {
    if line.get(brace) != Some(&b'{') {
        return None;
    }
    let mut at = brace;
    loop {
        let start = blank(line, at + 1);
        if line.get(start) != Some(&b'"') {
            return None;
        }
        let end = string(line, start)?;
        at = blank(line, end);
        if line.get(at) != Some(&b':') {
            return None;
        }
        at = blank(line, at + 1);
        let written = &line[start + 1..end - 1];
        if written == name
            || (written.contains(&b'\\') && unescape(written).is_some_and(|text| *text == *name))
        {
            return Some(at);
        }
        at = blank(line, value(line, at)?);
        if line.get(at) != Some(&b',') {
            return None;
        }
    }
}

/// Where an array's element begins.
fn element(line: &[u8], bracket: usize, number: usize) -> Option<usize> {
    if line.get(bracket) != Some(&b'[') {
        return None;
    }
    let mut at = blank(line, bracket + 1);
    for _ in 0..number {
        at = blank(line, value(line, at)?);
        if line.get(at) != Some(&b',') {
            return None;
        }
        at = blank(line, at + 1);
    }
    Some(at)
}

/// Behind the value that begins here.
fn value(line: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match line.get(at)? {
            b'"' => at = string(line, at)?,
            b'[' | b'{' => {
                depth += 1;
                at += 1;
                continue;
            }
            b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            _ => {
                let rest = &line[at..];
                let end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r');
                let length = rest.iter().position(end).unwrap_or(rest.len());
                return (length > 0).then_some(at + length);
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Behind the string that begins here.
fn string(line: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr2(b'"', b'\\', line.get(at..)?)?;
        if line[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn blank(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

/// The characters of a string's inside, as UTF-8. A surrogate without its other half, which is no
/// character, is kept by the three bytes of its number: two of them are two keys.
fn unescape(written: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(first) = memchr(b'\\', written) else {
        return Some(Cow::Borrowed(written));
    };
    let mut text = Vec::with_capacity(written.len());
    text.extend_from_slice(&written[..first]);
    let mut at = first;
    while at < written.len() {
        if written[at] != b'\\' {
            let length = memchr(b'\\', &written[at..]).unwrap_or(written.len() - at);
            text.extend_from_slice(&written[at..at + length]);
            at += length;
            continue;
        }
        let plain = match written.get(at + 1)? {
            mark @ (b'"' | b'\\' | b'/') => *mark,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = hex(written, at + 2)?;
                at += 6;
                if (0xd800..0xdc00).contains(&code)
                    && written.get(at..at + 2) == Some(b"\\u")
                    && let Some(low @ 0xdc00..0xe000) = hex(written, at + 2)
                {
                    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                    at += 6;
                }
                match char::from_u32(code) {
                    Some(c) => text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    None => text.extend_from_slice(&[
                        0xe0 | (code >> 12) as u8,
                        0x80 | ((code >> 6) & 0x3f) as u8,
                        0x80 | (code & 0x3f) as u8,
                    ]),
                }
                continue;
            }
            _ => return None,
        };
        text.push(plain);
        at += 2;
    }
    Some(Cow::Owned(text))
}

fn hex(written: &[u8], at: usize) -> Option<u32> {
    let digits = written.get(at..at + 4)?;
    digits.iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))
}

/// Where the record that begins here ends, and the text of one of its columns. A quote opens a
/// quoted field only where a field begins (RFC 4180), so an inch mark inside of one hurts nobody.
fn csv(
    text: &[u8],
    begin: usize,
    column: usize,
    delimiter: u8,
    last: bool,
) -> Option<(usize, Option<Cow<'_, [u8]>>)> {
    let (mut at, mut number, mut key) = (begin, 0, None);
    loop {
        let mut quoted = None;
        let start = at;
        if text.get(at) == Some(&b'"') {
            at += 1;
            let mut doubled = false;
            loop {
                let Some(length) = text.get(at..).and_then(|rest| memchr(b'"', rest)) else {
                    // The end of the input is inside of quotes: what there is is one record, which
                    // cannot be read. It may be many whose first has a quote too much.
                    let end = text.len() - usize::from(text.ends_with(b"\n"));
                    return last.then_some((end, None));
                };
                at += length;
                match text.get(at + 1) {
                    Some(b'"') => {
                        doubled = true;
                        at += 2;
                    }
                    // Whether the quote is doubled is in bytes that have not come.
                    None if !last => return None,
                    _ => break,
                }
            }
            quoted = Some((start + 1..at, doubled));
            at += 1;
        }
        let rest = text.get(at..).unwrap_or_default();
        let end = match memchr2(delimiter, b'\n', rest) {
            Some(length) => at + length,
            None if last => text.len(),
            None => return None,
        };
        let ends = text.get(end) != Some(&delimiter);
        // Lines may end as they do on Windows.
        let stop = if ends && text[at..end].ends_with(b"\r") { end - 1 } else { end };
        if number == column {
            key = Some(match quoted {
                Some((inside, true)) if at == stop => Cow::Owned(undouble(&text[inside])),
                Some((inside, false)) if at == stop => Cow::Borrowed(&text[inside]),
                // Something between the closing quote and the delimiter: then it is no quoting.
                _ => Cow::Borrowed(&text[start..stop]),
            });
            // CSV has no other null: all records that have none would be one key. Many writers
            // quote every field, so quotes around nothing say no more.
            key = key.filter(|text| !text.is_empty());
        }
        if ends {
            return Some((end, key));
        }
        number += 1;
        at = end + 1;
    }
}

fn undouble(inside: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(inside.len());
    let mut at = 0;
    while let Some(length) = memchr(b'"', &inside[at..]) {
        text.extend_from_slice(&inside[at..=at + length]);
        at += length + 2;
    }
    text.extend_from_slice(&inside[at..]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(names: &[&str]) -> Vec<Step> {
        names
            .iter()
            .map(|name| match name.parse() {
                Ok(number) => Step::Element(number),
                Err(_) => Step::Member(name.as_bytes().to_vec()),
            })
            .collect()
    }

    fn at(line: &str, names: &[&str]) -> Option<String> {
        json(line.as_bytes(), &path(names)).map(|key| String::from_utf8_lossy(&key).into_owned())
    }

    #[test]
    fn a_member_is_found_wherever_it_stands() {
        let line = r#" { "a" : {"url": 1, "b":[1, {"c": "x\"}"}]}, "n":-1.50e3,"url":"http:\/\/\u00e9" , "t":true}"#;
        assert_eq!(at(line, &["url"]).as_deref(), Some("http://é"));
        assert_eq!(at(line, &["n"]).as_deref(), Some("-1.50e3"));
        assert_eq!(at(line, &["t"]).as_deref(), Some("true"));
        assert_eq!(at(line, &["a", "url"]).as_deref(), Some("1"));
        assert_eq!(at(line, &["a", "b", "1", "c"]).as_deref(), Some("x\"}"));
        assert_eq!(at(line, &["a", "b"]).as_deref(), Some(r#"[1, {"c": "x\"}"}]"#));
        assert_eq!(at(r#"{"\u0061":2}"#, &["a"]).as_deref(), Some("2"));
        assert_eq!(at(r#"["x", "y"]"#, &["1"]).as_deref(), Some("y"));
    }

    #[test]
    fn what_has_no_such_value_has_no_key() {
        for line in [
            "",
            " ",
            "{",
            "{}",
            "[",
            "nonsense",
            r#"{"url""#,
            r#"{"url":"#,
            r#"{"url":}"#,
            r#"{"url":,"#,
            r#"{"url":"x"#,
            r#"{"url":"x\"#,
            r#"{"url":"\x"}"#,
            r#"{"url":"\u12"}"#,
            r#"{"url":null}"#,
            r#"{"urls":"x"}"#,
            r#"{"a":"url"}"#,
            r#"["url"]"#,
            r#"{"a":[}"#,
            r#"{"a":1 "url":2}"#,
        ] {
            assert_eq!(at(line, &["url"]), None, "{line}");
        }
        assert_eq!(at(r#"["x"]"#, &["1"]), None);
        assert_eq!(at(r#"{"a":"x"}"#, &["a", "b"]), None);
    }

    #[test]
    fn surrogates_become_characters_or_stay_apart() {
        assert_eq!(json(br#"["\ud83d\ude00"]"#, &path(&["0"])).as_deref(), Some("😀".as_bytes()));
        let halves = [r#"["\ud83d"]"#, r#"["\ud83e"]"#, r#"["\ud83dx"]"#, r#"["\ude00\ud83d"]"#];
        let keys = halves.map(|half| json(half.as_bytes(), &path(&["0"])).map(Cow::into_owned));
        for (number, key) in keys.iter().enumerate() {
            assert!(key.is_some() && !keys[..number].contains(key));
        }
    }

    fn keys(text: &str, column: usize, last: bool) -> (Vec<Option<String>>, usize) {
        let field = Field::Csv { column, delimiter: b',' };
        let (mut begin, mut keys) = (0, Vec::new());
        while let Some(record) = field.record(text.as_bytes(), begin, last) {
            keys.push(record.key.map(|key| String::from_utf8_lossy(&key).into_owned()));
            begin = record.next;
        }
        (keys, begin)
    }

    #[test]
    fn columns_are_read_with_quotes_and_without() {
        let text = "1,a,x\r\n2,\"b,\"\"c\"\"\n\",y\n3\n4,5\" pipe,z\n5,\"odd\"x,w\n,,\n6,end";
        let some = |texts: &[&str]| texts.iter().map(|t| Some(t.to_string())).collect::<Vec<_>>();
        let (mut second, used) = keys(text, 1, true);
        assert_eq!(used, text.len());
        assert_eq!((second.remove(2), second.remove(4)), (None, None));
        assert_eq!(second, some(&["a", "b,\"c\"\n", "5\" pipe", "\"odd\"x", "end"]));
        assert_eq!(
            keys("\"\",1\n,2\n\"\"\r\n\" \"", 0, true).0,
            [None, None, None, Some(" ".into())]
        );
        assert_eq!(keys("a,b\r\n\"c\",\"d\"\r\n", 1, true).0, some(&["b", "d"]));
    }

    #[test]
    fn a_record_that_has_not_ended_waits_for_more() {
        for (text, used) in [("1,a\n2", 4), ("1,\"a\n", 0), ("1,\"a\"", 0), ("1,a\n2,\"b\"\"", 4)] {
            assert_eq!(keys(text, 1, false).1, used, "{text}");
        }
        assert_eq!(keys("1,\"a\n", 1, true), (vec![None], 5));
        assert_eq!(keys("1,x\n1,\"a\n2,y\n", 0, true), (vec![Some("1".into()), None], 13));
        let json = Field::Json(path(&["0"]));
        assert!(json.record(b"[1]", 0, false).is_none());
        assert_eq!(json.record(b"[1]", 0, true).and_then(|r| r.key).as_deref(), Some(&b"1"[..]));
    }
}

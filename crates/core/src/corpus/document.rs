//! A line of JSON: checked from end to end, and where in it the text of the document is.
//!
//! All of the line is checked, since it is written out again as it is: what a reader behind us would
//! refuse is refused here, where the line has a number. Nothing is built.

use std::fmt;
use std::ops::Range;

use memchr::memchr2;

/// A parser that recurses needs a part of its stack for each level.
const DEEPEST: usize = 256;

/// What a line of a corpus is.
#[derive(Debug, PartialEq, Eq)]
pub struct Document {
    /// The text as it is written: between its quotes, with escapes.
    pub text: Range<usize>,
    /// The value of the member `id`, as it is written.
    pub id: Option<Range<usize>>,
}

/// Why a line is no document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not JSON at this byte, from 1.
    Json(usize),
    /// Not UTF-8 at this byte, from 1.
    Utf8(usize),
    Ends,
    Deep,
    NotAnObject,
    NoText,
    NotText,
    Twice,
    Surrogate,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Json(byte) => write!(out, "is not JSON from byte {byte} on"),
            Fault::Utf8(byte) => write!(out, "is not UTF-8 at byte {byte}"),
            Fault::Ends => out.write_str("ends before its JSON does; is it cut off?"),
            Fault::Deep => write!(out, "is JSON nested more than {DEEPEST} levels deep"),
            Fault::NotAnObject => out.write_str("is JSON, but not an object"),
            Fault::NoText => out.write_str("has no member FIELD"),
            Fault::NotText => out.write_str("has a member FIELD that is not a string"),
            Fault::Twice => out.write_str("has the member FIELD twice"),
            Fault::Surrogate => out.write_str(
                "has half of a surrogate pair in FIELD (an escape from \\ud800 to \\udfff alone), \
                 which is no character",
            ),
        }
    }
}

/// The document of a line, whose text is the member of that name.
pub fn document(line: &[u8], field: &[u8]) -> Result<Document, Fault> {
    if let Err(problem) = std::str::from_utf8(line) {
        return Err(Fault::Utf8(problem.valid_up_to() + 1));
    }
    let mut at = blank(line, 0);
    if line.get(at) != Some(&b'{') {
        value(line, at, 0)?;
        return Err(Fault::NotAnObject);
    }
    let (mut text, mut id) = (None, None);
    at = blank(line, at + 1);
    if line.get(at) == Some(&b'}') {
        at += 1;
    } else {
        loop {
            let name = at;
            at = string(line, name)?;
            let is = |wanted: &[u8]| is_name(&line[name + 1..at - 1], wanted);
            let (is_text, is_id) = (is(field), is(b"id"));
            at = expect(line, blank(line, at), b':')?;
            let start = blank(line, at);
            at = value(line, start, 1)?;
            if is_text {
                if text.is_some() {
                    return Err(Fault::Twice);
                }
                if line[start] != b'"' {
                    return Err(Fault::NotText);
                }
                text = Some(start + 1..at - 1);
            }
            if is_id {
                id = Some(start..at);
            }
            at = blank(line, at);
            match line.get(at) {
                Some(b',') => at = blank(line, at + 1),
                Some(b'}') => break,
                other => return Err(unexpected(other, at)),
            }
        }
        at += 1;
    }
    at = blank(line, at);
    if at < line.len() {
        return Err(Fault::Json(at + 1));
    }
    Ok(Document { text: text.ok_or(Fault::NoText)?, id })
}

fn is_name(written: &[u8], name: &[u8]) -> bool {
    if !written.contains(&b'\\') {
        return written == name;
    }
    let mut text = Vec::new();
    super::text::unescape(written, &mut text).is_ok() && text == name
}

fn unexpected(byte: Option<&u8>, at: usize) -> Fault {
    byte.map_or(Fault::Ends, |_| Fault::Json(at + 1))
}

fn expect(line: &[u8], at: usize, byte: u8) -> Result<usize, Fault> {
    match line.get(at) {
        Some(found) if *found == byte => Ok(at + 1),
        other => Err(unexpected(other, at)),
    }
}

fn blank(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

/// Behind the value that begins here.
fn value(line: &[u8], at: usize, depth: usize) -> Result<usize, Fault> {
    if depth > DEEPEST {
        return Err(Fault::Deep);
    }
    match line.get(at) {
        Some(b'"') => string(line, at),
        Some(b'{') => items(line, at, b'}', |at| {
            let at = expect(line, blank(line, string(line, at)?), b':')?;
            value(line, blank(line, at), depth + 1)
        }),
        Some(b'[') => items(line, at, b']', |at| value(line, at, depth + 1)),
        Some(b't') => word(line, at, b"true"),
        Some(b'f') => word(line, at, b"false"),
        Some(b'n') => word(line, at, b"null"),
        Some(b'-' | b'0'..=b'9') => number(line, at),
        other => Err(unexpected(other, at)),
    }
}

fn items(
    line: &[u8],
    open: usize,
    close: u8,
    item: impl Fn(usize) -> Result<usize, Fault>,
) -> Result<usize, Fault> {
    let mut at = blank(line, open + 1);
    if line.get(at) == Some(&close) {
        return Ok(at + 1);
    }
    loop {
        at = blank(line, item(at)?);
        match line.get(at) {
            Some(b',') => at = blank(line, at + 1),
            Some(byte) if *byte == close => return Ok(at + 1),
            other => return Err(unexpected(other, at)),
        }
    }
}

fn word(line: &[u8], at: usize, word: &[u8]) -> Result<usize, Fault> {
    let rest = &line[at..];
    let same = rest.iter().zip(word).take_while(|(a, b)| a == b).count();
    if same == word.len() { Ok(at + same) } else { Err(unexpected(rest.get(same), at + same)) }
}

fn number(line: &[u8], mut at: usize) -> Result<usize, Fault> {
    let digits = |mut at: usize| {
        let first = at;
        while line.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at > first { Ok(at) } else { Err(unexpected(line.get(at), at)) }
    };
    at += usize::from(line[at] == b'-');
    at = if line.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
    if line.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(line.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(line.get(at + 1), Some(b'+' | b'-')));
        at = digits(at)?;
    }
    Ok(at)
}

/// Behind the string that begins here.
fn string(line: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = expect(line, start, b'"')?;
    loop {
        let rest = line.get(at..).unwrap_or_default();
        let length = memchr2(b'"', b'\\', rest).ok_or(Fault::Ends)?;
        at += length;
        if line[at] == b'"' {
            break;
        }
        at += match line.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => {
                let digits = &line[(at + 2).min(line.len())..(at + 6).min(line.len())];
                match digits.iter().position(|digit| !digit.is_ascii_hexdigit()) {
                    None if digits.len() == 4 => 6,
                    None => return Err(Fault::Ends),
                    Some(wrong) => return Err(Fault::Json(at + 2 + wrong + 1)),
                }
            }
            other => return Err(unexpected(other, at + 1)),
        };
    }
    // In one pass over all of it, which the compiler turns into vectors.
    if line[start..at].iter().any(|byte| *byte < b' ') {
        let wrong = line[start..at].iter().position(|byte| *byte < b' ').unwrap_or(0);
        return Err(Fault::Json(start + wrong + 1));
    }
    Ok(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(line: &[u8]) -> Fault {
        document(line, b"text").expect_err("a fault")
    }

    #[test]
    fn text_and_id_are_found_wherever_they_stand() {
        let line = br#" {"a":[1,{"text":0}],"id" : 7, "\u0074ext":"x\"\u00e9", "b":-1.5e+3} "#;
        let found = document(line, b"text").unwrap();
        assert_eq!(&line[found.text], br#"x\"\u00e9"#);
        assert_eq!(&line[found.id.unwrap()], b"7");
        assert_eq!(document(br#"{"text":""}"#, b"text").unwrap().text, 9..9);
    }

    #[test]
    fn each_way_of_being_wrong_has_its_fault() {
        for (line, expected) in [
            (&b"{}"[..], Fault::NoText),
            (br#"{"text":null}"#, Fault::NotText),
            (br#"{"text":"a","text":"b"}"#, Fault::Twice),
            (br#"["text"]"#, Fault::NotAnObject),
            (br#"{"text":"a""#, Fault::Ends),
            (br#"{"text":"a"#, Fault::Ends),
            (br#"{"text":"a\u12"#, Fault::Ends),
            (br#"{"text":"a"} x"#, Fault::Json(14)),
            (br#"{"text":"\x"}"#, Fault::Json(11)),
            (br#"{"text":"\u12g4"}"#, Fault::Json(14)),
            (br#"{"text":"a",}"#, Fault::Json(13)),
            (br#"{"text":tru}"#, Fault::Json(12)),
            (br#"{"n":01,"text":""}"#, Fault::Json(7)),
            (br#"{"n":1.,"text":""}"#, Fault::Json(8)),
            (b"{\"text\":\"a\tb\"}", Fault::Json(11)),
            (b"{\"text\":\"\xff\"}", Fault::Utf8(10)),
            (b"nonsense", Fault::Json(2)),
        ] {
            assert_eq!(fault(line), expected, "{}", String::from_utf8_lossy(line));
        }
        let deep = [b"{\"a\":".as_slice(), &b"[".repeat(100_000)].concat();
        assert_eq!(fault(&deep), Fault::Deep);
    }

    #[test]
    fn no_cut_of_a_line_is_a_document() {
        let line = br#"{"id":"x","n":[1.5e3,true,null,{"k":"v"}],"text":"a\n\ud83d\ude00"}"#;
        assert!(document(line, b"text").is_ok());
        for end in 0..line.len() {
            assert!(document(&line[..end], b"text").is_err(), "{end}");
        }
    }
}

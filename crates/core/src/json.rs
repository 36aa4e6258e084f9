//! Where a long array of JSON can be cut, so that it is parsed in slices and nobody waits for all of
//! it. Brackets and strings are followed and nothing else: whether it is JSON at all is seen when
//! the slices are parsed, each of which is JSON if the whole is.

use std::ops::Range;

/// An array that is a member of the outermost object, and its elements in slices.
pub struct Cut {
    /// From its bracket to behind the other one.
    pub array: Range<usize>,
    /// Without the commas between them; none of an empty array.
    pub slices: Vec<Range<usize>>,
    /// How many elements there are.
    pub count: usize,
}

/// The array that is the member of this name, in slices of about so many bytes; None if there is
/// none, or what is there is not an object.
pub fn cut(text: &[u8], member: &[u8], bytes: usize) -> Option<Cut> {
    let mut at = blank(text, 0);
    if text.get(at) != Some(&b'{') {
        return None;
    }
    loop {
        let start = blank(text, at + 1);
        if text.get(start) != Some(&b'"') {
            return None;
        }
        let end = string(text, start)?;
        at = blank(text, end);
        if text.get(at) != Some(&b':') {
            return None;
        }
        at = blank(text, at + 1);
        if &text[start + 1..end - 1] == member && text.get(at) == Some(&b'[') {
            return elements(text, at, bytes);
        }
        at = value(text, at)?;
        if text.get(at) != Some(&b',') {
            return None;
        }
    }
}

/// How deep the arrays and objects of a text are nested, at the deepest. A parser that recurses wants
/// a part of its stack for each level, and ends the process when there is no more.
pub fn depth(text: &[u8]) -> usize {
    let (mut at, mut depth, mut deepest) = (0, 0usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => match string(text, at) {
                Some(end) => at = end - 1,
                None => break, // no parser gets further
            },
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    deepest
}

fn elements(text: &[u8], bracket: usize, bytes: usize) -> Option<Cut> {
    let (mut slices, mut start, mut at) = (Vec::new(), bracket + 1, bracket + 1);
    let mut count = 0;
    loop {
        at = value(text, at)?;
        count += 1;
        match text.get(at)? {
            b',' => {
                if at - start >= bytes {
                    slices.push(start..at);
                    start = at + 1;
                }
                at += 1;
            }
            b']' => break,
            _ => return None,
        }
    }
    if !slices.is_empty() || blank(text, start) != at {
        slices.push(start..at);
    }
    Some(Cut { array: bracket..at + 1, slices, count })
}

/// Where the value that stands here ends: at a comma or a bracket that is not its own.
fn value(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match text.get(at)? {
            b'"' => at = string(text, at)? - 1,
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 0 => return Some(at),
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

/// Behind the string that begins here.
fn string(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn blank(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(text: &str, bytes: usize) -> Option<Vec<&str>> {
        let found = cut(text.as_bytes(), b"keys", bytes)?;
        assert!(text[found.array.clone()].starts_with('['));
        Some(found.slices.into_iter().map(|slice| &text[slice]).collect())
    }

    #[test]
    fn the_deepest_nesting_counts() {
        for (text, deepest) in [
            ("", 0),
            ("1", 0),
            (r#"{"a": [[], {"b": []}]} {"#, 4),
            (r#"{"a": "[[[\\\"[[["}"#, 1),
            (r#"[["[["#, 2),
            ("]]]\n[\n[", 2),
        ] {
            assert_eq!(depth(text.as_bytes()), deepest, "{text}");
        }
    }

    #[test]
    fn an_array_is_cut_between_its_elements() {
        let text = r#" {"a": {"keys": [1]}, "keys" : ["x,]\"", [1, [2]], {"b": 3},4 ] , "c": 5}"#;
        assert_eq!(slices(text, 1), Some(vec![r#""x,]\"""#, " [1, [2]]", r#" {"b": 3}"#, "4 "]));
        assert_eq!(slices(text, 1000).map(|found| found.len()), Some(1));
        assert_eq!(slices(r#"{"keys":[ ]}"#, 1), Some(vec![]));
        assert_eq!(slices(r#"{"keys":[1,]}"#, 1), Some(vec!["1", ""]));
    }

    #[test]
    fn what_is_no_such_object_is_left_alone() {
        for text in ["", "[1]", r#"{"key":[1]}"#, r#"{"keys":1}"#, r#"{"keys":[1"#, "{", r#"{"a""#]
        {
            assert_eq!(slices(text, 1), None, "{text}");
        }
    }
}

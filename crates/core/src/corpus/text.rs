//! Text as keys: paragraphs, words, and n-grams of words.
//!
//! A paragraph is a line of the text. A word is a run of letters, digits and marks, without regard to
//! the case of ASCII letters; a character of a script that is written without spaces (Han, kana) is
//! a word of its own.

use std::ops::Range;

use memchr::{memchr, memchr_iter};

use super::document::Fault;
use crate::hash::{KeyHasher, remix};

/// Calls `each` with every paragraph of a text: where it is written, and its characters. `written`:
/// the text is the inside of a JSON string, which `document` has checked.
pub fn paragraphs(
    text: &[u8],
    written: bool,
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(Range<usize>, &[u8]),
) -> Result<(), Fault> {
    let mut begin = 0;
    if !written {
        for end in memchr_iter(b'\n', text).chain([text.len()]) {
            each(begin..end, &text[begin..end]);
            begin = end + 1;
        }
        return Ok(());
    }
    scratch.clear();
    let mut copied = 0; // up to here this paragraph is in `scratch`, if anything of it is
    let mut at = 0;
    while let Some(length) = memchr(b'\\', &text[at..]) {
        at += length;
        let (character, next) = escape(text, at)?;
        if character == '\n' {
            finish(text, begin..at, copied, scratch, &mut each);
            (begin, copied) = (next, next);
        } else {
            scratch.extend_from_slice(&text[copied..at]);
            scratch.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            copied = next;
        }
        at = next;
    }
    finish(text, begin..text.len(), copied, scratch, &mut each);
    Ok(())
}

fn finish(
    text: &[u8],
    span: Range<usize>,
    copied: usize,
    scratch: &mut Vec<u8>,
    each: &mut impl FnMut(Range<usize>, &[u8]),
) {
    if copied == span.start {
        each(span.clone(), &text[span]);
    } else {
        scratch.extend_from_slice(&text[copied..span.end]);
        each(span, scratch);
    }
    scratch.clear();
}

/// Appends the characters of the inside of a JSON string.
pub fn unescape(written: &[u8], text: &mut Vec<u8>) -> Result<(), Fault> {
    let (mut copied, mut at) = (0, 0);
    while let Some(length) = memchr(b'\\', &written[at..]) {
        at += length;
        text.extend_from_slice(&written[copied..at]);
        let (character, next) = escape(written, at)?;
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        (copied, at) = (next, next);
    }
    text.extend_from_slice(&written[copied..]);
    Ok(())
}

/// The character of the escape that begins here, and where it ends.
#[inline]
fn escape(written: &[u8], at: usize) -> Result<(char, usize), Fault> {
    let plain = match written.get(at + 1) {
        Some(b'n') => '\n',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return numbered(written, at),
        Some(mark) => char::from(*mark),
        None => return Err(Fault::Ends),
    };
    Ok((plain, at + 2))
}

fn numbered(written: &[u8], at: usize) -> Result<(char, usize), Fault> {
    let hex = |at: usize| {
        let digits = written.get(at..at + 4)?;
        digits.iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))
    };
    let code = hex(at + 2).ok_or(Fault::Ends)?;
    if let Some(character) = char::from_u32(code) {
        return Ok((character, at + 6));
    }
    let low = match written.get(at + 6..at + 8) {
        Some(b"\\u") if code < 0xdc00 => hex(at + 8).filter(|low| (0xdc00..0xe000).contains(low)),
        _ => None,
    };
    let low = low.ok_or(Fault::Surrogate)?;
    let character = char::from_u32(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
    Ok((character.ok_or(Fault::Surrogate)?, at + 12))
}

/// How many characters a text has: all bytes but those that continue a character.
pub fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| (**byte as i8) >= -0x40).count()
}

/// Text hashed word by word, and the n-grams of the words.
#[derive(Default)]
pub struct Words {
    lower: Vec<u8>,
    hashes: Vec<u64>,
}

/// An odd number, so that a word is never lost from a sum, whatever its place.
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;

impl Words {
    pub fn clear(&mut self) {
        self.hashes.clear();
    }

    /// Takes the words of one more piece of text.
    pub fn take(&mut self, text: &[u8], hasher: &KeyHasher) {
        let Words { lower, hashes } = self;
        lower.clear();
        lower.extend_from_slice(text);
        lower.make_ascii_lowercase();
        let (mut begin, mut at) = (0, 0);
        while at < lower.len() {
            let byte = lower[at];
            if byte.is_ascii_alphanumeric() {
                at += 1;
                continue;
            }
            let (class, length) =
                if byte < 0x80 { (Class::Between, 1) } else { other(&lower[at..]) };
            if class != Class::Inside {
                if at > begin {
                    hashes.push(hasher.hash_bytes(&lower[begin..at]));
                }
                begin = at + length;
                if class == Class::Alone {
                    hashes.push(hasher.hash_bytes(&lower[at..begin]));
                }
            }
            at += length;
        }
        if at > begin {
            hashes.push(hasher.hash_bytes(&lower[begin..]));
        }
    }

    /// Calls `each` with the hash of every run of `n` words, or of all words if they are fewer; not
    /// at all if there is none.
    pub fn ngrams(&self, n: usize, mut each: impl FnMut(u64)) {
        let words = &self.hashes;
        if words.is_empty() {
            return;
        }
        let n = n.min(words.len());
        // Fewer words are other n-grams, also if the sums were the same.
        let length = remix(n as u64);
        let mut sum = words[..n].iter().fold(0, |sum, word| add(sum, *word));
        each(remix(sum ^ length));
        let out = (0..n).fold(1u64, |power, _| power.wrapping_mul(BASE));
        for (old, new) in words.iter().zip(&words[n..]) {
            sum = add(sum, *new).wrapping_sub(old.wrapping_mul(out));
            each(remix(sum ^ length));
        }
    }
}

#[inline(always)]
fn add(sum: u64, word: u64) -> u64 {
    sum.wrapping_mul(BASE).wrapping_add(word)
}

#[derive(PartialEq, Eq)]
enum Class {
    Inside,
    Between,
    Alone,
}

/// What the character that is not ASCII and begins here is to words, and its length.
fn other(text: &[u8]) -> (Class, usize) {
    let length = match text[0] {
        0xf0.. => 4,
        0xe0.. => 3,
        _ => 2,
    };
    let length = length.min(text.len());
    let Some(character) = std::str::from_utf8(&text[..length]).ok().and_then(|s| s.chars().next())
    else {
        return (Class::Inside, 1);
    };
    let class = match u32::from(character) {
        // Kana, Han and its extensions.
        0x3040..=0x30ff
        | 0x3400..=0x4dbf
        | 0x4e00..=0x9fff
        | 0xf900..=0xfaff
        | 0x20000..=0x3ffff => Class::Alone,
        // Latin-1's signs, general punctuation, CJK punctuation, full-width signs.
        0x80..=0xbf | 0xd7 | 0xf7 | 0x2000..=0x206f | 0x3000..=0x303f | 0xff00..=0xff0f => {
            if character.is_alphanumeric() {
                Class::Inside
            } else {
                Class::Between
            }
        }
        _ if character.is_whitespace() => Class::Between,
        _ => Class::Inside,
    };
    (class, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKind;

    const HASHER: KeyHasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };

    fn split(text: &str, written: bool) -> Vec<(Range<usize>, String)> {
        let (mut scratch, mut found) = (Vec::new(), Vec::new());
        paragraphs(text.as_bytes(), written, &mut scratch, |span, text| {
            found.push((span, String::from_utf8(text.to_vec()).unwrap()));
        })
        .unwrap();
        found
    }

    #[test]
    fn paragraphs_are_the_same_written_or_not() {
        let written = r#"a\u00e9 \"b\"\n\ncd\\n\u000a\ud83d\ude00x\t"#;
        let mut text = Vec::new();
        unescape(written.as_bytes(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "aé \"b\"\n\ncd\\n\n😀x\t");
        let plain: Vec<_> = split(&text, false).into_iter().map(|(_, text)| text).collect();
        let escaped = split(written, true);
        assert_eq!(plain, escaped.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>());
        assert_eq!(&written[escaped[0].0.clone()], r#"a\u00e9 \"b\""#);
        assert_eq!(&written[escaped[3].0.clone()], r"\ud83d\ude00x\t");
        assert_eq!(characters(text.as_bytes()), text.chars().count());
    }

    #[test]
    fn half_a_pair_is_refused() {
        for half in [r"\ud800", r"\ud800x", r"\udc00\ud800", r"\ud800\ud800", r"\ud800\n"] {
            let found = unescape(half.as_bytes(), &mut Vec::new());
            assert_eq!(found, Err(Fault::Surrogate), "{half}");
            let found = paragraphs(half.as_bytes(), true, &mut Vec::new(), |_, _| ());
            assert_eq!(found, Err(Fault::Surrogate), "{half}");
        }
    }

    fn grams(text: &str, n: usize) -> Vec<u64> {
        let mut words = Words::default();
        words.take(text.as_bytes(), &HASHER);
        let mut found = Vec::new();
        words.ngrams(n, |h| found.push(h));
        found
    }

    #[test]
    fn ngrams_are_those_of_their_words_wherever_they_stand() {
        let text = "The quick brown fox jumps over the lazy dog";
        let all = grams(text, 4);
        assert_eq!(all.len(), 6);
        assert_eq!(grams("fox jumps, over... THE", 4), all[3..4]);
        assert_ne!(grams("jumps fox over the", 4)[0], all[3]);
        assert_eq!(grams("a b", 4).len(), 1);
        assert_ne!(grams("a b", 4), grams("a b", 1));
        assert!(grams(" -- … “” ", 4).is_empty());
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), 6);
    }

    #[test]
    fn scripts_without_spaces_have_words_too() {
        assert_eq!(grams("日本語のテキスト。", 2).len(), 7);
        assert_eq!(grams("Привет, мир — ещё", 1).len(), 3);
        assert_eq!(grams("naïve “quote”\u{a0}x", 1).len(), 3);
        assert_eq!(grams("naïve", 1), grams("NAïVE", 1));
    }
}

//! Names by pattern, as Redis's KEYS has them: `*`, `?`, `[a-z]` and backslash.

/// Which bytes may stand at a place.
type Class = [u64; 4];

const ANY: Class = [u64::MAX; 4];

pub struct Glob {
    /// What may come next; None: any number of any bytes.
    tokens: Vec<Option<Class>>,
    /// Bytes that a name has at least: it is looked at no further if it has fewer.
    least: usize,
}

impl Glob {
    pub fn new(pattern: &[u8]) -> Glob {
        let (mut tokens, mut rest) = (Vec::new(), pattern);
        while let [one, after @ ..] = rest {
            rest = after;
            let token = match one {
                b'*' => None,
                b'?' => Some(ANY),
                b'[' => {
                    let (found, after) = class(rest);
                    rest = after;
                    Some(found)
                }
                b'\\' if !rest.is_empty() => {
                    let escaped = rest[0];
                    rest = &rest[1..];
                    Some(only(escaped))
                }
                one => Some(only(*one)),
            };
            // Two stars in a row are one.
            if token.is_some() || tokens.last() != Some(&None) {
                tokens.push(token);
            }
        }
        let least = tokens.iter().flatten().count();
        Glob { tokens, least }
    }

    /// It looks back no further than the last star, so that the time is at most that of all pairs of
    /// a byte and a token: for a name of 1,024 bytes well under a millisecond.
    pub fn matches(&self, name: &[u8]) -> bool {
        if name.len() < self.least {
            return false;
        }
        let (mut at, mut token, mut star) = (0, 0, None);
        while at < name.len() {
            match self.tokens.get(token) {
                Some(None) => {
                    star = Some((token, at));
                    token += 1;
                }
                Some(Some(class)) if has(class, name[at]) => (at, token) = (at + 1, token + 1),
                _ => {
                    let Some((starred, since)) = star else { return false };
                    star = Some((starred, since + 1));
                    (at, token) = (since + 1, starred + 1);
                }
            }
        }
        self.tokens[token.min(self.tokens.len())..].iter().all(Option::is_none)
    }
}

fn only(byte: u8) -> Class {
    let mut class = [0; 4];
    put(&mut class, byte);
    class
}

fn put(class: &mut Class, byte: u8) {
    class[usize::from(byte >> 6)] |= 1 << (byte & 63);
}

#[inline(always)]
fn has(class: &Class, byte: u8) -> bool {
    class[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
}

/// The bytes that brackets stand for, and what follows them; as in Redis, those that are not closed
/// end with the pattern.
fn class(mut rest: &[u8]) -> (Class, &[u8]) {
    let negated = rest.first() == Some(&b'^');
    if negated {
        rest = &rest[1..];
    }
    let mut found = [0; 4];
    loop {
        match rest {
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', byte, after @ ..] => {
                put(&mut found, *byte);
                rest = after;
            }
            [one, b'-', other, after @ ..] => {
                (*one.min(other)..=*one.max(other)).for_each(|byte| put(&mut found, byte));
                rest = after;
            }
            [byte, after @ ..] => {
                put(&mut found, *byte);
                rest = after;
            }
        }
    }
    if negated {
        found.iter_mut().for_each(|word| *word = !*word);
    }
    (found, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, name, matches) in [
            (&b"*"[..], &b""[..], true),
            (b"", b"", true),
            (b"", b"a", false),
            (b"a*c", b"abbbc", true),
            (b"a*c", b"abbb", false),
            (b"**a**", b"a", true),
            (b"h?llo", b"hello", true),
            (b"h?llo", b"hllo", false),
            (b"h[^e]llo", b"hello", false),
            (b"h[a-e]llo", b"hello", true),
            (b"h[e-a]llo", b"hello", true),
            (b"[]", b"", false),
            (b"a[b", b"ab", true),
            (b"a\\*", b"a*", true),
            (b"a\\*", b"ab", false),
            (b"a\\", b"a\\", true),
            (b"*ab*cd", b"xabxcxcd", true),
            (b"*aaab", b"aaaaaaaab", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), matches, "{pattern:?} {name:?}");
        }
    }
}

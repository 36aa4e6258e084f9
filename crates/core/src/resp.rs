//! Commands out of the bytes of a Redis client: arrays of bulk strings, or a line of words.
//!
//! A command may come in any number of pieces. What was read of it is kept, so that a long one is
//! read once and not again with each piece; nothing is allocated for what a length only promises.

use std::ops::Range;

/// A line of words, and a line that announces a length, are short.
const MOST_INLINE: usize = 64 * 1024;
const MOST_LENGTH_LINE: usize = 32;

/// What a client may send at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub arguments: usize,
    /// One argument.
    pub argument_bytes: usize,
    /// All of a command.
    pub request_bytes: usize,
    /// A command that exceeds `arguments` or `request_bytes` is passed over, and what follows it is
    /// read; else nothing that follows can be read.
    pub passes_over: bool,
}

/// Arguments that a command may announce, as in Redis.
const MAX_ANNOUNCED: i64 = i32::MAX as i64;

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A whole command, of that many bytes; `Parser::arguments` has its words.
    Command(usize),
    /// Bytes without a command to answer: an empty line or array, or a part of a command that is
    /// passed over.
    Nothing(usize),
    /// The last bytes of a command that was passed over, and why it was.
    Refused(usize, String),
    /// More bytes are needed.
    More,
}

/// One command as far as it was read. Places are counted from its first byte.
#[derive(Default)]
pub struct Parser {
    arguments: Vec<Range<usize>>,
    /// Words of a line, which quotes and escapes may have changed: then `arguments` is of these.
    words: Option<Vec<u8>>,
    at: usize,
    missing: usize,
    started: bool,
    /// Why the command is passed over, if it is.
    refusal: Option<String>,
    /// Bytes of the argument that is passed over.
    skip: usize,
}

impl Parser {
    /// The bytes of each argument of the command that was just read from `input`.
    #[inline(always)]
    pub fn argument<'a>(&'a self, input: &'a [u8], index: usize) -> &'a [u8] {
        let place = self.arguments[index].clone();
        &self.words.as_deref().unwrap_or(input)[place]
    }

    /// Where an argument lies in the input; None if it is a word of a line, and lies elsewhere.
    #[inline(always)]
    pub fn place(&self, index: usize) -> Option<Range<usize>> {
        self.words.is_none().then(|| self.arguments[index].clone())
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// Reads on in `input`, which begins where the command does.
    #[inline(always)]
    pub fn step(&mut self, input: &[u8], limits: &Limits) -> Result<Step, String> {
        if let Some(why) = &self.refusal {
            return if limits.passes_over { self.pass_over(input) } else { Err(why.clone()) };
        }
        if !self.started {
            self.arguments.clear();
            self.words = None;
            match input.first() {
                None => return Ok(Step::More),
                Some(b'*') => {}
                Some(_) => return self.line(input),
            }
            let Some((count, after)) = length(input, 1, "too big mbulk count string")? else {
                return Ok(Step::More);
            };
            let Some(count) = count.filter(|count| *count <= MAX_ANNOUNCED) else {
                return Err("invalid multibulk length".into());
            };
            if count <= 0 {
                return Ok(Step::Nothing(after));
            }
            (self.started, self.at, self.missing) = (true, after, count as usize);
            if self.missing > limits.arguments {
                let (count, most) = (self.missing, limits.arguments);
                let why = format!("{count} arguments, at most {most} (max-arguments)");
                return self.refuse_or_fail(input, why, limits);
            }
        }
        while self.missing > 0 {
            match input.get(self.at) {
                None => return self.more(input, limits),
                Some(b'$') => {}
                Some(other) => {
                    let other = char::from(*other).escape_default();
                    return Err(format!("expected '$', got '{other}'"));
                }
            }
            let Some((bytes, after)) = length(input, self.at + 1, "too big bulk count string")?
            else {
                return self.more(input, limits);
            };
            let Some(bytes) = bytes.and_then(|bytes| usize::try_from(bytes).ok()) else {
                return Err("invalid bulk length".into());
            };
            if bytes > limits.argument_bytes {
                let most = limits.argument_bytes;
                return Err(format!("invalid bulk length: {bytes} bytes, at most {most}"));
            }
            let end = after + bytes;
            if end + 2 > limits.request_bytes {
                return self.refuse_or_fail(input, too_long(limits), limits);
            }
            if input.len() < end + 2 {
                return self.more(input, limits);
            }
            if &input[end..end + 2] != b"\r\n" {
                return Err("expected CRLF after the bulk's bytes".into());
            }
            self.arguments.push(after..end);
            self.at = end + 2;
            self.missing -= 1;
        }
        self.started = false;
        Ok(Step::Command(self.at))
    }

    fn more(&mut self, input: &[u8], limits: &Limits) -> Result<Step, String> {
        if self.at > limits.request_bytes {
            return self.refuse_or_fail(input, too_long(limits), limits);
        }
        Ok(Step::More)
    }

    /// Whether a part of a command was read.
    pub fn is_within_command(&self) -> bool {
        self.started
    }

    /// Whether the command is passed over.
    pub fn is_passing_over(&self) -> bool {
        self.refusal.is_some()
    }

    /// Passes over the command of which a part was read. The bytes that were read are dropped in the
    /// next step.
    pub fn refuse(&mut self, why: String) {
        self.arguments = Vec::new();
        self.refusal = Some(why);
        self.skip = 0;
    }

    /// Gives the refusal back, with the last byte of its command: it cannot be answered yet.
    pub fn put_back(&mut self, why: String) {
        (self.started, self.at, self.missing) = (true, 0, 0);
        (self.refusal, self.skip) = (Some(why), 1);
    }

    #[cold]
    fn refuse_or_fail(
        &mut self,
        input: &[u8],
        why: String,
        limits: &Limits,
    ) -> Result<Step, String> {
        if !limits.passes_over {
            self.started = false; // read again, it is refused again
            return Err(why);
        }
        self.refuse(why);
        self.pass_over(input)
    }

    /// Passes over what came of a command that is refused.
    #[cold]
    fn pass_over(&mut self, input: &[u8]) -> Result<Step, String> {
        let mut at = std::mem::take(&mut self.at);
        loop {
            let skipped = self.skip.min(input.len() - at);
            (at, self.skip) = (at + skipped, self.skip - skipped);
            if self.skip > 0 {
                break;
            }
            if self.missing == 0 {
                self.started = false;
                return Ok(Step::Refused(at, self.refusal.take().unwrap_or_default()));
            }
            match input.get(at) {
                None => break,
                Some(b'$') => {}
                Some(_) => return Err("expected '$' in a command that is too long".into()),
            }
            let Some((bytes, after)) = length(input, at + 1, "too big bulk count string")? else {
                break;
            };
            let Some(bytes) = bytes.and_then(|bytes| usize::try_from(bytes).ok()) else {
                return Err("invalid bulk length".into());
            };
            at = after;
            self.skip = bytes.saturating_add(2);
            self.missing -= 1;
        }
        Ok(if at == 0 { Step::More } else { Step::Nothing(at) })
    }

    /// A line of words, as a person types them.
    fn line(&mut self, input: &[u8]) -> Result<Step, String> {
        let Some(end) = input.iter().take(MOST_INLINE).position(|byte| *byte == b'\n') else {
            let long = input.len() >= MOST_INLINE;
            return if long { Err("too big inline request".into()) } else { Ok(Step::More) };
        };
        let mut line = &input[..end];
        if let [before @ .., b'\r'] = line {
            line = before;
        }
        let mut words = Vec::with_capacity(line.len());
        let mut rest = line;
        while let [first, after @ ..] = rest {
            if first.is_ascii_whitespace() {
                rest = after;
                continue;
            }
            let start = words.len();
            rest = word(rest, &mut words).ok_or("unbalanced quotes in request")?;
            self.arguments.push(start..words.len());
        }
        self.words = Some(words);
        Ok(if self.is_empty() { Step::Nothing(end + 1) } else { Step::Command(end + 1) })
    }
}

fn too_long(limits: &Limits) -> String {
    format!("a request of more than {} bytes (max-request-bytes)", limits.request_bytes)
}

/// A number and its line's end, from `start` on: `Some((None, _))` if it is not a number.
#[inline(always)]
fn length(
    input: &[u8],
    start: usize,
    too_big: &str,
) -> Result<Option<(Option<i64>, usize)>, String> {
    let (mut value, mut at) = (0i64, start);
    let negative = input.get(at) == Some(&b'-');
    at += usize::from(negative);
    let digits = at;
    while let Some(digit) = input.get(at).map(|byte| byte.wrapping_sub(b'0'))
        && digit < 10
        && at - digits < 18
    {
        value = value * 10 + i64::from(digit);
        at += 1;
    }
    if at > digits && input.get(at) == Some(&b'\r') && input.get(at + 1) == Some(&b'\n') {
        return Ok(Some((Some(if negative { -value } else { value }), at + 2)));
    }
    // Rare: the line is not all there, or it is no number.
    let line = &input[start.min(input.len())..];
    match line.iter().take(MOST_LENGTH_LINE).position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some((None, start + end + 1))),
        None if line.len() >= MOST_LENGTH_LINE => Err(too_big.into()),
        None => Ok(None),
    }
}

/// One word of a line, unquoted, and what follows it; `None` if a quote does not end.
fn word<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut quote = None;
    loop {
        match (quote, rest) {
            (None, []) => return Some(rest),
            (Some(_), []) => return None,
            (None, [byte, ..]) if byte.is_ascii_whitespace() => return Some(rest),
            (None, [byte @ (b'"' | b'\''), after @ ..]) => (quote, rest) = (Some(*byte), after),
            (Some(b'"'), [b'\\', b'x', high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0) as u8;
                out.push(digit(high) * 16 + digit(low));
                rest = after;
            }
            (Some(b'"'), [b'\\', byte, after @ ..]) => {
                out.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            (Some(b'\''), [b'\\', b'\'', after @ ..]) => {
                out.push(b'\'');
                rest = after;
            }
            (Some(open), [byte, after @ ..]) if *byte == open => {
                // A closing quote ends its word.
                return match after.first() {
                    None => Some(after),
                    Some(byte) if byte.is_ascii_whitespace() => Some(after),
                    Some(_) => None,
                };
            }
            (_, [byte, after @ ..]) => {
                out.push(*byte);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        arguments: 1024,
        argument_bytes: 1000,
        request_bytes: 100_000,
        passes_over: false,
    };

    /// All commands of `input`, given in pieces of `piece` bytes.
    fn read(input: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, String> {
        read_within(input, piece, &LIMITS)
    }

    fn read_within(
        input: &[u8],
        piece: usize,
        limits: &Limits,
    ) -> Result<Vec<Vec<Vec<u8>>>, String> {
        let (mut parser, mut held, mut commands) = (Parser::default(), Vec::new(), Vec::new());
        for part in input.chunks(piece) {
            held.extend_from_slice(part);
            loop {
                match parser.step(&held, limits)? {
                    Step::More => break,
                    Step::Nothing(bytes) => drop(held.drain(..bytes)),
                    Step::Refused(bytes, why) => {
                        commands.push(vec![b"refused".to_vec(), why.into_bytes()]);
                        held.drain(..bytes);
                    }
                    Step::Command(bytes) => {
                        let words = 0..parser.len();
                        commands.push(words.map(|i| parser.argument(&held, i).to_vec()).collect());
                        held.drain(..bytes);
                    }
                }
            }
        }
        Ok(commands)
    }

    #[test]
    fn pieces_of_any_size_give_the_same_commands() {
        let input = b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n*0\r\n\r\nPING \"a\\x41\\n\" 'b c'\r\n*1\r\n$0\r\n\r\n";
        let whole = read(input, input.len()).unwrap();
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[0], [b"ECHO".to_vec(), b"a\r\n".to_vec()]);
        assert_eq!(whole[1], [b"PING".to_vec(), b"aA\n".to_vec(), b"b c".to_vec()]);
        assert_eq!(whole[2], [b"".to_vec()]);
        for piece in 1..input.len() {
            assert_eq!(read(input, piece).unwrap(), whole, "{piece}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_at_once() {
        for (input, message) in [
            (&b"*1025\r\n"[..], "1025 arguments, at most 1024 (max-arguments)"),
            (b"*2147483648\r\n", "invalid multibulk length"),
            (b"*99999999999999999999\r\n", "invalid multibulk length"),
            (b"*x\r\n", "invalid multibulk length"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$1001\r\n", "invalid bulk length: 1001 bytes, at most 1000"),
            (b"*1\r\n$1\r\nabc", "expected CRLF after the bulk's bytes"),
            (b"*1\r\n$1111111111111111111111111111111111111111", "too big bulk count string"),
            (b"PING \"open\r\n", "unbalanced quotes in request"),
        ] {
            assert_eq!(read(input, input.len()), Err(message.into()));
        }
        assert_eq!(read(&[b'a'; 70_000], 1000), Err("too big inline request".into()));
        let many = b"$900\r\n".iter().chain([b'x'; 900].iter()).chain(b"\r\n").copied();
        let long: Vec<u8> =
            b"*1000\r\n".iter().copied().chain((0..1000).flat_map(|_| many.clone())).collect();
        assert_eq!(read(&long, 5000), Err(too_long(&LIMITS)));
    }

    #[test]
    fn commands_after_one_that_is_passed_over_are_read() {
        let limits = Limits { arguments: 3, request_bytes: 60, passes_over: true, ..LIMITS };
        let input = b"*1\r\n$4\r\nPING\r\n*4\r\n$1\r\na\r\n$0\r\n\r\n$2\r\nbc\r\n$1\r\nd\r\nPING\r\n\
            *2\r\n$4\r\nECHO\r\n$80\r\n01234567890123456789012345678901234567890123456789012345678901234567890123456789\r\n\
            *3\r\n$1\r\na\r\n$30\r\n012345678901234567890123456789\r\n$30\r\n012345678901234567890123456789\r\n\
            *1\r\n$1\r\nx\r\n";
        let whole = read_within(input, input.len(), &limits).unwrap();
        let firsts: Vec<_> = whole.iter().map(|command| command[0].as_slice()).collect();
        let refused = b"refused".as_slice();
        assert_eq!(firsts, [b"PING", b"PING", refused, b"PING", refused, refused, b"x"][1..]);
        assert_eq!(whole[1][1], b"4 arguments, at most 3 (max-arguments)");
        assert_eq!(whole[3][1], too_long(&limits).into_bytes());
        for piece in 1..input.len() {
            assert_eq!(read_within(input, piece, &limits).unwrap(), whole, "{piece}");
        }
        let wrong = b"*4\r\n$1\r\na\r\n:1\r\n";
        let message = "expected '$' in a command that is too long";
        assert_eq!(read_within(wrong, 3, &limits), Err(message.into()));
    }
}

//! Replies to usual commands, as RESP2 or RESP3 writes them.

use bloomery_core::kind::Refusal;

use crate::errors::LATER;
use crate::server::names::{CommandFamily, NO_ROOM};
use crate::server::usual::KeyCommand;

#[derive(Default)]
pub struct Output {
    pub bytes: Vec<u8>,
    /// Where the replies to writes lie: they must not go out if the log could not be written.
    pub writes: Vec<(usize, usize)>,
    pub resp3: bool,
}

impl Output {
    /// The reply to one command.
    #[inline(always)]
    pub fn one(&mut self, act: KeyCommand, reply: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        reply(self);
        if act.writes() {
            self.writes.push((start, self.bytes.len()));
        }
    }

    /// A reply that was made elsewhere; `write`: to a write.
    pub fn push(&mut self, reply: &[u8], write: bool) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(reply);
        if write {
            self.writes.push((start, self.bytes.len()));
        }
    }

    /// The answer to one key.
    #[inline(always)]
    pub fn answer(&mut self, family: CommandFamily, value: u8) {
        if value == NO_ROOM {
            return self.error(&text(family, &Refusal::NoMemory(0)));
        }
        self.boolean(value);
    }

    #[inline(always)]
    fn boolean(&mut self, value: u8) {
        self.bytes.extend_from_slice(match (self.resp3, value) {
            (false, 0) => b":0\r\n",
            (false, _) => b":1\r\n",
            (true, 0) => b"#f\r\n",
            (true, _) => b"#t\r\n",
        });
    }

    pub fn number(&mut self, prefix: u8, value: u64) {
        self.bytes.push(prefix);
        self.bytes.extend_from_slice(value.to_string().as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    #[cold]
    pub fn error(&mut self, message: &str) {
        self.bytes.push(b'-');
        self.bytes.extend_from_slice(message.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A reply for each answer; if a refusal came, it is the last. `several`: as an array.
    #[inline(always)]
    pub fn answers(
        &mut self,
        family: CommandFamily,
        several: bool,
        answers: &[u8],
        result: Result<(), Refusal>,
    ) {
        let error = result.err().map(|refusal| text(family, &refusal));
        self.replies(family, several, answers, error.as_deref());
    }

    /// As `answers`, with the refusal in words.
    #[inline(always)]
    pub fn replies(
        &mut self,
        family: CommandFamily,
        several: bool,
        answers: &[u8],
        error: Option<&str>,
    ) {
        if several {
            self.number(b'*', answers.len() as u64 + u64::from(error.is_some()));
        }
        answers.iter().for_each(|value| self.answer(family, *value));
        if let Some(error) = error {
            self.error(error);
        }
    }
}

/// What RedisBloom says.
#[cold]
pub fn text(family: CommandFamily, refusal: &Refusal) -> String {
    match (family, refusal) {
        (CommandFamily::Bf, Refusal::NoMemory(_)) => "ERR problem inserting into filter".into(),
        (CommandFamily::Bf, Refusal::Full(message) | Refusal::Copies(message)) => {
            format!("ERR {message}")
        }
        (CommandFamily::Cf, Refusal::NoMemory(_)) => "ERR Insufficient memory".into(),
        (CommandFamily::Cf, Refusal::Full(message) | Refusal::Copies(message)) => message.clone(),
        (_, Refusal::Never(message)) => format!("ERR {message}"),
        (_, Refusal::Later) => format!("ERR {LATER}"),
    }
}

/// The same, of a refusal that Python had: its code and message.
#[cold]
pub fn explain(family: CommandFamily, code: &str, message: &str) -> String {
    match code {
        "not-enough-memory" => text(family, &Refusal::NoMemory(0)),
        "filter-full" | "too-many-copies" => text(family, &Refusal::Full(message.into())),
        _ => format!("ERR {message}"),
    }
}

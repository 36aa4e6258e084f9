//! Replies to native commands in RESP2 or RESP3.

use bloomery_core::kind::Refusal;

use crate::apply::LATER;
use crate::commands::Native;
use crate::filter::Fault;
use crate::keyspace::{CommandFamily, NO_ROOM};

#[derive(Default)]
pub struct Output {
    pub bytes: Vec<u8>,
    pub resp3: bool,
}

impl Output {
    /// Replies to a write of keys that are present.
    #[inline(always)]
    pub fn known(&mut self, command: Native, keys: usize) {
        if command.several {
            self.number(b'*', keys as u64);
        }
        (0..keys).for_each(|_| self.boolean(0));
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

    /// Replies with a fault of a filter.
    #[cold]
    pub fn fault(&mut self, family: CommandFamily, fault: &Fault) {
        let refusal = match fault {
            Fault::Broken(message) => Refusal::Full(message.clone()),
            Fault::NoMemory(nbytes) => Refusal::NoMemory(*nbytes),
            Fault::Later => Refusal::Later,
        };
        self.error(&text(family, &refusal));
    }

    /// Replies with each answer, without an array.
    #[inline(always)]
    pub fn answers(&mut self, family: CommandFamily, answers: &[u8]) {
        answers.iter().for_each(|value| self.answer(family, *value));
    }

    /// Replies with each answer, and with a refusal as the last. `several`: as an array.
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
        self.answers(family, answers);
        if let Some(error) = error {
            self.error(error);
        }
    }
}

/// The error reply of RedisBloom.
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

/// The same for a refusal as a code and a message.
#[cold]
pub fn explain(family: CommandFamily, code: &str, message: &str) -> String {
    match code {
        "not-enough-memory" => text(family, &Refusal::NoMemory(0)),
        "filter-full" | "too-many-copies" => text(family, &Refusal::Full(message.into())),
        _ => format!("ERR {message}"),
    }
}

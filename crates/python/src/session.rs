//! One client of the Redis protocol. A chunk of what it sent is parsed and its usual commands are
//! done in one call, without Python; every other command is handed out to Python, in order.

use std::sync::Mutex;

use bloomery_core::kind::Refusal;
use bloomery_core::resp::{Limits, Parser, Step};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use crate::shelf::{Door, Entry, Names, Shelf, Work, failed, now};

/// Room that a long request or reply needed is given back beyond this.
const KEEP: usize = 1 << 20;

#[pyclass(frozen, module = "bloomery._native")]
pub struct Session {
    shelf: Py<Shelf>,
    limits: Limits,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    parser: Parser,
    /// What came and is not yet done, from `start` on.
    input: Vec<u8>,
    start: usize,
    output: Output,
    /// Does Python see every command (a transaction, a client that has yet to log in)?
    watched: bool,
}

#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// Where the replies to writes lie: they must not go out if the log could not be written.
    writes: Vec<(usize, usize)>,
    resp3: bool,
}

impl Output {
    /// The reply to one command.
    #[inline(always)]
    pub fn one(&mut self, act: Act, reply: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        reply(self);
        if act.writes() {
            self.writes.push((start, self.bytes.len()));
        }
    }

    #[inline(always)]
    pub fn boolean(&mut self, value: u8) {
        self.bytes.extend_from_slice(match (self.resp3, value) {
            (false, 0) => b":0\r\n",
            (false, _) => b":1\r\n",
            (true, 0) => b"#f\r\n",
            (true, _) => b"#t\r\n",
        });
    }

    fn number(&mut self, mark: u8, value: u64) {
        self.bytes.push(mark);
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
    fn answers(&mut self, door: Door, several: bool, answers: &[u8], result: Result<(), Refusal>) {
        let refusal = result.err();
        if several {
            self.number(b'*', answers.len() as u64 + u64::from(refusal.is_some()));
        }
        answers.iter().for_each(|answer| self.boolean(*answer));
        if let Some(refusal) = refusal {
            self.error(&text(door, &refusal));
        }
    }
}

/// What RedisBloom says.
#[cold]
pub fn text(door: Door, refusal: &Refusal) -> String {
    match (door, refusal) {
        (Door::Bf, Refusal::NoMemory(_)) => "ERR problem inserting into filter".into(),
        (Door::Bf, Refusal::Full(message)) => format!("ERR {message}"),
        (Door::Cf, Refusal::NoMemory(_)) => "ERR Insufficient memory".into(),
        (Door::Cf, Refusal::Full(message)) => message.clone(),
        (_, Refusal::Never(message)) => format!("ERR {message}"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Add,
    /// Unless it may be there.
    AddNew,
    Contains,
    Remove,
    Count,
}

impl Act {
    #[inline(always)]
    pub fn writes(self) -> bool {
        !matches!(self, Act::Contains | Act::Count)
    }
}

/// The usual commands: what to do, by whose door, and with how many keys.
#[inline(always)]
fn usual(name: &[u8]) -> Option<(Act, Door, bool)> {
    let mut upper = [0u8; 10];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    Some(match &*upper {
        b"BF.EXISTS" => (Act::Contains, Door::Bf, false),
        b"BF.ADD" => (Act::Add, Door::Bf, false),
        b"BF.MEXISTS" => (Act::Contains, Door::Bf, true),
        b"BF.MADD" => (Act::Add, Door::Bf, true),
        b"BF.DEL" => (Act::Remove, Door::Bf, false),
        b"CF.EXISTS" => (Act::Contains, Door::Cf, false),
        b"CF.ADD" => (Act::Add, Door::Cf, false),
        b"CF.ADDNX" => (Act::AddNew, Door::Cf, false),
        b"CF.MEXISTS" => (Act::Contains, Door::Cf, true),
        b"CF.DEL" => (Act::Remove, Door::Cf, false),
        b"CF.COUNT" => (Act::Count, Door::Cf, false),
        _ => return None,
    })
}

/// The usual commands of one key.
#[inline(always)]
fn one_key(parser: &Parser, command: &[u8]) -> Option<(Act, Door)> {
    if parser.len() != 3 {
        return None;
    }
    let (act, door, several) = usual(parser.argument(command, 0))?;
    (!several).then_some((act, door))
}

/// Does a usual command, its arguments being those of the parser; false if Python must see it: it
/// is not a usual one, or something about it is not as usual.
#[inline(always)]
fn run(
    py: Python<'_>,
    names: &mut Names,
    parser: &Parser,
    input: &[u8],
    output: &mut Output,
    now: f64,
) -> bool {
    let name = parser.argument(input, 0);
    let Some((act, door, several)) = usual(name) else {
        if parser.len() == 1 && name.eq_ignore_ascii_case(b"PING") {
            output.bytes.extend_from_slice(b"+PONG\r\n");
            return true;
        }
        return false;
    };
    let reads = !act.writes();
    let arguments = parser.len();
    if arguments < 3 || (!several && arguments > 3) || (names.refusing && !reads) {
        return false;
    }
    let (entry, mut work) = names.split(parser.argument(input, 1), now);
    let Some(entry) = entry.filter(|entry| entry.door == door) else {
        // What is not there, or answers to another door, holds no key.
        match act {
            Act::Contains => {
                work.answers.resize(arguments - 2, 0);
                output.answers(door, several, work.answers, Ok(()));
            }
            Act::Count => output.number(b':', 0),
            _ => {}
        }
        return reads;
    };
    if entry.loading {
        return false;
    }
    for index in 2..arguments {
        entry.held.hash(parser.argument(input, index), work.hashes);
    }
    if reads {
        return match answer(py, entry, &mut work, act) {
            Ok(Some(count)) => {
                output.number(b':', count);
                true
            }
            Ok(None) => {
                output.answers(door, several, work.answers, Ok(()));
                true
            }
            Err(_) => false, // Python will see it too
        };
    }
    let result = change(py, entry, &mut work, act);
    output.one(act, |output| output.answers(door, several, work.answers, result));
    true
}

/// Answers in `work`, or a count.
#[inline(always)]
fn answer(
    py: Python<'_>,
    entry: &mut Entry,
    work: &mut Work<'_>,
    act: Act,
) -> PyResult<Option<u64>> {
    if act == Act::Count {
        return entry.held.count(py, work.hashes).map(Some);
    }
    entry.contains(py, work)?;
    Ok(None)
}

#[inline(always)]
fn change(py: Python<'_>, entry: &mut Entry, work: &mut Work<'_>, act: Act) -> Result<(), Refusal> {
    match act {
        Act::Remove => entry.remove(py, work),
        Act::AddNew => {
            entry.contains(py, work).map_err(failed)?;
            if work.answers.pop() == Some(1) {
                work.answers.push(0);
                return Ok(());
            }
            entry.add(py, work)
        }
        _ => entry.add(py, work),
    }
}

impl Session {
    fn inner<'a>(&'a self, py: Python<'a>) -> std::sync::MutexGuard<'a, Inner> {
        self.inner.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl Session {
    #[new]
    fn new(
        shelf: Py<Shelf>,
        max_arguments: usize,
        max_argument_bytes: usize,
        max_request_bytes: usize,
    ) -> Self {
        let limits = Limits {
            arguments: max_arguments,
            argument_bytes: max_argument_bytes,
            request_bytes: max_request_bytes,
        };
        Session { shelf, limits, inner: Mutex::default() }
    }

    /// Takes what the client sent and does what can be done of it. None: all is done that is there.
    /// A list: a command (its arguments) for Python, which gives the `reply` and feeds again. A str:
    /// this is no request, and nothing that follows can be read.
    fn feed<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut inner = self.inner(py);
        let Inner { parser, input, start, output, watched } = &mut *inner;
        let fresh = data.as_bytes();
        let held = *start < input.len();
        if held {
            input.extend_from_slice(fresh);
        }
        let view: &[u8] = if held { input } else { fresh };
        let mut at = if held { *start } else { 0 };
        let mut names =
            self.shelf.get().names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let time = if names.timed { now() } else { 0.0 };
        let mut waiting = std::mem::take(&mut names.run);
        let mut done = 0;
        let found = loop {
            match parser.step(&view[at..], &self.limits) {
                Ok(Step::More) => break Ok(None),
                Ok(Step::Nothing(bytes)) => at += bytes,
                Ok(Step::Command(bytes)) => {
                    let (before, command) = (at, &view[at..at + bytes]);
                    at += bytes;
                    if let Some(doing) = one_key(parser, command).filter(|_| !*watched) {
                        if waiting.joins(doing, parser, command, before) {
                            done += 1;
                            continue;
                        }
                        waiting.end(py, &mut names, view, output, time);
                        if waiting.begins(doing, &mut names, parser, command, before, time) {
                            done += 1;
                            continue;
                        }
                    } else {
                        waiting.end(py, &mut names, view, output, time);
                    }
                    if *watched || !run(py, &mut names, parser, command, output, time) {
                        let words = (0..parser.len())
                            .map(|i| PyBytes::new(py, parser.argument(command, i)));
                        break PyList::new(py, words).map(|list| Some(list.into_any()));
                    }
                    done += 1;
                }
                Err(message) => {
                    break Ok(Some(pyo3::types::PyString::new(py, &message).into_any()));
                }
            }
        };
        waiting.end(py, &mut names, view, output, time);
        names.run = waiting;
        names.commands += done;
        drop(names);
        if held {
            *start = at;
        } else {
            // Kept from its first byte that is not yet done; most chunks end with a command.
            input.clear();
            *start = 0;
            input.extend_from_slice(&fresh[at..]);
        }
        if *start == input.len() {
            input.clear();
            input.shrink_to(KEEP);
            *start = 0;
        } else if *start >= KEEP {
            input.drain(..*start);
            *start = 0;
        }
        found
    }

    /// Appends a reply; `write`: it must not go out if the log cannot be written.
    #[pyo3(signature = (data, write=false))]
    fn reply(&self, py: Python<'_>, data: &[u8], write: bool) {
        let output = &mut self.inner(py).output;
        let start = output.bytes.len();
        output.bytes.extend_from_slice(data);
        if write {
            output.writes.push((start, output.bytes.len()));
        }
    }

    /// All replies, to be sent.
    fn take<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let output = &mut self.inner(py).output;
        let bytes = PyBytes::new(py, &output.bytes);
        output.bytes.clear();
        output.bytes.shrink_to(KEEP);
        output.writes.clear();
        bytes
    }

    /// Puts an error in place of each reply to a write.
    fn fail(&self, py: Python<'_>, error: &[u8]) {
        let output = &mut self.inner(py).output;
        let mut bytes = Vec::with_capacity(output.bytes.len());
        let mut at = 0;
        for (start, end) in output.writes.drain(..) {
            bytes.extend_from_slice(&output.bytes[at..start]);
            bytes.extend_from_slice(error);
            at = end;
        }
        bytes.extend_from_slice(&output.bytes[at..]);
        output.bytes = bytes;
    }

    /// Bytes of replies that were not yet taken.
    #[getter]
    fn pending(&self, py: Python<'_>) -> usize {
        self.inner(py).output.bytes.len()
    }

    /// Bytes that came and are not yet done.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> usize {
        let inner = self.inner(py);
        inner.input.len() - inner.start
    }

    /// 2 or 3.
    #[getter]
    fn protocol(&self, py: Python<'_>) -> u8 {
        if self.inner(py).output.resp3 { 3 } else { 2 }
    }

    #[setter]
    fn set_protocol(&self, py: Python<'_>, protocol: u8) {
        self.inner(py).output.resp3 = protocol == 3;
    }

    #[getter]
    fn watched(&self, py: Python<'_>) -> bool {
        self.inner(py).watched
    }

    #[setter]
    fn set_watched(&self, py: Python<'_>, watched: bool) {
        self.inner(py).watched = watched;
    }
}

//! One client of the Redis protocol. A chunk of what it sent is parsed and its usual commands are
//! done in one call, without Python; every other command is handed out to Python, in order.

use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bloomery_core::resp::{Limits, Parser, Step};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBool, PyBytes, PyList, PyString};

use crate::server::deferred::{Deferred, Fate, defer};
use crate::server::histogram::Histogram;
use crate::server::output::Output;
use crate::server::permits::Permits;
use crate::server::shelf::Shelf;
use crate::server::sliced::{MANY, Progress, Sliced};
use crate::server::usual::{one_key, run};

/// Room that a long request or reply needed is given back beyond this.
const KEEP: usize = 1 << 20;

/// What a client has sent is worked on for so long, and then others have their turn.
const SLICE: Duration = Duration::from_millis(2);
/// The clock is looked at after so many keys; a cuckoo filter's may take a millisecond each.
const LOOKS: u32 = 64;

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
    /// A command of many arguments that is under way: `input` has it from `start` on.
    sliced: Option<(Sliced, usize)>,
    /// Does Python see every command (a transaction, a client that has yet to log in)?
    watched: bool,
    /// What the client may use, where that is not everything.
    permits: Option<Permits>,
    timing: Timing,
    /// Does what comes wait for Python's word (`Sockets`)?
    held: bool,
    /// When something came last, by a clock of Python's.
    last: f64,
    /// Writes that wait for the shared log.
    deferred: Deferred,
}

/// How long commands take: from the arrival of their chunk until their replies are taken, which is
/// when the log has what they wrote.
#[derive(Default)]
struct Timing {
    /// When a chunk came that Python held back.
    arrived: Option<Instant>,
    /// When the chunk came that is worked on, or whose replies are yet to be taken.
    since: Option<Instant>,
    /// Is one of its commands with Python, or more to do of it?
    unfinished: bool,
    /// Commands that were answered since.
    answered: u64,
}

impl Timing {
    /// `open`: some are not answered yet.
    fn begin(&mut self, now: Instant, open: bool) {
        let came = self.arrived.take().unwrap_or(now);
        // A command that came in several chunks came with the last of them.
        if self.since.is_none() || !(self.unfinished || self.answered > 0 || open) {
            self.since = Some(came);
        }
    }

    fn end(&mut self, latency: &Histogram, open: bool) {
        if let Some(since) = self.since.filter(|_| self.answered > 0) {
            latency.add(since.elapsed(), self.answered);
            self.answered = 0;
        }
        if !self.unfinished && !open {
            self.since = None;
        }
    }
}

/// What became of a chunk.
pub struct TakenIn<'py> {
    pub ended: Ended<'py>,
    /// Bytes that waited before it, and after it.
    pub before: usize,
    pub after: usize,
}

/// What a chunk ended with.
pub enum Ended<'py> {
    Nothing,
    /// Its arguments.
    Command(Vec<Bound<'py, PyBytes>>),
    Problem(String),
    /// There is more to do, after others had their turn; or once a filter is to be had again.
    Later {
        at_once: bool,
    },
}

impl<'py> Ended<'py> {
    /// As Python has it.
    pub fn into_python(self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match self {
            Ended::Nothing => None,
            Ended::Command(words) => Some(PyList::new(py, words)?.into_any()),
            Ended::Problem(message) => Some(PyString::new(py, &message).into_any()),
            Ended::Later { at_once } => Some(PyBool::new(py, at_once).to_owned().into_any()),
        })
    }
}

impl Inner {
    fn waiting(&self) -> usize {
        self.input.len() - self.start
    }

    fn taken_in<'py>(&self, ended: Ended<'py>, before: usize) -> TakenIn<'py> {
        TakenIn { ended, before, after: self.waiting() }
    }

    /// Forgets the replies, which go out.
    fn sent(&mut self, latency: &Histogram) {
        self.timing.end(latency, !self.deferred.is_empty());
        self.output.bytes.clear();
        self.output.bytes.shrink_to(KEEP);
        self.output.writes.clear();
    }
}

impl Session {
    fn inner<'a>(&'a self, py: Python<'a>) -> std::sync::MutexGuard<'a, Inner> {
        self.inner.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn is_held(&self, py: Python<'_>) -> bool {
        self.inner(py).held
    }

    /// As `feed`. `came`: when it did.
    pub fn take_in<'py>(&self, py: Python<'py>, fresh: &[u8], came: Option<f64>) -> TakenIn<'py> {
        let mut inner = self.inner(py);
        let before = inner.waiting();
        inner.last = came.unwrap_or(inner.last);
        let Inner {
            parser, input, start, output, sliced, watched, permits, timing, deferred, ..
        } = &mut *inner;
        let buffered = *start < input.len();
        if buffered {
            input.extend_from_slice(fresh);
        }
        let mut names =
            self.shelf.get().names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let now = Instant::now();
        if deferred.waits(names.turn) {
            if !fresh.is_empty() {
                timing.arrived.get_or_insert(now);
            }
            if !buffered {
                input.extend_from_slice(fresh);
            }
            return inner.taken_in(Ended::Nothing, before);
        }
        let view: &[u8] = if buffered { input } else { fresh };
        let mut at = if buffered { *start } else { 0 };
        let mut waiting = std::mem::take(&mut names.run);
        let watched = *watched || names.bypassed;
        let deferring = names.deferring || !deferred.is_empty();
        timing.begin(now, !deferred.is_empty());
        let open = deferred.len();
        let (until, mut looks) = (now + SLICE, LOOKS);
        let mut done = 0;
        let ended = loop {
            if let Some((going, bytes)) = sliced {
                let command = &view[at..at + *bytes];
                let progress = going.go_on(py, &mut names, parser, command, output, until);
                if matches!(progress, Progress::More | Progress::Waits) {
                    break Ended::Later { at_once: matches!(progress, Progress::More) };
                }
                at += *bytes;
                *sliced = None;
                if let Progress::Words(words) = progress {
                    break Ended::Command(
                        words.into_iter().map(|word| word.into_bound(py)).collect(),
                    );
                }
                done += 1;
            }
            if looks == 0 {
                looks = LOOKS;
                if Instant::now() >= until {
                    break Ended::Later { at_once: true };
                }
            }
            match parser.step(&view[at..], &self.limits) {
                Ok(Step::More) => break Ended::Nothing,
                Ok(Step::Nothing(bytes)) => at += bytes,
                Ok(Step::Command(bytes)) => {
                    let (before, command) = (at, &view[at..at + bytes]);
                    at += bytes;
                    let mut watched = watched;
                    if deferring {
                        let hidden = watched
                            || permits.as_ref().is_some_and(|known| !known.cover(parser, command));
                        match defer(py, &mut names, parser, command, hidden) {
                            Fate::Deferred(slot) => {
                                deferred.push(slot, command, names.turn);
                                looks -= 1;
                                done += 1;
                                continue;
                            }
                            _ if !deferred.is_empty() => {
                                deferred.stopped = true;
                                at = before; // the parser reads it again
                                break Ended::Nothing;
                            }
                            Fate::Unusual => watched = true,
                            Fate::NoWrite => {}
                        }
                    }
                    if let Some(doing) = one_key(parser, command).filter(|_| !watched) {
                        looks -= 1;
                        if waiting.joins(doing, parser, command, before) {
                            done += 1;
                            continue;
                        }
                        waiting.end(py, &mut names, view, output);
                        if permits.as_ref().is_none_or(|known| known.cover(parser, command))
                            && waiting.begins(py, doing, &mut names, parser, command, before)
                        {
                            done += 1;
                            continue;
                        }
                    } else {
                        waiting.end(py, &mut names, view, output);
                    }
                    let seen = watched
                        || permits.as_ref().is_some_and(|known| !known.cover(parser, command));
                    if parser.len() > MANY {
                        at = before;
                        *sliced = Some((
                            Sliced::new(py, &mut names, parser, command, output, seen),
                            bytes,
                        ));
                        continue;
                    }
                    let cuckoo =
                        parser.argument(command, 0).first().is_some_and(|c| c | 32 == b'c');
                    looks = if cuckoo { 0 } else { looks.saturating_sub(parser.len() as u32) };
                    if seen || !run(py, &mut names, parser, command, output) {
                        let words = (0..parser.len())
                            .map(|i| PyBytes::new(py, parser.argument(command, i)));
                        break Ended::Command(words.collect());
                    }
                    done += 1;
                }
                Err(_) if !deferred.is_empty() => {
                    deferred.stopped = true; // and then it will be told
                    break Ended::Nothing;
                }
                Err(message) => {
                    break Ended::Problem(message);
                }
            }
        };
        waiting.end(py, &mut names, view, output);
        names.run = waiting;
        names.commands += done;
        drop(names);
        timing.answered += done - (deferred.len() - open) as u64;
        timing.unfinished =
            deferred.stopped || matches!(ended, Ended::Command(_) | Ended::Later { .. });
        if buffered {
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
        inner.taken_in(ended, before)
    }

    /// Sends the replies to a socket that does not block; false if it did not take all of them.
    pub fn send(&self, py: Python<'_>, socket: &mut impl Write) -> bool {
        let inner = &mut *self.inner(py);
        let replies = &mut inner.output.bytes;
        // What is wrong with the socket, whoever writes to it next will hear too.
        let sent = if replies.is_empty() { 0 } else { socket.write(replies).unwrap_or(0) };
        if sent < replies.len() {
            replies.drain(..sent);
            inner.output.writes.clear();
            return false;
        }
        inner.sent(self.shelf.get().latency.get());
        true
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

    /// Takes what the client sent and does what can be done of it. None: all is done that is there,
    /// or what follows waits for the answers to writes that were deferred (`Shelf.deferring`).
    /// A list: a command (its arguments) for Python, which gives the `reply` and feeds again. A str:
    /// this is no request, and nothing that follows can be read. True: there is more to do, after
    /// others had their turn; False: as True, but a filter is not to be had for a while.
    fn feed<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Not under the lock: to make a list may run Python code, a collection of garbage.
        self.take_in(py, data.as_bytes(), None).ended.into_python(py)
    }

    /// Appends a reply; `write`: it must not go out if the log cannot be written.
    #[pyo3(signature = (data, write=false))]
    fn reply(&self, py: Python<'_>, data: &[u8], write: bool) {
        let Inner { output, timing, deferred, .. } = &mut *self.inner(py);
        timing.answered += 1;
        if !deferred.keep(data, write) {
            output.push(data, write);
        }
    }

    /// Replies to the writes that were deferred. There is a result for each record of the turn's
    /// log: as `Shelf.apply` returns it, or an error's reply in bytes; others are not looked at.
    /// None: the filter was dropped before. Then nothing is answered, and the commands (their
    /// arguments) are returned that are to be done again; their replies, in order, are `again`.
    #[pyo3(signature = (results, again=Vec::new()))]
    fn answer<'py>(
        &self,
        results: &Bound<'py, PyList>,
        again: Vec<Bound<'py, PyBytes>>,
    ) -> PyResult<Vec<Vec<Bound<'py, PyBytes>>>> {
        let Inner { output, timing, deferred, .. } = &mut *self.inner(results.py());
        let open = deferred.len() as u64;
        let dropped = deferred.answer(output, results, &again, &self.limits)?;
        if dropped.is_empty() {
            timing.answered += open;
        }
        Ok(dropped)
    }

    /// All replies, to be sent.
    fn take<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut inner = self.inner(py);
        let bytes = PyBytes::new(py, &inner.output.bytes);
        inner.sent(self.shelf.get().latency.get());
        bytes
    }

    /// Notes that a chunk has come, which will be fed later.
    fn arrived(&self, py: Python<'_>) {
        self.inner(py).timing.arrived.get_or_insert_with(Instant::now);
    }

    /// Puts an error in place of each reply to a write, and replies with it to those that were
    /// deferred.
    fn fail(&self, py: Python<'_>, error: &[u8]) {
        let Inner { output, timing, deferred, .. } = &mut *self.inner(py);
        timing.answered += deferred.len() as u64;
        deferred.fail(output, error);
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

    /// Is there a reply to a write among those, or one that was deferred?
    #[getter]
    fn wrote(&self, py: Python<'_>) -> bool {
        let inner = self.inner(py);
        !inner.output.writes.is_empty() || !inner.deferred.is_empty()
    }

    /// Bytes that came and are not yet done.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> usize {
        self.inner(py).waiting()
    }

    /// While true, `Sockets` hands what comes to Python.
    #[getter]
    fn held(&self, py: Python<'_>) -> bool {
        self.inner(py).held
    }

    #[setter]
    fn set_held(&self, py: Python<'_>, held: bool) {
        self.inner(py).held = held;
    }

    /// When something came last, by Python's clock.
    #[getter]
    fn last(&self, py: Python<'_>) -> f64 {
        self.inner(py).last
    }

    #[setter]
    fn set_last(&self, py: Python<'_>, last: f64) {
        self.inner(py).last = last;
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

    /// While true, usual commands are done for names that were permitted; Python sees the others.
    #[getter]
    fn restricted(&self, py: Python<'_>) -> bool {
        self.inner(py).permits.is_some()
    }

    /// What was permitted before is forgotten, whichever it is.
    #[setter]
    fn set_restricted(&self, py: Python<'_>, restricted: bool) {
        self.inner(py).permits = restricted.then(Permits::default);
    }

    /// Lets the client ask the filter of this name, or also write to it.
    fn permit(&self, py: Python<'_>, name: &[u8], write: bool) {
        if let Some(permits) = &mut self.inner(py).permits {
            permits.permit(name, write);
        }
    }

    #[setter]
    fn set_watched(&self, py: Python<'_>, watched: bool) {
        self.inner(py).watched = watched;
    }
}

//! One client of the Redis protocol. Native code parses what it sends and runs native commands in one
//! call, without Python. Python handles every other command, in order.

use std::io::Write;
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bloomery_core::resp::{Limits, Parser, Step};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBool, PyBytes, PyList, PyString};

use crate::server::commands::{self, Native};
use crate::server::histogram::Histogram;
use crate::server::long_read::{LongCommand, MANY, Progress};
use crate::server::names::Names;
use crate::server::output::Output;
use crate::server::permits::Permits;
use crate::server::pipeline::Run;
use crate::server::shelf::Shelf;
use crate::server::writes::{self, Answered, PendingWrites};

/// Buffers of a long request or reply shrink to this size.
const KEEP: usize = 1 << 20;

/// Time for the commands of one client before others are served.
const SLICE: Duration = Duration::from_millis(2);
/// Keys between two looks at the clock.
const KEYS_PER_LOOK: u32 = 64;

#[pyclass(frozen, module = "bloomery._native")]
pub struct Session {
    shelf: Py<Shelf>,
    limits: Limits,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    parser: Parser,
    /// Received bytes that are not processed yet, from `start` on.
    input: Vec<u8>,
    start: usize,
    output: Output,
    /// A command of many arguments that is under way, and its length in `input` from `start` on.
    long: Option<(LongCommand, usize)>,
    /// Python handles every command: in a transaction, or before a login.
    watched: bool,
    /// What the client may use, unless it may use everything.
    permits: Option<Permits>,
    timing: Timing,
    /// The client's writes wait for the log: what it sends is kept until they are answered.
    held: bool,
    /// When data last arrived, by Python's clock.
    last: f64,
    writes: PendingWrites,
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
        self.timing.end(latency, !self.writes.is_empty());
        self.output.bytes.clear();
        self.output.bytes.shrink_to(KEEP);
    }
}

impl Session {
    fn inner<'a>(&'a self, py: Python<'a>) -> std::sync::MutexGuard<'a, Inner> {
        self.inner.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn is_held(&self, py: Python<'_>) -> bool {
        self.inner(py).held
    }

    /// As `feed`. `arrived`: when the bytes arrived.
    pub fn take_in<'py>(
        &self,
        py: Python<'py>,
        fresh: &[u8],
        arrived: Option<f64>,
    ) -> TakenIn<'py> {
        let mut inner = self.inner(py);
        let before = inner.waiting();
        inner.last = arrived.unwrap_or(inner.last);
        let mut names =
            self.shelf.get().names.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        let now = Instant::now();
        if inner.writes.waits(names.batch) {
            if !fresh.is_empty() {
                inner.timing.arrived.get_or_insert(now);
            }
            inner.input.extend_from_slice(fresh);
            return inner.taken_in(Ended::Nothing, before);
        }
        let Inner { parser, input, start, output, long, watched, permits, timing, writes, .. } =
            &mut *inner;
        let buffered = *start < input.len();
        if buffered {
            input.extend_from_slice(fresh);
        }
        let view: &[u8] = if buffered { input } else { fresh };
        let (open, mut at) = (writes.len(), if buffered { *start } else { 0 });
        timing.begin(now, open > 0);
        let mut round = Round {
            py,
            watched: *watched || names.bypassed,
            run: std::mem::take(&mut names.run),
            names: &mut names,
            limits: &self.limits,
            permits: permits.as_ref(),
            view,
            parser,
            output,
            writes,
            long,
            until: now + SLICE,
            left: KEYS_PER_LOOK,
            done: 0,
        };
        let ended = round.process(&mut at);
        let done = round.done;
        let run = round.run;
        names.run = run;
        names.commands += done;
        drop(names);
        timing.answered += done.saturating_sub(writes.len().saturating_sub(open) as u64);
        timing.unfinished =
            writes.stopped || matches!(ended, Ended::Command(_) | Ended::Later { .. });
        if buffered {
            *start = at;
        } else {
            // Most chunks end with a command, so that nothing is kept.
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

    pub fn is_writing(&self, py: Python<'_>) -> bool {
        !self.inner(py).writes.is_empty()
    }

    pub fn hold(&self, py: Python<'_>, held: bool) {
        self.inner(py).held = held;
    }

    /// Returns how many bytes are not processed yet.
    pub fn unprocessed(&self, py: Python<'_>) -> usize {
        self.inner(py).waiting()
    }

    pub fn answer_writes<'py>(
        &self,
        results: &Bound<'py, PyList>,
        again: &[Bound<'py, PyBytes>],
    ) -> PyResult<Answered<'py>> {
        let Inner { output, timing, writes, .. } = &mut *self.inner(results.py());
        let open = writes.len() as u64;
        let answered = writes.answer(output, results, again, &self.limits)?;
        if matches!(answered, Answered::Done) {
            timing.answered += open;
        }
        Ok(answered)
    }

    pub fn fail_writes(&self, py: Python<'_>, error: &[u8]) {
        let Inner { output, timing, writes, .. } = &mut *self.inner(py);
        timing.answered += writes.len() as u64;
        writes.fail(output, error);
    }

    /// Sends the replies to a socket that does not block; false if it did not take all of them.
    pub fn send(&self, py: Python<'_>, socket: &mut impl Write) -> bool {
        let inner = &mut *self.inner(py);
        let replies = &mut inner.output.bytes;
        // What is wrong with the socket, whoever writes to it next will hear too.
        let sent = if replies.is_empty() { 0 } else { socket.write(replies).unwrap_or(0) };
        if sent < replies.len() {
            replies.drain(..sent);
            return false;
        }
        inner.sent(self.shelf.get().latency.get());
        true
    }
}

/// One round of processing: the commands of a client in one chunk of input.
struct Round<'a, 'py> {
    py: Python<'py>,
    names: &'a mut Names,
    limits: &'a Limits,
    permits: Option<&'a Permits>,
    view: &'a [u8],
    parser: &'a mut Parser,
    output: &'a mut Output,
    writes: &'a mut PendingWrites,
    long: &'a mut Option<(LongCommand, usize)>,
    watched: bool,
    run: Run,
    until: Instant,
    /// Keys before the next look at the clock.
    left: u32,
    /// Commands that are answered, or noted for the log.
    done: u64,
}

/// What follows a command.
enum Flow<'py> {
    Next,
    /// The command is processed; nothing follows for now.
    Stop(Ended<'py>),
    /// The command stays in the input, to be read again.
    Keep(Ended<'py>),
}

impl<'py> Round<'_, 'py> {
    /// Processes commands from `at` on, and moves it.
    fn process(&mut self, at: &mut usize) -> Ended<'py> {
        let ended = loop {
            if let Some((long, bytes)) = self.long {
                let command = &self.view[*at..*at + *bytes];
                let progress =
                    long.resume(self.py, self.names, self.parser, command, self.output, self.until);
                match progress {
                    Progress::More => break Ended::Later { at_once: true },
                    Progress::Waits => break Ended::Later { at_once: false },
                    Progress::Done => self.done += 1,
                    Progress::Words(_) => {}
                }
                *at += *bytes;
                *self.long = None;
                if let Progress::Words(words) = progress {
                    break Ended::Command(words);
                }
            }
            if self.left == 0 {
                self.left = KEYS_PER_LOOK;
                if Instant::now() >= self.until {
                    break Ended::Later { at_once: true };
                }
            }
            match self.parser.step(&self.view[*at..], self.limits) {
                Ok(Step::More) => break Ended::Nothing,
                Ok(Step::Nothing(bytes)) => *at += bytes,
                Ok(Step::Command(bytes)) => match self.command(*at..*at + bytes) {
                    Flow::Next => *at += bytes,
                    Flow::Stop(ended) => {
                        *at += bytes;
                        break ended;
                    }
                    Flow::Keep(ended) => {
                        if self.long.is_none() {
                            break ended;
                        }
                    }
                },
                Err(message) => {
                    self.end_run();
                    if self.writes.is_empty() {
                        break Ended::Problem(message);
                    }
                    self.writes.stopped = true; // the error follows their answers
                    break Ended::Nothing;
                }
            }
        };
        self.end_run();
        ended
    }

    fn end_run(&mut self) {
        self.run.end(self.py, self.names, self.view, self.output, self.writes);
    }

    /// Processes the command that the parser has read.
    #[inline(always)]
    fn command(&mut self, at: Range<usize>) -> Flow<'py> {
        let command = &self.view[at.clone()];
        let hidden = self.watched || self.permits.is_some_and(|p| !p.cover(self.parser, command));
        let Some(found) = commands::find(self.parser, command).filter(|_| !hidden) else {
            self.end_run();
            return self.other(at, hidden);
        };
        self.left = self.left.saturating_sub((self.parser.len() - found.first) as u32);
        if self.run.joins(found, self.parser, self.view, at.clone()) {
            self.done += 1;
            return Flow::Next;
        }
        self.end_run();
        if !found.act.writes() && !self.writes.is_empty() {
            return self.wait();
        }
        if self.run.starts(self.py, found, self.names, self.parser, self.view, at.clone()) {
            self.done += 1;
            return Flow::Next;
        }
        if self.parser.len() > MANY {
            return self.begin_long(Some(found), command);
        }
        let (py, names, parser) = (self.py, &mut *self.names, &*self.parser);
        let done = if found.act.writes() {
            writes::note(py, names, found, parser, command, self.output, self.writes)
        } else {
            commands::read(py, names, found, parser, command, self.output)
        };
        if !done {
            return self.hand_over(command);
        }
        self.done += 1;
        Flow::Next
    }

    /// Processes a command that is not native, or that Python must see.
    fn other(&mut self, at: Range<usize>, hidden: bool) -> Flow<'py> {
        let command = &self.view[at];
        if !self.writes.is_empty() {
            return self.wait();
        }
        if !hidden && self.parser.len() == 1 {
            let name = self.parser.argument(command, 0);
            if name.eq_ignore_ascii_case(b"PING") {
                self.output.bytes.extend_from_slice(b"+PONG\r\n");
                self.left = self.left.saturating_sub(1);
                self.done += 1;
                return Flow::Next;
            }
        }
        if self.parser.len() > MANY {
            return self.begin_long(None, command);
        }
        self.hand_over(command)
    }

    /// Starts a command of many arguments. A write, and what native code cannot do, goes to Python.
    fn begin_long(&mut self, found: Option<Native>, command: &[u8]) -> Flow<'py> {
        if !self.writes.is_empty() {
            return self.wait();
        }
        let read = found.and_then(|found| {
            LongCommand::read(self.names, found, self.parser, command, self.output)
        });
        let long = read.unwrap_or_else(|| LongCommand::Words(Vec::new()));
        *self.long = Some((long, command.len()));
        Flow::Keep(Ended::Nothing)
    }

    /// Hands a command to Python, after the answers to the writes before it.
    fn hand_over(&mut self, command: &[u8]) -> Flow<'py> {
        if !self.writes.is_empty() {
            return self.wait();
        }
        let words = 0..self.parser.len();
        let words = words.map(|i| PyBytes::new(self.py, self.parser.argument(command, i)));
        Flow::Stop(Ended::Command(words.collect()))
    }

    /// Waits for the answers to the writes before a command.
    fn wait(&mut self) -> Flow<'py> {
        self.writes.stopped = true;
        Flow::Keep(Ended::Nothing)
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

    /// Processes what the client sent. None: everything is processed, or the rest waits for the
    /// answers to writes. A list: a command (its words) for Python, which calls `reply` and feeds
    /// again. A str: a protocol error; nothing that follows can be read. True: more follows after
    /// other clients were served. False: as True, but a filter is locked for a while.
    fn feed<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Not under the lock: to make a list may run Python code, a collection of garbage.
        self.take_in(py, data.as_bytes(), None).ended.into_python(py)
    }

    /// Appends a reply, after the answers to writes that wait for the log.
    fn reply(&self, py: Python<'_>, data: &[u8]) {
        let Inner { output, timing, writes, .. } = &mut *self.inner(py);
        timing.answered += 1;
        if !writes.keep(data) {
            output.bytes.extend_from_slice(data);
        }
    }

    /// Replies to the writes that waited for the log. There is a result for each record of the
    /// batch: as `Shelf.apply` appends it, or an error reply in bytes. None: another command changed
    /// the name first. Then nothing is answered, and the commands (their words) that must run again
    /// are returned; the next call passes their replies as `again`, in order. Returns None if a
    /// result is neither: a thread still applies the record, and nothing is answered.
    #[pyo3(signature = (results, again=Vec::new()))]
    fn answer<'py>(
        &self,
        results: &Bound<'py, PyList>,
        again: Vec<Bound<'py, PyBytes>>,
    ) -> PyResult<Option<Vec<Vec<Bound<'py, PyBytes>>>>> {
        Ok(match self.answer_writes(results, &again)? {
            Answered::Done => Some(Vec::new()),
            Answered::Conflicts(words) => Some(words),
            Answered::Unfinished => None,
        })
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

    /// Replies with an error to the writes that waited for the log.
    fn fail(&self, py: Python<'_>, error: &[u8]) {
        self.fail_writes(py, error);
    }

    /// Bytes of replies that were not yet taken.
    #[getter]
    fn pending(&self, py: Python<'_>) -> usize {
        self.inner(py).output.bytes.len()
    }

    /// Whether writes wait for the log.
    #[getter]
    fn writing(&self, py: Python<'_>) -> bool {
        self.is_writing(py)
    }

    /// Bytes that came and are not yet done.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> usize {
        self.inner(py).waiting()
    }

    /// While true, the client's writes wait for the log, and `Sockets` keeps what it sends.
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

//! One client of the Redis protocol. Native code parses its input and runs native commands. The
//! control plane handles every other command, in order.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bloomery_core::resp::{Limits, Parser, Step};

use crate::apply::Outcome;
use crate::commands::{self, Native};
use crate::histogram::Histogram;
use crate::keyspace::{Keyspace, Names, Waiter};
use crate::long_read::{LongCommand, MANY, Progress};
use crate::output::Output;
use crate::permits::Permits;
use crate::pipeline::Run;
use crate::writes::{self, Answered, PendingWrites};

/// Buffers of a long request or reply shrink to this size.
const KEEP: usize = 1 << 20;

/// Time for the commands of one client before others are served.
const SLICE: Duration = Duration::from_millis(2);
/// Keys between two looks at the clock.
const KEYS_PER_LOOK: u32 = 64;
/// Commands, and bytes of them, that the control plane gets at once.
const MAX_COMMANDS: usize = 64;
const MAX_COMMAND_BYTES: usize = 256 << 10;

/// The words of a command.
#[derive(Default, Clone)]
pub struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    pub fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }
}

/// Buffers for hashes and answers.
#[derive(Default)]
pub struct Buffers {
    pub hashes: Vec<u64>,
    pub answers: Vec<u8>,
}

/// What a thread reuses from one chunk of input to the next.
#[derive(Default)]
pub struct Scratch {
    buffers: Buffers,
    run: Run,
}

pub struct Session {
    /// The number of the client.
    pub id: u64,
    pub keyspace: Arc<Keyspace>,
    pub limits: Limits,
    /// The worker that owns the connection.
    pub worker: AtomicUsize,
    /// The client has closed its side of the connection, or the connection is closed.
    pub left: AtomicBool,
    inner: Mutex<Inner>,
}

pub struct Inner {
    parser: Parser,
    /// Received bytes that are not processed yet, from `start` on.
    input: Vec<u8>,
    start: usize,
    pub output: Output,
    /// Bytes of `output` that the socket has accepted.
    pub sent: usize,
    /// A command of many arguments that is under way, and its length in `input` from `start` on.
    long: Option<(LongCommand, usize)>,
    /// The control plane handles every command: in a transaction, or before a login.
    pub watched: bool,
    /// The client must log in first.
    pub unauthenticated: bool,
    /// Bytes of commands that wait for EXEC.
    pub queued_bytes: usize,
    /// What the client may use, unless it may use everything.
    pub permits: Option<Permits>,
    timing: Timing,
    writes: PendingWrites,
    /// The client's writes wait for the log: nothing that it sends is processed until they are
    /// answered.
    pub held: bool,
    /// When data last arrived.
    pub last: Instant,
}

/// How long commands take: from the arrival of their chunk until their replies are sent, which is
/// when the log has what they wrote.
#[derive(Default)]
struct Timing {
    /// When a chunk arrived that was held back.
    arrived: Option<Instant>,
    /// When the chunk arrived that is worked on, or whose replies are yet to be sent.
    since: Option<Instant>,
    /// One of its commands is with the control plane, or more of it is to be processed.
    unfinished: bool,
    /// Commands that were answered since.
    answered: u64,
}

impl Timing {
    /// `open`: some are not answered yet.
    fn begin(&mut self, now: Instant, open: bool) {
        let came = self.arrived.take().unwrap_or(now);
        // A command in several chunks arrived with the last of them.
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
pub struct TakenIn {
    pub ended: Ended,
    /// Bytes that waited before it, and after it.
    pub before: usize,
    pub after: usize,
}

/// What a chunk ended with.
pub enum Ended {
    Nothing,
    /// Commands for the control plane, in order.
    Commands(Vec<Words>),
    /// A protocol error: nothing that follows can be read.
    Problem(String),
    /// More follows after other clients were served (`at_once`), or when a filter is unlocked.
    Later {
        at_once: bool,
    },
}

impl Inner {
    /// Returns how many bytes are not processed yet.
    pub fn waiting(&self) -> usize {
        self.input.len() - self.start
    }

    /// Passes over the request of which a part was received, and answers it with an error once its
    /// end was; false if no request is under way, or what follows it cannot be read.
    pub fn pass_over(&mut self, why: &str) -> bool {
        let possible = self.parser.is_within_command() && !self.watched;
        if possible && !self.parser.is_passing_over() {
            self.parser.refuse(why.into());
        }
        possible
    }

    /// Returns whether a request is passed over.
    pub fn is_passing_over(&self) -> bool {
        self.parser.is_passing_over()
    }

    /// Returns whether writes wait for the log.
    pub fn is_writing(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Returns how many bytes of replies the socket has not accepted.
    pub fn unsent(&self) -> usize {
        self.output.bytes.len() - self.sent
    }

    /// Appends a reply, after the answers to writes that wait for the log.
    pub fn reply(&mut self, data: &[u8]) {
        self.timing.answered += 1;
        if !self.writes.keep(data) {
            self.output.bytes.extend_from_slice(data);
        }
    }

    /// Clears the replies, which are sent.
    pub fn clear_sent(&mut self, latency: &Histogram) {
        self.timing.end(latency, !self.writes.is_empty());
        self.output.bytes.clear();
        self.output.bytes.shrink_to(KEEP);
        self.sent = 0;
    }

    /// Replies to the writes that waited for a batch. Commands in conflict are answered by `again`.
    /// None: the outcomes are not those of the batch.
    pub fn answer(
        &mut self,
        outcomes: &[Outcome],
        again: &[Vec<u8>],
        limits: &Limits,
    ) -> Option<Answered> {
        let open = self.writes.len() as u64;
        let answered = self.writes.answer(&mut self.output, outcomes, again, limits)?;
        if matches!(answered, Answered::Done) {
            self.timing.answered += open;
            self.held = false;
        }
        Some(answered)
    }

    /// Replies with an error to the writes that waited for a batch.
    pub fn fail(&mut self, error: &[u8]) {
        self.timing.answered += self.writes.len() as u64;
        self.writes.fail(&mut self.output, error);
        self.held = false;
    }
}

impl Session {
    pub fn new(id: u64, keyspace: Arc<Keyspace>, limits: Limits) -> Session {
        let inner = Inner {
            parser: Parser::default(),
            input: Vec::new(),
            start: 0,
            output: Output::default(),
            sent: 0,
            long: None,
            watched: false,
            unauthenticated: false,
            queued_bytes: 0,
            permits: None,
            timing: Timing::default(),
            writes: PendingWrites::default(),
            held: false,
            last: Instant::now(),
        };
        let (worker, left) = (AtomicUsize::default(), AtomicBool::default());
        Session { id, keyspace, limits, worker, left, inner: Mutex::new(inner) }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes input. If it has writes, the next batch answers them, and the client is held.
    pub fn take_in(&self, inner: &mut Inner, fresh: &[u8], scratch: &mut Scratch) -> TakenIn {
        let before = inner.waiting();
        let now = Instant::now();
        if inner.held {
            if !fresh.is_empty() {
                inner.timing.arrived.get_or_insert(now);
            }
            inner.input.extend_from_slice(fresh);
            return TakenIn { ended: Ended::Nothing, before, after: inner.waiting() };
        }
        // Whoever takes the batch needs these for writing, so it has all of this chunk.
        let names = self.keyspace.names();
        let ended = self.process(&names, inner, fresh, scratch, now);
        if inner.is_writing() {
            inner.held = true;
            let waiter = Waiter { worker: self.worker.load(Relaxed), client: self.id };
            self.keyspace.pending().waiters.push(waiter);
        }
        TakenIn { ended, before, after: inner.waiting() }
    }

    fn process(
        &self,
        names: &Names,
        inner: &mut Inner,
        fresh: &[u8],
        scratch: &mut Scratch,
        now: Instant,
    ) -> Ended {
        let Inner { parser, input, start, output, long, watched, permits, timing, writes, .. } =
            inner;
        let buffered = *start < input.len();
        if buffered {
            input.extend_from_slice(fresh);
        }
        let view: &[u8] = if buffered { input } else { fresh };
        let (open, mut at) = (writes.len(), if buffered { *start } else { 0 });
        timing.begin(now, open > 0);
        let mut round = Round {
            watched: *watched || self.keyspace.is_bypassed(now),
            keyspace: &self.keyspace,
            names,
            scratch,
            limits: Limits { passes_over: !*watched, ..self.limits },
            permits: permits.as_ref(),
            view,
            parser,
            output,
            writes,
            long,
            until: now + SLICE,
            left: KEYS_PER_LOOK,
            done: 0,
            handed: Vec::new(),
            handed_bytes: 0,
        };
        let ended = round.process(&mut at);
        let done = round.done;
        if done > 0 {
            self.keyspace.commands.fetch_add(done, Relaxed);
        }
        timing.answered += done.saturating_sub(writes.len().saturating_sub(open) as u64);
        timing.unfinished =
            writes.stopped || matches!(ended, Ended::Commands(_) | Ended::Later { .. });
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
        ended
    }
}

/// One round of processing: the commands of a client in one chunk of input.
struct Round<'a> {
    keyspace: &'a Keyspace,
    names: &'a Names,
    scratch: &'a mut Scratch,
    limits: Limits,
    permits: Option<&'a Permits>,
    view: &'a [u8],
    parser: &'a mut Parser,
    output: &'a mut Output,
    writes: &'a mut PendingWrites,
    long: &'a mut Option<(LongCommand, usize)>,
    watched: bool,
    until: Instant,
    /// Keys before the next look at the clock.
    left: u32,
    /// Commands that are answered, or in the next batch.
    done: u64,
    /// Commands for the control plane, and their bytes. No other command runs before them.
    handed: Vec<Words>,
    handed_bytes: usize,
}

/// What follows a command.
enum Flow {
    Next,
    /// The command is processed; nothing follows for now.
    Stop(Ended),
    /// The command stays in the input, to be read again.
    Keep(Ended),
}

impl Round<'_> {
    /// Processes commands from `at` on, and moves it.
    fn process(&mut self, at: &mut usize) -> Ended {
        let ended = loop {
            if self.long.is_some()
                && let Some(ended) = self.resume_long(at)
            {
                break ended;
            }
            if self.left == 0 {
                self.left = KEYS_PER_LOOK;
                if Instant::now() >= self.until {
                    break Ended::Later { at_once: true };
                }
            }
            match self.parser.step(&self.view[*at..], &self.limits) {
                Ok(Step::More) => break Ended::Nothing,
                Ok(Step::Nothing(bytes)) => *at += bytes,
                Ok(Step::Refused(bytes, why)) => {
                    *at += bytes;
                    if let Some(ended) = self.refuse(why) {
                        *at -= 1; // to be read again
                        break ended;
                    }
                }
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
                    if self.writes.is_empty() && self.handed.is_empty() {
                        break Ended::Problem(message);
                    }
                    self.writes.stopped |= !self.writes.is_empty(); // the error follows answers
                    break Ended::Nothing;
                }
            }
        };
        self.end_run();
        if self.handed.is_empty() {
            ended
        } else {
            Ended::Commands(std::mem::take(&mut self.handed))
        }
    }

    /// Answers a command that was passed over, after those before it; or puts its last byte back.
    fn refuse(&mut self, why: String) -> Option<Ended> {
        self.end_run();
        if self.handed.is_empty() && self.writes.is_empty() {
            self.output.error(&format!("ERR {why}"));
            self.done += 1;
            return None;
        }
        self.parser.put_back(why);
        self.writes.stopped |= !self.writes.is_empty();
        Some(Ended::Nothing)
    }

    /// Continues the long command; None if it is done and others follow.
    fn resume_long(&mut self, at: &mut usize) -> Option<Ended> {
        let (long, bytes) = self.long.as_mut()?;
        let command = (&*self.parser, &self.view[*at..*at + *bytes]);
        let (place, buffers) = ((self.keyspace, self.names), &mut self.scratch.buffers);
        let progress = long.resume(place, command, buffers, self.output, self.until);
        match progress {
            Progress::More => return Some(Ended::Later { at_once: true }),
            Progress::Waits => return Some(Ended::Later { at_once: false }),
            Progress::Done => self.done += 1,
            Progress::Words(_) => {}
        }
        *at += *bytes;
        *self.long = None;
        match progress {
            Progress::Words(words) => {
                self.handed.push(words);
                Some(Ended::Nothing)
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn end_run(&mut self) {
        let Scratch { run, buffers } = &mut *self.scratch;
        run.end((self.keyspace, self.names), self.view, buffers, self.output, self.writes);
    }

    /// Processes the command that the parser has read.
    #[inline(always)]
    fn command(&mut self, at: Range<usize>) -> Flow {
        let command = &self.view[at.clone()];
        let hidden = self.watched || self.permits.is_some_and(|p| !p.cover(self.parser, command));
        let Some(found) = commands::find(self.parser, command).filter(|_| !hidden) else {
            self.end_run();
            return self.other(at, hidden);
        };
        if !self.handed.is_empty() {
            return Flow::Keep(Ended::Nothing);
        }
        self.left = self.left.saturating_sub((self.parser.len() - found.first) as u32);
        if self.scratch.run.joins(found, self.parser, self.view, at.clone()) {
            self.done += 1;
            return Flow::Next;
        }
        self.end_run();
        if !found.act.writes() && !self.writes.is_empty() {
            return self.wait();
        }
        let place = (self.keyspace, self.names);
        if self.scratch.run.starts(found, place, self.parser, self.view, at.clone()) {
            self.done += 1;
            return Flow::Next;
        }
        if self.parser.len() > MANY {
            return self.begin_long(Some(found), command);
        }
        let (words, buffers) = ((&*self.parser, command), &mut self.scratch.buffers);
        let done = if found.act.writes() {
            writes::append(place, found, words, buffers, self.output, self.writes)
        } else {
            commands::read(place.0, place.1, found, words, buffers, self.output)
        };
        if !done {
            return self.hand_over(command);
        }
        self.done += 1;
        Flow::Next
    }

    /// Processes a command that is not native, or that the control plane must see.
    fn other(&mut self, at: Range<usize>, hidden: bool) -> Flow {
        let command = &self.view[at];
        if !self.writes.is_empty() {
            return self.wait();
        }
        if !hidden && self.parser.len() == 1 && self.handed.is_empty() {
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

    /// Starts a command of many arguments. The control plane gets a write, and what native code
    /// cannot do.
    fn begin_long(&mut self, found: Option<Native>, command: &[u8]) -> Flow {
        if !self.writes.is_empty() {
            return self.wait();
        }
        if !self.handed.is_empty() {
            return Flow::Keep(Ended::Nothing);
        }
        let place = (self.keyspace, self.names);
        let read = found
            .and_then(|found| LongCommand::read(place, found, self.parser, command, self.output));
        let long = read.unwrap_or_else(|| LongCommand::Words(Words::default()));
        *self.long = Some((long, command.len()));
        Flow::Keep(Ended::Nothing)
    }

    /// Hands a command to the control plane, after the answers to the writes before it.
    fn hand_over(&mut self, command: &[u8]) -> Flow {
        if !self.writes.is_empty() {
            return self.wait();
        }
        let mut words = Words::default();
        (0..self.parser.len()).for_each(|i| words.push(self.parser.argument(command, i)));
        self.handed.push(words);
        self.handed_bytes += command.len();
        if self.handed.len() < MAX_COMMANDS && self.handed_bytes < MAX_COMMAND_BYTES {
            Flow::Next
        } else {
            Flow::Stop(Ended::Nothing)
        }
    }

    /// Waits for the answers to the writes before a command.
    fn wait(&mut self) -> Flow {
        self.writes.stopped = true;
        Flow::Keep(Ended::Nothing)
    }
}

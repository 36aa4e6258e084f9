//! One connection of the Redis protocol: bytes from a socket into a session, replies back.
//!
//! A worker owns it. It is not read while the control plane has its commands (`busy`), while its
//! writes wait for the log (`Inner::held`), and while the client does not accept replies
//! (`blocked_since`). What arrives in the meantime stays in the kernel, which slows the client.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use crate::apply::Outcome;
use crate::events::Event;
use crate::session::{Ended, Inner, Scratch, Session, TakenIn, Words};
use crate::tls::TlsSession;
use crate::workers::{Settings, Shared};
use crate::writes::Answered;

/// Bytes that are read at once; other clients wait for it.
pub const CHUNK: usize = 256 << 10;
/// With more bytes of replies that the client has not accepted, it is not read. A short request
/// (DUMP) can have a reply of 4 MiB.
pub const MAX_PENDING_REPLIES: usize = 1 << 20;
/// Bytes of each connection that do not count as input.
const RESERVED: usize = 64 << 10;
/// Bytes of a request before the client has logged in.
const MAX_UNAUTHENTICATED_BYTES: usize = 64 << 10;
/// Bytes per second at which a large request must arrive.
const MIN_RATE: f64 = 65536.0;
const HTTP: &str = "Protocol error: this is HTTP, whose port is another";
/// How a TLS client starts, and no command does.
const TLS_HELLO: &[u8] = b"\x16\x03";

/// What a worker does next with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Wait for an event.
    Wait,
    /// Continue after other clients were served.
    Continue,
    /// Continue when a filter may be unlocked.
    ContinueLater,
    Close,
}

/// What a worker lends to the connection that it works on.
pub struct Lent<'a> {
    pub shared: &'a Shared,
    pub scratch: &'a mut Scratch,
    pub buffer: &'a mut [u8],
    pub now: Instant,
}

pub struct Connection {
    pub session: Arc<Session>,
    pub socket: TcpStream,
    tls: Option<TlsSession>,
    /// The socket may have data: it is read until it has not.
    pub readable: bool,
    /// The control plane has commands of the client.
    busy: bool,
    /// The input may have complete commands.
    unprocessed: bool,
    /// A command waits until a filter is unlocked.
    delayed: bool,
    /// The client has closed its side.
    ended: bool,
    /// To be closed after the replies so far.
    closing: bool,
    /// After the commands that the control plane has, the client has sent HTTP.
    http: bool,
    /// The client does not accept replies, since then.
    blocked_since: Option<Instant>,
    /// When the request started that is not complete.
    begun: Instant,
    /// Bytes of the input budget.
    charged: u64,
    greeting: Option<Instant>,
    /// Already in the list of connections to continue.
    pub listed: bool,
    /// The socket did not accept all replies.
    pub unsent: bool,
}

impl Connection {
    pub fn new(session: Arc<Session>, socket: TcpStream, tls: Option<TlsSession>) -> Connection {
        let now = Instant::now();
        let greeting = tls.is_some().then_some(now);
        Connection {
            session,
            socket,
            tls,
            readable: false,
            busy: false,
            unprocessed: false,
            delayed: false,
            ended: false,
            closing: false,
            http: false,
            blocked_since: None,
            begun: now,
            charged: 0,
            greeting,
            listed: false,
            unsent: false,
        }
    }

    /// Closes the connection after the replies so far.
    pub fn close_after_replies(&mut self) {
        self.closing = true;
    }

    /// Reads and processes what the client sent.
    pub fn advance(&mut self, lent: &mut Lent<'_>) -> Next {
        let session = self.session.clone();
        let mut inner = session.lock();
        if self.closing && self.greeting.is_some() {
            return self.greet(lent);
        }
        if self.busy || self.closing || self.blocked_since.is_some() || inner.held {
            return Next::Wait;
        }
        let next = if self.unprocessed {
            self.process(&mut inner, 0, lent)
        } else if self.readable && !lent.shared.draining.load(Relaxed) {
            match self.read(lent) {
                Ok(0) => {
                    self.ended = true;
                    self.readable = false;
                    Next::Wait
                }
                Ok(count) => {
                    inner.last = lent.now;
                    self.process(&mut inner, count, lent)
                }
                Err(problem) if problem.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Next::Wait;
                }
                Err(_) => return Next::Close,
            }
        } else {
            return Next::Wait;
        };
        if !self.charge(&mut inner, lent.shared) {
            return Next::Close;
        }
        self.close_if_ended(&inner);
        match next {
            Next::Wait if self.can_continue(&inner) => Next::Continue,
            next => next,
        }
    }

    /// Continues the handshake of a client that is turned away: its replies follow it, and what it
    /// sends is dropped.
    fn greet(&mut self, lent: &mut Lent<'_>) -> Next {
        if !self.readable {
            return Next::Wait;
        }
        match self.read(lent) {
            Ok(0) => Next::Close,
            Ok(_) => Next::Wait,
            Err(problem) if problem.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Next::Wait
            }
            Err(_) => Next::Close,
        }
    }

    /// Returns whether there is more to do before the next event.
    fn can_continue(&self, inner: &Inner) -> bool {
        let waits = self.busy || self.closing || self.blocked_since.is_some() || inner.held;
        !waits && (self.readable || self.unprocessed)
    }

    fn read(&mut self, lent: &mut Lent<'_>) -> io::Result<usize> {
        loop {
            let count = match &mut self.tls {
                None => self.socket.read(lent.buffer),
                Some(tls) => tls.read(&mut self.socket, lent.buffer),
            };
            match count {
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Ok(count) if self.tls.is_none() && count < lent.buffer.len() => {
                    // The socket has no more. An event reports what arrives from now on, and the
                    // end is reported by the event that has reported this.
                    self.readable = self.session.left.load(Relaxed) && count > 0;
                    return Ok(count);
                }
                count => {
                    self.note_greeted(lent.shared);
                    return count;
                }
            }
        }
    }

    fn note_greeted(&mut self, shared: &Shared) {
        let is_greeted = self.tls.as_ref().is_some_and(|tls| !tls.is_handshaking());
        if self.greeting.is_some() && is_greeted {
            self.greeting = None;
            shared.events.post(Event::Greeted(self.session.id));
        }
    }

    /// Processes this many new bytes of the buffer after those that wait.
    fn process(&mut self, inner: &mut Inner, count: usize, lent: &mut Lent<'_>) -> Next {
        let fresh = &lent.buffer[..count];
        if self.tls.is_none() && fresh.starts_with(TLS_HELLO) && inner.waiting() == 0 {
            // The client would wait for a reply in TLS, and the server for the end of a line.
            return self.refuse(inner, "Protocol error: there is no TLS at this port");
        }
        let TakenIn { ended, before, after } = self.session.take_in(inner, fresh, lent.scratch);
        if after > 0 && (before == 0 || after < before + count) {
            self.begun = lent.now;
        }
        self.unprocessed = inner.held && after > 0;
        self.delayed = matches!(ended, Ended::Later { at_once: false });
        match ended {
            Ended::Nothing if inner.unauthenticated && after > MAX_UNAUTHENTICATED_BYTES => {
                self.refuse(inner, "Protocol error: unauthenticated bulk length")
            }
            Ended::Nothing => Next::Wait,
            Ended::Commands(mut commands) => {
                if let Some(at) = commands.iter().position(is_http) {
                    self.http = true;
                    commands.truncate(at);
                }
                if commands.is_empty() {
                    return self.refuse(inner, HTTP);
                }
                self.busy = true;
                self.unprocessed = after > 0;
                lent.shared.events.post(Event::Commands(self.session.id, commands));
                Next::Wait
            }
            Ended::Problem(message) => self.refuse(inner, &format!("Protocol error: {message}")),
            Ended::Later { at_once } => {
                self.unprocessed = true;
                if at_once { Next::Continue } else { Next::ContinueLater }
            }
        }
    }

    /// Replies with an error, and closes the connection after it.
    fn refuse(&mut self, inner: &mut Inner, message: &str) -> Next {
        inner.reply(format!("-ERR {message}\r\n").as_bytes());
        self.closing = true;
        Next::Wait
    }

    /// Charges unprocessed input to the budget of all connections; false if the connection must be
    /// closed at once.
    fn charge(&mut self, inner: &mut Inner, shared: &Shared) -> bool {
        let used = inner.waiting() + inner.queued_bytes;
        let after = used.saturating_sub(RESERVED) as u64;
        if after == self.charged || shared.budget.charge(self.charged, after) {
            self.charged = after;
            return true;
        }
        if self.busy || inner.held {
            return false;
        }
        if inner.pass_over(TOO_MANY) {
            self.unprocessed = true;
        } else {
            self.refuse(inner, TOO_MANY);
        }
        true
    }

    /// Closes the connection after the replies if nothing more arrives and nothing is under way. An
    /// incomplete request is dropped.
    fn close_if_ended(&mut self, inner: &Inner) {
        self.closing |= self.ended && !self.busy && !inner.held && !self.unprocessed;
    }

    /// Continues after the control plane has replied to all commands.
    pub fn resume(&mut self, close: bool, shared: &Shared) -> Next {
        self.busy = false;
        self.closing |= close;
        if self.http && !self.closing {
            let session = self.session.clone();
            return self.refuse(&mut session.lock(), HTTP);
        }
        self.after_wait(shared)
    }

    /// Continues after a wait.
    fn after_wait(&mut self, shared: &Shared) -> Next {
        let session = self.session.clone();
        let mut inner = session.lock();
        self.begun = Instant::now(); // until now the server did not read
        if !self.charge(&mut inner, shared) {
            return Next::Close;
        }
        self.close_if_ended(&inner);
        if self.can_continue(&inner) { Next::Continue } else { Next::Wait }
    }

    /// Answers the writes of a batch. None: a thread still applies a record.
    pub fn answer(
        &mut self,
        outcomes: &Arc<Vec<Outcome>>,
        again: &[Vec<u8>],
        shared: &Shared,
    ) -> Option<Next> {
        let session = self.session.clone();
        let mut inner = session.lock();
        if !inner.is_writing() {
            return Some(Next::Wait); // answered before, with an error
        }
        match inner.answer(outcomes, again, &session.limits) {
            Some(Answered::Done) => {}
            Some(Answered::Unfinished) => return None,
            Some(Answered::Conflicts(commands)) => {
                let event = Event::Conflicts(session.id, outcomes.clone(), commands);
                shared.events.post(event);
                return Some(Next::Wait);
            }
            None => inner.fail(b"-ERR internal error\r\n"),
        }
        drop(inner);
        Some(self.after_wait(shared))
    }

    /// Answers the writes of a batch with an error.
    pub fn fail(&mut self, error: &[u8], shared: &Shared) -> Next {
        self.session.lock().fail(error);
        self.after_wait(shared)
    }

    /// Sends the replies.
    pub fn flush(&mut self, shared: &Shared) -> Next {
        let session = self.session.clone();
        let mut inner = session.lock();
        match self.send(&mut inner, shared) {
            Err(_) => return Next::Close,
            Ok(()) if self.is_flushed(&inner) && self.closing && !inner.held && !self.busy => {
                return self.hang_up();
            }
            Ok(()) => {}
        }
        let unsent = inner.unsent();
        self.unsent = !self.is_flushed(&inner);
        if unsent > MAX_PENDING_REPLIES {
            self.blocked_since.get_or_insert_with(Instant::now);
            let limit = shared.settings().output_limit;
            return if unsent > limit { Next::Close } else { Next::Wait };
        }
        if self.blocked_since.is_some() && unsent <= MAX_PENDING_REPLIES / 4 {
            self.blocked_since = None;
            drop(inner);
            return self.after_wait(shared);
        }
        Next::Wait
    }

    fn is_flushed(&self, inner: &Inner) -> bool {
        inner.unsent() == 0 && self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }

    /// Ends TLS, if the socket accepts it.
    fn hang_up(&mut self) -> Next {
        if let Some(tls) = &mut self.tls {
            tls.close();
            let _ = tls.flush(&mut self.socket);
        }
        Next::Close
    }

    fn send(&mut self, inner: &mut Inner, shared: &Shared) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.flush(&mut self.socket)?;
        }
        while inner.unsent() > 0 {
            let replies = &inner.output.bytes[inner.sent..];
            let count = match &mut self.tls {
                None => self.socket.write(replies),
                Some(tls) => tls.write(&mut self.socket, replies),
            };
            match count {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => inner.sent += count,
                Err(problem) if problem.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) => return Err(problem),
            }
        }
        if !inner.output.bytes.is_empty() {
            inner.clear_sent(&shared.keyspace.latency);
        }
        Ok(())
    }

    /// Returns whether the client was silent for too long, does not accept its replies, or does not
    /// complete its request or its handshake.
    pub fn is_too_slow(&self, now: Instant, settings: &Settings) -> bool {
        let inner = self.session.lock();
        let longer = |since: Instant, limit: Duration| now.duration_since(since) > limit;
        let serves = self.busy || inner.held || self.delayed;
        let waits = serves || self.blocked_since.is_some();
        let waiting = inner.waiting();
        let patience = settings.request + Duration::from_secs_f64(waiting as f64 / MIN_RATE);
        let idle = settings.idle.is_some_and(|limit| longer(inner.last, limit));
        (idle && !serves)
            || self.blocked_since.is_some_and(|since| longer(since, settings.slow_client))
            || self.greeting.is_some_and(|since| longer(since, settings.handshake))
            || (waiting > 0 && !waits && longer(self.begun, patience))
            || (inner.is_passing_over() && !waits && longer(inner.last, settings.request))
    }

    /// Gives the budget back.
    pub fn release(&mut self, shared: &Shared) {
        shared.budget.charge(self.charged, 0);
        self.charged = 0;
        self.session.left.store(true, Relaxed);
    }
}

const TOO_MANY: &str = "too many large requests at once (max-input-bytes): try again soon";

/// Any web page can make a browser send such lines here, with commands below them.
fn is_http(command: &Words) -> bool {
    let word = command.get(0);
    word.eq_ignore_ascii_case(b"POST") || word.eq_ignore_ascii_case(b"HOST:")
}

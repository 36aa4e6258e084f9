//! One worker: an event loop for the connections that it owns.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bloomery_core::sections::Section;
use mio::{Interest, Poll, Token};

use crate::apply::Outcome;
use crate::connection::{CHUNK, Connection, Lent, Next};
use crate::events::Event;
use crate::session::Scratch;
use crate::workers::{Mailbox, Message, Shared};

const WAKE: Token = Token(usize::MAX);
/// After this time the replies so far are sent, before other clients are served.
const ROUND: Duration = Duration::from_millis(4);
/// Until a locked filter is tried again.
const LOCKED: Duration = Duration::from_millis(5);
/// Between two looks for clients that are too slow.
const SWEEP: Duration = Duration::from_secs(1);
/// How long a busy worker polls before it sleeps.
const SPIN: Duration = Duration::from_micros(10);
/// Events that are taken at once.
const MAX_EVENTS: usize = 1024;

pub struct Worker {
    number: usize,
    shared: Arc<Shared>,
    pub mailbox: Arc<Mailbox>,
    poll: Poll,
    connections: HashMap<u64, Connection>,
    /// Connections with something to do.
    ready: Vec<u64>,
    /// Connections with replies to send in this round.
    touched: Vec<u64>,
    /// Connections that wait for a locked filter.
    delayed: Vec<(Instant, u64)>,
    /// By batch: clients for which a thread still applies a record.
    unfinished: HashMap<u64, Vec<u64>>,
    scratch: Scratch,
    buffer: Vec<u8>,
    /// The last events arrived within `SPIN`.
    is_spinning: bool,
    stopped: bool,
}

impl Worker {
    pub fn new(number: usize, shared: Arc<Shared>) -> io::Result<Worker> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKE)?;
        // Without a wake-up the worker takes its messages within a second.
        let mailbox = Arc::new(Mailbox::new(move || drop(waker.wake())));
        Ok(Worker {
            number,
            shared,
            mailbox,
            poll,
            connections: HashMap::new(),
            ready: Vec::new(),
            touched: Vec::new(),
            delayed: Vec::new(),
            unfinished: HashMap::new(),
            scratch: Scratch::default(),
            buffer: vec![0; CHUNK],
            is_spinning: false,
            stopped: false,
        })
    }

    pub fn run(mut self) {
        let mut events = mio::Events::with_capacity(MAX_EVENTS);
        let mut next_sweep = Instant::now() + SWEEP;
        while !self.stopped {
            self.wait(&mut events, self.timeout(next_sweep));
            for event in &events {
                self.take_event(event);
            }
            for message in self.mailbox.take() {
                self.take_message(message);
            }
            let now = Instant::now();
            self.list_delayed(now);
            self.round(now);
            if now >= next_sweep {
                self.sweep(now);
                next_sweep = now + SWEEP;
            }
        }
        let clients: Vec<u64> = self.connections.keys().copied().collect();
        clients.into_iter().for_each(|client| self.close(client));
    }

    /// Waits for events. While events follow each other closely, it polls for `SPIN` before it sleeps.
    fn wait(&mut self, events: &mut mio::Events, timeout: Duration) {
        let started = Instant::now();
        while self.is_spinning && timeout > SPIN {
            self.poll_once(events, Duration::ZERO);
            if !events.is_empty() {
                return;
            }
            self.is_spinning = started.elapsed() < SPIN;
            std::hint::spin_loop(); // a yield gives the core to a snapshot for milliseconds
        }
        let started = Instant::now();
        self.poll_once(events, timeout);
        self.is_spinning = !events.is_empty() && started.elapsed() < SPIN;
    }

    fn poll_once(&mut self, events: &mut mio::Events, timeout: Duration) {
        if let Err(problem) = self.poll.poll(events, Some(timeout))
            && problem.kind() != io::ErrorKind::Interrupted
        {
            std::thread::sleep(LOCKED); // it would fail at once again
        }
    }

    fn timeout(&self, next_sweep: Instant) -> Duration {
        if !self.ready.is_empty() || !self.touched.is_empty() {
            return Duration::ZERO;
        }
        let due = self.delayed.iter().map(|(due, _)| *due).min().unwrap_or(next_sweep);
        due.min(next_sweep).saturating_duration_since(Instant::now())
    }

    fn take_event(&mut self, event: &mio::event::Event) {
        let client = event.token().0 as u64;
        let Some(connection) = self.connections.get_mut(&client) else { return };
        if event.is_read_closed() || event.is_error() {
            connection.session.left.store(true, Relaxed);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            connection.readable = true;
            list(&mut self.ready, client, connection);
        }
        // Edge-triggered, every event reports it.
        if event.is_writable() && connection.unsent {
            self.touched.push(client);
        }
    }

    fn take_message(&mut self, message: Message) {
        let shared = self.shared.clone();
        match message {
            Message::Open(connection) => self.open(*connection),
            Message::Resume { client, close } => {
                self.with(client, |connection| Some(connection.resume(close, &shared)));
            }
            Message::Flush(client) => self.touched.push(client),
            Message::Abort(client) => self.close(client),
            Message::Answer { batch, outcomes, clients } => self.answer(batch, &outcomes, clients),
            Message::AnswerRest { batch, outcomes } => {
                let clients = self.unfinished.remove(&batch).unwrap_or_default();
                self.answer(batch, &outcomes, clients);
            }
            Message::AnswerAgain { client, outcomes, replies } => {
                self.with(client, |connection| connection.answer(&outcomes, &replies, &shared));
            }
            Message::Fail { error, clients } => {
                for client in clients {
                    self.with(client, |connection| Some(connection.fail(&error, &shared)));
                }
            }
            Message::CloseAll => {
                for (client, connection) in &mut self.connections {
                    connection.close_after_replies();
                    self.touched.push(*client);
                }
            }
            Message::Stop => self.stopped = true,
        }
    }

    /// Continues a connection, and sends its replies at the end of the round. Returns false if the
    /// work returned None.
    fn with(&mut self, client: u64, work: impl FnOnce(&mut Connection) -> Option<Next>) -> bool {
        let Some(connection) = self.connections.get_mut(&client) else { return true };
        let Some(next) = work(connection) else { return false };
        self.touched.push(client);
        self.follow(client, next);
        true
    }

    fn answer(&mut self, batch: u64, outcomes: &Arc<Vec<Outcome>>, clients: Vec<u64>) {
        let shared = self.shared.clone();
        for client in clients {
            if !self.with(client, |connection| connection.answer(outcomes, &[], &shared)) {
                self.unfinished.entry(batch).or_default().push(client);
            }
        }
    }

    fn open(&mut self, mut connection: Connection) {
        let client = connection.session.id;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(client as usize);
        let registered = self.poll.registry().register(&mut connection.socket, token, interest);
        self.connections.insert(client, connection);
        if registered.is_err() {
            self.close(client);
        } else {
            self.touched.push(client); // it may have a reply already
        }
    }

    fn close(&mut self, client: u64) {
        let Some(mut connection) = self.connections.remove(&client) else { return };
        let _ = self.poll.registry().deregister(&mut connection.socket); // closing does it, too
        connection.release(&self.shared);
        self.mailbox.connections.fetch_sub(1, Relaxed);
        self.shared.events.post(Event::Closed(client));
    }

    fn follow(&mut self, client: u64, next: Next) {
        match next {
            Next::Wait => {}
            Next::Close => self.close(client),
            Next::ContinueLater => self.delayed.push((Instant::now() + LOCKED, client)),
            Next::Continue => {
                if let Some(connection) = self.connections.get_mut(&client) {
                    list(&mut self.ready, client, connection);
                }
            }
        }
    }

    fn list_delayed(&mut self, now: Instant) {
        if self.delayed.is_empty() {
            return;
        }
        let Worker { delayed, ready, connections, .. } = self;
        delayed.retain(|(due, client)| {
            let due = *due <= now;
            if due && let Some(connection) = connections.get_mut(client) {
                list(ready, *client, connection);
            }
            !due
        });
    }

    /// Reads and processes connections that are ready, then sends all replies. Sent one by one as
    /// soon as they exist, replies wake clients too often: 50 clients got 87,000 answers per second
    /// instead of 107,000.
    fn round(&mut self, now: Instant) {
        if self.ready.is_empty() && self.touched.is_empty() {
            return;
        }
        let section = Section::begin();
        let ready = std::mem::take(&mut self.ready);
        let mut each = ready.into_iter();
        for client in each.by_ref() {
            let Some(connection) = self.connections.get_mut(&client) else { continue };
            connection.listed = false;
            let mut lent = Lent {
                shared: &self.shared,
                scratch: &mut self.scratch,
                buffer: &mut self.buffer,
                now,
            };
            let next = connection.advance(&mut lent);
            self.touched.push(client);
            self.follow(client, next);
            if now.elapsed() > ROUND {
                break;
            }
        }
        self.ready.extend(each);
        self.sequence();
        drop(section);
        self.flush();
    }

    fn sequence(&mut self) {
        let shared = self.shared.clone();
        shared.sequence(shared.log.as_ref(), self.number, |outcomes, clients| {
            self.answer(0, outcomes, clients);
        });
    }

    fn flush(&mut self) {
        let shared = self.shared.clone();
        for client in std::mem::take(&mut self.touched) {
            if let Some(connection) = self.connections.get_mut(&client) {
                let next = connection.flush(&shared);
                self.follow(client, next);
            }
        }
    }

    fn sweep(&mut self, now: Instant) {
        let settings = self.shared.settings();
        let slow = |(_, connection): &(&u64, &Connection)| connection.is_too_slow(now, &settings);
        let clients: Vec<u64> = self.connections.iter().filter(slow).map(|(id, _)| *id).collect();
        clients.into_iter().for_each(|client| self.close(client));
    }
}

/// Continues a connection in the next round.
fn list(ready: &mut Vec<u64>, client: u64, connection: &mut Connection) {
    if !std::mem::replace(&mut connection.listed, true) {
        ready.push(client);
    }
}

//! The workers of a server: threads that own connections, read them, answer reads from memory, and
//! collect writes for the next batch.
//!
//! ```text
//! sockets ──> worker: parse ── reads: answered from memory ────────────────> replies
//!                       ├── writes: next batch ──> sequencer ──answer──> worker ──> replies
//!                       └── other commands ──> control plane ──resume──> worker ──> replies
//! ```
//!
//! Any thread may call any method of `Workers`. It sends a message to the worker that owns the
//! connection.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::apply::Outcome;
use crate::connection::Connection;
use crate::events::Events;
use crate::input_budget::InputBudget;
use crate::keyspace::{Keyspace, Waiter};
use crate::sequencer::{BatchLog, FileLog, Sequenced};
use crate::session::Session;
use crate::sync::{AtomicBool, Defect, Mutex, RwLock, has};
use crate::tls::Certificates;
use crate::wakeup::Wakeup;
use crate::worker::Worker;

/// Limits of connections, which can change while the server runs.
#[derive(Clone, Copy)]
pub struct Settings {
    /// A silent client is disconnected after this time.
    pub idle: Option<Duration>,
    /// A client must accept its replies in this time.
    pub slow_client: Duration,
    /// A request must be complete after this time.
    pub request: Duration,
    /// A TLS handshake must be complete after this time.
    pub handshake: Duration,
    /// Bytes of replies that a client has not accepted.
    pub output_limit: usize,
}

/// What workers share.
pub struct Shared {
    pub keyspace: Arc<Keyspace>,
    pub events: Events,
    pub budget: Arc<InputBudget>,
    pub certificates: Option<Certificates>,
    /// The server stops: nothing more is read.
    pub draining: AtomicBool,
    settings: RwLock<Settings>,
    /// The log, unless the control plane writes it (nodes).
    pub log: Option<FileLog>,
    /// Of all workers, by their number.
    pub mailboxes: OnceLock<Vec<Arc<Mailbox>>>,
}

impl Shared {
    pub fn new(
        keyspace: Arc<Keyspace>,
        events: Events,
        budget: Arc<InputBudget>,
        certificates: Option<Certificates>,
        log: Option<FileLog>,
        settings: Settings,
    ) -> Shared {
        Shared {
            keyspace,
            events,
            budget,
            certificates,
            draining: AtomicBool::default(),
            settings: RwLock::new(settings),
            log,
            mailboxes: OnceLock::new(),
        }
    }

    pub fn mailboxes(&self) -> &[Arc<Mailbox>] {
        self.mailboxes.get().map_or(&[], Vec::as_slice)
    }

    /// Groups the clients that wait for a batch by their worker.
    pub fn by_worker(&self, waiters: &[Waiter]) -> impl Iterator<Item = (usize, Vec<u64>)> {
        let mut clients = vec![Vec::new(); self.mailboxes().len()];
        for waiter in waiters {
            clients[waiter.worker].push(waiter.client);
        }
        clients.into_iter().enumerate().filter(|(_, clients)| !clients.is_empty())
    }

    /// Writes and applies batches until there are none, or reports to the control plane that there
    /// is one. `answer` gets the clients of this worker; other workers get a message.
    pub fn sequence(
        &self,
        log: Option<&impl BatchLog>,
        number: usize,
        mut answer: impl FnMut(&Arc<Vec<Outcome>>, Vec<u64>),
    ) {
        loop {
            let (outcomes, waiters) = match self.keyspace.sequence(log) {
                Sequenced::Nothing => return,
                Sequenced::Leave => return self.events.post_write(),
                Sequenced::Handed(handed) => return self.events.hand_over(handed),
                Sequenced::Applied(outcomes, waiters) => (outcomes, waiters),
            };
            let wanted = self.keyspace.role.release();
            if wanted || !self.keyspace.reached().is_empty() {
                self.events.post_write();
            }
            for (worker, clients) in self.by_worker(&waiters) {
                if worker == number {
                    answer(&outcomes, clients);
                } else {
                    let message = Message::Answer { batch: 0, outcomes: outcomes.clone(), clients };
                    self.mailboxes()[worker].send(message);
                }
            }
            if has(Defect::NoSecondLook) {
                return;
            }
        }
    }

    /// Answers the clients of a batch.
    pub fn answer(&self, batch: u64, outcomes: Arc<Vec<Outcome>>, waiters: &[Waiter]) {
        for (worker, clients) in self.by_worker(waiters) {
            let message = Message::Answer { batch, outcomes: outcomes.clone(), clients };
            self.mailboxes()[worker].send(message);
        }
    }

    /// Answers the clients of a batch that was refused.
    pub fn fail(&self, error: &[u8], waiters: &[Waiter]) {
        let error: Arc<[u8]> = error.into();
        for (worker, clients) in self.by_worker(waiters) {
            self.mailboxes()[worker].send(Message::Fail { error: error.clone(), clients });
        }
    }

    pub fn settings(&self) -> Settings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }
}

pub enum Message {
    Open(Box<Connection>),
    /// The control plane has replied to all commands of a client.
    Resume {
        client: u64,
        close: bool,
    },
    /// Send the replies so far.
    Flush(u64),
    /// Close the connection at once.
    Abort(u64),
    /// A batch was applied. Clients whose record a thread still applies wait for `AnswerRest`.
    Answer {
        batch: u64,
        outcomes: Arc<Vec<Outcome>>,
        clients: Vec<u64>,
    },
    AnswerRest {
        batch: u64,
        outcomes: Arc<Vec<Outcome>>,
    },
    /// The commands in conflict have run again, with these replies.
    AnswerAgain {
        client: u64,
        outcomes: Arc<Vec<Outcome>>,
        replies: Vec<Vec<u8>>,
    },
    /// A batch was refused.
    Fail {
        error: Arc<[u8]>,
        clients: Vec<u64>,
    },
    /// Close all connections after the replies so far.
    CloseAll,
    Stop,
}

/// The way to one worker.
pub struct Mailbox {
    messages: Mutex<Vec<Message>>,
    wakeup: Wakeup,
    pub connections: AtomicUsize,
}

impl Mailbox {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Mailbox {
        let (messages, connections) = (Mutex::default(), AtomicUsize::default());
        Mailbox { messages, wakeup: Wakeup::new(wake), connections }
    }

    pub fn send(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.wakeup.wake();
    }

    pub fn take(&self) -> Vec<Message> {
        let messages = || self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        self.wakeup.take(|| std::mem::take(&mut *messages())).unwrap_or_default()
    }
}

/// Ends the process if a worker panics: its clients would wait without end. The panic was printed,
/// and a restart has everything that was acknowledged.
struct EndOfProcess;

impl Drop for EndOfProcess {
    fn drop(&mut self) {
        std::process::abort();
    }
}

pub struct Workers {
    pub shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Starts this many workers.
    pub fn start(
        threads: usize,
        keyspace: Arc<Keyspace>,
        events: Events,
        budget: Arc<InputBudget>,
        certificates: Option<Certificates>,
        log: Option<FileLog>,
        settings: Settings,
    ) -> io::Result<Workers> {
        let shared = Shared::new(keyspace, events, budget, certificates, log, settings);
        let shared = Arc::new(shared);
        let workers: Vec<Worker> = (0..threads)
            .map(|number| Worker::new(number, shared.clone()))
            .collect::<io::Result<_>>()?;
        let mailboxes = workers.iter().map(|worker| worker.mailbox.clone()).collect();
        shared.mailboxes.get_or_init(|| mailboxes);
        let made = Workers { shared, threads: Mutex::default() };
        for (number, worker) in workers.into_iter().enumerate() {
            let builder = std::thread::Builder::new().name(format!("bloomery-w{number}"));
            let thread = builder.spawn(move || {
                let _end = EndOfProcess;
                worker.run();
                std::mem::forget(_end);
            })?;
            made.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(made)
    }

    pub fn configure(&self, settings: Settings) {
        *self.shared.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Gives a connection to the worker with the fewest. `close`: after the replies that it has.
    pub fn open(
        &self,
        socket: TcpStream,
        session: Arc<Session>,
        close: bool,
    ) -> Result<(), String> {
        socket.set_nonblocking(true).map_err(|problem| problem.to_string())?;
        let socket = mio::net::TcpStream::from_std(socket);
        let tls = self.shared.certificates.as_ref().map(Certificates::accept).transpose()?;
        let fewest = |(_, mailbox): &(usize, &Arc<Mailbox>)| mailbox.connections.load(Relaxed);
        let Some((number, mailbox)) = self.shared.mailboxes().iter().enumerate().min_by_key(fewest)
        else {
            return Err("the workers have stopped".into());
        };
        mailbox.connections.fetch_add(1, Relaxed);
        session.worker.store(number, Relaxed);
        let mut connection = Connection::new(session, socket, tls);
        if close {
            connection.close_after_replies();
        }
        mailbox.send(Message::Open(Box::new(connection)));
        Ok(())
    }

    fn send(&self, session: &Session, message: Message) {
        self.shared.mailboxes()[session.worker.load(Relaxed)].send(message);
    }

    /// Continues a client whose commands the control plane has replied to.
    pub fn resume(&self, session: &Session, close: bool) {
        self.send(session, Message::Resume { client: session.id, close });
    }

    /// Sends the replies of a client so far.
    pub fn flush(&self, session: &Session) {
        self.send(session, Message::Flush(session.id));
    }

    /// Closes a connection at once.
    pub fn abort(&self, session: &Session) {
        self.send(session, Message::Abort(session.id));
    }

    /// Answers the clients of a batch. Those for which a thread still applies a record wait for
    /// `answer_rest` with the number of the batch.
    pub fn answer(&self, batch: u64, outcomes: Arc<Vec<Outcome>>, waiters: &[Waiter]) {
        self.shared.answer(batch, outcomes, waiters);
    }

    /// Answers the clients that were left, when all records are applied.
    pub fn answer_rest(&self, batch: u64, outcomes: Arc<Vec<Outcome>>) {
        for mailbox in self.shared.mailboxes() {
            mailbox.send(Message::AnswerRest { batch, outcomes: outcomes.clone() });
        }
    }

    /// Answers a client whose commands in conflict have run again.
    pub fn answer_again(
        &self,
        session: &Session,
        outcomes: Arc<Vec<Outcome>>,
        replies: Vec<Vec<u8>>,
    ) {
        self.send(session, Message::AnswerAgain { client: session.id, outcomes, replies });
    }

    /// Answers the clients of a batch that was refused.
    pub fn fail(&self, error: &[u8], waiters: &[Waiter]) {
        self.shared.fail(error, waiters);
    }

    /// Reads nothing more from any connection.
    pub fn drain(&self) {
        self.shared.draining.store(true, SeqCst);
    }

    /// Closes all connections after the replies so far.
    pub fn close_all(&self) {
        self.shared.mailboxes().iter().for_each(|mailbox| mailbox.send(Message::CloseAll));
    }

    /// Closes all connections at once, and returns when the threads have ended.
    pub fn stop(&self) {
        self.shared.mailboxes().iter().for_each(|mailbox| mailbox.send(Message::Stop));
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            let _ = thread.join(); // a panic was reported by its thread
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

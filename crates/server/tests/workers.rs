//! Workers on loopback sockets. The test is the control plane and the log.

mod common;

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use bloomery_server::apply::Outcome;
use bloomery_server::events::{Event, Events};
use bloomery_server::input_budget::InputBudget;
use bloomery_server::keyspace::{CommandFamily, Keyspace, Pending};
use bloomery_server::log::{Fsync, Log, Options};
use bloomery_server::sequencer::FileLog;
use bloomery_server::session::{Session, Words};
use bloomery_server::tls::Certificates;
use bloomery_server::workers::{Settings, Workers};
use common::{LIMITS, Model, applied, keyspace, packed, put};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const CERTIFICATE: &[u8] = include_bytes!("data/first.pem");
const KEY: &[u8] = include_bytes!("data/first.key");

/// Longer is a hang, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// A limit that has passed by the next sweep.
const AT_ONCE: Duration = Duration::from_millis(1);
/// More than the buffers of two sockets hold.
const LONG_REPLY: usize = 32 << 20;

const PATIENT: Settings = Settings {
    idle: None,
    slow_client: DEADLINE,
    request: DEADLINE,
    handshake: DEADLINE,
    output_limit: 1 << 30,
};

fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "the condition never holds");
        thread::sleep(Duration::from_millis(1));
    }
}

fn text(commands: &[Words]) -> Vec<String> {
    let join = |words: &Words| {
        let each: Vec<_> =
            (0..words.len()).map(|at| String::from_utf8_lossy(words.get(at))).collect();
        each.join(" ")
    };
    commands.iter().map(join).collect()
}

/// A client's socket, and its session.
struct Client {
    socket: TcpStream,
    session: Arc<Session>,
}

impl Client {
    fn id(&self) -> u64 {
        self.session.id
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    fn expect(&mut self, replies: &str) {
        let mut bytes = vec![0; replies.len()];
        self.socket.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), replies);
    }

    /// The server has sent nothing that was not read.
    fn expect_silence(&mut self) {
        self.socket.set_nonblocking(true).unwrap();
        let received = self.socket.read(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        assert_eq!(received.unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    /// Returns what the server sends until the connection ends.
    fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.socket.read_to_end(&mut bytes) {
            Err(problem) if problem.kind() == ErrorKind::ConnectionReset => {}
            done => drop(done.unwrap()),
        }
        bytes
    }

    fn expect_end(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }
}

/// A folder for a log, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let name = format!("bloomery-workers-{}-{number}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    fn log(&self) -> FileLog {
        let (fsync, control) = (Fsync::Never, None);
        let (segment, seq, segment_bytes) = (1, 0, 1 << 30);
        let folder = self.0.clone();
        let options = Options { folder, segment, seq, fsync, segment_bytes, control };
        FileLog::new(Arc::new(Log::open(options).unwrap()), 0.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Workers with a control plane that does nothing by itself.
struct Server {
    workers: Workers,
    keyspace: Arc<Keyspace>,
    budget: Arc<InputBudget>,
    listener: TcpListener,
    wakes: Receiver<()>,
    events: VecDeque<Event>,
    clients: AtomicU64,
    batches: AtomicU64,
}

impl Server {
    fn start(threads: usize, settings: Settings) -> Self {
        Self::start_with(threads, settings, None, None)
    }

    fn start_with(
        threads: usize,
        settings: Settings,
        tls: Option<Certificates>,
        log: Option<FileLog>,
    ) -> Self {
        let keyspace = keyspace(true);
        let budget = Arc::new(InputBudget::new(1 << 30));
        let (wake, wakes) = mpsc::channel();
        let events = Events::new(move || {
            let _ = wake.send(()); // a test that has ended
        });
        let (shelf, shared) = (keyspace.clone(), budget.clone());
        let workers = Workers::start(threads, shelf, events, shared, tls, log, settings).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (events, clients, batches) = <_>::default();
        Server { workers, keyspace, budget, listener, wakes, events, clients, batches }
    }

    fn connect(&self) -> Client {
        self.connect_with(|_| false)
    }

    /// Opens a connection whose session was prepared. It is closed after its replies if `prepare`
    /// returns true.
    fn connect_with(&self, prepare: impl FnOnce(&Session) -> bool) -> Client {
        let outer = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        outer.set_read_timeout(Some(DEADLINE)).unwrap();
        outer.set_nodelay(true).unwrap();
        let (inner, _) = self.listener.accept().unwrap();
        inner.set_nodelay(true).unwrap();
        let id = self.clients.fetch_add(1, Relaxed) + 1;
        let session = Arc::new(Session::new(id, self.keyspace.clone(), LIMITS));
        let close = prepare(&session);
        self.workers.open(inner, session.clone(), close).unwrap();
        Client { socket: outer, session }
    }

    /// Waits until the only worker has processed everything that was sent before.
    fn settle(&self) {
        let mut probe = self.connect();
        probe.send(b"PING\r\n");
        probe.expect("+PONG\r\n");
    }

    /// Takes the next batch, when this many clients wait for it.
    fn batch(&self, clients: usize) -> Pending {
        wait_until(|| self.keyspace.pending().waiters.len() >= clients);
        let batch = self.keyspace.take();
        assert_eq!(batch.waiters.len(), clients);
        batch
    }

    fn apply(&self, batch: &Pending) -> Arc<Vec<Outcome>> {
        Arc::new(applied(&self.keyspace, batch))
    }

    fn answer(&self, batch: &Pending, outcomes: &Arc<Vec<Outcome>>) -> u64 {
        let number = self.batches.fetch_add(1, Relaxed);
        self.workers.answer(number, outcomes.clone(), &batch.waiters);
        number
    }

    /// Applies and answers the next batch, when this many clients wait for it.
    fn commit(&self, clients: usize) {
        let batch = self.batch(clients);
        self.answer(&batch, &self.apply(&batch));
    }

    fn take_events(&mut self) {
        self.events.extend(self.workers.shared.events.take().1);
    }

    /// Returns the next event that is not about a probe.
    fn event(&mut self) -> Event {
        loop {
            self.take_events();
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.wakes.recv_timeout(DEADLINE).expect("no event");
        }
    }

    fn commands(&mut self, client: &Client) -> Vec<String> {
        loop {
            match self.event() {
                Event::Commands(id, commands) => {
                    assert_eq!(id, client.id());
                    return text(&commands);
                }
                Event::Closed(id) => assert_ne!(id, client.id(), "the connection is closed"),
                _ => panic!("another event"),
            }
        }
    }

    fn expect_closed(&mut self, client: &Client) {
        loop {
            match self.event() {
                Event::Closed(id) if id == client.id() => return,
                Event::Closed(_) => {}
                _ => panic!("another event"),
            }
        }
    }

    /// No client has commands for the control plane.
    fn expect_no_commands(&mut self) {
        self.take_events();
        let is_closed = |event: &Event| matches!(event, Event::Closed(_));
        assert!(self.events.iter().all(is_closed));
    }

    fn reply(&self, client: &Client, reply: &[u8]) {
        client.session.lock().reply(reply);
    }

    fn resume(&self, client: &Client) {
        self.workers.resume(&client.session, false);
    }

    /// Echoes commands, and answers batches, until these clients are disconnected.
    fn serve(&mut self, clients: &[Arc<Session>]) {
        let mut left = clients.len();
        while left > 0 {
            for event in self.workers.shared.events.take().1 {
                match event {
                    Event::Commands(id, commands) => {
                        let session = clients.iter().find(|session| session.id == id).unwrap();
                        for words in &commands {
                            let last = words.get(words.len() - 1);
                            let last = if last == b"PING" { b"PONG" } else { last };
                            let reply = [b"+", last, b"\r\n"].concat();
                            session.lock().reply(&reply);
                        }
                        self.workers.resume(session, false);
                    }
                    Event::Closed(id) => {
                        left -= usize::from(clients.iter().any(|session| session.id == id));
                    }
                    _ => panic!("another event"),
                }
            }
            if self.keyspace.role.take_or_want() {
                let batch = self.keyspace.take();
                if !batch.waiters.is_empty() {
                    self.answer(&batch, &self.apply(&batch));
                }
                self.keyspace.role.release();
                if !self.keyspace.pending().records.is_empty() {
                    continue; // written while this had the role
                }
            }
            if left > 0 {
                self.wakes.recv_timeout(DEADLINE).expect("clients wait");
            }
        }
    }
}

#[test]
fn reads_are_answered_from_memory() {
    let server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"BF.EXISTS bits a\r\nPING\r\nBF.MEXISTS none a b\r\n");
    client.expect(":0\r\n+PONG\r\n*2\r\n:0\r\n:0\r\n");
    assert_eq!(server.keyspace.commands.load(Relaxed), 3);
    assert!(server.keyspace.pending().waiters.is_empty());
}

#[test]
fn a_write_is_answered_only_after_its_batch() {
    let server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"BF.EXISTS bits a\r\nBF.ADD bits a\r\nBF.EXISTS bits a\r\n");
    let batch = server.batch(1);
    client.send(b"PING\r\n");
    server.settle();
    client.expect(":0\r\n");
    client.expect_silence();
    assert_eq!(client.session.lock().waiting(), b"BF.EXISTS bits a\r\n".len());
    server.answer(&batch, &server.apply(&batch));
    client.expect(":1\r\n:1\r\n+PONG\r\n");
}

#[test]
fn a_client_of_the_next_batch_is_not_answered_by_this_one() {
    let server = Server::start(1, PATIENT);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(b"BF.ADD bits a\r\n");
    let batch = server.batch(1);
    second.send(b"BF.ADD bits b\r\n");
    wait_until(|| second.session.lock().is_writing());
    server.answer(&batch, &server.apply(&batch));
    first.expect(":1\r\n");
    server.settle();
    second.expect_silence();
    server.commit(1);
    second.expect(":1\r\n");
}

#[test]
fn a_client_writes_in_one_batch_at_a_time() {
    let server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"BF.ADD bits a\r\n");
    let batch = server.batch(1);
    client.send(b"BF.ADD bits b\r\nBF.EXISTS bits b\r\n");
    server.settle();
    assert!(server.keyspace.pending().records.is_empty());
    server.answer(&batch, &server.apply(&batch));
    client.expect(":1\r\n");
    server.commit(1);
    client.expect(":1\r\n:1\r\n");
}

#[test]
fn a_pipeline_has_the_same_replies_wherever_it_is_split() {
    let mut server = Server::start(1, PATIENT);
    let sent = [
        packed(&[b"BF.EXISTS", b"bits", b"a"]),
        packed(&[b"CF.ADD", b"copies", b"a"]),
        b"ECHO one\r\n".to_vec(),
        packed(&[b"CF.COUNT", b"copies", b"a"]),
        packed(&[b"CF.DEL", b"copies", b"a"]),
        packed(&[b"ECHO", b"two"]),
        b"\r\nPING\r\n".to_vec(),
        packed(&[b"CF.MEXISTS", b"copies", b"a", b"b"]),
    ]
    .concat();
    let expected = ":0\r\n:1\r\n+one\r\n:1\r\n:1\r\n+two\r\n+PONG\r\n*2\r\n:0\r\n:0\r\n";
    for at in 1..sent.len() {
        let mut client = server.connect();
        client.send(&sent[..at]);
        server.settle();
        client.send(&sent[at..]);
        client.socket.shutdown(Shutdown::Write).unwrap();
        server.serve(&[client.session.clone()]);
        assert_eq!(String::from_utf8_lossy(&client.rest()), expected, "split at {at}");
    }
}

#[test]
fn many_clients_of_two_workers_get_the_replies_of_a_model() {
    serve_many_clients(Server::start(2, PATIENT));
}

#[test]
fn many_clients_get_the_replies_of_a_model_when_workers_write_the_log() {
    let folder = Folder::new();
    let server = Server::start_with(2, PATIENT, None, Some(folder.log()));
    server.keyspace.inline.store(true, Relaxed);
    let keyspace = server.keyspace.clone();
    serve_many_clients(server);
    assert!(!keyspace.role.is_taken());
    assert!(keyspace.batch_latency.read().1.iter().sum::<u64>() > 0, "no worker has written");
}

fn serve_many_clients(mut server: Server) {
    let clients: Vec<Client> = (0..24).map(|_| server.connect()).collect();
    let sessions: Vec<_> = clients.iter().map(|client| client.session.clone()).collect();
    let threads = clients.into_iter().map(|mut client| {
        thread::spawn(move || {
            let mut model = Model::new(client.id(), client.id() as u8);
            for _ in 0..60 {
                let (mut sent, mut expected) = (Vec::new(), String::new());
                for number in 0..1 + model.chance.below(20) {
                    let (bytes, reply) = model.command();
                    sent.extend(bytes);
                    expected += &reply;
                    if model.chance.below(8) == 0 {
                        sent.extend(format!("ECHO {number}\r\n").into_bytes());
                        expected += &format!("+{number}\r\n");
                    }
                }
                let at = model.chance.below(sent.len());
                client.send(&sent[..at]);
                client.send(&sent[at..]);
                client.expect(&expected);
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    server.serve(&sessions);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let owners: Vec<usize> = sessions.iter().map(|s| s.worker.load(Relaxed)).collect();
    assert_eq!(owners.iter().filter(|worker| **worker == 0).count(), 12);
}

#[test]
fn a_half_closed_client_gets_all_replies_and_then_the_end() {
    let mut server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"BF.ADD bits a\r\nBF.EXISTS bits a\r\nECHO x\r\nBF.ADD bits b\r\nBF.EXI");
    client.socket.shutdown(Shutdown::Write).unwrap();
    server.commit(1);
    assert_eq!(server.commands(&client), ["ECHO x"]);
    server.reply(&client, b"+x\r\n");
    server.resume(&client);
    server.commit(1);
    assert_eq!(client.rest(), b":1\r\n:1\r\n+x\r\n:1\r\n");
    server.expect_closed(&client);
}

#[test]
fn a_client_that_leaves_before_its_answer_is_disconnected_after_it() {
    let mut server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"BF.ADD bits a\r\n");
    let batch = server.batch(1);
    client.socket.shutdown(Shutdown::Both).unwrap();
    wait_until(|| client.session.left.load(Relaxed));
    server.settle();
    server.answer(&batch, &server.apply(&batch));
    server.expect_closed(&client);
    let mut other = server.connect();
    other.send(b"BF.EXISTS bits a\r\n");
    other.expect(":1\r\n");
}

#[test]
fn commands_of_the_control_plane_are_handed_over_in_order() {
    let mut server = Server::start(1, PATIENT);
    let mut client = server.connect();
    let echo = |number: usize| format!("ECHO {number}");
    let mut sent: String = (0..130).map(|number| echo(number) + "\r\n").collect();
    sent += "BF.EXISTS bits a\r\nECHO last\r\n";
    client.send(sent.as_bytes());
    for numbers in [0..64, 64..128, 128..130] {
        assert_eq!(server.commands(&client), numbers.clone().map(echo).collect::<Vec<_>>());
        server.settle();
        server.expect_no_commands();
        client.expect_silence();
        let replies: String = numbers.map(|number| format!("+{number}\r\n")).collect();
        server.reply(&client, replies.as_bytes());
        server.resume(&client);
        client.expect(&replies);
    }
    client.expect(":0\r\n");
    assert_eq!(server.commands(&client), ["ECHO last"]);
}

#[test]
fn no_command_overtakes_one_of_the_control_plane() {
    let mut server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"PING\r\nECHO a\r\nPING\r\nBF.EXISTS bits a\r\nBF.ADD bits a\r\n");
    assert_eq!(server.commands(&client), ["ECHO a", "PING"]);
    client.send(b"PING\r\n");
    server.settle();
    client.expect("+PONG\r\n");
    client.expect_silence();
    assert!(server.keyspace.pending().records.is_empty());
    server.reply(&client, b"+a\r\n");
    server.workers.flush(&client.session);
    client.expect("+a\r\n");
    server.settle();
    client.expect_silence();
    server.reply(&client, b"+P\r\n");
    server.resume(&client);
    client.expect("+P\r\n:0\r\n");
    server.commit(1);
    client.expect(":1\r\n+PONG\r\n");
}

#[test]
fn a_command_of_the_control_plane_waits_for_the_writes_before_it() {
    let mut server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"BF.ADD bits a\r\nECHO a\r\n");
    let batch = server.batch(1);
    server.settle();
    server.expect_no_commands();
    server.answer(&batch, &server.apply(&batch));
    client.expect(":1\r\n");
    assert_eq!(server.commands(&client), ["ECHO a"]);
}

#[test]
fn commands_in_conflict_run_again_before_the_client_is_answered() {
    let mut server = Server::start(1, PATIENT);
    let (mut client, mut other) = (server.connect(), server.connect());
    client.send(b"BF.ADD bits a\r\nCF.ADD copies a\r\nBF.MADD bits b c\r\nPING\r\n");
    other.send(b"CF.ADD copies a\r\n");
    let batch = server.batch(2);
    put(&server.keyspace, b"bits", 3, CommandFamily::Bf, usize::MAX);
    server.answer(&batch, &server.apply(&batch));
    other.expect(":1\r\n");
    let Event::Conflicts(id, outcomes, commands) = server.event() else { panic!("no conflict") };
    assert_eq!(id, client.id());
    assert_eq!(text(&commands), ["BF.ADD bits a", "BF.MADD bits b c"]);
    server.settle();
    client.expect_silence();
    let replies = vec![b":7\r\n".to_vec(), b"-GONE\r\n".to_vec()];
    server.workers.answer_again(&client.session, outcomes, replies);
    client.expect(":7\r\n:1\r\n-GONE\r\n+PONG\r\n");
}

#[test]
fn clients_of_an_unfinished_record_are_answered_with_the_rest() {
    let server = Server::start(2, PATIENT);
    let (mut first, mut second, mut third) = (server.connect(), server.connect(), server.connect());
    first.send(b"BF.ADD bits a\r\nCF.ADD copies a\r\nPING\r\n");
    wait_until(|| server.keyspace.pending().records.len() == 2);
    second.send(b"CF.ADD copies b\r\n");
    wait_until(|| server.keyspace.pending().waiters.len() == 2);
    third.send(b"BF.ADD bits b\r\n");
    let batch = server.batch(3);
    let all = server.apply(&batch);
    let mut some = Vec::clone(&all);
    some[0] = Outcome::Unfinished;
    let number = server.answer(&batch, &Arc::new(some));
    second.expect(":1\r\n");
    third.expect(":1\r\n");
    wait_until(|| !second.session.lock().is_writing());
    assert!(first.session.lock().held);
    first.expect_silence();
    // Another batch does not answer it.
    server.workers.answer_rest(number + 1, Arc::default());
    third.send(b"BF.ADD bits c\r\n");
    server.commit(1);
    third.expect(":1\r\n");
    assert!(first.session.lock().held);
    server.workers.answer_rest(number, all);
    first.expect(":1\r\n:1\r\n+PONG\r\n");
}

#[test]
fn a_refused_batch_is_answered_with_the_error() {
    let server = Server::start(2, PATIENT);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(b"BF.ADD bits a\r\nBF.ADD bits b\r\nBF.MEXISTS bits a b\r\n");
    second.send(b"BF.ADD bits c\r\n");
    let batch = server.batch(2);
    server.workers.fail(b"-MISCONF\r\n", &batch.waiters);
    first.expect("-MISCONF\r\n-MISCONF\r\n*2\r\n:0\r\n:0\r\n");
    second.expect("-MISCONF\r\n");
    second.send(b"BF.ADD bits c\r\n");
    server.commit(1);
    second.expect(":1\r\n");
}

#[test]
fn outcomes_of_another_batch_are_an_internal_error() {
    let server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"BF.ADD bits a\r\nPING\r\n");
    let batch = server.batch(1);
    server.answer(&batch, &Arc::default());
    client.expect("-ERR internal error\r\n+PONG\r\n");
}

#[test]
fn a_client_that_does_not_read_is_paused() {
    let mut server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"DUMP\r\n");
    assert_eq!(server.commands(&client), ["DUMP"]);
    let long = vec![b'x'; LONG_REPLY];
    server.reply(&client, &long);
    server.resume(&client);
    server.settle();
    client.send(b"PING\r\nLATER\r\n");
    server.settle();
    server.expect_no_commands();
    assert!(client.session.lock().unsent() > 1 << 20);
    let mut received = vec![0; LONG_REPLY];
    client.socket.read_exact(&mut received).unwrap();
    assert!(received == long);
    client.expect("+PONG\r\n");
    assert_eq!(server.commands(&client), ["LATER"]);
}

#[test]
fn a_client_that_accepts_no_replies_is_disconnected() {
    let mut server = Server::start(1, Settings { slow_client: AT_ONCE, ..PATIENT });
    let (mut client, mut other) = (server.connect(), server.connect());
    client.send(b"DUMP\r\n");
    assert_eq!(server.commands(&client), ["DUMP"]);
    server.reply(&client, &vec![b'x'; LONG_REPLY]);
    server.resume(&client);
    server.expect_closed(&client);
    assert!(client.rest().len() < LONG_REPLY);
    other.send(b"PING\r\n");
    other.expect("+PONG\r\n");
}

#[test]
fn a_client_with_more_replies_than_the_limit_is_disconnected() {
    let mut server = Server::start(1, Settings { output_limit: 2 << 20, ..PATIENT });
    let mut client = server.connect();
    client.send(b"DUMP\r\n");
    assert_eq!(server.commands(&client), ["DUMP"]);
    server.reply(&client, &vec![b'x'; LONG_REPLY]);
    server.workers.flush(&client.session);
    server.expect_closed(&client);
}

#[test]
fn an_idle_client_is_disconnected() {
    let mut server = Server::start(1, PATIENT);
    let (mut writer, mut caller) = (server.connect(), server.connect());
    writer.send(b"BF.ADD bits a\r\n");
    let batch = server.batch(1);
    caller.send(b"WAIT\r\n");
    assert_eq!(server.commands(&caller), ["WAIT"]);
    let mut idle = server.connect();
    idle.send(b"PING\r\n");
    idle.expect("+PONG\r\n");
    server.workers.configure(Settings { idle: Some(AT_ONCE), ..PATIENT });
    idle.expect_end();
    // These waited longer, for the server.
    server.answer(&batch, &server.apply(&batch));
    server.reply(&caller, b":0\r\n");
    server.resume(&caller);
    assert_eq!(writer.rest(), b":1\r\n");
    assert_eq!(caller.rest(), b":0\r\n");
}

#[test]
fn an_incomplete_request_has_a_limited_time() {
    let server = Server::start(1, Settings { request: AT_ONCE, ..PATIENT });
    let (mut writer, mut silent, mut client) =
        (server.connect(), server.connect(), server.connect());
    writer.send(b"BF.ADD bits a\r\nPING\r\nBF.EXI");
    let batch = server.batch(1);
    client.send(b"PING\r\nBF.EXI");
    assert_eq!(client.rest(), b"+PONG\r\n");
    // The server has yet to answer this one.
    server.answer(&batch, &server.apply(&batch));
    assert_eq!(writer.rest(), b":1\r\n+PONG\r\n");
    silent.send(b"PING\r\n");
    silent.expect("+PONG\r\n");
}

#[test]
fn a_request_that_arrives_byte_by_byte_has_a_limited_time() {
    let mut server = Server::start(1, Settings { request: AT_ONCE, ..PATIENT });
    let mut client = server.connect();
    client.send(b"*2\r\n$4\r\nECHO\r\n$100000\r\n");
    let start = Instant::now();
    while client.socket.write_all(b"x").is_ok() {
        assert!(start.elapsed() < DEADLINE, "the client is never disconnected");
        thread::sleep(AT_ONCE);
    }
    server.expect_closed(&client);
}

#[test]
fn a_request_beyond_the_input_budget_is_refused() {
    let server = Server::start(1, PATIENT);
    server.budget.limit.store(100 << 10, Relaxed);
    let (mut holder, mut client) = (server.connect(), server.connect());
    let part = vec![b'x'; 8 << 10];
    for large in [&mut holder, &mut client] {
        large.send(b"*2\r\n$4\r\nECHO\r\n$500000\r\n");
    }
    // 64 KiB of each connection are free.
    for count in 1..=14 {
        holder.send(&part);
        wait_until(|| holder.session.lock().waiting() > count * part.len());
        server.settle();
    }
    let held = holder.session.lock().waiting() as u64 - (64 << 10);
    assert_eq!(server.budget.used(), held);
    let mut count = 0;
    while server.budget.refused() == 0 {
        client.send(&part);
        count += 1;
        wait_until(|| {
            client.session.lock().waiting() > count * part.len() || server.budget.refused() > 0
        });
        server.settle();
    }
    assert!(count * part.len() > (100 << 10) - held as usize);
    let error = "-ERR too many large requests at once (max-input-bytes): try again soon\r\n";
    // The rest of the request is dropped, and the connection stays usable.
    client.send(&vec![b'x'; 500_000 - count * part.len()]);
    client.send(b"\r\nPING\r\n");
    client.expect(error);
    client.expect("+PONG\r\n");
    assert_eq!(server.budget.used(), held);
    drop(holder);
    wait_until(|| server.budget.used() == 0);
    let mut small = server.connect();
    small.send(b"PING\r\n");
    small.expect("+PONG\r\n");
}

#[test]
fn commands_that_wait_for_exec_are_charged_to_the_input_budget() {
    let mut server = Server::start(1, PATIENT);
    server.budget.limit.store(1 << 20, Relaxed);
    let mut client = server.connect();
    for (queued, charged) in [(1 << 10, 0), (1 << 20, (1 << 20) - (64 << 10)), (0, 0)] {
        client.send(b"QUEUE\r\n");
        assert_eq!(server.commands(&client), ["QUEUE"]);
        client.session.lock().queued_bytes = queued;
        server.reply(&client, b"+QUEUED\r\n");
        server.resume(&client);
        client.expect("+QUEUED\r\n");
        wait_until(|| server.budget.used() == charged);
    }
    client.send(b"QUEUE\r\n");
    assert_eq!(server.commands(&client), ["QUEUE"]);
    client.session.lock().queued_bytes = 2 << 20;
    server.reply(&client, b"+QUEUED\r\n");
    server.resume(&client);
    assert!(client.rest().starts_with(b"+QUEUED\r\n-ERR too many large requests"));
}

#[test]
fn input_that_is_not_the_protocol_is_refused_after_the_replies() {
    let mut server = Server::start(1, PATIENT);
    let refused: [(&[u8], &str); 4] = [
        (b"PING\r\n*x\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"),
        (b"\x16\x03\x01", "-ERR Protocol error: there is no TLS at this port\r\n"),
        (b"POST / HTTP/1.1\r\n", "-ERR Protocol error: this is HTTP, whose port is another\r\n"),
        (b"BF.ADD bits a\r\n*x\r\n", ":1\r\n-ERR Protocol error: invalid multibulk length\r\n"),
    ];
    for (sent, expected) in refused {
        let mut client = server.connect();
        client.send(sent);
        if sent.starts_with(b"BF.ADD") {
            server.commit(1);
        }
        assert_eq!(String::from_utf8_lossy(&client.rest()), expected);
        server.expect_closed(&client);
    }
    for sent in ["ECHO a\r\n*x\r\n", "ECHO a\r\nhost: x\r\nECHO b\r\n"] {
        let mut client = server.connect();
        client.send(sent.as_bytes());
        assert_eq!(server.commands(&client), ["ECHO a"]);
        server.reply(&client, b"+a\r\n");
        server.resume(&client);
        assert!(client.rest().starts_with(b"+a\r\n-ERR Protocol error"));
        server.expect_closed(&client);
    }
}

#[test]
fn an_unauthenticated_client_may_send_only_short_requests() {
    let server = Server::start(1, PATIENT);
    let mut client = server.connect_with(|session| {
        session.lock().unauthenticated = true;
        false
    });
    client.send(b"*2\r\n$4\r\nAUTH\r\n$200000\r\n");
    let part = [b'x'; 8 << 10];
    for count in 1..=7 {
        client.send(&part);
        wait_until(|| client.session.lock().waiting() > count * part.len());
    }
    client.send(&part);
    assert_eq!(client.rest(), b"-ERR Protocol error: unauthenticated bulk length\r\n");
}

#[test]
fn a_client_that_is_turned_away_gets_its_reply() {
    let mut server = Server::start(1, PATIENT);
    let mut client = server.connect_with(|session| {
        session.lock().reply(b"-ERR max number of clients reached\r\n");
        true
    });
    assert_eq!(client.rest(), b"-ERR max number of clients reached\r\n");
    server.expect_closed(&client);
}

#[test]
fn resume_with_close_ends_the_connection_after_the_replies() {
    let mut server = Server::start(1, PATIENT);
    let mut client = server.connect();
    client.send(b"QUIT\r\n");
    assert_eq!(server.commands(&client), ["QUIT"]);
    server.reply(&client, b"+OK\r\n");
    server.workers.resume(&client.session, true);
    assert_eq!(client.rest(), b"+OK\r\n");
    server.expect_closed(&client);
}

#[test]
fn abort_closes_the_connection_at_once() {
    let mut server = Server::start(1, PATIENT);
    let (mut writer, mut caller) = (server.connect(), server.connect());
    writer.send(b"BF.ADD bits a\r\n");
    let batch = server.batch(1);
    caller.send(b"WAIT\r\n");
    assert_eq!(server.commands(&caller), ["WAIT"]);
    for client in [&mut writer, &mut caller] {
        server.workers.abort(&client.session);
        client.expect_end();
        server.expect_closed(client);
        assert!(client.session.left.load(Relaxed));
    }
    // What follows for clients that are gone has no effect.
    server.answer(&batch, &server.apply(&batch));
    server.resume(&caller);
    server.workers.flush(&caller.session);
    server.settle();
}

#[test]
fn drain_reads_nothing_more_and_close_all_sends_the_last_answers() {
    let mut server = Server::start(2, PATIENT);
    let (mut writer, mut caller, mut late) = (server.connect(), server.connect(), server.connect());
    writer.send(b"BF.ADD bits a\r\n");
    let batch = server.batch(1);
    caller.send(b"ECHO a\r\n");
    assert_eq!(server.commands(&caller), ["ECHO a"]);
    server.workers.drain();
    late.send(b"BF.ADD bits b\r\nPING\r\n");
    server.workers.close_all();
    late.expect_end();
    server.answer(&batch, &server.apply(&batch));
    assert_eq!(writer.rest(), b":1\r\n");
    server.reply(&caller, b"+a\r\n");
    server.resume(&caller);
    assert_eq!(caller.rest(), b"+a\r\n");
    assert!(server.keyspace.pending().records.is_empty());
}

#[test]
fn stop_closes_all_connections_and_ends_the_threads() {
    let mut server = Server::start(2, PATIENT);
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    clients[0].send(b"BF.ADD bits a\r\n");
    drop(server.batch(1));
    clients[1].send(b"ECHO a\r\n");
    assert_eq!(server.commands(&clients[1]), ["ECHO a"]);
    server.workers.stop();
    clients.iter_mut().for_each(Client::expect_end);
    server.take_events();
    let closed = server.events.iter().map(|event| match event {
        Event::Closed(id) => *id,
        _ => panic!("another event"),
    });
    let mut closed: Vec<u64> = closed.collect();
    closed.sort_unstable();
    assert_eq!(closed, [1, 2, 3, 4]);
    server.workers.stop();
}

fn certificates() -> Certificates {
    Certificates::new(CERTIFICATE, KEY).unwrap()
}

fn encrypted(socket: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket)
}

#[test]
fn a_tls_client_gets_its_replies_and_then_the_end() {
    let mut server = Server::start_with(1, PATIENT, Some(certificates()), None);
    let client = server.connect();
    let session = client.session.clone();
    let mut tls = encrypted(client.socket);
    tls.write_all(b"BF.EXISTS bits a\r\nQUIT\r\n").unwrap();
    let Event::Greeted(id) = server.event() else { panic!("another event") };
    assert_eq!(id, session.id);
    let Event::Commands(_, commands) = server.event() else { panic!("another event") };
    assert_eq!(text(&commands), ["QUIT"]);
    session.lock().reply(&vec![b'x'; LONG_REPLY]);
    server.workers.resume(&session, true);
    let mut received = Vec::new();
    tls.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 4 + LONG_REPLY);
}

#[test]
fn a_tls_client_that_is_turned_away_gets_its_reply() {
    let server = Server::start_with(1, PATIENT, Some(certificates()), None);
    let client = server.connect_with(|session| {
        session.lock().reply(b"-ERR max number of clients reached\r\n");
        true
    });
    let mut tls = encrypted(client.socket);
    let mut received = Vec::new();
    tls.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"-ERR max number of clients reached\r\n");
}

#[test]
fn an_incomplete_tls_handshake_has_a_limited_time() {
    let mut server = Server::start_with(
        1,
        Settings { handshake: AT_ONCE, ..PATIENT },
        Some(certificates()),
        None,
    );
    let mut client = server.connect();
    client.send(b"\x16\x03\x01");
    client.expect_end();
    server.expect_closed(&client);
}

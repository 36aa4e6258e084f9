//! The hand-over between workers, the role of the sequencer and the control plane, in thousands of
//! schedules (`bloomery_server::sync`). Sessions, keyspace, role, events and mailboxes are the
//! server's own. A model replaces the sockets, the disk, and the control plane, which does what
//! `service/sequencer.py` does.
//!
//! No thread ever times out, so a missed wake-up ends as a deadlock, which shuttle reports. A failed
//! schedule is printed: `shuttle::replay` runs it again.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bloomery_core::kind::Refusal;
use bloomery_core::resp::Limits;
use bloomery_server::apply::{Applied, Outcome, Progress, read_hashes};
use bloomery_server::events::{Event, Events};
use bloomery_server::filter::{Done, Fault, Filter};
use bloomery_server::input_budget::InputBudget;
use bloomery_server::keyspace::{
    ADD, CommandFamily, Counters, Data, Entry, Keyspace, Payload, Record, Waiter, split_name,
};
use bloomery_server::sequencer::{BatchLog, Handed, Problem};
use bloomery_server::session::{Ended, Scratch, Session};
use bloomery_server::sync::{Defect, PLANTED};
use bloomery_server::workers::{Mailbox, Message, Settings, Shared};
use bloomery_server::writes::Answered;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Condvar;
use shuttle::thread;

const WORKERS: usize = 2;
const SCHEDULES: usize = 4_000;
/// To find a planted defect: most show in one of some hundred schedules.
const MAX_SCHEDULES: usize = 40_000;
/// Preemptions at chosen points, for `check_pct`.
const DEPTH: usize = 4;
const LIMITS: Limits =
    Limits { arguments: 64, argument_bytes: 64, request_bytes: 1 << 10, passes_over: false };
const ERROR: &[u8] = b"-ERR log\r\n";

/// What the clients send, and what the control plane does.
#[derive(Clone, Copy, Default)]
struct Scenario {
    /// Filters that clients write to, in rotation: `q`uick; `g`rowing, whose batch a worker hands
    /// over; `s`low, whose batch it leaves. `c` is a command of which the control plane makes a
    /// record, `b` a command that waits until everything before it is applied.
    names: &'static str,
    /// Clients, which the workers share, and commands of each.
    clients: usize,
    commands: usize,
    /// Some writes of the log fail.
    fails: bool,
    /// The control plane stops all writes for a while.
    freezes: bool,
    planted: Option<Planted>,
}

/// A defect of the model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Planted {
    /// The control plane does not look for records after the release.
    NoSecondLook,
    /// The control plane answers before it appends.
    EarlyReply,
    /// The log reports a write that it has not done yet.
    EarlyReport,
}

/// What the model has seen. Its lock is never held where a schedule can switch threads.
#[derive(Default)]
struct Trace {
    logged: Vec<u64>,
    applied: Vec<u64>,
    unwritten: Vec<u64>,
    frozen: bool,
    /// What other threads do while a worker is about to take the role, and while it hashes a key.
    on_role: Option<Box<dyn FnOnce() + Send>>,
    on_hash: Option<Box<dyn FnOnce() + Send>>,
}

fn interrupt(hook: impl FnOnce() -> Option<Box<dyn FnOnce() + Send>>) {
    if let Some(work) = hook() {
        work();
    }
}

/// Wakes one thread: the byte in a socket, or the event of a poll.
#[derive(Default)]
struct Bell {
    rung: shuttle::sync::Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }

    fn try_wait(&self) -> bool {
        std::mem::take(&mut *self.rung.lock().unwrap())
    }
}

/// Checks that records are applied in the order of the log, and after it has them.
struct Traced {
    trace: Arc<Mutex<Trace>>,
    name: u8,
}

impl Filter for Traced {
    fn width(&self) -> usize {
        1
    }

    fn hash(&self, key: &[u8], out: &mut Vec<u64>) {
        interrupt(|| self.trace.lock().unwrap().on_hash.take());
        out.push(hash(key));
    }

    fn contains(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Result<(), Fault> {
        let trace = self.trace.lock().unwrap();
        answers.extend(hashes.iter().map(|hash| u8::from(trace.applied.contains(hash))));
        Ok(())
    }

    fn count(&self, _hash: &[u64]) -> Result<u64, Fault> {
        Ok(0)
    }

    fn try_add(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Done {
        for hash in hashes {
            thread::yield_now(); // another thread could apply the next record
            let mut trace = self.trace.lock().unwrap();
            let next = trace.logged.get(trace.applied.len()).copied();
            assert_eq!(next, Some(*hash), "a record is not applied in the order of the log");
            trace.applied.push(*hash);
            answers.push(1);
        }
        Ok(Ok(()))
    }

    fn try_remove(&self, _hashes: &[u64], _answers: &mut Vec<u8>) -> Done {
        Ok(Err(Refusal::Never("no removal")))
    }

    fn every_add_counts(&self) -> bool {
        true
    }

    fn needs_room(&self, _keys: usize) -> bool {
        self.name == b'g'
    }

    fn make_room(&self, _keys: usize) -> Result<(), Fault> {
        Ok(())
    }

    fn growth_bytes(&self, _keys: usize) -> u64 {
        0
    }

    fn keys_per_look(&self) -> usize {
        1
    }

    fn is_quick(&self) -> bool {
        self.name != b's'
    }

    fn check_layers(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The number that a key is.
fn hash(key: &[u8]) -> u64 {
    std::str::from_utf8(key).unwrap().parse().unwrap()
}

/// The model of the log.
#[derive(Clone)]
struct ModelLog {
    trace: Arc<Mutex<Trace>>,
    fails: bool,
    late: bool,
}

impl BatchLog for ModelLog {
    fn is_fast(&self) -> bool {
        interrupt(|| self.trace.lock().unwrap().on_role.take());
        true
    }

    fn write(&self, records: &[Record], _at: f64) -> Result<(), String> {
        thread::yield_now();
        if self.fails && thread_rng().gen_bool(0.3) {
            return Err("the disk is full".into());
        }
        let mut trace = self.trace.lock().unwrap();
        assert!(!trace.frozen, "a batch is written while writes are stopped");
        assert_eq!(trace.logged.len(), trace.applied.len(), "two batches are on their way");
        for record in records {
            let mut hashes = Vec::new();
            let (_, keys) = split_name(record.bytes()).unwrap();
            assert!(read_hashes(1, keys, &mut hashes));
            if self.late {
                trace.unwritten.extend(&hashes);
            }
            trace.logged.extend(hashes);
        }
        drop(trace);
        if self.late {
            let trace = self.trace.clone();
            thread::spawn(move || trace.lock().unwrap().unwritten.clear());
        }
        Ok(())
    }
}

struct Bytes(Vec<u8>);

impl Payload for Bytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

struct World {
    scenario: Scenario,
    shared: Shared,
    log: ModelLog,
    trace: Arc<Mutex<Trace>>,
    sessions: Vec<Arc<Session>>,
    /// Of the workers, then of the control plane.
    bells: Vec<Arc<Bell>>,
}

impl World {
    fn new(scenario: Scenario) -> World {
        let trace = Arc::<Mutex<Trace>>::default();
        let keyspace = Arc::<Keyspace>::default();
        keyspace.inline.store(true, Relaxed);
        for (id, name) in b"qgs".iter().enumerate() {
            let counters = Counters::default();
            counters.threshold.store(u64::MAX, Relaxed);
            let entry = Entry {
                id: id as u64,
                filter: Arc::new(Traced { trace: trace.clone(), name: *name }),
                family: CommandFamily::Bf,
                limit: u64::MAX,
                full: String::new(),
                loading: false,
                followed: false,
                counters: Arc::new(counters),
            };
            keyspace.names_mut().entries.insert(vec![*name], Arc::new(entry));
        }
        let bells: Vec<Arc<Bell>> = (0..=WORKERS).map(|_| Arc::default()).collect();
        let ring = |number: usize| {
            let bell = bells[number].clone();
            move || bell.ring()
        };
        let settings = Settings {
            idle: None,
            slow_client: Duration::MAX,
            request: Duration::MAX,
            handshake: Duration::MAX,
            output_limit: usize::MAX,
        };
        let events = Events::new(ring(WORKERS));
        let budget = Arc::new(InputBudget::new(u64::MAX));
        let shared = Shared::new(keyspace.clone(), events, budget, None, None, settings);
        let mailboxes = (0..WORKERS).map(|number| Arc::new(Mailbox::new(ring(number)))).collect();
        assert!(shared.mailboxes.set(mailboxes).is_ok());
        let sessions = (0..scenario.clients).map(|client| {
            let session = Session::new(client as u64, keyspace.clone(), LIMITS);
            session.worker.store(client % WORKERS, Relaxed);
            Arc::new(session)
        });
        let late = scenario.planted == Some(Planted::EarlyReport);
        let log = ModelLog { trace: trace.clone(), fails: scenario.fails, late };
        World { scenario, shared, log, trace, sessions: sessions.collect(), bells }
    }

    /// The filter and the key of a client's command.
    fn command(&self, client: usize, index: usize) -> (u8, u64) {
        let names = self.scenario.names.as_bytes();
        let name = names[(client + index) % names.len()];
        (name, (1 + client * 100 + index) as u64)
    }

    fn is_logged_and_applied(&self, key: u64) -> bool {
        let trace = self.trace.lock().unwrap();
        trace.logged.contains(&key)
            && trace.applied.contains(&key)
            && !trace.unwritten.contains(&key)
    }
}

/// One client of a worker, which sends a command after each reply.
struct Client {
    number: usize,
    /// Commands that are answered.
    done: usize,
    waits: bool,
}

impl Client {
    fn is_ready(&self, world: &World) -> bool {
        !self.waits && self.done < world.scenario.commands
    }
}

/// A worker, as `Worker::run` but without sockets.
struct ModelWorker {
    world: Arc<World>,
    number: usize,
    clients: Vec<Client>,
    scratch: Scratch,
}

impl ModelWorker {
    fn new(world: Arc<World>, number: usize) -> ModelWorker {
        let numbers = (0..world.scenario.clients).filter(|client| client % WORKERS == number);
        let clients = numbers.map(|number| Client { number, done: 0, waits: false }).collect();
        ModelWorker { world, number, clients, scratch: Scratch::default() }
    }

    fn run(mut self) {
        let world = self.world.clone();
        loop {
            for message in world.shared.mailboxes()[self.number].take() {
                self.take_message(message);
            }
            if self.clients.iter().all(|client| client.done == world.scenario.commands) {
                return;
            }
            // As `Worker::round`: without input it does not look for a batch.
            if self.clients.iter().any(|client| client.is_ready(&world)) {
                self.advance();
                world.shared.sequence(Some(&world.log), self.number, |outcomes, clients| {
                    clients.into_iter().for_each(|client| self.answer(client, outcomes));
                });
            } else {
                world.bells[self.number].wait();
            }
        }
    }

    /// Sends the next command of each client that waits for nothing.
    fn advance(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.is_ready(&self.world)) {
            client.waits = true;
            let (name, key) = self.world.command(client.number, client.done);
            let text = match name {
                b'c' => "BF.RESERVE\r\n".into(),
                b'b' => "SAVE\r\n".into(),
                name => format!("BF.ADD {} {key}\r\n", name as char),
            };
            let session = &self.world.sessions[client.number];
            let mut inner = session.lock();
            match session.take_in(&mut inner, text.as_bytes(), &mut self.scratch).ended {
                Ended::Nothing => assert!(inner.held),
                Ended::Commands(words) => {
                    self.world.shared.events.post(Event::Commands(session.id, words));
                }
                _ => panic!("the command was not accepted"),
            }
        }
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Answer { outcomes, clients, .. } => {
                clients.into_iter().for_each(|client| self.answer(client, &outcomes));
            }
            Message::Fail { clients, .. } => {
                for client in clients {
                    self.world.sessions[client as usize].lock().fail(ERROR);
                    self.replied(client, ERROR);
                }
            }
            Message::Resume { client, .. } => self.finish(client),
            _ => panic!("an unexpected message"),
        }
    }

    fn answer(&mut self, client: u64, outcomes: &Arc<Vec<Outcome>>) {
        let mut inner = self.world.sessions[client as usize].lock();
        assert!(inner.is_writing(), "a write is answered twice");
        assert!(matches!(inner.answer(outcomes, &[], &LIMITS), Some(Answered::Done)));
        drop(inner);
        self.replied(client, b":1\r\n");
    }

    /// Checks the reply to a write.
    fn replied(&mut self, client: u64, reply: &[u8]) {
        let mut inner = self.world.sessions[client as usize].lock();
        assert_eq!(std::mem::take(&mut inner.output.bytes), reply);
        let done = self.clients.iter().find(|one| one.number as u64 == client).unwrap().done;
        let (_, key) = self.world.command(client as usize, done);
        let is_done = self.world.is_logged_and_applied(key);
        assert_eq!(is_done, reply != ERROR, "the reply is early, or wrong");
        drop(inner);
        self.finish(client);
    }

    fn finish(&mut self, client: u64) {
        let client = self.clients.iter_mut().find(|one| one.number as u64 == client).unwrap();
        assert!(client.waits, "a command is answered twice");
        client.waits = false;
        client.done += 1;
    }
}

/// What the event loop of the control plane calls soon.
enum Job {
    End,
    Written,
    Freeze,
    Thaw,
}

/// A batch of the control plane on its way.
struct Batch {
    records: Vec<Record>,
    waiters: Vec<Waiter>,
    /// Clients whose commands are in it, or wait for it.
    expected: Vec<u64>,
    barriers: Vec<u64>,
    outcomes: Vec<Outcome>,
    /// A worker has written it.
    written: bool,
    failed: bool,
}

/// The control plane: `Server._woken`, `Sequencer` and `FileBatchLog` of `python/bloomery/service`.
struct Control {
    world: Arc<World>,
    soon: VecDeque<Job>,
    open: bool,
    batch: Option<Batch>,
    expected: Vec<u64>,
    barriers: Vec<u64>,
    closed: usize,
    /// Writes are refused.
    refuses: bool,
}

impl Control {
    fn new(world: Arc<World>) -> Control {
        let soon =
            if world.scenario.freezes { VecDeque::from([Job::Freeze]) } else { VecDeque::new() };
        Control {
            world,
            soon,
            open: false,
            batch: None,
            expected: Vec::new(),
            barriers: Vec::new(),
            closed: 0,
            refuses: false,
        }
    }

    fn run(mut self) {
        let world = self.world.clone();
        while self.closed < world.scenario.clients || !self.soon.is_empty() {
            if self.soon.is_empty() {
                world.bells[WORKERS].wait();
                self.woken();
            } else if world.bells[WORKERS].try_wait() {
                self.woken();
            }
            for job in std::mem::take(&mut self.soon) {
                match job {
                    Job::End => {
                        self.open = false;
                        self.start_next();
                    }
                    Job::Written => self.write(),
                    Job::Freeze => self.freeze(),
                    Job::Thaw => self.thaw(),
                }
            }
        }
    }

    /// `Server._woken`.
    fn woken(&mut self) {
        let (handed, events) = self.world.shared.events.take();
        if let Some(handed) = handed {
            self.take_over(*handed);
        }
        self.join();
        for event in events {
            match event {
                Event::Commands(client, _) if self.refuses => self.resume(client),
                Event::Commands(client, words) if words[0].get(0) == b"SAVE" => {
                    self.barriers.push(client); // `Sequencer.barrier`
                }
                Event::Commands(client, _) => self.submit(client),
                Event::Closed(_) => self.closed += 1,
                _ => panic!("an unexpected event"),
            }
        }
    }

    fn resume(&self, client: u64) {
        let mailbox = &self.world.shared.mailboxes()[client as usize % WORKERS];
        mailbox.send(Message::Resume { client, close: false });
    }

    /// `Sequencer.submit`: a record of the control plane.
    fn submit(&mut self, client: u64) {
        self.join();
        let mut data = b"\x01\x00q".to_vec();
        data.extend_from_slice(&(1_000 + client).to_le_bytes());
        let mut pending = self.world.shared.keyspace.pending();
        pending.records.push(Record { id: 0, op: ADD, data: Data::Given(Box::new(Bytes(data))) });
        pending.control = true;
        self.expected.push(client);
    }

    /// `Sequencer.join`.
    fn join(&mut self) {
        if !std::mem::replace(&mut self.open, true) {
            self.soon.push_back(Job::End);
        }
    }

    /// `Sequencer._start_next`.
    fn start_next(&mut self) {
        if self.batch.is_some() || self.open {
            return;
        }
        let world = self.world.clone();
        let keyspace = &world.shared.keyspace;
        if !keyspace.role.take_or_want() {
            return;
        }
        let taken = keyspace.take();
        thread::yield_now(); // Python takes its time before it releases the role
        let expected = std::mem::take(&mut self.expected);
        let barriers = std::mem::take(&mut self.barriers);
        if taken.records.is_empty() {
            assert!(expected.is_empty() && taken.waiters.is_empty());
            keyspace.role.release();
            barriers.into_iter().for_each(|client| self.resume(client));
            let looks = world.scenario.planted != Some(Planted::NoSecondLook);
            if looks && !keyspace.pending().records.is_empty() {
                self.join();
            }
            return;
        }
        self.batch = Some(Batch {
            records: taken.records,
            waiters: taken.waiters,
            expected,
            barriers,
            outcomes: Vec::new(),
            written: false,
            failed: self.refuses,
        });
        if world.scenario.planted == Some(Planted::EarlyReply) {
            let batch = self.batch.as_mut().unwrap();
            let keys = || {
                Outcome::Keys(Applied { answers: vec![1; world.scenario.clients], refusal: None })
            };
            let outcomes = batch.records.iter().map(|_| keys()).collect();
            world.shared.answer(1, Arc::new(outcomes), &std::mem::take(&mut batch.waiters));
        }
        if thread_rng().gen_bool(0.5) {
            self.soon.push_back(Job::Written); // a thread writes it
        } else {
            self.write();
        }
    }

    /// `FileBatchLog.take_over`.
    fn take_over(&mut self, handed: Handed) {
        assert!(self.batch.is_none(), "two batches are on their way");
        let Handed { records, waiters, outcomes, problem, .. } = handed;
        let failed = problem.is_some();
        assert!(matches!(problem, None | Some(Problem::Log(_))));
        let (expected, barriers) = (Vec::new(), Vec::new());
        let written = true;
        self.batch =
            Some(Batch { records, waiters, expected, barriers, outcomes, written, failed });
        self.write();
    }

    /// Appends and applies the batch, then answers: `FileBatchLog._written`, `Sequencer.applied`.
    fn write(&mut self) {
        let Some(mut batch) = self.batch.take() else { return };
        let world = self.world.clone();
        let Shared { keyspace, .. } = &world.shared;
        if !batch.failed && !batch.written {
            batch.failed = world.log.write(&batch.records, 0.0).is_err();
        }
        if !batch.failed {
            apply(keyspace, &batch.records, &mut batch.outcomes);
        }
        keyspace.role.release();
        batch.expected.iter().chain(&batch.barriers).for_each(|client| self.resume(*client));
        if batch.failed {
            world.shared.fail(ERROR, &batch.waiters);
        } else {
            world.shared.answer(1, Arc::new(batch.outcomes), &batch.waiters);
        }
        self.start_next();
    }

    /// `FileBatchLog.frozen`.
    fn freeze(&mut self) {
        let keyspace = &self.world.shared.keyspace;
        if !self.refuses {
            if thread_rng().gen_bool(0.9) {
                thread::yield_now();
                self.soon.push_back(Job::Freeze); // not yet
                return;
            }
            self.refuses = true;
            keyspace.refusing.store(true, Relaxed);
            keyspace.inline.store(false, Relaxed);
        }
        let is_idle = !self.open
            && self.expected.is_empty()
            && keyspace.pending().records.is_empty()
            && !keyspace.role.is_taken();
        thread::yield_now();
        if !is_idle {
            self.soon.push_back(Job::Freeze);
            return;
        }
        self.world.trace.lock().unwrap().frozen = true;
        self.soon.push_back(Job::Thaw);
    }

    fn thaw(&mut self) {
        for _ in 0..20 {
            thread::yield_now(); // memory and log are copied
        }
        self.world.trace.lock().unwrap().frozen = false;
        self.refuses = false;
        self.world.shared.keyspace.refusing.store(false, Relaxed);
        self.world.shared.keyspace.inline.store(true, Relaxed);
    }
}

/// Applies the records without an outcome: `FileBatchLog._apply`.
fn apply(keyspace: &Keyspace, records: &[Record], outcomes: &mut Vec<Outcome>) {
    while outcomes.len() < records.len() {
        let left = records[outcomes.len()..].iter();
        let names = keyspace.names();
        let each = left.map(|record| (record.id, record.op, record.bytes()));
        match keyspace.apply(&names, each, outcomes, None) {
            Ok(Progress::Done) => return,
            Ok(Progress::Control) => {}
            _ => panic!("the filter is broken"),
        }
        let record = &records[outcomes.len()];
        let (name, keys) = split_name(record.bytes()).unwrap();
        let (mut hashes, mut applied) = (Vec::new(), Applied::default());
        assert!(read_hashes(1, keys, &mut hashes));
        names.get(name).unwrap().apply(keyspace, record.op, &hashes, &mut applied).unwrap();
        outcomes.push(Outcome::Keys(applied));
    }
}

/// Runs one schedule.
fn run(scenario: Scenario) {
    let world = Arc::new(World::new(scenario));
    let workers = (0..WORKERS).map(|number| ModelWorker::new(world.clone(), number));
    let workers: Vec<_> = workers.map(|worker| thread::spawn(move || worker.run())).collect();
    let control = Control::new(world.clone());
    let control = thread::spawn(move || control.run());
    workers.into_iter().for_each(|thread| thread.join().unwrap());
    // Only now: an event wakes the control plane, which would find a write that was left.
    for client in 0..scenario.clients as u64 {
        world.shared.events.post(Event::Closed(client));
    }
    control.join().unwrap();
    let keyspace = &world.shared.keyspace;
    assert!(keyspace.pending().records.is_empty(), "a write was left");
    assert!(!keyspace.role.is_taken(), "the role was not released");
    let trace = world.trace.lock().unwrap();
    assert_eq!(trace.logged, trace.applied);
}

fn check(scenario: Scenario) {
    explore(scenario, SCHEDULES);
}

fn explore(scenario: Scenario, schedules: usize) {
    shuttle::check_pct(move || run(scenario), schedules, DEPTH);
    shuttle::check_random(move || run(scenario), schedules);
}

/// Returns why the scenario fails, in any of the schedules.
fn failure(defect: Option<Defect>, scenario: Scenario) -> String {
    PLANTED.set(defect);
    let failed = catch_unwind(AssertUnwindSafe(|| explore(scenario, MAX_SCHEDULES)));
    PLANTED.set(None);
    let problem = failed.expect_err("no schedule found the defect");
    let text = problem.downcast_ref::<String>().cloned();
    text.or_else(|| problem.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
}

const QUICK: Scenario =
    Scenario { names: "q", clients: 4, commands: 2, fails: false, freezes: false, planted: None };
const MIXED: Scenario = Scenario { names: "qqgscb", commands: 3, ..QUICK };

#[test]
fn workers_answer_every_short_batch() {
    check(QUICK);
}

#[test]
fn control_plane_takes_batches_that_workers_leave() {
    check(Scenario { names: "qs", ..QUICK });
}

#[test]
fn workers_hand_over_batches() {
    check(Scenario { names: "qg", ..QUICK });
}

#[test]
fn control_plane_submits_records() {
    check(Scenario { names: "qcb", ..QUICK });
}

#[test]
fn all_kinds_of_batches_with_a_failing_log() {
    check(Scenario { fails: true, ..MIXED });
}

#[test]
fn no_batch_is_written_while_writes_are_stopped() {
    check(Scenario { freezes: true, ..QUICK });
}

/// A worker has seen that it may write. Before it takes the role, another worker empties the batch
/// and starts a chunk, and the control plane stops all writes: it sees no batch. Random schedules
/// do not find this one.
#[test]
fn worker_does_not_write_after_writes_are_stopped() {
    let scenario = Scenario { clients: 2, ..QUICK };
    let schedule = move || {
        let world = Arc::new(World::new(scenario));
        let mut second = ModelWorker::new(world.clone(), 1);
        let mut first = ModelWorker::new(world.clone(), 0);
        let stopping = world.clone();
        let stop = move || {
            let keyspace = &stopping.shared.keyspace;
            keyspace.refusing.store(true, Relaxed);
            keyspace.inline.store(false, Relaxed);
            assert!(keyspace.pending().records.is_empty() && !keyspace.role.is_taken());
            stopping.trace.lock().unwrap().frozen = true;
        };
        let other = world.clone();
        let overtake = move || {
            other.shared.sequence(Some(&other.log), 1, |_, _| panic!("it is of the first"));
            other.trace.lock().unwrap().on_hash = Some(Box::new(stop));
            second.advance();
        };
        first.advance();
        world.trace.lock().unwrap().on_role = Some(Box::new(overtake));
        world.shared.sequence(Some(&world.log), 0, |_, _| panic!("it is answered by the second"));
        assert!(!world.shared.keyspace.role.is_taken());
        assert!(world.bells[WORKERS].try_wait(), "the control plane is not woken");
    };
    shuttle::check_random(schedule, 1);
}

#[test]
fn finds_a_flag_that_is_cleared_late() {
    assert!(failure(Some(Defect::LateClear), MIXED).contains("deadlock"));
}

#[test]
fn finds_a_worker_that_does_not_look_again() {
    assert!(failure(Some(Defect::NoSecondLook), QUICK).contains("deadlock"));
}

#[test]
fn finds_a_control_plane_that_does_not_look_again() {
    let planted = Some(Planted::NoSecondLook);
    let scenario = Scenario { planted, names: "qb", clients: 2, ..QUICK };
    assert!(failure(None, scenario).contains("deadlock"));
}

#[test]
fn finds_a_control_plane_that_does_not_try_again() {
    let scenario = Scenario { names: "qb", clients: 2, ..QUICK };
    assert!(failure(Some(Defect::NoSecondTry), scenario).contains("deadlock"));
}

#[test]
fn finds_a_role_that_is_released_early() {
    failure(Some(Defect::EarlyRelease), QUICK);
}

#[test]
fn finds_an_answer_before_the_append() {
    let scenario = Scenario { planted: Some(Planted::EarlyReply), names: "s", ..QUICK };
    assert!(failure(None, scenario).contains("early"));
}

#[test]
fn finds_a_log_that_reports_early() {
    let scenario = Scenario { planted: Some(Planted::EarlyReport), clients: 2, ..QUICK };
    assert!(failure(None, scenario).contains("early"));
}

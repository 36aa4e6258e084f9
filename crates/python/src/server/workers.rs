//! The workers of a server (`bloomery_server::workers`) as Python calls them.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use bloomery_server::apply::Outcome;
use bloomery_server::events::{Event, Events};
use bloomery_server::keyspace::Waiter;
use bloomery_server::sequencer::{FileLog, Handed, Problem};
use bloomery_server::tls::Certificates;
use bloomery_server::workers::{self, Settings};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::errors::{error, invalid};
use crate::server::any_filter::raise;
use crate::server::input_budget::InputBudget;
use crate::server::log::LogWriter;
use crate::server::outcomes::{Outcomes, answers};
use crate::server::session::{Session, all_words};
use crate::server::shelf::{PyRecord, Shelf, py_record};

/// The clients that wait for a batch.
#[pyclass(frozen, module = "bloomery._native")]
pub struct Waiters(pub Vec<Waiter>);

#[pymethods]
impl Waiters {
    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// A socket that Python has detached.
fn stream(socket: i64) -> TcpStream {
    // SAFETY: it is open, and this is its only owner: Python has detached it.
    #[cfg(unix)]
    let stream = unsafe { std::os::fd::FromRawFd::from_raw_fd(socket as i32) };
    // SAFETY: as above.
    #[cfg(windows)]
    let stream = unsafe { std::os::windows::io::FromRawSocket::from_raw_socket(socket as u64) };
    stream
}

/// An event: its kind, the client's number, and for "commands" and "conflicts" the commands, for the
/// latter also the outcomes of the batch.
type PyEvent<'py> =
    (Bound<'py, PyString>, u64, Option<Bound<'py, PyList>>, Option<Bound<'py, Outcomes>>);

fn event(py: Python<'_>, event: Event) -> PyResult<PyEvent<'_>> {
    Ok(match event {
        Event::Commands(client, commands) => {
            let kind = intern!(py, "commands").clone();
            (kind, client, Some(all_words(py, &commands)?), None)
        }
        Event::Conflicts(client, outcomes, commands) => {
            let kind = intern!(py, "conflicts").clone();
            let outcomes = Bound::new(py, Outcomes(outcomes))?;
            (kind, client, Some(all_words(py, &commands)?), Some(outcomes))
        }
        Event::Greeted(client) => (intern!(py, "greeted").clone(), client, None, None),
        Event::Closed(client) => (intern!(py, "closed").clone(), client, None, None),
    })
}

/// Checks that workers can use a chain and its key (PEM).
#[pyfunction]
pub fn check_certificate(py: Python<'_>, chain: &[u8], key: &[u8]) -> PyResult<()> {
    Certificates::new(chain, key).map(drop).map_err(|message| invalid(py, message))
}

/// A batch that a worker has started: its records, the clients that wait for it, the results of the
/// records that are applied, their time, and the error that stopped it. LogUnavailable: nothing was
/// written. Another error: the next record could not be applied.
type PyHanded<'py> =
    (Vec<PyRecord<'py>>, Waiters, Bound<'py, PyList>, f64, Option<Bound<'py, PyAny>>);

fn handed(py: Python<'_>, batch: Handed) -> PyResult<PyHanded<'_>> {
    let results = PyList::empty(py);
    for outcome in batch.outcomes {
        match outcome {
            Outcome::Keys(applied) => results.append(answers(py, applied))?,
            _ => results.append(py.None())?,
        }
    }
    let problem = batch.problem.map(|problem| match problem {
        Problem::Log(message) => error(py, "LogUnavailable", message),
        Problem::Fault(fault) => raise(py, fault),
    });
    let problem = problem.map(|problem| problem.into_value(py).into_bound(py).into_any());
    let records = batch.records.into_iter().map(|record| py_record(py, record)).collect();
    Ok((records, Waiters(batch.waiters), results, batch.at, problem))
}

/// Seconds: idle (0: no limit), slow client, request, handshake; and bytes of replies.
type Limits = (f64, f64, f64, f64, usize);

fn settings((idle, slow_client, request, handshake, output_limit): Limits) -> Settings {
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Settings {
        idle: (idle > 0.0).then(|| duration(idle)),
        slow_client: duration(slow_client),
        request: duration(request).min(Duration::from_secs(1 << 40)),
        handshake: duration(handshake),
        output_limit,
    }
}

#[pyclass(frozen, module = "bloomery._native")]
pub struct Workers(workers::Workers);

#[pymethods]
impl Workers {
    /// `wake` is a detached socket: a byte is sent when there are events, the first since
    /// `take_events`. `certificate` is the chain and the key in PEM. `log` is what workers write
    /// short batches to, with the monotonic time of now.
    #[new]
    #[pyo3(signature = (shelf, threads, wake, budget, limits, certificate=None, log=None))]
    fn new(
        shelf: &Bound<'_, Shelf>,
        threads: usize,
        wake: i64,
        budget: &Bound<'_, InputBudget>,
        limits: Limits,
        certificate: Option<(Vec<u8>, Vec<u8>)>,
        log: Option<(Bound<'_, LogWriter>, f64)>,
    ) -> PyResult<Self> {
        let py = shelf.py();
        let wake = stream(wake);
        let certificates = certificate
            .map(|(chain, key)| Certificates::new(&chain, &key))
            .transpose()
            .map_err(|message| invalid(py, message))?;
        // A socket that is full has a byte that wakes Python.
        let events = Events::new(move || drop((&wake).write(&[1])));
        let keyspace = shelf.get().keyspace.clone();
        let budget = budget.get().0.clone();
        let limits = settings(limits);
        let log = log.map(|(writer, now)| FileLog::new(writer.get().0.clone(), now));
        let threads = threads.max(1);
        let started =
            workers::Workers::start(threads, keyspace, events, budget, certificates, log, limits);
        Ok(Workers(started?))
    }

    /// Gives a detached socket with its session to a worker. `close`: after the replies that the
    /// session has.
    fn open(&self, py: Python<'_>, socket: i64, session: &Session, close: bool) -> PyResult<()> {
        let opened = self.0.open(stream(socket), session.0.clone(), close);
        opened.map_err(|message| invalid(py, message))
    }

    /// Continues a client after the replies to all its commands. `close`: after these replies.
    fn resume(&self, session: &Session, close: bool) {
        self.0.resume(&session.0, close);
    }

    /// Sends the replies of a client so far.
    fn flush(&self, session: &Session) {
        self.0.flush(&session.0);
    }

    /// Closes a connection at once.
    fn abort(&self, session: &Session) {
        self.0.abort(&session.0);
    }

    /// Answers the clients of a batch that was applied. Clients whose record a thread still applies
    /// wait for `answer_rest`.
    fn answer(&self, batch: u64, outcomes: &Outcomes, waiters: &Waiters) {
        self.0.answer(batch, outcomes.0.clone(), &waiters.0);
    }

    /// Answers the clients that were left.
    fn answer_rest(&self, batch: u64, outcomes: &Outcomes) {
        self.0.answer_rest(batch, outcomes.0.clone());
    }

    /// Answers a client whose commands in conflict have run again, with these replies.
    fn answer_again(&self, session: &Session, outcomes: &Outcomes, replies: Vec<Vec<u8>>) {
        self.0.answer_again(&session.0, outcomes.0.clone(), replies);
    }

    /// Answers the clients of a batch that was refused.
    fn fail(&self, error: &[u8], waiters: &Waiters) {
        self.0.fail(error, &waiters.0);
    }

    /// Returns the batch that a worker has handed over, if there is one, and all events.
    fn take_events<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Option<PyHanded<'py>>, Vec<PyEvent<'py>>)> {
        let (batch, events) = self.0.shared.events.take();
        let events = events.into_iter().map(|found| event(py, found)).collect::<PyResult<_>>()?;
        Ok((batch.map(|batch| handed(py, *batch)).transpose()?, events))
    }

    /// Changes the limits of all connections.
    fn configure(&self, limits: Limits) {
        self.0.configure(settings(limits));
    }

    /// Uses another certificate for new connections.
    fn replace_certificate(&self, py: Python<'_>, chain: &[u8], key: &[u8]) -> PyResult<()> {
        match &self.0.shared.certificates {
            Some(certificates) => {
                certificates.replace(chain, key).map_err(|message| invalid(py, message))
            }
            None => Err(invalid(py, "the server was started without TLS".into())),
        }
    }

    /// Reads nothing more from any connection.
    fn drain(&self) {
        self.0.drain();
    }

    /// Closes all connections after the replies so far.
    fn close_all(&self) {
        self.0.close_all();
    }

    /// Closes all connections at once, and returns when the threads have ended.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }
}

//! Connections without TLS that native code reads and answers: one call reads all sockets with data,
//! another sends all replies. Python handles what native code does not.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use bloomery_server::session::{Ended, TakenIn};
use bloomery_server::writes::Answered;

use crate::server::outcomes::Outcomes;
use crate::server::session::{self, Session};

/// As much as is read at once, which others wait for.
const CHUNK: usize = 256 << 10;

#[pyclass(frozen, module = "bloomery._native")]
pub struct Sockets {
    inner: Mutex<Inner>,
}

struct Inner {
    clients: HashMap<i64, Client>,
    /// Clients that were read in this tick.
    read: Vec<i64>,
    /// Clients whose writes go into the next batch, and those of the batch that is on its way.
    writing: Vec<Waiter>,
    sent: Vec<Waiter>,
    buffer: Vec<u8>,
}

/// A client whose writes wait for the log, with its session and connection: a new connection can have
/// the number of one that was closed.
type Waiter = (i64, Py<Session>, Py<PyAny>);

struct Client {
    session: Py<Session>,
    connection: Py<PyAny>,
    /// The socket did not take all replies. The transport sends the rest, and nothing may overtake
    /// it.
    behind: bool,
    /// Python keeps input that arrived while the client was held.
    kept: bool,
}

impl Client {
    /// Sends the replies; false if some are left.
    fn send(&mut self, socket: i64) -> bool {
        self.behind = !self.session.get().send(&mut &*stream(socket));
        !self.behind
    }

    /// Sends the answers to writes, and lets the client continue. Connections that Python must
    /// continue are added to `left`.
    fn release(&mut self, py: Python<'_>, socket: i64, left: &mut Vec<Py<PyAny>>) {
        self.session.get().inner().held = false;
        let unsent = self.behind || !self.send(socket);
        if std::mem::take(&mut self.kept) || unsent || self.session.get().inner().waiting() > 0 {
            left.push(self.connection.clone_ref(py));
        }
    }
}

/// Sends the answers of a client. If native code no longer reads its socket, because the client has
/// closed its side, Python sends them.
fn release(
    py: Python<'_>,
    clients: &mut HashMap<i64, Client>,
    (socket, session, connection): Waiter,
    left: &mut Vec<Py<PyAny>>,
) {
    match clients.get_mut(&socket).filter(|client| client.session.is(&session)) {
        Some(client) => client.release(py, socket, left),
        None => left.push(connection),
    }
}

/// A socket that is somebody else's to close.
fn stream(socket: i64) -> ManuallyDrop<TcpStream> {
    // SAFETY: it is open: the connection's transport closes it, after `remove`.
    #[cfg(unix)]
    let stream = unsafe { std::os::fd::FromRawFd::from_raw_fd(socket as i32) };
    // SAFETY: as above.
    #[cfg(windows)]
    let stream = unsafe { std::os::windows::io::FromRawSocket::from_raw_socket(socket as u64) };
    ManuallyDrop::new(stream)
}

/// A connection with a command for Python, or of which more is known than that all is done: what
/// `Session.feed` returned, how many bytes had waited, and how many came.
type Fed<'py> = (Py<PyAny>, Option<Bound<'py, PyAny>>, usize, usize);
/// A connection whose commands wait, and what came.
type Held<'py> = (Py<PyAny>, Bound<'py, PyBytes>);
/// What came of a round of reading; the last have ended, or failed.
type Round<'py> = (Vec<Fed<'py>>, Vec<Held<'py>>, Vec<Py<PyAny>>);

/// A connection with commands that must run again.
type Conflicts<'py> = (Py<PyAny>, Vec<Bound<'py, PyList>>);
/// Connections for Python to continue, to run commands again, and to answer later.
type AnsweredSockets<'py> = (Vec<Py<PyAny>>, Vec<Conflicts<'py>>, Vec<Py<PyAny>>);

impl Sockets {
    fn inner<'a>(&'a self, py: Python<'a>) -> MutexGuard<'a, Inner> {
        self.inner.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl Sockets {
    #[new]
    fn new() -> Self {
        let inner = Inner {
            clients: HashMap::new(),
            read: Vec::new(),
            writing: Vec::new(),
            sent: Vec::new(),
            buffer: vec![0; CHUNK],
        };
        Sockets { inner: Mutex::new(inner) }
    }

    /// Takes a connection in: its socket, which stays open until it is removed.
    fn add(&self, py: Python<'_>, socket: i64, session: Py<Session>, connection: Py<PyAny>) {
        let client = Client { session, connection, behind: false, kept: false };
        let before = self.inner(py).clients.insert(socket, client);
        drop(before); // when the lock is not held: it may run Python code
    }

    /// Forgets a connection, whose socket may be closed from now on.
    fn remove(&self, py: Python<'_>, socket: i64) {
        let client = self.inner(py).clients.remove(&socket);
        drop(client);
    }

    /// Reads from these sockets, at a time of the clock that idle clients are measured by, and does
    /// what came. Connections of which Python has to know; those whose commands wait, with what
    /// came; and those at whose end, or with an error, somebody else must read.
    fn read<'py>(
        &self,
        py: Python<'py>,
        ready: Vec<(i64, Bound<'py, PyAny>)>,
        now: f64,
    ) -> PyResult<Round<'py>> {
        let (mut fed, mut held, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        {
            let Inner { clients, read, buffer, .. } = &mut *self.inner(py);
            for (socket, _) in ready {
                let Some(client) = clients.get_mut(&socket) else { continue };
                let count = match (&*stream(socket)).read(buffer) {
                    Ok(count) if count > 0 => count,
                    Err(problem) if problem.kind() == ErrorKind::WouldBlock => continue,
                    _ => {
                        ended.push(client.connection.clone_ref(py));
                        continue;
                    }
                };
                let session = client.session.get();
                let mut inner = session.inner();
                if inner.held {
                    client.kept = true;
                    let data = PyBytes::new(py, &buffer[..count]);
                    held.push((client.connection.clone_ref(py), data));
                    continue;
                }
                inner.last = now;
                let TakenIn { ended, before, after } =
                    session.take_in(&mut inner, py, &buffer[..count]);
                if before == 0 && after == 0 && matches!(ended, Ended::Nothing) {
                    read.push(socket);
                } else {
                    fed.push((client.connection.clone_ref(py), ended, before, count));
                }
            }
        }
        // Not under the lock: to make a list may run Python code, a collection of garbage.
        let outcomes = fed.into_iter().map(|(connection, outcome, before, count)| {
            Ok((connection, session::ended(py, outcome)?, before, count))
        });
        Ok((outcomes.collect::<PyResult<_>>()?, held, ended))
    }

    /// Ends a tick: sends the replies of clients that were read, and holds those whose writes wait
    /// for the log. Returns the connections with replies that the socket did not take.
    fn flush(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let Inner { clients, read, writing, .. } = &mut *self.inner(py);
        let mut left = Vec::new();
        for socket in read.drain(..) {
            let Some(client) = clients.get_mut(&socket) else { continue };
            let mut inner = client.session.get().inner();
            if inner.is_writing() {
                if !std::mem::replace(&mut inner.held, true) {
                    let connection = client.connection.clone_ref(py);
                    writing.push((socket, client.session.clone_ref(py), connection));
                }
                continue;
            }
            drop(inner);
            if client.behind || !client.send(socket) {
                left.push(client.connection.clone_ref(py));
            }
        }
        left
    }

    /// Starts a batch: the clients that wrote so far wait for it.
    fn start_batch(&self, py: Python<'_>) -> usize {
        let Inner { writing, sent, .. } = &mut *self.inner(py);
        sent.append(writing);
        sent.len()
    }

    /// Answers the clients of the batch that was applied, and sends the replies. Returns the
    /// connections with replies that the socket did not take, or with more input to process; those
    /// with commands that must run again; and those for which a thread still applies a record.
    fn answer<'py>(&self, outcomes: &Bound<'py, Outcomes>) -> PyResult<AnsweredSockets<'py>> {
        let py = outcomes.py();
        let (mut left, mut again, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
        {
            let Inner { clients, sent, .. } = &mut *self.inner(py);
            for (socket, session, connection) in sent.drain(..) {
                match session.get().answer_writes(outcomes.get(), &[]) {
                    Some(Answered::Conflicts(commands)) => again.push((connection, commands)),
                    Some(Answered::Unfinished) => unfinished.push(connection),
                    done => {
                        if done.is_none() {
                            session.get().inner().fail(b"-ERR internal error\r\n");
                        }
                        release(py, clients, (socket, session, connection), &mut left);
                    }
                }
            }
        }
        let again = again.into_iter().map(|(connection, commands)| {
            let words = commands.iter().map(|command| session::words(py, command));
            Ok((connection, words.collect::<PyResult<_>>()?))
        });
        Ok((left, again.collect::<PyResult<_>>()?, unfinished))
    }

    /// Answers the clients of the batch with an error, and sends it.
    fn fail(&self, py: Python<'_>, error: &[u8]) -> Vec<Py<PyAny>> {
        let mut left = Vec::new();
        let Inner { clients, sent, .. } = &mut *self.inner(py);
        for waiter in sent.drain(..) {
            waiter.1.get().inner().fail(error);
            release(py, clients, waiter, &mut left);
        }
        left
    }

    /// Sends a connection's replies; false if some are left, or it is none of these.
    fn send(&self, py: Python<'_>, socket: i64) -> bool {
        let client = &mut self.inner(py).clients;
        client.get_mut(&socket).is_some_and(|client| client.send(socket))
    }
}

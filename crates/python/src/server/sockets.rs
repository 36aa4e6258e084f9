//! Connections in the clear that are read and answered without Python: all that sent something are
//! one call, and all replies of a turn another. What is not usual is handed to Python.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::server::session::{Ended, Session, TakenIn};

/// As much as is read at once, which others wait for.
const CHUNK: usize = 256 << 10;

#[pyclass(frozen, module = "bloomery._native")]
pub struct Sockets {
    inner: Mutex<Inner>,
}

struct Inner {
    clients: HashMap<i64, Client>,
    /// Those whose replies are to go out at the end of this turn.
    answered: Vec<i64>,
    buffer: Vec<u8>,
}

struct Client {
    session: Py<Session>,
    connection: Py<PyAny>,
    /// The socket did not take all replies: the rest goes out through the connection's transport,
    /// and nothing may overtake it.
    behind: bool,
}

impl Client {
    /// Sends the replies; false if some are left.
    fn send(&mut self, py: Python<'_>, socket: i64) -> bool {
        self.behind = !self.session.get().send(py, &mut &*stream(socket));
        !self.behind
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

impl Sockets {
    fn inner<'a>(&'a self, py: Python<'a>) -> MutexGuard<'a, Inner> {
        self.inner.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl Sockets {
    #[new]
    fn new() -> Self {
        let inner = Inner { clients: HashMap::new(), answered: Vec::new(), buffer: vec![0; CHUNK] };
        Sockets { inner: Mutex::new(inner) }
    }

    /// Takes a connection in: its socket, which stays open until it is removed.
    fn add(&self, py: Python<'_>, socket: i64, session: Py<Session>, connection: Py<PyAny>) {
        let client = Client { session, connection, behind: false };
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
            let Inner { clients, answered, buffer } = &mut *self.inner(py);
            for (socket, _) in ready {
                let Some(client) = clients.get(&socket) else { continue };
                let count = match (&*stream(socket)).read(buffer) {
                    Ok(count) if count > 0 => count,
                    Err(problem) if problem.kind() == ErrorKind::WouldBlock => continue,
                    _ => {
                        ended.push(client.connection.clone_ref(py));
                        continue;
                    }
                };
                let session = client.session.get();
                if session.is_held(py) {
                    let data = PyBytes::new(py, &buffer[..count]);
                    held.push((client.connection.clone_ref(py), data));
                    continue;
                }
                let TakenIn { ended, before, after } =
                    session.take_in(py, &buffer[..count], Some(now));
                if before == 0 && after == 0 && matches!(ended, Ended::Nothing) {
                    answered.push(socket);
                } else {
                    fed.push((client.connection.clone_ref(py), ended, before, count));
                }
            }
        }
        // Not under the lock: to make a list may run Python code, a collection of garbage.
        let outcomes = fed.into_iter().map(|(connection, outcome, before, count)| {
            Ok((connection, outcome.into_python(py)?, before, count))
        });
        Ok((outcomes.collect::<PyResult<_>>()?, held, ended))
    }

    /// Sends the replies of those that were read; returns the connections that have some left.
    fn write(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let Inner { clients, answered, .. } = &mut *self.inner(py);
        let mut left = Vec::new();
        for socket in answered.drain(..) {
            if let Some(client) = clients.get_mut(&socket)
                && (client.behind || !client.send(py, socket))
            {
                left.push(client.connection.clone_ref(py));
            }
        }
        left
    }

    /// Sends a connection's replies; false if some are left, or it is none of these.
    fn send(&self, py: Python<'_>, socket: i64) -> bool {
        let client = &mut self.inner(py).clients;
        client.get_mut(&socket).is_some_and(|client| client.send(py, socket))
    }

    /// The connections whose replies have yet to go out, which are somebody else's now.
    fn take(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let Inner { clients, answered, .. } = &mut *self.inner(py);
        let taken = answered.drain(..).filter_map(|socket| clients.get(&socket));
        taken.map(|client| client.connection.clone_ref(py)).collect()
    }
}

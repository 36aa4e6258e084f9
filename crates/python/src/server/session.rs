//! A session (`bloomery_server::session`) as Python calls it.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};

use bloomery_core::resp::Limits;
use bloomery_server::permits::Permits;
use bloomery_server::session::{self, Ended, Inner, Scratch, TakenIn, Words};
use bloomery_server::writes::Answered;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList, PyString};

use crate::errors::invalid;
use crate::filters::sections::section;
use crate::server::outcomes::Outcomes;
use crate::server::shelf::Shelf;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

#[pyclass(frozen, module = "bloomery._native")]
pub struct Session(pub Arc<session::Session>);

/// The words of a command.
pub fn words<'py>(py: Python<'py>, words: &Words) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, (0..words.len()).map(|index| PyBytes::new(py, words.get(index))))
}

/// The words of each command.
pub fn all_words<'py>(py: Python<'py>, commands: &[Words]) -> PyResult<Bound<'py, PyList>> {
    let each = commands.iter().map(|command| words(py, command)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, each)
}

/// What a chunk ended with, as `Session.feed` returns it.
pub fn ended(py: Python<'_>, ended: Ended) -> PyResult<Option<Bound<'_, PyAny>>> {
    Ok(match ended {
        Ended::Nothing => None,
        Ended::Commands(commands) => Some(all_words(py, &commands)?.into_any()),
        Ended::Problem(message) => Some(PyString::new(py, &message).into_any()),
        Ended::Later { at_once } => Some(PyBool::new(py, at_once).to_owned().into_any()),
    })
}

impl Session {
    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Processes what the client sent.
    pub fn take_in(&self, inner: &mut Inner, py: Python<'_>, fresh: &[u8]) -> TakenIn {
        let _section = section(py);
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let taken = self.0.take_in(inner, fresh, &mut scratch);
        SCRATCH.set(Some(scratch));
        taken
    }

    /// Answers the writes of a batch; None if the outcomes are not those of it.
    pub fn answer_writes(&self, outcomes: &Outcomes, again: &[Vec<u8>]) -> Option<Answered> {
        self.inner().answer(&outcomes.0, again, &self.0.limits)
    }
}

#[pymethods]
impl Session {
    #[new]
    fn new(
        shelf: &Bound<'_, Shelf>,
        id: u64,
        max_arguments: usize,
        max_argument_bytes: usize,
        max_request_bytes: usize,
    ) -> Self {
        let limits = Limits {
            arguments: max_arguments,
            argument_bytes: max_argument_bytes,
            request_bytes: max_request_bytes,
            passes_over: false,
        };
        Session(Arc::new(session::Session::new(id, shelf.get().keyspace.clone(), limits)))
    }

    /// Processes what the client sent, without a worker. None: everything is processed, or the rest
    /// waits for the answers to writes. A list: commands (their words) for Python, which calls
    /// `reply` for each and feeds again. A str: a protocol error; nothing that follows can be read. True: more follows after
    /// other clients were served. False: as True, but a filter is locked for a while.
    fn feed<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let taken = self.take_in(&mut self.inner(), py, data.as_bytes());
        // Not under the lock: to make a list may run Python code, a collection of garbage.
        ended(py, taken.ended)
    }

    /// Appends a reply, after the answers to writes that wait for the log.
    fn reply(&self, data: &[u8]) {
        self.inner().reply(data);
    }

    /// Replies to the writes that waited for the log. If another command changed the name of one
    /// first, nothing is answered, and the commands (their words) that must run again are returned;
    /// the next call passes their replies as `again`, in order. Returns None if a thread still
    /// applies a record; nothing is answered then.
    #[pyo3(signature = (outcomes, again=Vec::new()))]
    fn answer<'py>(
        &self,
        py: Python<'py>,
        outcomes: &Bound<'py, Outcomes>,
        again: Vec<Vec<u8>>,
    ) -> PyResult<Option<Vec<Bound<'py, PyList>>>> {
        let other = || invalid(py, "the outcomes are not those of the batch".into());
        match self.answer_writes(outcomes.get(), &again).ok_or_else(other)? {
            Answered::Done => Ok(Some(Vec::new())),
            Answered::Conflicts(commands) => {
                commands.iter().map(|command| words(py, command)).collect::<PyResult<_>>().map(Some)
            }
            Answered::Unfinished => Ok(None),
        }
    }

    /// All replies, to be sent.
    fn take<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut inner = self.inner();
        let bytes = PyBytes::new(py, &inner.output.bytes);
        inner.clear_sent(&self.0.keyspace.latency);
        bytes
    }

    /// Replies with an error to the writes that waited for the log.
    fn fail(&self, error: &[u8]) {
        self.inner().fail(error);
    }

    /// Bytes of replies that the client has not accepted yet.
    #[getter]
    fn pending(&self) -> usize {
        self.inner().unsent()
    }

    /// The number of the client.
    #[getter]
    fn id(&self) -> u64 {
        self.0.id
    }

    /// Whether the client has closed its side of the connection, or the connection is closed.
    #[getter]
    fn left(&self) -> bool {
        self.0.left.load(Relaxed)
    }

    /// Whether writes wait for the log.
    #[getter]
    fn writing(&self) -> bool {
        self.inner().is_writing()
    }

    /// Bytes that arrived and are not processed yet.
    #[getter]
    fn waiting(&self) -> usize {
        self.inner().waiting()
    }

    /// Seconds since data last arrived.
    #[getter]
    fn idle(&self) -> f64 {
        self.inner().last.elapsed().as_secs_f64()
    }

    /// While true, the client may send only short requests: it must log in first.
    #[getter]
    fn unauthenticated(&self) -> bool {
        self.inner().unauthenticated
    }

    #[setter]
    fn set_unauthenticated(&self, unauthenticated: bool) {
        self.inner().unauthenticated = unauthenticated;
    }

    /// Bytes of commands that wait for EXEC. They count as input.
    #[getter]
    fn queued_bytes(&self) -> usize {
        self.inner().queued_bytes
    }

    #[setter]
    fn set_queued_bytes(&self, nbytes: usize) {
        self.inner().queued_bytes = nbytes;
    }

    /// 2 or 3.
    #[getter]
    fn protocol(&self) -> u8 {
        if self.inner().output.resp3 { 3 } else { 2 }
    }

    #[setter]
    fn set_protocol(&self, protocol: u8) {
        self.inner().output.resp3 = protocol == 3;
    }

    /// While true, Python handles every command.
    #[getter]
    fn watched(&self) -> bool {
        self.inner().watched
    }

    #[setter]
    fn set_watched(&self, watched: bool) {
        self.inner().watched = watched;
    }

    /// While true, native code runs commands only on names that were permitted.
    #[getter]
    fn restricted(&self) -> bool {
        self.inner().permits.is_some()
    }

    /// Permissions from before are forgotten in either case.
    #[setter]
    fn set_restricted(&self, restricted: bool) {
        self.inner().permits = restricted.then(Permits::default);
    }

    /// Lets the client read the filter of this name, or also write to it.
    fn permit(&self, name: &[u8], write: bool) {
        if let Some(permits) = &mut self.inner().permits {
            permits.permit(name, write);
        }
    }
}

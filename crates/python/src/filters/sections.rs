//! Work without the interpreter lock, and when it is safe to let go of it.
//!
//! **Forks.** A child has the memory of its parent and only the thread that forked: what another
//! thread was changing stays half changed, and what it had locked stays locked, for ever. So work
//! that holds a filter is a *section*: sections are counted, and a fork first waits until there is
//! none. No section needs the interpreter lock in order to end. While a fork waits, work keeps the
//! interpreter lock instead, which the forking thread needs: nothing has to wait for the fork, and
//! so no lock that another thread or another fork handler holds can make it a deadlock.
//!
//! **Turns.** Work that needs the interpreter lock gives the others a turn now and then.

use std::cell::Cell;

use bloomery_core::sections as core;
pub use bloomery_core::sections::{Section, fork_waits};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

thread_local! {
    static ABOUT_TO_FORK: Cell<bool> = const { Cell::new(false) };
}

/// Starts a section in a thread of another library, after a fork that waits. None while a fork waits
/// if this thread has the interpreter lock: then the fork comes later.
pub fn begin_elsewhere() -> Option<Section> {
    loop {
        if let Some(section) = Section::try_begin() {
            return Some(section);
        }
        if is_attached() {
            // SAFETY: it is attached, and stays so until the function returns.
            return begin(unsafe { Python::assume_attached() });
        }
        std::thread::sleep(core::PAUSE);
    }
}

/// None while a fork waits. Called with the interpreter lock held, as `before_fork` is.
fn begin(py: Python<'_>) -> Option<Section> {
    loop {
        if let Some(section) = Section::try_begin() {
            return Some(section);
        }
        if !cfg!(Py_GIL_DISABLED) {
            return None;
        }
        // Without an interpreter lock there is nothing to keep instead: the fork comes first.
        // But for what other fork handlers do in this very thread.
        if ABOUT_TO_FORK.get() {
            return Some(Section::begin_now());
        }
        py.detach(|| std::thread::sleep(core::PAUSE));
    }
}

/// A section for work under the interpreter lock. It needs none where there is that lock, which a
/// fork needs too.
#[inline(always)]
pub fn section(py: Python<'_>) -> Option<Section> {
    if cfg!(Py_GIL_DISABLED) { begin(py) } else { None }
}

/// Does this thread hold the interpreter lock? `PyGILState_Check` does not tell: it says yes to every
/// thread once there was a second interpreter.
fn is_attached() -> bool {
    // SAFETY: may be asked by any thread.
    unsafe {
        let current = ffi::compat::PyThreadState_GetUnchecked();
        // Before 3.12 it is that of whichever thread holds the lock.
        !current.is_null() && (cfg!(Py_3_12) || current == ffi::PyGILState_GetThisThreadState())
    }
}

/// Runs `work`, which may hold a filter and runs no Python code, without the interpreter lock; with
/// it while a fork waits.
pub fn detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    let Some(section) = begin(py) else { return work() };
    py.detach(move || {
        let _section = section; // outlives all that `work` holds
        work()
    })
}

/// Lets other threads run if they wait for the interpreter lock, and signals be handled: what a loop
/// in Python does at each of its turns, so a loop in Python it is. To let go of the lock and take
/// it again would not do: whoever waits has to wake up first, comes too late, and begins to count
/// its switch interval anew.
pub fn give_turn(py: Python<'_>) -> PyResult<()> {
    static TURN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let turn = TURN.get_or_try_init(py, || py.eval(c"lambda: None", None, None).map(Bound::unbind));
    turn?.call0(py).map(drop)
}

#[pyfunction]
fn before_fork(py: Python<'_>) {
    ABOUT_TO_FORK.set(true);
    core::announce_fork();
    py.detach(core::wait_for_sections);
}

#[pyfunction]
fn after_fork_in_parent() {
    ABOUT_TO_FORK.set(false);
    core::after_fork_in_parent();
}

/// Other threads that were about to fork are not here, nor are those that looked whether a section
/// may begin; this one is in none, since it runs Python code.
#[pyfunction]
fn after_fork_in_child() {
    ABOUT_TO_FORK.set(false);
    core::after_fork_in_child();
}

/// Has Python call these around each fork; where there are no forks there is nothing to do.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let os = module.py().import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let hooks = PyDict::new(module.py());
    hooks.set_item("before", wrap_pyfunction!(before_fork, module)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork_in_parent, module)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, module)?)?;
    os.call_method("register_at_fork", (), Some(&hooks)).map(drop)
}

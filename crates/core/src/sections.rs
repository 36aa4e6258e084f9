//! Sections: work that holds a filter in a thread without the interpreter lock.
//!
//! A fork copies the memory and only the thread that forks. Another thread's change stays half
//! done in the child, and its locks stay locked. So sections are counted, and a fork first waits
//! until none is running. No section needs the interpreter lock in order to end.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Threads that are about to fork.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Time between two checks of a condition. No lock is used: the child might find it locked.
pub const PAUSE: Duration = Duration::from_micros(100);

/// A section, until it is dropped; also by a panic.
pub struct Section(());

impl Section {
    /// Starts a section; returns None while a fork waits.
    pub fn try_begin() -> Option<Section> {
        let section = Section::begin_now();
        (!fork_waits()).then_some(section)
    }

    /// Starts a section even if a fork waits, which then waits for it too.
    pub fn begin_now() -> Section {
        RUNNING.fetch_add(1, SeqCst);
        Section(())
    }

    /// Starts a section in a thread that does not hold the interpreter lock; waits for a fork.
    pub fn begin() -> Section {
        loop {
            if let Some(section) = Section::try_begin() {
                return section;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, SeqCst);
    }
}

/// Returns whether a fork waits for sections to end. Long sections stop then, and continue later.
pub fn fork_waits() -> bool {
    FORKING.load(SeqCst) != 0
}

/// Announces a fork: no section starts from now on.
pub fn announce_fork() {
    FORKING.fetch_add(1, SeqCst);
}

/// Waits until no section is running.
pub fn wait_for_sections() {
    while RUNNING.load(SeqCst) != 0 {
        std::thread::sleep(PAUSE);
    }
}

/// Lets sections start again in the process that forked.
pub fn after_fork_in_parent() {
    FORKING.fetch_sub(1, SeqCst);
}

/// Resets the counts in the child, which has none of the other threads.
pub fn after_fork_in_child() {
    RUNNING.store(0, SeqCst);
    FORKING.store(0, SeqCst);
}

//! Wakes a thread once for any number of messages.

use std::sync::atomic::Ordering::SeqCst;

use crate::sync::{AtomicBool, Defect, has};

pub struct Wakeup {
    wake: Box<dyn Fn() + Send + Sync>,
    /// The thread was woken, and has not taken its messages yet.
    woken: AtomicBool,
}

impl Wakeup {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Wakeup {
        Wakeup { wake: Box::new(wake), woken: AtomicBool::default() }
    }

    /// Wakes the thread. The message must be stored already.
    pub fn wake(&self) {
        if !self.woken.swap(true, SeqCst) {
            (self.wake)();
        }
    }

    /// Takes the messages with `take`. None: the thread was not woken, so there are none yet.
    pub fn take<T>(&self, take: impl FnOnce() -> T) -> Option<T> {
        if has(Defect::LateClear) {
            let taken = take();
            return self.woken.swap(false, SeqCst).then_some(taken);
        }
        // First: a message that is stored from now on wakes the thread again.
        self.woken.swap(false, SeqCst).then(take)
    }
}

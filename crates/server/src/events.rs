//! What workers report to the control plane: a queue, and a wake-up when it gets its first event.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};

use crate::apply::Outcome;
use crate::session::Words;

pub enum Event {
    /// Commands of a client, in order. It is not read until `Workers::resume`.
    Commands(u64, Vec<Words>),
    /// Writes of a client whose filter another command changed first. They run again, and
    /// `Workers::answer_again` answers all writes of the client.
    Conflicts(u64, Arc<Vec<Outcome>>, Vec<Words>),
    /// The TLS handshake of a client is complete.
    Greeted(u64),
    /// The connection of a client is closed.
    Closed(u64),
}

pub struct Events {
    queue: Mutex<Vec<Event>>,
    /// Clients have written since the last `take`.
    wrote: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
    /// The control plane was woken, and has not taken the events yet.
    woken: AtomicBool,
}

impl Events {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Events {
        Events {
            queue: Mutex::default(),
            wrote: AtomicBool::default(),
            wake: Box::new(wake),
            woken: AtomicBool::default(),
        }
    }

    pub fn post(&self, event: Event) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.wake();
    }

    /// Reports that the next batch has records.
    pub fn post_write(&self) {
        if !self.wrote.swap(true, SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        if !self.woken.swap(true, SeqCst) {
            (self.wake)();
        }
    }

    /// Takes all events, and whether clients have written.
    pub fn take(&self) -> (bool, Vec<Event>) {
        // First: an event that is posted from now on wakes the control plane again.
        self.woken.store(false, SeqCst);
        let wrote = self.wrote.swap(false, SeqCst);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        (wrote, std::mem::take(&mut *queue))
    }
}

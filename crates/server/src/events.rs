//! What workers report to the control plane: a queue, and a wake-up when it gets its first event.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};

use crate::apply::Outcome;
use crate::sequencer::Handed;
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
    /// The next batch has records for the control plane, or records were applied.
    wrote: AtomicBool,
    handed: Mutex<Option<Box<Handed>>>,
    wake: Box<dyn Fn() + Send + Sync>,
    /// The control plane was woken, and has not taken the events yet.
    woken: AtomicBool,
}

impl Events {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Events {
        Events {
            queue: Mutex::default(),
            wrote: AtomicBool::default(),
            handed: Mutex::default(),
            wake: Box::new(wake),
            woken: AtomicBool::default(),
        }
    }

    pub fn post(&self, event: Event) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.wake();
    }

    /// Hands over a batch, and with it the role of the sequencer.
    pub fn hand_over(&self, batch: Box<Handed>) {
        *self.handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
        self.wake();
    }

    /// Reports that the control plane must take the next batch, or that records were applied.
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

    /// Takes all events, and the batch that was handed over.
    pub fn take(&self) -> (Option<Box<Handed>>, Vec<Event>) {
        // First: an event that is posted from now on wakes the control plane again.
        self.woken.store(false, SeqCst);
        self.wrote.store(false, SeqCst);
        let handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        (handed, std::mem::take(&mut *queue))
    }
}

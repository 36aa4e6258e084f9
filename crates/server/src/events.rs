//! What workers report to the control plane: a queue, and a wake-up when it gets its first event.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

use crate::apply::Outcome;
use crate::sequencer::Handed;
use crate::session::Words;
use crate::sync::{AtomicBool, Mutex};
use crate::wakeup::Wakeup;

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
    wakeup: Wakeup,
}

impl Events {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Events {
        Events {
            queue: Mutex::default(),
            wrote: AtomicBool::default(),
            handed: Mutex::default(),
            wakeup: Wakeup::new(wake),
        }
    }

    pub fn post(&self, event: Event) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.wakeup.wake();
    }

    /// Hands over a batch, and with it the role of the sequencer.
    pub fn hand_over(&self, batch: Box<Handed>) {
        *self.handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
        self.wakeup.wake();
    }

    /// Reports that the control plane must take the next batch, or that records were applied.
    pub fn post_write(&self) {
        if !self.wrote.swap(true, SeqCst) {
            self.wakeup.wake();
        }
    }

    /// Takes all events, and the batch that was handed over.
    pub fn take(&self) -> (Option<Box<Handed>>, Vec<Event>) {
        let taken = self.wakeup.take(|| {
            self.wrote.store(false, SeqCst);
            let handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            (handed, std::mem::take(&mut *queue))
        });
        taken.unwrap_or_default()
    }
}

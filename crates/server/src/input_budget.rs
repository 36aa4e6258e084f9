//! Back-pressure on input: one budget for all that clients have sent and the server has not yet
//! processed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub struct InputBudget {
    /// Bytes that all connections may use together.
    pub limit: AtomicU64,
    used: AtomicU64,
    /// Requests that exceeded the limit.
    refused: AtomicU64,
}

impl InputBudget {
    pub fn new(limit: u64) -> InputBudget {
        InputBudget {
            limit: AtomicU64::new(limit),
            used: AtomicU64::default(),
            refused: AtomicU64::default(),
        }
    }

    /// Charges `after` bytes instead of `before`; false, without an effect, if the limit is
    /// exceeded.
    pub fn charge(&self, before: u64, after: u64) -> bool {
        if after <= before {
            self.used.fetch_sub(before - after, Relaxed);
            return true;
        }
        let more = after - before;
        let limit = self.limit.load(Relaxed);
        if self.used.fetch_add(more, Relaxed).saturating_add(more) <= limit {
            return true;
        }
        self.used.fetch_sub(more, Relaxed);
        self.refused.fetch_add(1, Relaxed);
        false
    }

    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

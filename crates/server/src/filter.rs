//! A filter of any kind as the server uses it: hashes in, one byte per answer out.

use std::any::Any;

use bloomery_core::kind::Refusal;

/// A failure of this process: not a property of the keys, and not the same on another machine.
#[derive(Debug, Clone)]
pub enum Fault {
    /// A change of the filter stopped halfway, or the filter is closed.
    Broken(String),
    /// This many bytes could not be allocated.
    NoMemory(u64),
    /// The key waits until a large filter has the memory to grow (`Filter::make_room`). It and the
    /// keys after it are not added.
    Later,
}

/// The refusal of a key, or a fault that leaves it unknown how many keys were applied.
pub type Done = Result<Result<(), Refusal>, Fault>;

/// Every method may be called by any thread that is in a section (`bloomery_core::sections`). One
/// thread at a time changes a filter: the thread that applies the log.
pub trait Filter: Send + Sync {
    /// Words of hash per key.
    fn width(&self) -> usize;

    /// Appends the hash of a key.
    fn hash(&self, key: &[u8], out: &mut Vec<u64>);

    /// Appends an answer for each key.
    fn contains(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Result<(), Fault>;

    /// Returns how often the key was added, at most.
    fn count(&self, hash: &[u64]) -> Result<u64, Fault>;

    /// Adds keys. After a refusal, the answers to the keys before it stand.
    fn try_add(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Done;

    /// Removes one copy of each key.
    fn try_remove(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Done;

    /// Returns whether adding a key that is present changes the filter.
    fn every_add_counts(&self) -> bool;

    /// Returns whether adding this many keys makes a large filter grow, which takes long.
    fn needs_room(&self, keys: usize) -> bool;

    /// Allocates memory ahead for this many keys, where the kind can.
    fn make_room(&self, keys: usize) -> Result<(), Fault>;

    /// Returns about how many bytes the filter allocates to take this many more keys.
    fn growth_bytes(&self, keys: usize) -> u64;

    /// Returns about how many bytes the filter has once it has grown for this many more keys; 0 if
    /// it does not grow.
    fn grown_bytes(&self, keys: usize) -> u64 {
        self.growth_bytes(keys)
    }

    /// Returns how many keys to add between two looks at the clock.
    fn keys_per_look(&self) -> usize;

    /// Returns whether every key takes about the same short time, and the time of a record has no
    /// effect.
    fn is_quick(&self) -> bool;

    /// Refuses keys if the filter has grown as often as it may.
    fn check_layers(&self) -> Result<(), Refusal>;

    /// The filter as its own type.
    fn as_any(&self) -> &dyn Any;
}

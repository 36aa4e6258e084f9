//! Many small filters, one a user, in one memory that may be a file's.
//!
//! A user's keys are **cells**: numbers of which there are so many that two keys share one no more
//! often than the error rate allows. Cells lie sorted and packed in **pages** (page.rs) of one size
//! for the whole bank; a **record** names a user's pages, and the **directory** the users' records.
//! A user who outgrows its cells gets another **layer** with more of them (plan.rs).
//!
//! A process may be killed at any instruction: what replaces something is written whole beside it and
//! put in its place by one store; a page that is changed in place is saved first (space.rs). A power
//! cut takes the bank back to its last flush: nothing that flush wrote is changed before the next.

mod batch;
mod directory;
mod growth;
mod head;
mod layer;
mod memory;
mod packing;
mod page;
mod plan;
mod recovery;
mod space;
mod user;

use crate::format::{CHUNK_BYTES, FormatError, HEADER_BYTES, Header, KindId, LIVE};
pub use batch::Users;
use head::*;
pub use memory::{Anonymous, Memory};
use plan::Plan;
pub use plan::suited;
use space::Space;
pub use user::UserFacts;

/// Why a bank did not do what it was asked to.
#[derive(Debug)]
pub enum Trouble {
    Format(FormatError),
    /// Found while it was in use; opening checks no more than it must.
    Corrupt(String),
    Full(String),
    /// So many bytes could not be had.
    NoMemory(u64),
    Io(std::io::Error),
}

impl From<FormatError> for Trouble {
    fn from(problem: FormatError) -> Trouble {
        Trouble::Format(problem)
    }
}

pub struct Bank {
    space: Space,
    plan: Plan,
    header: Header,
}

impl Bank {
    /// An empty bank as the header says, in memory that holds nothing yet.
    pub fn create(
        header: &Header,
        mut memory: Box<dyn Memory>,
        boot: u64,
    ) -> Result<Bank, Trouble> {
        let plan = Plan::of(header)?;
        memory.grow(FIRST_LINE as usize * 64)?;
        let mut space = Space::new(memory, plan.page_lines());
        let head = Header { nbytes: 0, checksum: LIVE, ..*header }.encode();
        for (word, bytes) in space.words_mut().iter_mut().zip(head.chunks_exact(8)) {
            *word = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
        }
        space.publish(END, u64::from(FIRST_LINE));
        let lines = directory::lines_for(0, plan.page_lines());
        let line = space.extend(lines)?;
        space.publish(DIRECTORY, u64::from(line) | (lines as u64) << 32);
        space.publish(BOOT, boot);
        space.publish(STATE, OPEN);
        let mut bank = Bank { space, plan, header: *header };
        bank.flush()?;
        Ok(bank)
    }

    /// The bank in a memory. Only what every answer stands on is checked here; the rest is checked
    /// where it is read. `boot` tells this start of the machine from others; 0 where that is unknown, and then a kill
    /// is taken for a power cut.
    pub fn open(memory: Box<dyn Memory>, boot: u64, read_only: bool) -> Result<Bank, Trouble> {
        let corrupt = |message: String| Err(Trouble::Corrupt(message));
        // SAFETY: `Memory` promises that these bytes can be read.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start(), memory.nbytes()) };
        let header = Header::parse(&bytes[..bytes.len().min(HEADER_BYTES)])?;
        if header.kind != KindId::Bank {
            return corrupt(format!("a {} filter, not a bank", header.kind.name()));
        }
        if header.checksum != LIVE {
            header.check_total(bytes.len() as u64)?;
        }
        let plan = Plan::of(&header)?;
        if bytes.len() < FIRST_LINE as usize * 64 {
            return corrupt(format!("{} bytes, too few for a bank", bytes.len()));
        }
        let mut space = Space::new(memory, plan.page_lines());
        let (end, lines) = (space.head(END), space.words().len() as u64 / 8);
        if end < u64::from(FIRST_LINE) || end > lines {
            return corrupt(format!("{end} lines in use, the file has {lines}"));
        }
        let flushed = space.head(FLUSHED);
        if flushed >= u64::from(u32::MAX) {
            return corrupt(format!("flush number {flushed} is too large"));
        }
        let closed = match space.head(STATE) {
            CLOSED => true,
            OPEN => false,
            other => return corrupt(format!("state {other}, must be 0 or 1")),
        };
        if read_only && !closed {
            let message = "it was not closed: open it to be written once, which repairs it";
            return corrupt(message.into());
        }
        if !closed {
            recovery::recover(&mut space, &plan, boot)?;
        }
        let slots = directory::slots(&space, space.head(DIRECTORY))?.count() as u64;
        let (users, taken) = (space.head(USERS), space.head(TAKEN));
        if users > taken || taken > slots {
            return corrupt(format!("{users} users in {taken} of {slots} slots"));
        }
        if !read_only {
            space.publish(HEADER_BYTES / 8 - 1, LIVE);
            space.publish(BOOT, boot);
            space.publish(STATE, OPEN);
        }
        let mut bank = Bank { space, plan, header };
        if !read_only {
            bank.flush()?;
        }
        Ok(bank)
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn users(&self) -> u64 {
        self.space.head(USERS)
    }

    /// Keys of all users.
    pub fn keys(&self) -> u64 {
        self.space.head(KEYS)
    }

    /// All of the bank, as a file holds it.
    pub fn nbytes(&self) -> usize {
        self.space.head(END) as usize * 64
    }

    /// Returns once all that was added is on the disk.
    pub fn flush(&mut self) -> Result<(), Trouble> {
        self.space.flush()
    }

    /// The last flush, after which nothing is written.
    pub fn close(&mut self) -> Result<(), Trouble> {
        self.flush()?;
        self.space.publish(STATE, CLOSED);
        self.flush()
    }

    /// Checks all that opening leaves to be checked where it is read.
    pub fn verify(&self) -> Result<(), Trouble> {
        recovery::survey(&self.space, &self.plan, true).map(drop)
    }

    /// What is behind the header of a closed file with this bank, in the chunks that are summed.
    pub fn image<E>(&self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let words = &self.space.words()[HEADER_BYTES / 8..self.nbytes() / 8];
        let (first, rest) = words.split_at(words.len().min(CHUNK_BYTES / 8));
        let mut first = first.to_vec();
        first[STATE - HEADER_BYTES / 8] = CLOSED;
        first[FLUSHED - HEADER_BYTES / 8] = u64::from(self.space.epoch);
        each(as_bytes(&first))?;
        rest.chunks(CHUNK_BYTES / 8).try_for_each(|chunk| each(as_bytes(chunk)))
    }
}

fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any words are bytes, eight each.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

#[cfg(test)]
mod tests;

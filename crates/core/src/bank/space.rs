//! The lines of a bank: which are free, and how they are reached. Pages and directories lie on a grid
//! of pages; a page may be carved into single lines, for records.
//!
//! What the last flush wrote stays as it was until the next one: lines of it that are given back wait
//! for that (`pending`). Everything else may be used again at once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, compiler_fence};

use super::Trouble;
use super::head::*;
use super::memory::Memory;

/// Memory grows by a 64th, so that no more than that is idle, and by this much at least.
const GROW_BYTES: usize = 64 << 10;
/// Lines that wait for a flush before one is made: a sixteenth of the bank, and 16 MiB at least. With
/// 1 MiB, adding to random users of a bank of 7 MB took 53 us a key, most of it for the disk. Tests
/// have 4 KiB.
const FLUSH_SHARE: usize = 16;
pub const FLUSH_FROM: usize = if cfg!(test) { 64 } else { (16 << 20) / 64 };
/// Lines that may be copied for each key, on average, for want of a flush that need not have been: 16
/// KiB. After a flush, the first key of a user copies its layer, however large that is. If that alone
/// made the next flush due, every key of a large user would copy all of it.
const COPIED_A_KEY: usize = (16 << 10) / 64;

pub struct Space {
    memory: Box<dyn Memory>,
    start: *mut u64,
    words: usize,
    pub page_lines: usize,
    /// What is made now carries this number: that of the flush to come.
    pub epoch: u32,
    pub lasts: bool,
    pending: Vec<(u32, List)>,
    pending_lines: usize,
    /// Of these, the lines of layers that were copied; and the keys that came, since the last flush.
    copied_lines: usize,
    added: usize,
}

// SAFETY: the pointer is into `memory`, which is Send and Sync; writing takes `&mut`.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum List {
    Pages = FREE_PAGE as isize,
    Lines = FREE_LINE as isize,
}

impl Space {
    /// The memory must have a head.
    pub fn new(memory: Box<dyn Memory>, page_lines: usize) -> Space {
        let (start, words) = (memory.start().cast(), memory.nbytes() / 8);
        let lasts = memory.lasts();
        let mut space = Space {
            memory,
            start,
            words,
            page_lines,
            epoch: 0,
            lasts,
            pending: Vec::new(),
            pending_lines: 0,
            copied_lines: 0,
            added: 0,
        };
        space.epoch = (space.head(FLUSHED) as u32).wrapping_add(1);
        space
    }

    /// All of the memory.
    pub fn words(&self) -> &[u64] {
        // SAFETY: `Memory` promises it; it moves only in `extend`, which looks again.
        unsafe { std::slice::from_raw_parts(self.start, self.words) }
    }

    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.words) }
    }

    pub fn head(&self, word: usize) -> u64 {
        self.words()[word]
    }

    /// One store that stays in its order among all others: what it makes visible was written before,
    /// what it permits is written after. The process may be killed between any two instructions, and
    /// the file then holds what was stored until then; only the compiler must keep the order.
    pub fn publish(&mut self, word: usize, value: u64) {
        #[cfg(test)]
        super::tests::watch(self.words());
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: an aligned word of our own memory.
        unsafe { AtomicU64::from_ptr(&raw mut self.words_mut()[word]) }.store(value, Relaxed);
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    pub fn lines(&self, line: u32, count: usize) -> Result<&[u64], Trouble> {
        let at = line as usize * WORDS_PER_LINE;
        let found = self.words().get(at..at + count * WORDS_PER_LINE);
        found.filter(|_| line >= FIRST_LINE).ok_or_else(|| outside(line))
    }

    pub fn lines_mut(&mut self, line: u32, count: usize) -> Result<&mut [u64], Trouble> {
        let at = line as usize * WORDS_PER_LINE;
        let found = self.words_mut().get_mut(at..at + count * WORDS_PER_LINE);
        found.filter(|_| line >= FIRST_LINE).ok_or_else(|| outside(line))
    }

    pub fn page(&self, line: u32) -> Result<&[u64], Trouble> {
        self.lines(line, self.page_lines)
    }

    pub fn page_mut(&mut self, line: u32) -> Result<&mut [u64], Trouble> {
        self.lines_mut(line, self.page_lines)
    }

    /// Changes a page in place. In a file it is saved first: `undo` brings that back if the process
    /// dies before the change has come to its end.
    pub fn change_page(
        &mut self,
        line: u32,
        change: impl FnOnce(&mut [u64]),
    ) -> Result<(), Trouble> {
        if self.lasts {
            let (at, count) = (line as usize * WORDS_PER_LINE, self.page(line)?.len());
            self.words_mut().copy_within(at..at + count, SAVED);
            self.publish(JOURNAL, u64::from(line));
        }
        change(self.page_mut(line)?);
        #[cfg(test)]
        super::tests::watch_words(self, line);
        if self.lasts {
            self.publish(JOURNAL, 0);
        }
        Ok(())
    }

    /// Undoes a change that did not come to its end.
    pub fn undo(&mut self) -> Result<(), Trouble> {
        let line = self.head(JOURNAL);
        if line != 0 {
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            let count = self.page(line)?.len();
            let at = line as usize * WORDS_PER_LINE;
            self.words_mut().copy_within(SAVED..SAVED + count, at);
            self.publish(JOURNAL, 0);
        }
        Ok(())
    }

    /// A page or a line; what is in it is left from whoever had it.
    pub fn take(&mut self, list: List) -> Result<u32, Trouble> {
        let list = self.only(list);
        let first = self.head(list as usize);
        if first != 0 {
            let line = u32::try_from(first).unwrap_or(u32::MAX);
            let next = self.lines(line, self.size(list))?[0];
            self.publish(list as usize, next);
            return Ok(line);
        }
        if list == List::Pages {
            return self.extend(self.page_lines);
        }
        let page = self.take(List::Pages)?;
        for line in (page + 1..page + self.page_lines as u32).rev() {
            self.push(line, List::Lines)?;
        }
        Ok(page)
    }

    /// New lines behind all others, whole pages; they are zero.
    pub fn extend(&mut self, lines: usize) -> Result<u32, Trouble> {
        let first = self.head(END);
        let end = first + lines as u64;
        if end > u64::from(u32::MAX) {
            let message = "the bank has reached 256 GiB, the most it can hold: use several banks, \
                           each for a part of the users";
            return Err(Trouble::Full(message.into()));
        }
        let nbytes = end as usize * 64;
        if nbytes > self.words * 8 {
            let roomy = nbytes + nbytes / 64;
            self.memory.grow(roomy.next_multiple_of(GROW_BYTES))?;
            (self.start, self.words) = (self.memory.start().cast(), self.memory.nbytes() / 8);
        }
        self.publish(END, end);
        Ok(first as u32)
    }

    /// With pages of one line there is one list, so that nothing is left over on the other.
    fn only(&self, list: List) -> List {
        if self.page_lines == 1 { List::Pages } else { list }
    }

    fn size(&self, list: List) -> usize {
        if list == List::Pages { self.page_lines } else { 1 }
    }

    /// Puts it onto its list, emptied: what a user was forgotten for is gone from the file too.
    pub fn push(&mut self, line: u32, list: List) -> Result<(), Trouble> {
        let list = self.only(list);
        let (next, size) = (self.head(list as usize), self.size(list));
        let words = self.lines_mut(line, size)?;
        words.fill(0);
        words[0] = next;
        self.publish(list as usize, u64::from(line));
        Ok(())
    }

    /// Gives back what was made in `epoch`: at once if no flush has written it, else after the next.
    pub fn give_back(&mut self, line: u32, list: List, epoch: u32) -> Result<(), Trouble> {
        if !self.lasts || epoch == self.epoch {
            return self.push(line, list);
        }
        self.pending.push((line, list));
        self.pending_lines += self.size(list);
        Ok(())
    }

    /// A key more.
    pub fn count_key(&mut self) {
        self.added += 1;
        self.publish(KEYS, self.head(KEYS) + 1);
    }

    /// A layer's copy has taken its place, and so many lines of the old one wait for a flush.
    pub fn count_copied(&mut self, lines: usize) {
        self.copied_lines += lines;
    }

    /// So much waits for a flush that one should be made, and the keys since the last one pay for
    /// the copies that it will lead to. Without that no more can wait than was there at the last
    /// flush: a layer is copied once.
    pub fn flush_is_due(&self) -> bool {
        self.pending_lines > FLUSH_FROM.max(self.head(END) as usize / FLUSH_SHARE)
            && self.copied_lines / COPIED_A_KEY <= self.added
    }

    pub fn pending_lines(&self) -> usize {
        self.pending_lines
    }

    /// Brings everything to the disk. After a power cut the bank is as it was when this ended, or
    /// when the next one did.
    pub fn flush(&mut self) -> Result<(), Trouble> {
        if self.lasts {
            self.memory.sync()?;
            self.publish(FLUSHED, u64::from(self.epoch));
            self.memory.sync()?;
            self.epoch += 1;
        }
        (self.pending_lines, self.copied_lines, self.added) = (0, 0, 0);
        for (line, list) in std::mem::take(&mut self.pending) {
            self.push(line, list)?;
        }
        Ok(())
    }
}

#[cold]
fn outside(line: u32) -> Trouble {
    Trouble::Corrupt(format!("line {line} lies outside of the bank"))
}

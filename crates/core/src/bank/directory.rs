//! From a user to the record of its newest layer: a hash table of 16 bytes a slot, open addressing.
//!
//! A slot is two words: the user's tag with the line of its record (0: dropped), and the line that
//! was there at the last flush with the number of the flush to come at which that was written. A
//! change writes the second word, if that is not yet of this epoch, then the first; whatever of it
//! reached the disk, the record of the last flush can be told.

use super::Trouble;
use super::head::*;
use super::space::{List, Space};

const SLOT_WORDS: usize = 2;
const SLOTS_PER_LINE: usize = WORDS_PER_LINE / SLOT_WORDS;

/// The high half of the user's hash, which chooses the slot; never 0, which an empty slot has. The
/// record has the whole hash.
fn tag(user: u64) -> u64 {
    (user >> 32).max(1)
}

pub fn root_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// First word and number of slots of a directory.
fn bounds(space: &Space, directory: u64) -> Result<(usize, usize), Trouble> {
    let (line, lines) = (directory as u32, (directory >> 32) as usize);
    if lines == 0 {
        return Err(Trouble::Corrupt("the bank has no directory".into()));
    }
    space.lines(line, lines)?;
    Ok((line as usize * WORDS_PER_LINE, lines * SLOTS_PER_LINE))
}

fn home(tag: u64, slots: usize) -> usize {
    ((u128::from(tag) * slots as u128) >> 32) as usize
}

/// The word of a user's slot, and its root.
pub fn find(space: &Space, user: u64) -> Result<Option<(usize, u32)>, Trouble> {
    let (start, slots) = bounds(space, space.head(DIRECTORY))?;
    let (tag, words) = (tag(user), space.words());
    let mut slot = home(tag, slots);
    for _ in 0..slots {
        let word = words[start + slot * SLOT_WORDS];
        if word == 0 {
            return Ok(None);
        }
        let root = root_of(word);
        if word & 0xFFFF_FFFF == tag && root != 0 && space.lines(root, 1)?[0] == user {
            return Ok(Some((start + slot * SLOT_WORDS, root)));
        }
        slot = if slot + 1 == slots { 0 } else { slot + 1 };
    }
    Ok(None)
}

/// Asks for the memory that `find` will look at first.
pub fn prefetch(space: &Space, user: u64) {
    let directory = space.head(DIRECTORY);
    let (line, lines) = (directory as u32 as usize, (directory >> 32) as usize);
    let slot = home(tag(user), lines * SLOTS_PER_LINE);
    let word = line * WORDS_PER_LINE + slot * SLOT_WORDS;
    crate::probe::prefetch(space.words().as_ptr().wrapping_add(word).cast());
}

/// The root that `find` will most likely give, without a look at its record.
pub fn likely_root(space: &Space, user: u64) -> Option<u32> {
    let (start, slots) = bounds(space, space.head(DIRECTORY)).ok()?;
    let (tag, words) = (tag(user), space.words());
    let slots_on = (home(tag, slots)..slots).map(|slot| words[start + slot * SLOT_WORDS]);
    let found = slots_on.take_while(|word| *word != 0).find(|word| word & 0xFFFF_FFFF == tag);
    found.map(root_of)
}

/// Every slot's word, dropped and empty ones too.
pub fn slots(
    space: &Space,
    directory: u64,
) -> Result<impl Iterator<Item = usize> + use<>, Trouble> {
    let (start, slots) = bounds(space, directory)?;
    Ok((0..slots).map(move |slot| start + slot * SLOT_WORDS))
}

/// Enters a user who is not there.
pub fn enter(space: &mut Space, user: u64, root: u32) -> Result<(), Trouble> {
    let (mut start, mut slots) = bounds(space, space.head(DIRECTORY))?;
    if (space.head(TAKEN) + 1) * 8 > slots as u64 * 7 {
        grow(space)?;
        (start, slots) = bounds(space, space.head(DIRECTORY))?;
    }
    let word = empty_slot(space, start, slots, tag(user))?;
    space.publish(word + 1, u64::from(space.epoch) << 32);
    space.publish(word, tag(user) | u64::from(root) << 32);
    space.publish(TAKEN, space.head(TAKEN) + 1);
    space.publish(USERS, space.head(USERS) + 1);
    Ok(())
}

fn empty_slot(space: &Space, start: usize, slots: usize, tag: u64) -> Result<usize, Trouble> {
    let first = home(tag, slots);
    (first..slots)
        .chain(0..first)
        .map(|slot| start + slot * SLOT_WORDS)
        .find(|word| space.words()[*word] == 0)
        .ok_or_else(|| Trouble::Corrupt("the directory is full, which it never should be".into()))
}

/// Points a user's slot to another record; to 0, if the user is dropped.
pub fn switch(space: &mut Space, slot: usize, root: u32) {
    let (word, before) = (space.words()[slot], space.words()[slot + 1]);
    if (before >> 32) as u32 != space.epoch {
        space.publish(slot + 1, u64::from(root_of(word)) | u64::from(space.epoch) << 32);
    }
    space.publish(slot, word & 0xFFFF_FFFF | u64::from(root) << 32);
    if root == 0 {
        space.publish(USERS, space.head(USERS).saturating_sub(1));
    }
}

/// Lines of a directory for so many users: five of eight slots taken, in whole pages.
pub fn lines_for(users: u64, page_lines: usize) -> usize {
    let slots = (users as usize + 1) * 8 / 5;
    slots.div_ceil(SLOTS_PER_LINE).next_multiple_of(page_lines)
}

/// Builds a larger directory aside, without the dropped, and puts it in place by one store.
fn grow(space: &mut Space) -> Result<(), Trouble> {
    let old = space.head(DIRECTORY);
    let lines = lines_for(space.head(USERS), space.page_lines);
    let line = space.extend(lines)?;
    // Behind the end may lie what was written before a power cut.
    space.lines_mut(line, lines)?.fill(0);
    let new = u64::from(line) | (lines as u64) << 32;
    let (start, count) = bounds(space, new)?;
    let mut taken = 0;
    for from in slots(space, old)? {
        let (word, before) = (space.words()[from], space.words()[from + 1]);
        if root_of(word) != 0 {
            let to = empty_slot(space, start, count, word & 0xFFFF_FFFF)?;
            space.words_mut()[to] = word;
            space.words_mut()[to + 1] = before;
            taken += 1;
        }
    }
    let epoch = space.head(DIRECTORY_EPOCH) as u32;
    if epoch != space.epoch {
        space.publish(OLD_DIRECTORY, old);
        space.publish(DIRECTORY_EPOCH, u64::from(space.epoch));
    }
    space.publish(DIRECTORY, new);
    space.publish(TAKEN, taken);
    for page in (0..(old >> 32) as u32).step_by(space.page_lines) {
        space.give_back(old as u32 + page, List::Pages, epoch)?;
    }
    Ok(())
}

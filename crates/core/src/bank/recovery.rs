//! After a bank was not closed: what must be undone, and which lines are free.

use super::Trouble;
use super::directory::{root_of, slots};
use super::head::*;
use super::layer::Record;
use super::plan::Plan;
use super::space::{List, Space};

/// Makes the bank whole. If only its process died, the file has every store up to that, and at most
/// one page is half changed. If the machine did, the disk has some pages and not others: then all is
/// taken back to the last flush, of which nothing was overwritten.
pub fn recover(space: &mut Space, plan: &Plan, boot: u64) -> Result<(), Trouble> {
    // 0: unknown. To take a kill for a power cut loses what no flush has brought to the disk; to take
    // a power cut for a kill might lose anything.
    if boot != 0 && boot == space.head(BOOT) {
        space.undo()?;
    } else {
        revert(space)?;
    }
    let found = survey(space, plan, false)?;
    for (word, value) in [(USERS, found.users), (TAKEN, found.taken), (KEYS, found.keys)] {
        space.publish(word, value);
    }
    // What the last flush wrote may be given to others only when this state is on the disk.
    space.flush()?;
    space.publish(FREE_PAGE, 0);
    space.publish(FREE_LINE, 0);
    let (end, page_lines) = (space.head(END) as u32, space.page_lines as u32);
    for page in (FIRST_LINE..(end + 1).saturating_sub(page_lines)).step_by(space.page_lines).rev() {
        let free: Vec<u32> = (page..page + page_lines).filter(|line| !found.uses(*line)).collect();
        if free.len() == space.page_lines {
            space.push(page, List::Pages)?;
        } else {
            free.into_iter().rev().try_for_each(|line| space.push(line, List::Lines))?;
        }
    }
    Ok(())
}

fn revert(space: &mut Space) -> Result<(), Trouble> {
    let flushed = space.head(FLUSHED);
    space.publish(JOURNAL, 0);
    if space.head(DIRECTORY_EPOCH) > flushed {
        space.publish(DIRECTORY, space.head(OLD_DIRECTORY));
    }
    for slot in slots(space, space.head(DIRECTORY))? {
        let (word, before) = (space.words()[slot], space.words()[slot + 1]);
        if before >> 32 > flushed {
            space.publish(slot, word & 0xFFFF_FFFF | before << 32);
        }
    }
    Ok(())
}

/// What the directory leads to.
pub struct Survey {
    used: Vec<u64>,
    users: u64,
    taken: u64,
    keys: u64,
}

impl Survey {
    fn uses(&self, line: u32) -> bool {
        self.used[line as usize / 64] >> (line % 64) & 1 != 0
    }

    /// Each line has one owner.
    fn claim(&mut self, line: u32, lines: usize, end: u64) -> Result<(), Trouble> {
        if u64::from(line) + lines as u64 > end {
            return Err(Trouble::Corrupt(format!("line {line} lies behind the end, {end}")));
        }
        for line in line..line + lines as u32 {
            if self.uses(line) {
                return Err(Trouble::Corrupt(format!("line {line} is used twice")));
            }
            self.used[line as usize / 64] |= 1 << (line % 64);
        }
        Ok(())
    }
}

/// Goes through all records, and if `deep` all pages too.
pub fn survey(space: &Space, plan: &Plan, deep: bool) -> Result<Survey, Trouble> {
    let (end, directory) = (space.head(END), space.head(DIRECTORY));
    let used = vec![0; end as usize / 64 + 1];
    let mut found = Survey { used, users: 0, taken: 0, keys: 0 };
    found.claim(directory as u32, (directory >> 32) as usize, end)?;
    for slot in slots(space, directory)? {
        let word = space.words()[slot];
        found.taken += u64::from(word != 0);
        let mut line = root_of(word);
        if line == 0 {
            continue;
        }
        found.users += 1;
        let mut next = Some(Record::read(space, plan, line)?);
        while let Some(record) = next {
            found.claim(line, 1, end)?;
            record.all_pages(space, |page| found.claim(page, space.page_lines, end))?;
            if deep {
                record.cells(space, plan)?;
            }
            found.keys += u64::from(record.count);
            line = record.prev;
            next = record.before(space, plan)?;
        }
    }
    Ok(found)
}

//! One user: adding, asking, forgetting.

use super::head::*;
use super::layer::{self, Record};
use super::{Bank, Trouble, directory, packing, page};
use crate::format::Header;
use crate::probe::mulhi;

/// What is known about one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UserFacts {
    pub keys: u64,
    pub layers: u64,
    pub nbytes: u64,
    /// The chance that a key not added is answered with a maybe, as the user stands now.
    pub error_rate: f64,
}

/// The same key falls on another cell for each user: else two popular keys that share one would be
/// mistaken for each other by everybody.
pub fn mixed(user: u64, h: u64) -> u64 {
    (h ^ user).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Bank {
    pub(super) fn newest(&self, user: u64) -> Result<Option<(usize, u32, Record)>, Trouble> {
        let Some((slot, line)) = directory::find(&self.space, user)? else { return Ok(None) };
        Ok(Some((slot, line, Record::read(&self.space, &self.plan, line)?)))
    }

    /// The user's layers, the newest first.
    pub(super) fn layers(&self, user: u64) -> Result<Vec<(u32, Record)>, Trouble> {
        let mut layers = Vec::new();
        let mut next = self.newest(user)?.map(|(_, line, record)| (line, record));
        while let Some((line, record)) = next {
            layers.push((line, record));
            next = record.before(&self.space, &self.plan)?.map(|before| (record.prev, before));
        }
        Ok(layers)
    }

    pub fn contains(&self, user: u64, h: u64) -> Result<bool, Trouble> {
        let (h, mut next) = (mixed(user, h), self.newest(user)?.map(|(_, _, record)| record));
        while let Some(record) = next {
            if record.contains(&self.space, &self.plan, h)? {
                return Ok(true);
            }
            next = record.before(&self.space, &self.plan)?;
        }
        Ok(false)
    }

    /// Adds a key of a user; true if it is definitely new.
    pub fn add(&mut self, user: u64, h: u64) -> Result<bool, Trouble> {
        let h = mixed(user, h);
        let Some((slot, mut line, mut record)) = self.newest(user)? else {
            let line = self.new_layer(user, 0, 0, h)?;
            if let Err(trouble) = directory::enter(&mut self.space, user, line) {
                let record = Record::read(&self.space, &self.plan, line)?;
                self.release(line, &record)?;
                return Err(trouble);
            }
            self.space.count_key();
            return Ok(true);
        };
        let mut older = record.before(&self.space, &self.plan)?;
        while let Some(before) = older {
            if before.contains(&self.space, &self.plan, h)? {
                return Ok(false);
            }
            older = before.before(&self.space, &self.plan)?;
        }
        let mut copied = false;
        loop {
            let (geometry, number, cell) = record.locate(&self.plan, h);
            let at = record.page(&self.space, number)?;
            let page = self.space.page(at)?;
            let position = page::find(&geometry, page, cell).ok_or_else(layer::bad_marks)?;
            if position.there {
                return Ok(false);
            }
            if u64::from(record.count) >= self.plan.capacity(record.layer.into()) {
                let root = self.new_layer(user, record.layer + 1, line, h)?;
                directory::switch(&mut self.space, slot, root);
                self.space.count_key();
                return Ok(true);
            }
            let flushed = self.space.lasts && record.epoch != self.space.epoch;
            if !flushed && !geometry.is_full(page) {
                self.space
                    .change_page(at, |page| packing::insert(&geometry, page, position, cell))?;
                record.set_count(&mut self.space, line, record.count + 1);
                self.space.count_key();
                // Only now: before, it would make an old layer of the one that was just copied.
                if copied && self.space.flush_is_due() {
                    self.flush()?;
                }
                return Ok(true);
            }
            let more = if geometry.is_full(page) { 1.max(record.pages / 16) } else { 0 };
            line = self.replace_layer(slot, line, &record, record.pages + more)?;
            record = Record::read(&self.space, &self.plan, line)?;
            copied = true;
        }
    }

    /// Writes a layer that holds one key.
    fn new_layer(&mut self, user: u64, layer: u8, prev: u32, h: u64) -> Result<u32, Trouble> {
        if usize::from(layer) == self.plan.layers() {
            let message = "a user has as many keys as it can: more need a larger keys_per_filter";
            return Err(Trouble::Full(message.into()));
        }
        let record = Record { user, prev, layer, ..Record::default() };
        let cell = mulhi(h, self.plan.cells(layer.into()));
        self.write_layer(record, &[cell], 1)
    }

    pub fn has(&self, user: u64) -> Result<bool, Trouble> {
        Ok(directory::find(&self.space, user)?.is_some())
    }

    pub fn user(&self, user: u64) -> Result<Option<UserFacts>, Trouble> {
        let layers = self.layers(user)?;
        if layers.is_empty() {
            return Ok(None);
        }
        let mut facts =
            UserFacts { keys: 0, layers: layers.len() as u64, nbytes: 0, error_rate: 0. };
        for (_, record) in layers {
            let mut pages = 0;
            record.all_pages(&self.space, |_| {
                pages += 1;
                Ok(())
            })?;
            facts.keys += u64::from(record.count);
            facts.nbytes += 64 * (1 + pages * self.plan.page_lines() as u64);
            let rate = f64::from(record.count) / self.plan.cells(record.layer.into()) as f64;
            facts.error_rate += (1. - facts.error_rate) * rate;
        }
        Ok(Some(facts))
    }

    /// Forgets a user; false if there is no such user.
    pub fn drop_user(&mut self, user: u64) -> Result<bool, Trouble> {
        let Some((slot, _)) = directory::find(&self.space, user)? else { return Ok(false) };
        let layers = self.layers(user)?;
        directory::switch(&mut self.space, slot, 0);
        for (line, record) in layers {
            let left = self.space.head(KEYS).saturating_sub(u64::from(record.count));
            self.space.publish(KEYS, left);
            self.release(line, &record)?;
        }
        if self.space.flush_is_due() {
            self.flush()?;
        }
        Ok(true)
    }

    /// Forgets every user.
    pub fn clear(&mut self) -> Result<(), Trouble> {
        self.every_user()?.into_iter().try_for_each(|user| self.drop_user(user).map(drop))
    }

    fn every_user(&self) -> Result<Vec<u64>, Trouble> {
        let slots = directory::slots(&self.space, self.space.head(DIRECTORY))?;
        let roots = slots.map(|slot| directory::root_of(self.space.words()[slot]));
        roots.filter(|root| *root != 0).map(|root| Ok(self.space.lines(root, 1)?[0])).collect()
    }

    /// Does the other bank give every answer that this one gives? Users and cells are compared; a
    /// user's older layers depend on the order in which keys came.
    pub fn same(&self, other: &Bank) -> Result<bool, Trouble> {
        let shape = |bank: &Bank| {
            let Header { hasher, capacity, error_rate, extra, .. } = bank.header;
            (hasher, capacity, error_rate.to_bits(), extra)
        };
        if shape(self) != shape(other) || self.users() != other.users() {
            return Ok(false);
        }
        for user in self.every_user()? {
            let (mine, theirs) = (self.layers(user)?, other.layers(user)?);
            if mine.len() != theirs.len() {
                return Ok(false);
            }
            for ((_, a), (_, b)) in mine.iter().zip(&theirs) {
                if a.cells(&self.space, &self.plan)? != b.cells(&other.space, &other.plan)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

//! Many keys in one pass.

use super::layer::{self, Record};
use super::user::mixed;
use super::{Bank, Trouble, directory, page};
use crate::probe::prefetch;

/// The users of a batch: one for all keys, or one for each.
#[derive(Clone, Copy)]
pub enum Users<'a> {
    One(u64),
    Each(&'a [u64]),
}

/// Keys whose memory is asked for before the first of them is looked up.
const AHEAD: usize = 32;

impl Bank {
    /// Asks for every key of a batch: 1 in `out` where it may be there.
    pub fn contains_many(
        &self,
        users: Users<'_>,
        keys: &[u64],
        out: &mut Vec<u8>,
    ) -> Result<(), Trouble> {
        let each = match users {
            Users::Each(each) => each,
            Users::One(user) => return self.contains_of_one(user, keys, out),
        };
        for (users, keys) in each.chunks(AHEAD).zip(keys.chunks(AHEAD)) {
            self.prefetch(users, keys);
            for (user, h) in users.iter().zip(keys) {
                out.push(u8::from(self.contains(*user, *h)?));
            }
        }
        Ok(())
    }

    fn contains_of_one(&self, user: u64, keys: &[u64], out: &mut Vec<u8>) -> Result<(), Trouble> {
        let first = out.len();
        out.resize(first + keys.len(), 0);
        let hashes: Vec<u64> = keys.iter().map(|h| mixed(user, *h)).collect();
        for (_, record) in self.layers(user)? {
            let (layer, out) = (usize::from(record.layer), &mut out[first..]);
            // To look up all pages of a large user would take longer than a few questions do.
            if record.pages as usize > keys.len() {
                for (h, answer) in hashes.iter().zip(out) {
                    *answer |= u8::from(record.contains(&self.space, &self.plan, *h)?);
                }
                continue;
            }
            let page = |number| self.space.page(record.page(&self.space, number)?);
            let pages = (0..record.pages).map(page).collect::<Result<Vec<_>, _>>()?;
            if record.pages as usize * self.plan.page_lines() <= keys.len() {
                pages
                    .iter()
                    .for_each(|page| page.chunks(8).for_each(|l| prefetch(l.as_ptr().cast())));
            }
            let (geometry, cells) =
                (self.plan.geometry(layer, record.pages), self.plan.cells(layer));
            let done = page::contains_all(&geometry, &pages, cells, &hashes, out);
            done.ok_or_else(layer::bad_marks)?;
        }
        Ok(())
    }

    /// Adds every key of a batch; those before an error are added and in `out`.
    pub fn add_many(
        &mut self,
        users: Users<'_>,
        keys: &[u64],
        out: &mut Vec<u8>,
    ) -> Result<(), Trouble> {
        for (at, keys) in keys.chunks(AHEAD).enumerate() {
            let mine = match users {
                Users::One(user) => &[user; AHEAD][..keys.len()],
                Users::Each(each) => {
                    let mine = &each[at * AHEAD..][..keys.len()];
                    self.prefetch(mine, keys);
                    mine
                }
            };
            for (user, h) in mine.iter().zip(keys) {
                out.push(u8::from(self.add(*user, *h)?));
            }
        }
        Ok(())
    }

    /// Brings what these keys will touch on its way from memory, step by step for all of them:
    /// slots, records, pages.
    fn prefetch(&self, users: &[u64], keys: &[u64]) {
        users.iter().for_each(|user| directory::prefetch(&self.space, *user));
        let roots: [u32; AHEAD] = std::array::from_fn(|i| {
            users.get(i).and_then(|u| directory::likely_root(&self.space, *u)).unwrap_or(0)
        });
        let start = self.space.words().as_ptr();
        roots.iter().for_each(|r| prefetch(start.wrapping_add(*r as usize * 8).cast()));
        for ((user, h), root) in users.iter().zip(keys).zip(roots) {
            if root == 0 {
                continue;
            }
            let Ok(record) = Record::read(&self.space, &self.plan, root) else { continue };
            let (geometry, number, cell) = record.locate(&self.plan, mixed(*user, *h));
            if let Ok(line) = record.page(&self.space, number) {
                let page = start.wrapping_add(line as usize * 8);
                geometry
                    .likely_words(cell)
                    .for_each(|word| prefetch(page.wrapping_add(word).cast()));
            }
        }
    }
}

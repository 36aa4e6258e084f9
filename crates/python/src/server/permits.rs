//! Which filters a client may use. Python decides, by roles and patterns, when a name first comes; here
//! it is remembered, so that the usual commands need no Python.

use std::collections::HashMap;

use bloomery_core::resp::Parser;

use crate::server::usual::usual;

/// Beyond so many names the first come is forgotten, with all others: Python is asked again.
const MOST: usize = 4096;

#[derive(Default)]
pub struct Permits {
    /// By name: may it be written to as well?
    names: HashMap<Vec<u8>, bool>,
}

impl Permits {
    pub fn permit(&mut self, name: &[u8], write: bool) {
        if self.names.len() >= MOST {
            self.names.clear();
        }
        let may = self.names.entry(name.to_vec()).or_default();
        *may |= write;
    }

    /// May the command be done without Python? One that is not a usual one goes there anyway.
    #[inline(always)]
    pub fn cover(&self, parser: &Parser, command: &[u8]) -> bool {
        let Some((act, ..)) = usual(parser.argument(command, 0)) else { return true };
        let may = (parser.len() > 1).then(|| self.names.get(parser.argument(command, 1))).flatten();
        may.is_some_and(|write| *write || !act.writes())
    }
}

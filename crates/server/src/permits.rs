//! Which filters a client may use. The control plane decides by roles and patterns when a name first occurs. The
//! decision is cached here, so that native commands need not ask again.

use std::collections::HashMap;

use bloomery_core::resp::Parser;

use crate::commands::native;

/// With more names, the cache starts again from empty.
const MAX_NAMES: usize = 4096;

#[derive(Default)]
pub struct Permits {
    /// By name: whether the client may also write.
    names: HashMap<Vec<u8>, bool>,
}

impl Permits {
    pub fn permit(&mut self, name: &[u8], write: bool) {
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        let may = self.names.entry(name.to_vec()).or_default();
        *may |= write;
    }

    /// Returns whether native code may run the command. The control plane handles other commands anyway.
    #[inline(always)]
    pub fn cover(&self, parser: &Parser, command: &[u8]) -> bool {
        let Some(found) = native(parser.argument(command, 0)) else { return true };
        let may = (parser.len() > 1).then(|| self.names.get(parser.argument(command, 1))).flatten();
        may.is_some_and(|write| *write || !found.act.writes())
    }
}

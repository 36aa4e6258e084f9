//! The bank's own state, in the words behind the file's header. Each is changed by one store, so
//! that a process may die between any two.

/// Where things are, as numbers of 8-byte words from the start.
pub const STATE: usize = 16;
/// Which start of the machine the file was last opened in.
pub const BOOT: usize = 17;
/// The number of the last flush that came to its end.
pub const FLUSHED: usize = 18;
/// The directory: its first line, and in the high half its number of lines.
pub const DIRECTORY: usize = 19;
/// The directory at the last flush, if `DIRECTORY` was made since, which `DIRECTORY_EPOCH` tells.
pub const OLD_DIRECTORY: usize = 20;
pub const DIRECTORY_EPOCH: usize = 21;
/// Users, and slots of the directory that are not empty.
pub const USERS: usize = 22;
pub const TAKEN: usize = 23;
/// Lines in use, from the start of the file on.
pub const END: usize = 24;
/// The first free page and the first free line; each holds the number of the next.
pub const FREE_PAGE: usize = 25;
pub const FREE_LINE: usize = 26;
/// Keys of all users.
pub const KEYS: usize = 27;
/// The page that is being changed (0: none), and from `SAVED` on what it was before.
pub const JOURNAL: usize = 32;
pub const SAVED: usize = 40;

/// The values of `STATE`.
pub const CLOSED: u64 = 0;
pub const OPEN: u64 = 1;

/// Largest page: the journal holds one.
pub const MAX_PAGE_LINES: usize = 32;
/// The first line that is not the head's.
pub const FIRST_LINE: u32 = 64;
pub const WORDS_PER_LINE: usize = 8;

const _: () = assert!(SAVED + MAX_PAGE_LINES * WORDS_PER_LINE <= FIRST_LINE as usize * 8);

//! The server of bloomery, as far as it needs no Python. So far: its write-ahead log.

pub mod log;

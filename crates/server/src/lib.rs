//! The server of bloomery without Python: its filters by name, the sessions of its clients, the
//! commands that need no control plane, and the write-ahead log.

pub mod apply;
pub mod commands;
pub mod connection;
pub mod events;
pub mod filter;
pub mod histogram;
pub mod input_budget;
pub mod keyspace;
pub mod log;
pub mod long_read;
pub mod output;
pub mod permits;
pub mod pipeline;
pub mod replay;
pub mod sequencer;
pub mod session;
pub mod sync;
pub mod tls;
pub mod wakeup;
pub mod worker;
pub mod workers;
pub mod writes;

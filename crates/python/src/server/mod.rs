//! A server's named filters, and the commands that are answered without Python.

pub mod any_filter;
pub mod apply;
pub mod commands;
pub mod histogram;
pub mod log;
pub mod long_read;
pub mod names;
pub mod output;
pub mod pattern;
pub mod permits;
pub mod pipeline;
pub mod records;
pub mod replay;
pub mod session;
pub mod shelf;
pub mod sockets;
pub mod writes;

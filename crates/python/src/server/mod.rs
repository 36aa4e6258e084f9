//! A server's named filters, and the commands that are answered without Python.

pub mod any_filter;
pub mod apply;
pub mod deferred;
pub mod histogram;
pub mod names;
pub mod output;
pub mod pattern;
pub mod permits;
pub mod records;
pub mod replay;
pub mod run;
pub mod session;
pub mod shelf;
pub mod sliced;
pub mod sockets;
pub mod usual;

//! The server (`bloomery_server`) as Python calls it.

pub mod any_filter;
pub mod histogram;
pub mod input_budget;
pub mod log;
pub mod outcomes;
pub mod pattern;
pub mod records;
pub mod replay;
pub mod session;
pub mod shelf;
pub mod workers;

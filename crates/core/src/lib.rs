//! The core of bloomery: bits, hashes, probes and the file format. Pure Rust: no Python, no I/O;
//! what can go wrong is a `Result`.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod bank;
pub mod batch;
pub mod bits;
pub mod budget;
mod cells;
pub mod corpus;
pub mod counting;
pub mod cuckoo;
pub mod deletable;
pub mod exact;
pub mod fields;
pub mod fold;
pub mod format;
pub mod fuse;
pub mod glob;
pub mod hash;
pub mod json;
pub mod kind;
pub mod loops;
pub mod pack;
pub mod parquet;
pub mod probe;
pub mod redisbloom;
pub mod remote;
pub mod resp;
pub mod rotating;
pub mod scalable;
pub mod scan;
pub mod shape;
pub mod signatures;
pub mod spark;
pub mod table;
pub mod threads;
pub mod utf8;

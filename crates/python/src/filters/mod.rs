//! The native halves of the filter classes, their memory, and how threads share it.

pub mod bank;
pub mod bank_batch;
pub mod bloom;
pub mod bloom_batch;
pub mod counted;
pub mod exact;
pub mod family;
pub mod family_batch;
pub mod fuse;
pub mod gate;
pub mod header;
pub mod mapped;
pub mod memory;
pub mod pack;
pub mod redisbloom;
pub mod sections;
pub mod slots;
pub mod spark;
pub mod tables;
pub mod time;

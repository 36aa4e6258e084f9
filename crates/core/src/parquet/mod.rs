//! Parquet's own Bloom filters: the footer that says where they lie, and their bits.
//!
//! A footer is a structure of Thrift, in its compact protocol. It is read just deep enough to find
//! the filters, and written anew with all else as it was: values that nobody here knows are copied.

pub mod footer;
pub mod split_block;
mod thrift;

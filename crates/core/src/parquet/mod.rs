//! Parquet's own Bloom filters: the footer that says where they lie, and their bits; and pages, so
//! that of a row group with a row that was found just the pages of that row are read.
//!
//! A footer is a structure of Thrift, in its compact protocol. It is read just deep enough to find
//! the filters, and written anew with all else as it was: values that nobody here knows are copied.

pub mod footer;
pub mod page;
pub mod split_block;
mod thrift;

//! Batches and columns of other libraries as hashes, and the masks that answer them.

pub mod arrow;
pub mod arrow_rows;
pub mod arrow_type;
pub mod batch;
pub mod buffer;
pub mod column;
pub mod column_check;
pub mod hashes;
pub mod key;
pub mod layout;
pub mod lines;
pub mod mask;
pub mod short;
pub mod source;
pub mod valid;

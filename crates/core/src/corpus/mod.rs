//! Documents of a text corpus, one to a line of JSON: split, hashed, and told apart from what came
//! before.
//!
//! Three steps, of which only the second needs the filter: `split` turns lines into *units* (whole
//! documents, or paragraphs) with their keys; `probe` asks the filter for the keys of each unit and
//! adds those of the units that stay; `compose` writes what stays, or what was found. A unit goes
//! when `enough` of its keys were there: its one key (a text as it is), a share of its n-grams, or a
//! single band of its MinHash signature. Keys of a unit that goes are not added.
//!
//! ```text
//! document   a line of JSON: checked, and where its text is
//! text       paragraphs, words, n-grams
//! minhash    signatures, and their bands as keys
//! split      lines to units and keys
//! probe      units and a filter
//! compose    units and answers to lines again
//! ```

pub mod compose;
pub mod document;
pub mod minhash;
pub mod probe;
pub mod split;
pub mod text;

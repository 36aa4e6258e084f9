//! `bloomery._native`: Python objects in, the core's work with the interpreter lock released,
//! Python objects and errors out. No algorithms.

mod corpus;
mod duckdb;
mod errors;
mod filters;
mod keys;
mod parquet;
mod remote;
mod server;
mod signatures;

use bloomery_core::format::{CHUNK_BYTES, HEADER_BYTES, LIVE, MAGIC};
use bloomery_core::hash::HashKind;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::filters::bank::Bank;
use crate::filters::bloom::Bloom;
use crate::filters::exact::KeyHashes;
use crate::filters::family::Family;
use crate::filters::memory::{Memory, Section};
use crate::filters::pack::Pack;
use crate::filters::redisbloom::{Chain, Cuckoo};
use crate::filters::spark::SparkBits;
use crate::filters::time::Time;
use crate::keys::lines::LineKey;
use crate::remote::{Commands, Places};
use crate::server::histogram::Histogram;
use crate::server::input_budget::InputBudget;
use crate::server::outcomes::Outcomes;
use crate::server::pattern::Pattern;
use crate::server::session::Session;
use crate::server::shelf::Shelf;
use crate::server::workers::{Waiters, Workers};
use crate::signatures::Signatures;

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // To a user these bear the names of the classes made of them: in messages, and in `help`.
    module.add("Bank", py.get_type::<Bank>())?;
    module.add("Bloom", py.get_type::<Bloom>())?;
    module.add("Chain", py.get_type::<Chain>())?;
    module.add("Cuckoo", py.get_type::<Cuckoo>())?;
    module.add("Family", py.get_type::<Family>())?;
    module.add_class::<Commands>()?;
    module.add_class::<corpus::CorpusChunk>()?;
    module.add_class::<corpus::CorpusSplitter>()?;
    module.add_class::<duckdb::DuckDBFilter>()?;
    module.add_class::<Histogram>()?;
    module.add_class::<KeyHashes>()?;
    module.add_class::<LineKey>()?;
    module.add_class::<server::log::LogChunks>()?;
    module.add_class::<server::log::LogWriter>()?;
    module.add_class::<Memory>()?;
    module.add_class::<Outcomes>()?;
    module.add_class::<Pack>()?;
    module.add_class::<parquet::ParquetFooter>()?;
    module.add_class::<Pattern>()?;
    module.add_class::<Places>()?;
    module.add_class::<Section>()?;
    module.add_class::<Session>()?;
    module.add_class::<Waiters>()?;
    module.add_class::<Workers>()?;
    module.add_class::<InputBudget>()?;
    module.add_class::<Shelf>()?;
    module.add_class::<Signatures>()?;
    module.add_class::<SparkBits>()?;
    module.add_class::<Time>()?;
    filters::sections::register(module)?;
    filters::slots::install::<Bloom>(py)?;
    filters::slots::install::<Family>(py)?;
    filters::slots::install_remove::<Family>(py)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("HEADER_BYTES", HEADER_BYTES)?;
    module.add("CHUNK_BYTES", CHUNK_BYTES)?;
    module.add("LIVE", LIVE)?;
    module.add("LOG_FORMAT", bloomery_server::log::FORMAT)?;
    module.add("MAGIC", PyBytes::new(py, &MAGIC))?;
    module.add("HASHERS", PyTuple::new(py, HashKind::ALL.map(|(_, name)| name))?)?;
    add_functions(module)
}

fn add_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(keys::arrow::check_arrow_type, module)?)?;
    module.add_function(wrap_pyfunction!(filters::bank::bank_pages, module)?)?;
    module.add_function(wrap_pyfunction!(server::workers::check_certificate, module)?)?;
    module.add_function(wrap_pyfunction!(filters::header::make_header, module)?)?;
    module.add_function(wrap_pyfunction!(filters::header::read_header, module)?)?;
    module.add_function(wrap_pyfunction!(filters::header::parse_header, module)?)?;
    module.add_function(wrap_pyfunction!(filters::header::checksum, module)?)?;
    module.add_function(wrap_pyfunction!(filters::header::checksum_of_sections, module)?)?;
    module.add_function(wrap_pyfunction!(keys::key::canonical, module)?)?;
    module.add_function(wrap_pyfunction!(filters::memory::memory_used, module)?)?;
    module.add_function(wrap_pyfunction!(filters::memory::set_memory_limit, module)?)?;
    module.add_function(wrap_pyfunction!(filters::memory::unmap_aside, module)?)?;
    module.add_function(wrap_pyfunction!(filters::memory::touch, module)?)?;
    module.add_function(wrap_pyfunction!(server::pattern::cut_json, module)?)?;
    module.add_function(wrap_pyfunction!(server::pattern::json_depth, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::parquet_block, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::parquet_block_contains, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::parquet_error_rate, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::parquet_filter, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::parquet_filter_header, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::parquet_hash, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::parquet_page, module)?)?;
    module.add_function(wrap_pyfunction!(parquet::read_parquet_filter_header, module)?)?;
    module.add_function(wrap_pyfunction!(duckdb::offer_to_duckdb, module)?)?;
    module.add_function(wrap_pyfunction!(remote::mask, module)?)?;
    module.add_function(wrap_pyfunction!(server::records::pack_records, module)?)?;
    module.add_function(wrap_pyfunction!(server::records::unpack_records, module)?)?;
    module.add_function(wrap_pyfunction!(server::log::log_segment_path, module)?)?;
    module.add_function(wrap_pyfunction!(server::log::log_segments, module)?)?;
    module.add_function(wrap_pyfunction!(filters::exact::build_exact, module)?)?;
    module.add_function(wrap_pyfunction!(filters::exact::static_nbytes, module)?)?;
    module.add_function(wrap_pyfunction!(filters::fuse::build_static, module)?)?;
    module.add_function(wrap_pyfunction!(keys::source::checked_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(keys::source::column_objects, module)?)?;
    module.add_function(wrap_pyfunction!(filters::redisbloom::redisbloom_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(filters::redisbloom::rediscuckoo_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(filters::tables::growing_table, module)?)?;
    module.add_function(wrap_pyfunction!(filters::tables::fixed_table, module)?)?;
    module.add_function(wrap_pyfunction!(filters::tables::rotating_table, module)?)
}

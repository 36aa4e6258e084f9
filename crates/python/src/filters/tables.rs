//! How large the table of a new filter is: the numbers for its header.

use bloomery_core::rotating;
use bloomery_core::table::Geometry;
use pyo3::prelude::*;

/// (layout, num_bits, nbytes, the first word of extra), as the header has them.
type Fields = (u32, u64, u64, u64);

fn fields(geometry: Geometry) -> Fields {
    (geometry.pair, geometry.num_bits(), geometry.nbytes(), geometry.packed())
}

/// A table that grows from `capacity` keys on.
#[pyfunction]
pub fn growing_table(capacity: u64, error_rate: f64) -> Fields {
    fields(Geometry::growing(capacity, error_rate))
}

/// A table of just this size.
#[pyfunction]
pub fn fixed_table(capacity: u64, error_rate: f64) -> Fields {
    fields(Geometry::ring(capacity, error_rate))
}

/// A table for this many keys in all generations but the current one.
#[pyfunction]
pub fn rotating_table(capacity: u64, error_rate: f64, generations: u64) -> Fields {
    fields(rotating::geometry(capacity, error_rate, generations.max(1)))
}

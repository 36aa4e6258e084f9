//! Makes PyO3's own conditions (`Py_GIL_DISABLED`) known to this crate.
fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}

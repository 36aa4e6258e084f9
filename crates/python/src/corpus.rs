//! The native half of `bloomery.apps.corpus`: lines of JSON as units and keys, and these in a filter.

use std::collections::HashSet;

use bloomery_core::batch::Op;
use bloomery_core::corpus::minhash::MinHash;
use bloomery_core::corpus::probe::probe;
use bloomery_core::corpus::split::{By, Piece, Scratch, Split, Splitter};
use bloomery_core::hash::{HashKind, KeyHasher};
use pyo3::exceptions::PyUnicodeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors::{error, invalid};
use crate::filters::bloom::Bloom;
use crate::keys::buffer::BufferView;

/// For what needs no filter: an estimate.
const PLAIN: KeyHasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };

/// Documents, documents gone, documents cut, units, units gone, characters, characters gone, keys.
type Counts = (u64, u64, u64, u64, u64, u64, u64, u64);

/// First character, the one behind the last, and the share of its keys that was seen.
type Spans = Vec<(usize, usize, f64)>;

/// How a corpus is split into units and keys.
#[pyclass(frozen, module = "bloomery._native")]
pub struct CorpusSplitter(Splitter);

#[pymethods]
impl CorpusSplitter {
    /// By texts as they are; with `words` by runs of so many, of which a `share` is enough; with
    /// `bands` by MinHash signatures of those runs.
    #[new]
    #[pyo3(signature = (field, *, paragraphs=false, words=0, share=1.0, bands=0, rows=0))]
    fn new(
        py: Python<'_>,
        field: &str,
        paragraphs: bool,
        words: usize,
        share: f64,
        bands: usize,
        rows: usize,
    ) -> PyResult<CorpusSplitter> {
        if bands.saturating_mul(rows) > 1 << 16 {
            return Err(invalid(py, "a signature has at most 65,536 places".into()));
        }
        let by = match (words, bands) {
            (0, _) => By::Text,
            (words, 0) => By::Ngrams { words, share },
            (words, bands) => By::Near { words, minhash: MinHash::new(bands, rows) },
        };
        Ok(CorpusSplitter(Splitter { field: field.as_bytes().to_vec(), paragraphs, by }))
    }

    /// Splits the whole lines of `data`, all of it if `final`, for a filter. With `skip_bad` it goes
    /// on behind a line that is no document.
    #[pyo3(signature = (filter, data, *, r#final=false, skip_bad=false))]
    fn split(
        &self,
        filter: &Bound<'_, Bloom>,
        data: &Bound<'_, PyAny>,
        r#final: bool,
        skip_bad: bool,
    ) -> PyResult<CorpusChunk> {
        let py = data.py();
        let view = BufferView::get(data, ffi::PyBUF_SIMPLE).ok_or_else(|| {
            error(py, "UnsupportedBatch", "a corpus is read from a contiguous buffer".into())
        })?;
        let hasher = filter.get().hasher;
        // SAFETY: contiguous; the caller leaves the buffer alone until the chunk is released.
        let text = unsafe { view.bytes() };
        let split = py.detach(|| self.0.lines(text, r#final, skip_bad, &hasher));
        Ok(CorpusChunk { split, view: Some(view) })
    }

    /// For each text the spans of it that go; asks only, unless it is to `add` what stays.
    #[pyo3(signature = (filter, texts, *, add=true))]
    fn texts(
        &self,
        filter: &Bound<'_, Bloom>,
        texts: Vec<Bound<'_, PyString>>,
        add: bool,
    ) -> PyResult<(Vec<Spans>, u64)> {
        let py = filter.py();
        let filter = filter.get();
        let strings: Vec<&str> =
            texts.iter().map(|text| text.to_str()).collect::<PyResult<_>>().map_err(|problem| {
                match problem.is_instance_of::<PyUnicodeError>(py) {
                    true => error(py, "InvalidKey", format!("a text is not UTF-8: {problem}")),
                    false => problem,
                }
            })?;
        let splitter = &self.0;
        let mut split = py.detach(|| {
            let (mut split, mut scratch) = (Split::default(), Scratch::default());
            for (number, text) in strings.iter().enumerate() {
                let (text, first) = (text.as_bytes(), split.units.len());
                // Only what is written with escapes has faults.
                let _ = splitter.text(text, false, &filter.hasher, &mut split, &mut scratch);
                split.pieces.push(Piece {
                    line: 0..text.len(),
                    text: 0..text.len(),
                    id: None,
                    units: first..split.units.len(),
                    number,
                });
            }
            split
        });
        let new = probed(py, filter, &mut split, add)?;
        Ok((split.spans(), new))
    }

    /// The MinHash signature of a text, by the filter's hash function: `bands` times `rows` numbers,
    /// or none if it has no words.
    fn signature(&self, filter: &Bound<'_, Bloom>, text: &str) -> Vec<u64> {
        self.0.signature(text.as_bytes(), &filter.get().hasher)
    }

    /// How many documents and keys the whole lines of `data` have, how many of the keys are
    /// distinct, and how many bytes that is.
    fn sample(&self, py: Python<'_>, data: &[u8], r#final: bool) -> (usize, usize, usize, usize) {
        py.detach(|| {
            let split = self.0.lines(data, r#final, true, &PLAIN);
            let distinct: HashSet<&u64> = split.keys.iter().collect();
            (split.pieces.len(), split.keys.len(), distinct.len(), split.used)
        })
    }
}

fn probed(py: Python<'_>, filter: &Bloom, split: &mut Split, add: bool) -> PyResult<u64> {
    let Split { keys, units, .. } = split;
    let op = if add { Op::Add } else { Op::Contains };
    filter.write_or_read_detached(py, op, |filter, op| {
        probe(&filter.bits, &filter.shape, keys, units, op)
    })
}

/// Some lines of a corpus, split.
#[pyclass(module = "bloomery._native")]
pub struct CorpusChunk {
    split: Split,
    /// Until it is released.
    view: Option<BufferView>,
}

#[pymethods]
impl CorpusChunk {
    /// Bytes of the lines.
    #[getter]
    fn used(&self) -> usize {
        self.split.used
    }

    /// Lines, blank ones among them.
    #[getter]
    fn lines(&self) -> usize {
        self.split.lines
    }

    /// Lines that are no documents, by number from 0, and why.
    #[getter]
    fn faults(&self) -> Vec<(usize, String)> {
        self.split.faults.iter().map(|(line, fault)| (*line, fault.to_string())).collect()
    }

    /// Asks the filter for every unit, in order, and adds those that stay, unless it is not to
    /// `add`; how many keys were new. Threads that share a filter do this one after another, or two
    /// equal units may both stay.
    #[pyo3(signature = (filter, *, add=true))]
    fn probe(&mut self, filter: &Bound<'_, Bloom>, add: bool) -> PyResult<u64> {
        probed(filter.py(), filter.get(), &mut self.split, add)
    }

    /// All keys, 8 little-endian bytes each: for a filter that is to know them whatever it has seen.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let keys = &self.split.keys;
        PyBytes::new_with(py, keys.len() * 8, |out| {
            out.chunks_exact_mut(8)
                .zip(keys)
                .for_each(|(bytes, key)| bytes.copy_from_slice(&key.to_le_bytes()));
            Ok(())
        })
    }

    /// Lets go of the buffer; what was counted stays.
    fn release(&mut self) {
        self.view = None;
    }

    /// What became of them.
    fn counts(&self, py: Python<'_>) -> Counts {
        let found = py.detach(|| self.split.counts());
        (
            found.documents,
            found.gone,
            found.cut,
            found.units,
            found.units_gone,
            found.characters,
            found.characters_gone,
            found.keys,
        )
    }

    /// The lines that stay, without what goes of them.
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.composed(py, |split, data, out| split.kept(data, out))
    }

    /// What was found: a line for each document, or for those alone with something that goes.
    fn found<'py>(
        &self,
        py: Python<'py>,
        first_line: u64,
        found_only: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.composed(py, |split, data, out| split.found(data, first_line, found_only, out))
    }
}

impl CorpusChunk {
    fn composed<'py>(
        &self,
        py: Python<'py>,
        compose: impl Fn(&Split, &[u8], &mut Vec<u8>) + Send + Sync,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Some(view) = &self.view else {
            return Err(invalid(py, "the chunk was released".into()));
        };
        // SAFETY: contiguous; the caller leaves the buffer alone until the chunk is released.
        let data = unsafe { view.bytes() };
        let lines = py.detach(|| {
            let mut out = Vec::with_capacity(data.len());
            compose(&self.split, data, &mut out);
            out
        });
        Ok(PyBytes::new(py, &lines))
    }
}

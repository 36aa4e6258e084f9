//! Saved filters, many in one memory, that are asked for a key all at once: those of a table's row
//! groups, or of a store's segments. The key is hashed once for all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::bits::{Bits, LINE_BYTES};
use crate::format::{CHUNK_BYTES, FormatError, HEADER_BYTES, Header, KindId, checksum};
use crate::hash::KeyHasher;
use crate::kind::{self, AnyKind};
use crate::probe::{Job, Probe, with_probe};
use crate::shape::Shape;

/// How many filters ahead memory is asked for: those of a pack lie far apart.
const AHEAD: usize = 8;

enum Saved {
    Bloom(Bits, Shape),
    Static(Box<dyn AnyKind>),
}

struct Ask(u64);
impl Job for Ask {
    type Output = bool;

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) -> bool {
        probe.contains(self.0)
    }
}

struct Prefetch(u64);
impl Job for Prefetch {
    type Output = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: &P) {
        probe.prefetch(self.0);
    }
}

impl Saved {
    #[inline(always)]
    fn contains(&self, h: u64) -> bool {
        match self {
            Saved::Bloom(bits, shape) => with_probe(bits, shape, Ask(h)),
            Saved::Static(filter) => filter.contains(h),
        }
    }

    #[inline(always)]
    fn prefetch(&self, h: u64) {
        match self {
            Saved::Bloom(bits, shape) => with_probe(bits, shape, Prefetch(h)),
            Saved::Static(filter) => filter.prefetch(h),
        }
    }
}

/// Filters of one hasher, in an order that is the caller's.
pub struct Pack {
    filters: Vec<Arc<Saved>>,
    hasher: Option<KeyHasher>,
}

impl Pack {
    /// The filters that were saved at these offsets, each a header and its memory; `verify` reads
    /// all of it for its checksum.
    pub fn open(bits: &Bits, offsets: &[u64], verify: bool) -> Result<Pack, FormatError> {
        let mut pack = Pack { filters: Vec::with_capacity(offsets.len()), hasher: None };
        for offset in offsets {
            let (filter, hasher) =
                saved(bits, *offset, verify).map_err(|problem| at(*offset, problem))?;
            pack.push(Arc::new(filter), hasher)?;
        }
        Ok(pack)
    }

    /// The filters of all of them, one pack's after the other's.
    pub fn join<'a>(packs: impl Iterator<Item = &'a Pack>) -> Result<Pack, FormatError> {
        let mut joined = Pack { filters: Vec::new(), hasher: None };
        for pack in packs {
            for filter in &pack.filters {
                if let Some(hasher) = pack.hasher {
                    joined.push(Arc::clone(filter), hasher)?;
                }
            }
        }
        Ok(joined)
    }

    fn push(&mut self, filter: Arc<Saved>, hasher: KeyHasher) -> Result<(), FormatError> {
        if *self.hasher.get_or_insert(hasher) != hasher {
            let message = "filters that are asked together must have the same hasher and seed";
            return Err(FormatError::Corrupt(message.into()));
        }
        self.filters.push(filter);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.filters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Of all filters; `None` if there are none.
    pub fn hasher(&self) -> Option<&KeyHasher> {
        self.hasher.as_ref()
    }

    /// The numbers of the filters that may hold the key; the others definitely do not.
    pub fn maybes(&self, h: u64) -> Vec<usize> {
        self.filters.iter().take(AHEAD).for_each(|filter| filter.prefetch(h));
        let mut found = Vec::new();
        for (number, filter) in self.filters.iter().enumerate() {
            if let Some(later) = self.filters.get(number + AHEAD) {
                later.prefetch(h);
            }
            if filter.contains(h) {
                found.push(number);
            }
        }
        found
    }
}

fn at(offset: u64, problem: FormatError) -> FormatError {
    let place = |message| format!("the filter at byte {offset}: {message}");
    match problem {
        FormatError::Corrupt(message) => FormatError::Corrupt(place(message)),
        FormatError::Newer(message) => FormatError::Newer(place(message)),
        other => other,
    }
}

fn saved(bits: &Bits, offset: u64, verify: bool) -> Result<(Saved, KeyHasher), FormatError> {
    let corrupt = |message: &str| FormatError::Corrupt(message.into());
    let outside = || corrupt("it does not lie within the file, in whole lines");
    let start = usize::try_from(offset).map_err(|_| outside())?;
    let head = bits.part(start, HEADER_BYTES).ok_or_else(outside)?;
    let header = Header::parse(&copied(&head))?;
    let nbytes = usize::try_from(header.nbytes).map_err(|_| outside())?;
    let body = bits.part(start + HEADER_BYTES, nbytes).ok_or_else(outside)?;
    if verify && header.checksum != sum(&body) {
        return Err(corrupt("damaged bits, by their checksum"));
    }
    let filter = match header.kind {
        KindId::Bloom => {
            let shape = Shape::of(&header)?;
            if !body.padding_is_clear(shape.num_bits) {
                return Err(corrupt("bits are set in the padding behind the last bit"));
            }
            Saved::Bloom(body, shape)
        }
        KindId::Static => Saved::Static(kind::open(&header, Some(body))?),
        _ => return Err(corrupt("only bloom and static filters are asked together")),
    };
    Ok((filter, header.hasher))
}

fn copied(bits: &Bits) -> Vec<u8> {
    bits.words().iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
}

fn sum(bits: &Bits) -> u64 {
    let (mut found, step) = (0, CHUNK_BYTES / LINE_BYTES * LINE_BYTES);
    for start in (0..bits.nbytes()).step_by(step) {
        if let Some(chunk) = bits.part(start, step.min(bits.nbytes() - start)) {
            found = checksum(&copied(&chunk), found);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse;
    use crate::hash::HashKind;
    use crate::kind::Kind;
    use crate::shape::Layout;

    const HASHER: KeyHasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };

    fn hash(key: u64) -> u64 {
        HASHER.hash_i64(key as i64)
    }

    /// A static filter of these keys, as it is saved.
    fn saved_static(keys: std::ops::Range<u64>) -> Vec<u8> {
        let filter = fuse::build(keys.map(hash).collect(), 0.01, HASHER).expect("a few keys");
        let body = copied(&filter.sections()[0]);
        let header = Header { checksum: checksum(&body, 0), ..filter.header() };
        [header.encode().to_vec(), body].concat()
    }

    /// A plain filter with every bit set: it may hold anything.
    fn saved_bloom() -> Vec<u8> {
        let shape =
            Shape { layout: Layout::Blocked, num_bits: 512, num_hashes: 6, lines_per_key: 1 };
        let body = vec![255; shape.nbytes() as usize];
        let header = Header {
            kind: KindId::Bloom,
            layout: shape.layout as u8,
            lines_per_key: 1,
            num_hashes: 6,
            num_bits: 512,
            hasher: HASHER,
            capacity: 1,
            error_rate: 0.5,
            nbytes: shape.nbytes(),
            extra: [0; 6],
            checksum: checksum(&body, 0),
        };
        [header.encode().to_vec(), body].concat()
    }

    fn memory(parts: &[Vec<u8>]) -> (Bits, Vec<u64>) {
        let all = parts.concat();
        let bits = Bits::zeroed(all.len()).expect("a few lines");
        bits.fill_from(0, &all);
        let starts = parts.iter().scan(0, |next, part| {
            let start = *next;
            *next += part.len() as u64;
            Some(start)
        });
        (bits, starts.collect())
    }

    /// A key is found in the filter that holds it and in those that hold anything.
    #[test]
    fn every_filter_is_asked() {
        let (bits, offsets) =
            memory(&[saved_static(0..500), saved_bloom(), saved_static(500..900)]);
        let pack = Pack::open(&bits, &offsets, true).expect("whole");
        assert_eq!((pack.len(), pack.hasher()), (3, Some(&HASHER)));
        for key in 0..900 {
            let maybes = pack.maybes(hash(key));
            assert!(maybes.contains(&1) && maybes.contains(&if key < 500 { 0 } else { 2 }));
        }
        let wrong: usize = (1000..3000).map(|key| pack.maybes(hash(key)).len() - 1).sum();
        assert!(wrong < 2 * 2000 / 50, "{wrong} of 4000, expected about 31");
        let joined = Pack::join([&pack, &pack].into_iter()).expect("one hasher");
        assert_eq!(joined.len(), 6);
        assert!(joined.maybes(hash(7)).starts_with(&[0, 1]));
    }

    /// No byte that is changed, and no offset that is wrong, is taken for a filter.
    #[test]
    fn damage_is_refused() {
        let (bits, offsets) = memory(&[saved_static(0..40)]);
        let all = copied(&bits);
        for at in 0..all.len() {
            let mut damaged = all.clone();
            damaged[at] ^= 4;
            bits.fill_from(0, &damaged);
            assert!(Pack::open(&bits, &offsets, true).is_err(), "byte {at}");
        }
        bits.fill_from(0, &all);
        for offset in [1, 64, 128, all.len() as u64, u64::MAX, u64::MAX - 63] {
            assert!(Pack::open(&bits, &[offset], true).is_err(), "offset {offset}");
        }
        assert!(Pack::open(&bits, &[], true).expect("none").is_empty());
    }
}

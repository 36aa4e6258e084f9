//! What both structures have in common: layers that travel in RedisBloom's chunks (SCANDUMP,
//! LOADCHUNK) and in files of ours. A dump's header says everything but the layers' memory.

use super::Kept;
use crate::bits::{Bits, LINE_BYTES};
use crate::format::{FormatError, Header, KindId};
use crate::hash::{HashKind, KeyHasher};
use crate::kind::Refusal;

/// The most that one chunk of a dump holds. RedisBloom gives 16 MiB, and takes any: a chunk's place
/// is its end less its length. A server copies it several times while its clients wait.
pub const MOST_CHUNK: u64 = 256 << 10;

/// Why a part of a dump cannot be loaded; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// The header ends too early.
    Short,
    /// What is wrong with the header.
    Header(String),
    /// The iterator did not come with this chunk.
    Iterator,
    /// No layer begins so far behind.
    NoLayer,
    /// The chunk reaches over the end of its layer.
    TooBig,
    /// So many bytes are more than may be, or can be, had.
    NoMemory(u64),
    /// The filter is mapped.
    ReadOnly(Refusal),
}

/// Bytes in whole lines.
pub fn lines(nbytes: u64) -> u64 {
    nbytes.next_multiple_of(LINE_BYTES as u64)
}

pub trait Layered: Sized {
    const KIND: KindId;
    /// The most bytes that a dump's header can have.
    const MOST_HEADER: usize;
    /// Is a chunk without bytes taken?
    const EMPTY_CHUNKS: bool;
    /// The numbers of a filter, without its memory.
    type Plan;

    /// Reads a dump's header, of which nothing is believed.
    fn plan(dump: &[u8]) -> Result<Self::Plan, Malformed>;

    /// The bytes of each layer, at most 2^45 in all.
    fn sizes(plan: &Self::Plan) -> Vec<u64>;

    fn build(plan: Self::Plan, memory: Vec<Bits>, kept: Kept) -> Self;

    fn dump_header(&self) -> Vec<u8>;

    /// The layers' memory, the oldest first, and how many bytes of it are the layer's.
    fn parts(&self) -> impl Iterator<Item = (&Bits, u64)>;

    fn kept(&self) -> &Kept;

    fn change(&mut self) -> Result<(), Refusal>;

    /// Returns the bytes of the layer that must exist before this many more keys are added, if there
    /// is no memory to spare for it yet. Layers are not added ahead: the same keys would be in other
    /// layers than in RedisBloom. It cannot be foreseen which key needs a new layer of a cuckoo
    /// filter, which can happen with two fifths of the slots free: it is known once a key waits.
    fn lacks(&self, keys: u64) -> Option<u64>;

    /// Keeps zeroed memory for the next layer.
    fn spare(&mut self, memory: Bits);

    /// Capacity, error rate and number of hashes, for a file's header.
    fn describe(&self) -> (u64, f64, u16);

    /// True if a dump is over before it begins.
    fn dumps_nothing(&self) -> bool {
        false
    }

    /// An empty filter as a dump's header describes it, if its layers have `most` bytes or fewer.
    fn from_header(dump: &[u8], most: u64) -> Result<Self, Malformed> {
        let plan = Self::plan(dump)?;
        let head = lines(dump.len() as u64);
        let sizes = Self::sizes(&plan);
        let whole = head + sizes.iter().map(|size| lines(*size)).sum::<u64>();
        if whole > most {
            return Err(Malformed::NoMemory(whole));
        }
        let get = |size: u64| Bits::zeroed(lines(size) as usize).ok_or(Malformed::NoMemory(whole));
        let memory = sizes.into_iter().map(get).collect::<Result<_, _>>()?;
        let kept = Kept::new(get(head)?, false);
        Ok(Self::build(plan, memory, kept))
    }

    /// The chunk at an iterator and the iterator that comes next, which LOADCHUNK takes with it; 0
    /// when there is no more.
    fn chunk(&self, iterator: i64) -> (i64, Vec<u8>) {
        if self.dumps_nothing() {
            return (0, Vec::new());
        }
        if iterator == 0 {
            return (1, self.dump_header());
        }
        let Some((bits, size, offset)) = section_at(self, iterator - 1) else {
            return (0, Vec::new());
        };
        let mut out = vec![0; (size - offset).min(MOST_CHUNK) as usize];
        copy_out(bits, offset as usize, &mut out);
        (iterator + out.len() as i64, out)
    }

    /// Refuses a chunk of this many bytes that does not fit, with the iterator that came with it.
    fn check_chunk(&self, iterator: i64, nbytes: usize) -> Result<(), Malformed> {
        let len = i64::try_from(nbytes).map_err(|_| Malformed::Iterator)?;
        if iterator <= 0 || iterator < len || (len == 0 && !Self::EMPTY_CHUNKS) {
            return Err(Malformed::Iterator);
        }
        let (_, size, offset) = section_at(self, iterator - len - 1).ok_or(Malformed::NoLayer)?;
        if nbytes as u64 > size - offset { Err(Malformed::TooBig) } else { Ok(()) }
    }

    /// Takes a chunk, with the iterator that came with it.
    fn load_chunk(&mut self, iterator: i64, data: &[u8]) -> Result<(), Malformed> {
        self.check_chunk(iterator, data.len())?;
        let len = data.len() as i64;
        self.change().map_err(Malformed::ReadOnly)?;
        if let Some((bits, _, offset)) = section_at(self, iterator - len - 1) {
            copy_in(bits, offset as usize, data);
        }
        Ok(())
    }

    /// The header of a file, but for its checksum.
    fn header(&self) -> Header {
        let (capacity, error_rate, num_hashes) = self.describe();
        let sizes = || self.parts().map(|(_, size)| size);
        let dump = self.dump_header().len() as u64;
        Header {
            kind: Self::KIND,
            layout: 0,
            lines_per_key: 0,
            num_hashes,
            num_bits: 8 * sizes().sum::<u64>(),
            hasher: KeyHasher { kind: HashKind::Xxh3, seed: 0 }, // theirs is none of ours
            capacity,
            error_rate,
            nbytes: lines(dump) + sizes().map(lines).sum::<u64>(),
            extra: [dump, 0, 0, 0, 0, 0],
            checksum: 0,
        }
    }

    /// The body of a file: the dump's header, and each layer.
    fn sections(&self) -> Vec<Bits> {
        let Kept { head, frozen, .. } = self.kept();
        if !frozen {
            head.fill_from(0, &self.dump_header());
        }
        std::iter::once(head).chain(self.parts().map(|(bits, _)| bits)).cloned().collect()
    }

    /// The filter in a file. With `frozen` its memory is never written.
    fn open(header: &Header, body: &Bits, frozen: bool) -> Result<Self, FormatError> {
        let corrupt = |message: String| Err(FormatError::Corrupt(message));
        let found = body.nbytes() as u64;
        if header.kind != Self::KIND || header.nbytes != found {
            let expected = header.nbytes;
            return corrupt(format!(
                "{found} bytes of a {} filter, expected {expected}",
                header.kind.name()
            ));
        }
        let dump = header.extra[0];
        if dump > Self::MOST_HEADER as u64 || lines(dump) > found {
            return corrupt(format!("a dump's header of {dump} bytes among {found}"));
        }
        let mut raw = vec![0; dump as usize];
        copy_out(body, 0, &mut raw);
        let plan = Self::plan(&raw).map_err(|problem| match problem {
            Malformed::Header(message) => FormatError::Corrupt(message),
            _ => FormatError::Corrupt(format!("a dump's header of {dump} bytes")),
        })?;
        let sizes = Self::sizes(&plan);
        let mut offset = 0;
        let mut part = |size: u64| {
            let bits = body.part(offset as usize, lines(size) as usize);
            offset += lines(size);
            bits.filter(|bits| bits.padding_is_clear(8 * size))
        };
        let head = part(dump);
        let memory = sizes.iter().map(|size| part(*size)).collect::<Option<Vec<_>>>();
        let (Some(head), Some(memory)) = (head, memory) else {
            return corrupt("layers end where the file does not, or are padded with ones".into());
        };
        let made = Self::build(plan, memory, Kept::new(head, frozen));
        let expected = Header { checksum: header.checksum, ..made.header() };
        if *header != expected {
            return corrupt(format!("header {header:?} of a filter that has {expected:?}"));
        }
        Ok(made)
    }
}

/// The layer in which a byte of a dump is, its size, and the byte's offset in it.
fn section_at<T: Layered>(filter: &T, offset: i64) -> Option<(&Bits, u64, u64)> {
    let mut offset = u64::try_from(offset).ok()?;
    for (bits, size) in filter.parts() {
        if offset < size {
            return Some((bits, size, offset));
        }
        offset -= size;
    }
    None
}

fn copy_out(bits: &Bits, offset: usize, out: &mut [u8]) {
    assert!(offset + out.len() <= bits.nbytes());
    // SAFETY: within the bits; who writes to them has the filter to itself.
    unsafe { bits.as_ptr().add(offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) }
}

fn copy_in(bits: &Bits, offset: usize, data: &[u8]) {
    assert!(offset + data.len() <= bits.nbytes());
    // SAFETY: as above; all of the memory is in cells that can be written through a shared pointer.
    unsafe { bits.as_ptr().add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) }
}

/// Takes numbers off the front.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.take().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    pub fn f64(&mut self) -> Result<f64, Malformed> {
        self.take().map(f64::from_le_bytes)
    }
}

//! The head of a saved filter: 128 bytes before the bits. Whoever reads it trusts none of it.
//! docs/format.md describes it for other readers; golden files freeze it.

use crate::hash::{HashKind, KeyHasher};
use crate::shape::{Layout, Shape};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub const HEADER_BYTES: usize = 128;
pub const MAGIC: [u8; 8] = *b"BLOOMERY";
pub const VERSION: u16 = 1;
/// The kind of filter; others of the family will have their own number.
pub const KIND_BLOOM: u8 = 1;
/// In place of the bits' checksum: the file is mapped for writing, so none can hold. Switching to
/// it is one aligned store of 8 bytes; a crash cannot leave the header half-changed.
pub const LIVE: u64 = u64::MAX;
/// The bits are summed in chunks of this size, each seeded with the sum before it, so that a
/// writer sums what it writes, chunk by chunk, while keys are still being added.
pub const CHUNK_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    pub shape: Shape,
    pub hasher: KeyHasher,
    pub capacity: u64,
    pub error_rate: f64,
    pub checksum: u64,
}

/// Each way of being wrong has its own message, with what was expected and what was found.
#[derive(Debug, PartialEq, Eq)]
pub enum FormatError {
    Corrupt(String),
    Newer(String),
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0u8; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &[KIND_BLOOM, self.shape.layout as u8, self.hasher.kind as u8]);
        put(13, &[self.shape.lines_per_key as u8]);
        put(14, &(self.shape.num_hashes as u16).to_le_bytes());
        put(16, &self.shape.num_bits.to_le_bytes());
        put(24, &self.capacity.to_le_bytes());
        put(32, &self.error_rate.to_le_bytes());
        put(40, &self.hasher.seed.to_le_bytes());
        put(56, &self.shape.nbytes().to_le_bytes());
        let sum = xxh3_64(&out[..112]);
        out[112..120].copy_from_slice(&sum.to_le_bytes());
        out[120..128].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// Reads a header. `total` is how many bytes the file has in all, where that is known.
    pub fn parse(head: &[u8], total: Option<u64>) -> Result<Header, FormatError> {
        let corrupt = |message: String| Err(FormatError::Corrupt(message));
        if head.len() >= 8 && head[..8] != MAGIC {
            return corrupt(format!(
                "not a bloomery file: it begins with {:?}, expected {:?}",
                String::from_utf8_lossy(&head[..8]),
                String::from_utf8_lossy(&MAGIC)
            ));
        }
        if head.len() < HEADER_BYTES {
            return corrupt(format!(
                "too short: {} bytes, a saved filter has at least {HEADER_BYTES}",
                head.len()
            ));
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version != VERSION {
            return Err(FormatError::Newer(format!(
                "format version {version}, this bloomery reads version {VERSION}"
            )));
        }
        let found = word(head, 112);
        let expected = xxh3_64(&head[..112]);
        if found != expected {
            return corrupt(format!(
                "damaged header: checksum {found:#018x}, expected {expected:#018x}"
            ));
        }
        if head[10] != KIND_BLOOM {
            return Err(FormatError::Newer(format!(
                "filter kind {}, this bloomery knows kind {KIND_BLOOM} (bloom)",
                head[10]
            )));
        }
        let Some(layout) = Layout::from_id(head[11]) else {
            return Err(FormatError::Newer(format!("unknown layout {}", head[11])));
        };
        let Some(kind) = HashKind::from_id(head[12]) else {
            return Err(FormatError::Newer(format!("unknown hasher {}", head[12])));
        };
        let shape = Shape {
            layout,
            num_bits: word(head, 16),
            num_hashes: u32::from(u16::from_le_bytes([head[14], head[15]])),
            lines_per_key: u32::from(head[13]),
        };
        shape.check().map_err(FormatError::Corrupt)?;
        let header = Header {
            shape,
            hasher: KeyHasher {
                kind,
                seed: u128::from(word(head, 40)) | u128::from(word(head, 48)) << 64,
            },
            capacity: word(head, 24),
            error_rate: f64::from_bits(word(head, 32)),
            checksum: word(head, 120),
        };
        if kind != HashKind::SipHash && header.hasher.seed >> 64 != 0 {
            return corrupt(format!(
                "a seed of more than 64 bits, which {} cannot take",
                kind.name()
            ));
        }
        if header.capacity == 0 {
            return corrupt("capacity is 0, must be at least 1".into());
        }
        if !(header.error_rate > 0.0 && header.error_rate < 1.0) {
            return corrupt(format!(
                "error_rate is {}, must be between 0 and 1",
                header.error_rate
            ));
        }
        let body = word(head, 56);
        if body != shape.nbytes() {
            return corrupt(format!("{body} bytes of bits, expected {}", shape.nbytes()));
        }
        let whole = body + HEADER_BYTES as u64;
        if let Some(total) = total.filter(|total| *total != whole) {
            let message = format!("{total} bytes in all, expected {whole}: cut off or overgrown");
            return corrupt(message);
        }
        Ok(header)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0u8; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

/// The sum of one more chunk after those summed to `before` (0 at first). Never `LIVE`.
pub fn checksum(chunk: &[u8], before: u64) -> u64 {
    chunk.chunks(CHUNK_BYTES).fold(before, |sum, part| xxh3_64_with_seed(part, sum).min(LIVE - 1))
}

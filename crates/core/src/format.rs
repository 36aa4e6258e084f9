//! The head of a saved filter: 128 bytes before the bits. Whoever reads it trusts none of it.
//! docs/format.md describes it for other readers; golden files freeze it.

use crate::hash::{HashKind, KeyHasher};
use crate::shape::MAX_BITS;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub const HEADER_BYTES: usize = 128;
pub const MAGIC: [u8; 8] = *b"BLOOMERY";
pub const VERSION: u16 = 1;
/// In place of the bits' checksum: the file is mapped for writing, so none can hold. Switching to
/// it is one aligned store of 8 bytes; a crash cannot leave the header half-changed.
pub const LIVE: u64 = u64::MAX;
/// The bits are summed in chunks of this size, each seeded with the sum before it, so that a
/// writer sums what it writes, chunk by chunk, while keys are still being added.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Which filter of the family a file holds. The numbers are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KindId {
    Bloom = 1,
    Scalable = 2,
    Counting = 3,
    Deletable = 4,
    Cuckoo = 5,
    Rotating = 6,
    Static = 7,
    Bank = 8,
    RedisBloom = 9,
    RedisCuckoo = 10,
    Signatures = 11,
    Exact = 12,
}

impl KindId {
    pub const ALL: [(KindId, &'static str); 12] = [
        (KindId::Bloom, "bloom"),
        (KindId::Scalable, "scalable"),
        (KindId::Counting, "counting"),
        (KindId::Deletable, "deletable"),
        (KindId::Cuckoo, "cuckoo"),
        (KindId::Rotating, "rotating"),
        (KindId::Static, "static"),
        (KindId::Bank, "bank"),
        (KindId::RedisBloom, "redisbloom"),
        (KindId::RedisCuckoo, "rediscuckoo"),
        (KindId::Signatures, "signatures"),
        (KindId::Exact, "exact"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL[self as usize - 1].1
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(k, _)| *k)
    }

    fn from_id(id: u8) -> Option<Self> {
        Self::ALL.iter().find(|(k, _)| *k as u8 == id).map(|(k, _)| *k)
    }
}

/// What every saved filter says about itself. `layout` to `num_bits` and `extra` mean what the kind
/// makes of them (docs/format.md): its own `open` checks them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    pub kind: KindId,
    pub layout: u8,
    pub lines_per_key: u8,
    pub num_hashes: u16,
    pub num_bits: u64,
    pub hasher: KeyHasher,
    pub capacity: u64,
    pub error_rate: f64,
    /// Bytes after the header.
    pub nbytes: u64,
    pub extra: [u64; 6],
    pub checksum: u64,
}

/// Each way of being wrong has its own message, with what was expected and what was found.
#[derive(Debug, PartialEq, Eq)]
pub enum FormatError {
    Corrupt(String),
    Newer(String),
    /// The bytes are right, but the filter needs this many, which could not be had.
    NoMemory(u64),
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0u8; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &[self.kind as u8, self.layout, self.hasher.kind as u8, self.lines_per_key]);
        put(14, &self.num_hashes.to_le_bytes());
        put(16, &self.num_bits.to_le_bytes());
        put(24, &self.capacity.to_le_bytes());
        put(32, &self.error_rate.to_le_bytes());
        put(40, &self.hasher.seed.to_le_bytes());
        put(56, &self.nbytes.to_le_bytes());
        for (i, extra) in self.extra.iter().enumerate() {
            put(64 + 8 * i, &extra.to_le_bytes());
        }
        let sum = xxh3_64(&out[..112]);
        out[112..120].copy_from_slice(&sum.to_le_bytes());
        out[120..128].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// Reads what is common to all kinds.
    pub fn parse(head: &[u8]) -> Result<Header, FormatError> {
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
        let Some(kind) = KindId::from_id(head[10]) else {
            let known = KindId::ALL.len();
            return Err(FormatError::Newer(format!(
                "filter kind {}, this bloomery knows kinds 1 to {known}",
                head[10]
            )));
        };
        let Some(hash) = HashKind::from_id(head[12]) else {
            return Err(FormatError::Newer(format!("unknown hasher {}", head[12])));
        };
        let header = Header {
            kind,
            layout: head[11],
            lines_per_key: head[13],
            num_hashes: u16::from_le_bytes([head[14], head[15]]),
            num_bits: word(head, 16),
            hasher: KeyHasher {
                kind: hash,
                seed: u128::from(word(head, 40)) | u128::from(word(head, 48)) << 64,
            },
            capacity: word(head, 24),
            error_rate: f64::from_bits(word(head, 32)),
            nbytes: word(head, 56),
            extra: std::array::from_fn(|i| word(head, 64 + 8 * i)),
            checksum: word(head, 120),
        };
        if hash != HashKind::SipHash && header.hasher.seed >> 64 != 0 {
            return corrupt(format!(
                "a seed of more than 64 bits, which {} cannot take",
                hash.name()
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
        if header.nbytes > MAX_BITS / 8 {
            return corrupt(format!(
                "{} bytes of bits, must be at most {}",
                header.nbytes,
                MAX_BITS / 8
            ));
        }
        Ok(header)
    }

    /// Are there as many bytes in all, header included, as the header says?
    pub fn check_total(&self, total: u64) -> Result<(), FormatError> {
        let whole = self.nbytes + HEADER_BYTES as u64;
        if total == whole {
            return Ok(());
        }
        let message = format!("{total} bytes in all, expected {whole}: cut off or overgrown");
        Err(FormatError::Corrupt(message))
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

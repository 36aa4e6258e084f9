//! The bytes of a segment: a header, then frames. All numbers are little-endian.
//!
//! ```text
//! header  magic "bloomlog"  version u32  salt u32  segment u64  first record u64  CRC-32C u32
//! frame   CRC-32C u32  body bytes u64  first record u64  body: records
//! record  time f64  filter u64  operation u8  data bytes u32  data
//! ```
//!
//! A frame's checksum covers the salt and all bytes of the frame after the checksum. The salt is
//! drawn for each segment: bytes that clients chose, or blocks of a deleted file, are never taken
//! for a frame.

use std::hash::{BuildHasher, Hasher, RandomState};

use crc32c::{crc32c, crc32c_append};

/// Version of segments and of data folders. Another operation in the log needs a new one.
pub const FORMAT: u32 = 3;

pub const MAGIC: [u8; 8] = *b"bloomlog";
pub const HEADER_BYTES: usize = 36;
/// Checksum, length and number of a frame.
pub const FRAME_HEAD: usize = 20;
/// Bytes of a record without its data.
pub const RECORD_HEAD: usize = 21;

/// Reads a little-endian number at the start of a slice that is long enough.
macro_rules! number {
    ($type:ty, $bytes:expr, $at:expr) => {
        <$type>::from_le_bytes($bytes[$at..$at + size_of::<$type>()].try_into().unwrap())
    };
}

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub salt: u32,
    pub segment: u64,
    /// Number of the first record, also if the segment has none yet.
    pub first: u64,
}

impl Header {
    pub fn new(segment: u64, first: u64) -> Self {
        let salt = RandomState::new().build_hasher().finish() as u32;
        Self { version: FORMAT, salt, segment, first }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        let checksum = crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if these bytes are not an undamaged header.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let valid = bytes[..8] == MAGIC && number!(u32, bytes, 32) == crc32c(&bytes[..32]);
        valid.then(|| Self {
            version: number!(u32, bytes, 8),
            salt: number!(u32, bytes, 12),
            segment: number!(u64, bytes, 16),
            first: number!(u64, bytes, 24),
        })
    }

    /// What the checksums of this segment's frames start with.
    pub fn seed(&self) -> u32 {
        crc32c(&self.salt.to_le_bytes())
    }
}

/// Checksum, body length and first record number of a frame, as its bytes have them.
#[derive(Clone, Copy)]
pub struct FrameHead {
    pub checksum: u32,
    pub length: u64,
    pub first: u64,
}

impl FrameHead {
    /// `None` if there are not enough bytes, or no frame is as short as this one says it is.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_HEAD] = bytes.first_chunk()?;
        let length = number!(u64, bytes, 4);
        let head =
            Self { checksum: number!(u32, bytes, 0), length, first: number!(u64, bytes, 12) };
        (length >= RECORD_HEAD as u64).then_some(head)
    }

    /// Bytes of the frame, or `u64::MAX`.
    pub fn nbytes(&self) -> u64 {
        self.length.saturating_add(FRAME_HEAD as u64)
    }
}

/// The checksum of a frame, given all bytes after the checksum itself.
pub fn frame_sum(seed: u32, bytes: &[u8]) -> u32 {
    crc32c_append(seed, bytes)
}

/// A record's fields without its number, and how many bytes of data follow.
pub struct RecordHead {
    pub at: f64,
    pub filter: u64,
    pub op: u8,
    pub length: usize,
}

impl RecordHead {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_HEAD] = bytes.first_chunk()?;
        Some(Self {
            at: number!(f64, bytes, 0),
            filter: number!(u64, bytes, 8),
            op: bytes[16],
            length: number!(u32, bytes, 17) as usize,
        })
    }
}

/// The data of a record has 4 GiB or more.
#[derive(Debug)]
pub struct RecordTooLong(pub usize);

/// Records that are written together, all or none.
#[derive(Clone)]
pub struct Batch {
    bytes: Vec<u8>, // a frame whose head is not filled in
    count: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self::with_capacity(1, 8)
    }
}

impl Batch {
    /// An empty batch with memory for `records` with `data` bytes in total.
    pub fn with_capacity(records: usize, data: usize) -> Self {
        let mut bytes = Vec::with_capacity(FRAME_HEAD + records * RECORD_HEAD + data);
        bytes.resize(FRAME_HEAD, 0);
        Self { bytes, count: 0 }
    }

    pub fn push(&mut self, at: f64, filter: u64, op: u8, data: &[u8]) -> Result<(), RecordTooLong> {
        let length = u32::try_from(data.len()).map_err(|_| RecordTooLong(data.len()))?;
        let mut head = [0; RECORD_HEAD];
        head[..8].copy_from_slice(&at.to_le_bytes());
        head[8..16].copy_from_slice(&filter.to_le_bytes());
        head[16] = op;
        head[17..].copy_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(data);
        self.count += 1;
        Ok(())
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The bytes of the frame, whose first record has this number.
    pub(super) fn frame(&mut self, seed: u32, first: u64) -> &[u8] {
        let length = (self.bytes.len() - FRAME_HEAD) as u64;
        self.bytes[4..12].copy_from_slice(&length.to_le_bytes());
        self.bytes[12..20].copy_from_slice(&first.to_le_bytes());
        let checksum = frame_sum(seed, &self.bytes[4..]);
        self.bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        &self.bytes
    }
}

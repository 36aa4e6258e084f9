//! Reads the log. Nothing is decided here: the caller gets the records up to the first damage, and
//! what is damaged or missing.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::format::{
    FORMAT, FRAME_HEAD, FrameHead, HEADER_BYTES, Header, RECORD_HEAD, RecordHead, frame_sum,
};
use super::{LogError, segment_path, segments};

/// Bytes that are read at once, unless a frame is longer.
const CHUNK_BYTES: usize = 256 << 10;
/// A search for the next valid frame checksums at most this many times the bytes of the segment.
/// Data that was made to look like frames cannot make it endless.
const SCAN_FACTOR: u64 = 16;

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    pub seq: u64,
    pub at: f64,
    pub filter: u64,
    pub op: u8,
    pub data: &'a [u8],
}

/// Consecutive frames of one segment, which are valid.
pub struct Chunk {
    bytes: Vec<u8>,
    before: u64, // number of the last record before them
    last: u64,   // of the last record
}

/// A position between two records of a chunk.
#[derive(Clone, Copy)]
pub struct Cursor {
    at: usize,
    frame_end: usize,
    seq: u64, // of the record before it
}

impl Chunk {
    /// The position before the first record.
    pub fn start(&self) -> Cursor {
        Cursor { at: 0, frame_end: 0, seq: self.before }
    }

    /// The record after a position, which moves after it; `None` at the end.
    #[inline]
    pub fn next(&self, cursor: &mut Cursor) -> Option<Record<'_>> {
        if cursor.at == cursor.frame_end {
            let head = FrameHead::decode(&self.bytes[cursor.at..])?;
            cursor.frame_end = cursor.at + head.nbytes() as usize;
            cursor.at += FRAME_HEAD;
        }
        let head = RecordHead::decode(&self.bytes[cursor.at..])?;
        let start = cursor.at + RECORD_HEAD;
        cursor.at = start + head.length;
        cursor.seq += 1;
        let (seq, data) = (cursor.seq, &self.bytes[start..cursor.at]);
        Some(Record { seq, at: head.at, filter: head.filter, op: head.op, data })
    }

    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut cursor = self.start();
        std::iter::from_fn(move || self.next(&mut cursor))
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        self.last - self.before
    }

    pub fn nbytes(&self) -> usize {
        self.bytes.len()
    }
}

/// A segment that is open for reading.
struct Segment {
    number: u64,
    path: PathBuf,
    file: File,
    size: u64,
    header: Header,
    seed: u32,
    at: u64,           // offset of the next frame
    next: Option<u64>, // first record of the next segment, if that is known
    last: bool,        // no segment follows
}

/// What is at an offset of a segment.
enum Found {
    Frames(Chunk),
    End,
    Bad,
}

impl Segment {
    /// The segment, or what is wrong with its header.
    fn open(folder: &Path, number: u64) -> io::Result<Result<Self, String>> {
        let path = segment_path(folder, number);
        let file = File::open(&path)?;
        let size = file.metadata()?.len();
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        (&file).take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
        let header = match Header::decode(&bytes) {
            None => return Ok(Err("its header is damaged: nothing of it can be read".into())),
            Some(header) if header.version != FORMAT => {
                return Ok(Err(format!(
                    "version {}, and this bloomery reads version {FORMAT}: start the bloomery that \
                     wrote it",
                    header.version
                )));
            }
            // Numbers that no writer reaches would overflow.
            Some(header) if !(1..1 << 63).contains(&header.first) => {
                return Ok(Err(format!("its first operation cannot be {}", header.first)));
            }
            Some(header) if header.segment != number => {
                return Ok(Err(format!("it is segment {}: nothing of it is read", header.segment)));
            }
            Some(header) => header,
        };
        let (seed, at) = (header.seed(), HEADER_BYTES as u64);
        Ok(Ok(Self { number, path, file, size, header, seed, at, next: None, last: false }))
    }

    fn left(&self) -> u64 {
        self.size - self.at
    }

    /// Reads the frames at the current offset, as long as each continues with the next number.
    fn read(&self, last: u64) -> io::Result<Found> {
        if self.left() == 0 {
            return Ok(Found::End);
        }
        let mut bytes = self.bytes_at(self.at, CHUNK_BYTES as u64)?;
        if let Some(head) = FrameHead::decode(&bytes)
            && head.nbytes() > bytes.len() as u64
            && head.nbytes() <= self.left()
            && head.first == last + 1
        {
            bytes = self.bytes_at(self.at, head.nbytes())?;
        }
        let (mut used, mut seq) = (0, last);
        while let Some(nbytes) = self.frame(&bytes[used..], seq + 1) {
            if self.next == Some(seq + 1) {
                // Void: the next segment has other records with these numbers.
                match used {
                    0 => return Ok(Found::End),
                    _ => break,
                }
            }
            let end = used + nbytes;
            let Some(count) = count_records(&bytes[used + FRAME_HEAD..end]) else { break };
            seq += count;
            used = end;
        }
        bytes.truncate(used);
        Ok(if used > 0 {
            Found::Frames(Chunk { bytes, before: last, last: seq })
        } else {
            Found::Bad
        })
    }

    /// Bytes of the valid frame at the start, whose first record has this number.
    fn frame(&self, bytes: &[u8], first: u64) -> Option<usize> {
        let head = FrameHead::decode(bytes).filter(|head| head.first == first)?;
        let nbytes = usize::try_from(head.nbytes()).ok()?;
        let rest = bytes.get(4..nbytes)?;
        (frame_sum(self.seed, rest) == head.checksum).then_some(nbytes)
    }

    fn bytes_at(&self, at: u64, limit: u64) -> io::Result<Vec<u8>> {
        let nbytes = limit.min(self.size - at);
        let mut bytes = Vec::with_capacity(usize::try_from(nbytes).unwrap_or(0));
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at))?;
        if file.take(nbytes).read_to_end(&mut bytes)? as u64 != nbytes {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was truncated meanwhile"));
        }
        Ok(bytes)
    }

    /// Searches from an offset on for a valid frame with a number after `last`, but not one of the
    /// next segment: its offset and that number. `Err`: the search was given up.
    fn search(&self, from: u64, last: u64) -> io::Result<Result<Option<(u64, u64)>, ()>> {
        let mut budget = self.size.saturating_mul(SCAN_FACTOR);
        let mut start = from;
        while start + (FRAME_HEAD as u64) < self.size {
            let window = self.bytes_at(start, CHUNK_BYTES as u64)?;
            let heads = window.len() + 1 - FRAME_HEAD;
            for index in 0..heads {
                let at = start + index as u64;
                let Some(head) = FrameHead::decode(&window[index..]) else { continue };
                // A segment cannot have more records than bytes.
                let near = head.first > last && head.first - last <= self.size;
                let before = self.next.is_none_or(|next| head.first < next);
                let known = at == from && head.first == last + 1; // `read` has rejected it
                if !near || !before || known || head.nbytes() > self.size - at {
                    continue;
                }
                let Some(left) = budget.checked_sub(head.nbytes()) else { return Ok(Err(())) };
                budget = left;
                if self.sum_at(at, head.nbytes())? == head.checksum {
                    return Ok(Ok(Some((at, head.first))));
                }
            }
            start += heads as u64;
        }
        Ok(Ok(None))
    }

    /// The checksum of what may be a frame.
    fn sum_at(&self, at: u64, nbytes: u64) -> io::Result<u32> {
        let (mut sum, mut done) = (self.seed, 4);
        while done < nbytes {
            let part = self.bytes_at(at + done, (nbytes - done).min(CHUNK_BYTES as u64))?;
            sum = frame_sum(sum, &part);
            done += part.len() as u64;
        }
        Ok(sum)
    }
}

/// How many records fill the body of a frame exactly. `None` is what no writer writes.
fn count_records(mut body: &[u8]) -> Option<u64> {
    let mut count = 0;
    while !body.is_empty() {
        body = body.get(RECORD_HEAD + RecordHead::decode(body)?.length..)?;
        count += 1;
    }
    Some(count)
}

/// Copies a segment up to an offset, and fails unless all frames up to there are valid.
pub(super) fn copy_frames(path: &Path, header: &Header, end: u64, into: &File) -> io::Result<()> {
    let lost = || io::Error::other("it cannot be read back");
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut segment = Segment::open(folder, header.segment)?.map_err(|_| lost())?;
    if segment.header != *header || segment.size < end {
        return Err(lost());
    }
    segment.size = end;
    let mut into = into;
    into.write_all(&header.encode())?;
    let mut last = header.first - 1;
    loop {
        match segment.read(last)? {
            Found::Frames(chunk) => {
                into.write_all(&chunk.bytes)?;
                segment.at += chunk.bytes.len() as u64;
                last = chunk.last;
            }
            Found::End => return Ok(()),
            Found::Bad => return Err(lost()),
        }
    }
}

/// The records of all segments from one on, in order, up to the first damage; with `salvage` all
/// records that are not damaged.
pub struct LogReader {
    folder: PathBuf,
    salvage: bool,
    end: Option<u64>,
    /// Numbers of the segments that are read.
    pub segments: Vec<u64>,
    opened: usize, // how many of them
    current: Option<Segment>,
    position: u64, // number of the last record, also if it is not returned
    unknown: bool, // the position, before the first segment is opened
    /// How many records were read.
    pub rows: u64,
    /// A sentence for each damage found so far.
    pub problems: Vec<String>,
    /// Segment with the first damage, which follows record `intact`.
    pub broken: Option<u64>,
    pub intact: u64,
    /// What follows the last valid frame of the last segment, if it is not a frame: a write that a
    /// crash cut off, or damage.
    pub tail: Option<String>,
}

impl LogReader {
    /// Reads from segment `first` on, up to before segment `end`. `seq` is the number of the last
    /// record before `first`, if the caller knows it.
    pub fn new(
        folder: &Path,
        first: u64,
        seq: Option<u64>,
        end: Option<u64>,
        salvage: bool,
    ) -> Result<Self, LogError> {
        let found = segments(folder)
            .map_err(|problem| LogError::new(folder, &problem, "the log cannot be read"))?;
        let read = |number: &u64| *number >= first && end.is_none_or(|end| *number < end);
        let segments: Vec<u64> = found.into_iter().filter(read).collect();
        let mut reader = Self {
            folder: folder.into(),
            salvage,
            end,
            segments,
            opened: 0,
            current: None,
            position: seq.unwrap_or(0),
            unknown: seq.is_none(),
            rows: 0,
            problems: Vec::new(),
            broken: None,
            intact: seq.unwrap_or(0),
            tail: None,
        };
        // A snapshot is made after its segment was started: that one must exist.
        let least = if first > 1 { first } else { 0 };
        let newest = reader.segments.last().copied().unwrap_or(0).max(least);
        let after = end.unwrap_or(newest + 1);
        let mut existing = reader.segments.iter().copied().peekable();
        let missing: Vec<u64> =
            (first..after).filter(|number| existing.next_if_eq(number).is_none()).take(5).collect();
        if let Some(number) = missing.first() {
            let names: Vec<String> = missing.iter().map(|one| format!("{one:08}.log")).collect();
            reader.note(*number, format!("no {}: its operations are lost", names.join(", ")), true);
        }
        Ok(reader)
    }

    /// Number of the last record that was returned.
    pub fn last(&self) -> u64 {
        if self.salvage || self.broken.is_none() { self.position } else { self.intact }
    }

    /// The next records, or `None` at the end. After the first damage there are none, but all
    /// segments are checked.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, LogError> {
        loop {
            let Some(mut segment) = self.current.take() else {
                if self.opened == self.segments.len() {
                    if self.broken.is_none() {
                        self.intact = self.position;
                    }
                    return Ok(None);
                }
                self.open()?;
                continue;
            };
            let unreadable = |problem| LogError::new(&segment.path, &problem, "it cannot be read");
            match segment.read(self.position).map_err(unreadable)? {
                Found::Frames(chunk) => {
                    segment.at += chunk.bytes.len() as u64;
                    self.position = chunk.last;
                    self.current = Some(segment);
                    if self.salvage || self.broken.is_none() {
                        self.rows += chunk.count();
                        return Ok(Some(chunk));
                    }
                }
                Found::End => self.leave(&segment, None),
                Found::Bad => {
                    let next = segment.search(segment.at, self.position).map_err(unreadable)?;
                    self.skip(segment, next);
                }
            }
        }
    }

    /// Opens the next segment, and notes if it cannot be read or does not continue the log.
    fn open(&mut self) -> Result<(), LogError> {
        let number = self.segments[self.opened];
        self.opened += 1;
        let opened = Segment::open(&self.folder, number).map_err(|problem| {
            LogError::new(&segment_path(&self.folder, number), &problem, "it cannot be read")
        })?;
        let mut segment = match opened {
            Ok(segment) => segment,
            Err(text) => {
                self.note(number, text, false);
                return Ok(());
            }
        };
        let next = self.segments.get(self.opened).copied().or(self.end);
        segment.last = next.is_none();
        segment.next = next.and_then(|number| {
            Segment::open(&self.folder, number).ok()?.ok().map(|next| next.header.first)
        });
        let first = segment.header.first;
        if self.unknown {
            (self.unknown, self.position) = (false, first - 1);
        }
        let expected = self.position + 1;
        if first != expected && self.broken.is_none() {
            let what = match first > expected {
                true => format!("operations {expected} to {} are missing", first - 1),
                false => format!("operation {first} is there again"),
            };
            self.note(number, what, false);
        }
        self.position = self.position.max(first - 1);
        self.current = Some(segment);
        Ok(())
    }

    /// Ends a segment after its last valid frame, which `garbage` follows.
    fn leave(&mut self, segment: &Segment, garbage: Option<String>) {
        match (segment.next, garbage) {
            (Some(next), _) if next == self.position + 1 => {}
            (Some(next), garbage) => {
                let cause = garbage.map_or(String::new(), |text| format!("{text}: "));
                let after = self.position;
                let text =
                    format!("{cause}ends after operation {after}, the next starts with {next}");
                self.note(segment.number, text, false);
            }
            (None, Some(garbage)) if segment.last => {
                self.tail = Some(format!("{}: {garbage}", segment.path.display()));
            }
            (None, Some(garbage)) => self.note(segment.number, garbage, false),
            (None, None) => {}
        }
    }

    /// Handles bytes that are not a valid frame, given the next frame that is.
    fn skip(&mut self, mut segment: Segment, next: Result<Option<(u64, u64)>, ()>) {
        let (from, after) = (segment.at, self.position);
        match next {
            Ok(None) => {
                let text =
                    format!("damaged or unfinished from byte {from} on, after operation {after}");
                self.leave(&segment, Some(text));
            }
            Ok(Some((at, first))) => {
                let lost = match first - 1 - after {
                    0 => "nothing is lost by that".into(),
                    _ => format!("operations {} to {} are lost", after + 1, first - 1),
                };
                let text = match at == from {
                    true => lost,
                    false => format!("bytes {from} to {at} are damaged: {lost}"),
                };
                self.note(segment.number, text, false);
                self.position = first - 1;
                segment.at = at;
                self.current = Some(segment);
            }
            Err(()) => {
                let text = format!("damaged from byte {from} on, after operation {after}");
                self.note(segment.number, text, false);
            }
        }
    }

    fn note(&mut self, number: u64, text: String, folder: bool) {
        if self.broken.is_none() {
            (self.broken, self.intact) = (Some(number), self.position);
        }
        let path = if folder { self.folder.clone() } else { segment_path(&self.folder, number) };
        self.problems.push(format!("{}: {text}", path.display()));
    }
}

//! What was written is read, what is damaged is not, and nothing that failed comes back.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::format::{FRAME_HEAD, HEADER_BYTES, RECORD_HEAD};
use super::*;

type Row = (u64, f64, u64, u8, Vec<u8>);

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("bloomery-log-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn segment(&self, number: u64) -> PathBuf {
        segment_path(&self.0, number)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(folder: &Path, segment: u64, seq: u64) -> Log {
    let fsync = Fsync::Never;
    let (folder, segment_bytes, control) = (folder.into(), 1 << 30, None);
    Log::open(Options { folder, segment, seq, fsync, segment_bytes, control }).unwrap()
}

/// The row with this number: each has other data.
fn row(seq: u64) -> Row {
    let data = seq.to_le_bytes().repeat(seq as usize % 4);
    (seq, seq as f64 / 8.0, seq % 3, seq as u8 % 17, data)
}

/// Writes the rows with these numbers in one batch.
fn write(log: &Log, numbers: Range<u64>) {
    let mut batch = Batch::default();
    for seq in numbers.clone() {
        let (_, at, filter, op, data) = row(seq);
        batch.push(at, filter, op, &data).unwrap();
    }
    assert_eq!(log.write(&mut batch, 1.0).unwrap(), numbers.end - 1);
}

/// All rows, and the reader when it has ended.
fn read(folder: &Path, salvage: bool) -> (Vec<Row>, LogReader) {
    let mut reader = LogReader::new(folder, 1, Some(0), None, salvage).unwrap();
    let mut rows = Vec::new();
    while let Some(chunk) = reader.next_chunk().unwrap() {
        let found = chunk.records();
        rows.extend(found.map(|one| (one.seq, one.at, one.filter, one.op, one.data.to_vec())));
    }
    (rows, reader)
}

fn rows(numbers: Range<u64>) -> Vec<Row> {
    numbers.map(row).collect()
}

/// Three segments with batches of one, two and three rows: 1..7, 7..13, 13..19.
fn three_segments(folder: &Path) {
    let log = open(folder, 1, 0);
    for start in [1, 7, 13] {
        if start > 1 {
            log.cut().unwrap();
        }
        write(&log, start..start + 1);
        write(&log, start + 1..start + 3);
        write(&log, start + 3..start + 6);
    }
    log.close().unwrap();
}

#[test]
fn written_rows_are_read() {
    let folder = Folder::new();
    three_segments(&folder.0);
    let (found, reader) = read(&folder.0, false);
    assert_eq!(found, rows(1..19));
    assert_eq!((reader.problems, reader.tail, reader.intact), (vec![], None, 18));
    assert_eq!(segments(&folder.0).unwrap(), [1, 2, 3]);
    let again = Options {
        folder: folder.0.clone(),
        segment: 3,
        seq: 18,
        fsync: Fsync::Never,
        segment_bytes: 1,
        control: None,
    };
    let Err(LogError(text)) = Log::open(again) else { panic!("a segment was replaced") };
    assert!(text.contains("exists already"), "{text}");
}

/// A file that a killed server left without its name is removed, and is no segment.
#[test]
fn unnamed_files_are_removed() {
    let folder = Folder::new();
    let left = folder.0.join(".00000004.log.tmp");
    fs::write(&left, b"half a segment").unwrap();
    three_segments(&folder.0);
    assert!(!left.exists());
    assert_eq!(read(&folder.0, false).0, rows(1..19));
}

#[test]
fn a_frame_longer_than_a_chunk_is_read() {
    let folder = Folder::new();
    let log = open(&folder.0, 1, 0);
    let data = vec![7; 3_000_000];
    let mut batch = Batch::default();
    batch.push(1.0, 1, 11, &data).unwrap();
    batch.push(1.0, 1, 11, &data).unwrap();
    log.write(&mut batch, 0.0).unwrap();
    write(&log, 3..4);
    let (found, reader) = read(&folder.0, false);
    assert_eq!((found.len(), &found[1].4, &found[2]), (3, &data, &row(3)));
    assert_eq!((reader.problems, reader.tail), (vec![], None));
}

/// Changes a file, checks what is read, and restores it.
fn damaged(path: &Path, raw: &[u8], check: &dyn Fn(String), label: String) {
    let before = fs::read(path).unwrap();
    fs::write(path, raw).unwrap();
    check(label);
    fs::write(path, before).unwrap();
}

/// Each byte of each segment is flipped, and each segment is cut off at each byte. The reader
/// yields a prefix of the rows and reports the rest; a salvage yields rows that were written, each
/// once and in order. Never anything else.
#[test]
fn damage_is_noticed_at_every_byte() {
    let folder = Folder::new();
    three_segments(&folder.0);
    let written = rows(1..19);
    for number in 1..=3 {
        let path = folder.segment(number);
        let raw = fs::read(&path).unwrap();
        let check = |cut_at_frame: bool| {
            let (written, folder) = (&written, &folder);
            move |label: String| {
                let (found, reader) = read(&folder.0, false);
                assert_eq!(found, written[..found.len()], "{label}");
                assert_eq!(reader.intact, found.len() as u64, "{label}");
                let said = !reader.problems.is_empty() || reader.tail.is_some();
                // Only the end of the last segment can be missing unnoticed: the control file tells.
                assert!(said || (number == 3 && cut_at_frame), "{label}");
                assert!(found.len() < 18, "{label}");
                assert!(reader.tail.is_none() || number == 3, "{label}");
                let (salvaged, reader) = read(&folder.0, true);
                assert!(salvaged.len() >= found.len(), "{label}");
                assert!(salvaged.is_sorted_by(|a, b| a.0 < b.0), "{label}");
                assert!(salvaged.iter().all(|row| written.contains(row)), "{label}");
                assert!(salvaged.len() >= 12, "{label}: {:?}", reader.problems);
            }
        };
        let mut frames = vec![HEADER_BYTES];
        for count in 1..=3 {
            let first = 6 * (number - 1) + [1, 2, 4][count - 1];
            let data: usize = rows(first..first + count as u64).iter().map(|row| row.4.len()).sum();
            frames.push(frames.last().unwrap() + FRAME_HEAD + count * RECORD_HEAD + data);
        }
        assert_eq!(*frames.last().unwrap(), raw.len());
        for at in 0..raw.len() {
            let mut flipped = raw.clone();
            flipped[at] ^= 1 << (at % 8);
            damaged(&path, &flipped, &check(false), format!("{number}: byte {at}"));
            let cut = check(frames.contains(&at));
            damaged(&path, &raw[..at], &cut, format!("{number}: {at} bytes"));
        }
    }
}

/// Rows of a write that failed, which could not be removed, are void: the next segment continues
/// with their numbers. So is half a frame.
#[test]
fn a_refused_write_does_not_come_back() {
    let folder = Folder::new();
    let log = open(&folder.0, 1, 0);
    write(&log, 1..4);
    write(&log, 4..6);
    write(&log, 6..7);
    log.close().unwrap();
    let raw = fs::read(folder.segment(1)).unwrap();
    for left in [raw.len(), raw.len() - 1, raw.len() - 30] {
        fs::write(folder.segment(1), &raw[..left]).unwrap();
        let log = open(&folder.0, 2, 3);
        let mut batch = Batch::default();
        batch.push(9.0, 9, 9, b"other").unwrap();
        log.write(&mut batch, 0.0).unwrap();
        for salvage in [false, true] {
            let (found, reader) = read(&folder.0, salvage);
            assert_eq!(found[..3], rows(1..4));
            assert_eq!(found[3..], [(4, 9.0, 9, 9, b"other".to_vec())]);
            assert_eq!((reader.problems, reader.tail), (vec![], None));
        }
        fs::remove_file(folder.segment(2)).unwrap();
    }
}

/// Valid frames after a hole are not read, and a hole is not taken for the end.
#[test]
fn a_hole_is_not_the_end() {
    let folder = Folder::new();
    let log = open(&folder.0, 1, 0);
    for seq in 1..10 {
        write(&log, seq..seq + 1);
    }
    let path = folder.segment(1);
    let mut raw = fs::read(&path).unwrap();
    let at = HEADER_BYTES + 3 * (FRAME_HEAD + RECORD_HEAD) + 40;
    raw[at..at + 90].fill(0);
    fs::write(&path, raw).unwrap();
    let (found, reader) = read(&folder.0, false);
    assert_eq!((found.len() as u64, reader.broken, reader.tail), (reader.intact, Some(1), None));
    assert!(reader.problems[0].contains("are lost"), "{:?}", reader.problems);
    let (salvaged, _) = read(&folder.0, true);
    assert_eq!(salvaged.last(), rows(9..10).last());
    assert!(salvaged.len() > found.len());
}

/// Data that looks like a frame is not taken for one where the frame around it is damaged: the
/// salt of a segment is not known to clients.
#[test]
fn data_is_never_taken_for_a_frame() {
    let folder = Folder::new();
    let mut forged = Batch::default();
    forged.push(1.0, 666, 4, b"drop everything").unwrap();
    let data: Vec<u8> = (0..50).flat_map(|first| forged.frame(0, first).to_vec()).collect();
    let log = open(&folder.0, 1, 0);
    let mut batch = Batch::default();
    batch.push(1.0, 1, 11, &data).unwrap();
    log.write(&mut batch, 0.0).unwrap();
    write(&log, 2..3);
    let path = folder.segment(1);
    let mut raw = fs::read(&path).unwrap();
    raw[HEADER_BYTES + 4] ^= 1;
    fs::write(&path, raw).unwrap();
    let (salvaged, reader) = read(&folder.0, true);
    assert_eq!((salvaged, reader.problems.len()), (rows(2..3), 1));
}

/// A search for the next frame ends, whatever the data looks like.
#[test]
fn a_search_ends() {
    let folder = Folder::new();
    let log = open(&folder.0, 1, 0);
    let head: Vec<u8> = [&[0; 4][..], &500_000_u64.to_le_bytes(), &2_u64.to_le_bytes()].concat();
    let mut batch = Batch::default();
    batch.push(1.0, 1, 11, &head.repeat(50_000)).unwrap();
    log.write(&mut batch, 0.0).unwrap();
    let path = folder.segment(1);
    let mut raw = fs::read(&path).unwrap();
    raw[HEADER_BYTES] ^= 1;
    fs::write(&path, raw).unwrap();
    let (found, reader) = read(&folder.0, false);
    assert_eq!((found, reader.tail, reader.problems.len()), (vec![], None, 1));
}

/// A reader that ends before a segment goes by that segment's header, too.
#[test]
fn missing_rows_before_the_end_are_noticed() {
    let folder = Folder::new();
    three_segments(&folder.0);
    let raw = fs::read(folder.segment(2)).unwrap();
    fs::write(folder.segment(2), &raw[..HEADER_BYTES]).unwrap();
    let mut reader = LogReader::new(&folder.0, 1, Some(0), Some(3), false).unwrap();
    while reader.next_chunk().unwrap().is_some() {}
    assert_eq!((reader.intact, reader.broken, reader.problems.len()), (6, Some(2), 1));
}

/// A reader that does not know the number of the first record goes by the header.
#[test]
fn one_segment_can_be_read() {
    let folder = Folder::new();
    three_segments(&folder.0);
    let mut reader = LogReader::new(&folder.0, 2, None, Some(3), false).unwrap();
    let chunk = reader.next_chunk().unwrap().unwrap();
    assert_eq!(chunk.records().map(|record| record.seq).collect::<Vec<_>>(), [7, 8, 9, 10, 11, 12]);
    assert!(reader.next_chunk().unwrap().is_none());
    assert_eq!((reader.problems, reader.intact), (vec![], 12));
}

#[test]
fn a_missing_segment_is_named() {
    let folder = Folder::new();
    three_segments(&folder.0);
    fs::remove_file(folder.segment(2)).unwrap();
    let (found, reader) = read(&folder.0, false);
    assert_eq!((found, reader.broken), (vec![], Some(2)));
    assert!(reader.problems[0].contains("no 00000002.log"), "{:?}", reader.problems);
    let (salvaged, _) = read(&folder.0, true);
    assert_eq!(salvaged, [rows(1..7), rows(13..19)].concat());
}

#[test]
fn a_large_segment_is_followed_by_another() {
    let folder = Folder::new();
    let log = Log::open(Options {
        folder: folder.0.clone(),
        segment: 1,
        seq: 0,
        fsync: Fsync::EverySecond,
        segment_bytes: 500,
        control: None,
    })
    .unwrap();
    for seq in 1..100 {
        write(&log, seq..seq + 1);
        if seq % 10 == 0 {
            assert_eq!((log.flush().unwrap(), log.oldest_unsynced()), (seq, None));
        }
    }
    assert_eq!((log.oldest_unsynced(), log.segment() > 5), (Some(1.0), true));
    log.close().unwrap();
    assert!(log.write(&mut Batch::default(), 1.0).is_ok());
    let (found, reader) = read(&folder.0, false);
    assert_eq!((found, reader.problems), (rows(1..100), vec![]));
}

/// CPU time of this thread, as Linux has it.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Prints how long records of one key take; `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn measure() {
    let folder = Folder::new();
    let log = open(&folder.0, 1, 0);
    let count = 10_000_000_u64;
    let started = Instant::now();
    for seq in 0..count {
        let mut batch = Batch::with_capacity(1, 8);
        batch.push(seq as f64, 1, 1, &seq.to_le_bytes()).unwrap();
        log.write(&mut batch, 0.0).unwrap();
    }
    println!("{count} commits: {:?}", started.elapsed());
    for _ in 0..3 {
        let started = cpu_seconds();
        let mut reader = LogReader::new(&folder.0, 1, Some(0), None, false).unwrap();
        while reader.next_chunk().unwrap().is_some() {}
        println!("{} records read: {:.3} s of CPU", reader.rows, cpu_seconds() - started);
    }
}

//! A replay leads to the same filters as applying each record as it is live, and hands over the
//! records of the control plane at their position.

#[expect(dead_code, reason = "the models of replies are for other tests")]
mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bloomery_server::apply::Progress;
use bloomery_server::keyspace::{
    ADD, ADD_IN_PLACE, ADD_NEW, ADD_NEW_IN_PLACE, CommandFamily, Keyspace, REMOVE,
};
use bloomery_server::log::{Batch, Fsync, Log, LogReader, Options};
use bloomery_server::replay::Replay;
use common::{Chance, put};

/// An operation of the control plane.
const OTHER: u8 = 99;

/// Filter, operation and data.
type Row = (u64, u8, Vec<u8>);

/// A folder for a log, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Folder(std::env::temp_dir().join(format!("bloomery-replay-{name}-{}", std::process::id())))
    }

    /// Writes rows in batches of different sizes, and opens the log.
    fn written(&self, rows: &[Row], chance: &mut Chance) -> Replay {
        let (folder, control) = (self.0.clone(), None);
        let (segment, seq, fsync, segment_bytes) = (1, 0, Fsync::Never, 1 << 30);
        let options = Options { folder, segment, seq, fsync, segment_bytes, control };
        let log = Log::open(options).unwrap();
        let (mut at, mut rest) = (0.0, rows);
        while !rest.is_empty() {
            let (some, others) = rest.split_at(rest.len().min(1 + chance.below(40)));
            let mut batch = Batch::default();
            for (filter, op, data) in some {
                at += 1.0;
                batch.push(at, *filter, *op, data).unwrap();
            }
            log.write(&mut batch, at).unwrap();
            rest = others;
        }
        log.close().unwrap();
        Replay::new(LogReader::new(&self.0, 1, Some(0), None, false).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn filters() -> Keyspace {
    let keyspace = Keyspace::default();
    put(&keyspace, b"bits", 1, CommandFamily::Bf, usize::MAX);
    put(&keyspace, b"copies", 2, CommandFamily::Cf, usize::MAX);
    put(&keyspace, b"full", 3, CommandFamily::Bf, 50);
    keyspace
}

fn random_row(chance: &mut Chance) -> Row {
    let (filter, name) = [(1, "bits"), (2, "copies"), (3, "full"), (4, "missing")]
        [if chance.below(100) == 0 { 3 } else { chance.below(3) }];
    let op = match chance.below(20) {
        0 => OTHER,
        1 => ADD_NEW,
        2 => ADD_IN_PLACE,
        3 => ADD_NEW_IN_PLACE,
        4 | 5 if filter == 2 => REMOVE,
        _ => ADD,
    };
    let mut data = vec![name.len() as u8, 0];
    data.extend_from_slice(name.as_bytes());
    for _ in 0..1 + chance.below(4) {
        data.extend_from_slice(&(chance.below(300) as u64).to_le_bytes());
    }
    (filter, op, data)
}

/// How many keys each filter has.
fn items(keyspace: &Keyspace) -> Vec<u64> {
    let names = keyspace.names();
    let each = [&b"bits"[..], b"copies", b"full"];
    each.iter().map(|name| names.get(name).unwrap().counters.read().0).collect()
}

/// Which of the keys each filter has, and how often.
fn contents(keyspace: &Keyspace) -> Vec<u64> {
    let names = keyspace.names();
    let count = |name: &&[u8], key| names.get(name).unwrap().filter.count(&[key]).unwrap();
    let each = [&b"bits"[..], b"copies", b"full"];
    each.iter().flat_map(|name| (0..300).map(move |key| count(name, key))).collect()
}

#[test]
fn replay_is_the_same_as_applying_each_record() {
    for seed in 1..20 {
        let mut chance = Chance(seed * 0x9e37_79b9);
        let rows: Vec<Row> = (0..2000).map(|_| random_row(&mut chance)).collect();
        let folder = Folder::new(&format!("same-{seed}"));
        let mut replay = folder.written(&rows, &mut chance);
        let (replayed, live) = (Arc::new(filters()), filters());
        let (mut done, mut left) = (0, Vec::new());
        let apply_live = |rows: &[Row]| {
            for (filter, op, data) in rows {
                let mut outcomes = Vec::new();
                let each = [(*filter, *op, &data[..])].into_iter();
                let progress = live.apply(&live.names(), each, &mut outcomes, None).unwrap();
                assert!(progress == Progress::Done || *op == OTHER);
            }
            (items(&live), contents(&live))
        };
        loop {
            let more = replay.step(&replayed, &mut left).unwrap();
            let next = left.first().map_or(rows.len(), |record| record.seq as usize - 1);
            let expected = apply_live(&rows[done..next]);
            assert_eq!((items(&replayed), contents(&replayed)), expected, "seed {seed}");
            done = next;
            for record in left.drain(..) {
                let row = (record.filter, record.op, record.data);
                assert_eq!(row, rows[done], "seed {seed}");
                assert!(row.1 == OTHER || row.0 == 4, "native code can apply it");
                done += 1;
                assert_eq!(record.at, done as f64);
            }
            if !more {
                break;
            }
        }
        assert_eq!(done, rows.len());
        assert_eq!(replay.reader.rows, rows.len() as u64);
        assert!(replay.latest <= rows.len() as f64 && replay.latest > 1.0);
    }
}

#[test]
fn records_of_a_filter_that_appears_are_applied() {
    let folder = Folder::new("appears");
    let row = |key: u64| (5, ADD, [&b"\x03\0new"[..], &key.to_le_bytes()].concat());
    let mut replay = folder.written(&(0..10).map(row).collect::<Vec<_>>(), &mut Chance(1));
    let (keyspace, mut left) = (Keyspace::default(), Vec::new());
    assert!(replay.step(&keyspace, &mut left).unwrap());
    assert_eq!(left.len(), 1, "the filter can be there for the next one");
    put(&keyspace, b"new", 5, CommandFamily::Bf, usize::MAX);
    left.clear();
    while replay.step(&keyspace, &mut left).unwrap() {}
    assert!(left.is_empty());
    assert_eq!(keyspace.names().get(b"new").unwrap().counters.read().0, 9);
}

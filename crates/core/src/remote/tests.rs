//! Strings that do as Redis does, beside the local filter.

use super::{Commands, Doing, Places};
use std::sync::atomic::Ordering::Relaxed;

use crate::bits::Bits;
use crate::format::{Header, KindId};
use crate::hash::{HashKind, KeyHasher, remix};

fn places(kind: KindId, layout: u8, per_key: u8, hashes: u16, rule: u64) -> Places {
    let header = Header {
        kind,
        layout,
        lines_per_key: per_key,
        num_hashes: hashes,
        num_bits: 40 * 512,
        hasher: KeyHasher { kind: HashKind::Xxh3, seed: 0 },
        capacity: 1,
        error_rate: 0.01,
        nbytes: 40 * 64,
        extra: [rule, 0, 0, 0, 0, 0],
        checksum: 0,
    };
    Places::new(&header, 12 * 64).expect("a good header")
}

/// Strings in place of Redis, which does what the words say.
struct Strings(Vec<Vec<u8>>);

impl Strings {
    fn cell(&mut self, shard: usize, width: usize, offset: usize) -> (&mut u8, u32) {
        let byte = &mut self.0[shard][offset / 8];
        (byte, (8 - width - offset % 8) as u32)
    }

    fn serve(&mut self, commands: &mut Commands) {
        for shard in 0..self.0.len() {
            let data = commands.parts[shard].data.clone();
            let text = String::from_utf8(data).expect("names are text here");
            let mut words = text.split("\r\n").filter(|w| !w.is_empty() && !w.starts_with('$'));
            let Some(head) = words.next() else { continue };
            assert_eq!((head, words.next(), words.next()), ("*2", Some("STRLEN"), Some("s")));
            commands.skip(shard);
            while let Some(head) = words.next() {
                let count: usize = head[1..].parse().expect("a head");
                let command: Vec<&str> = words.by_ref().take(count).collect();
                assert_eq!(command.len(), count);
                self.one(commands, shard, &command);
            }
        }
    }

    fn one(&mut self, commands: &mut Commands, shard: usize, command: &[&str]) {
        let number = |word: &str| word.parse::<usize>().expect("a number");
        if command[0] == "GETRANGE" {
            let line = self.0[shard][number(command[2])..=number(command[3])].to_vec();
            assert!(commands.line(shard, &line));
            return;
        }
        let (mut at, mut values) = (2, Vec::new());
        while at < command.len() {
            let (what, width) =
                (command[at], command.get(at + 1).map_or(0, |w| w[1..].parse().unwrap_or(0)));
            at += match what {
                "OVERFLOW" => 2,
                "GET" => {
                    let (byte, shift) = self.cell(shard, width, number(command[at + 2]));
                    values.push(i64::from(*byte >> shift & (u8::MAX >> (8 - width))));
                    3
                }
                _ => {
                    let (byte, shift) = self.cell(shard, width, number(command[at + 2]));
                    let most = u8::MAX >> (8 - width);
                    let old = *byte >> shift & most;
                    let new = if what == "SET" { 1 } else { most.min(old.saturating_add(1)) };
                    *byte = *byte & !(most << shift) | new << shift;
                    values.push(i64::from(if what == "SET" { old } else { new }));
                    4
                }
            };
        }
        assert!(commands.numbers(shard, &values));
    }
}

/// Whatever the layout, strings hold what the local filter's memory would, and answer as it does.
#[test]
fn as_the_local_filter() {
    use crate::kind::open;
    use crate::probe::{Job, Probe, with_probe};
    use crate::shape::Shape;
    struct Both(u64);
    impl Job for Both {
        type Output = (bool, bool);
        fn run<P: Probe>(self, probe: &P) -> (bool, bool) {
            (probe.contains(self.0), probe.add::<false>(self.0))
        }
    }
    for (kind, layout, per_key, hashes, rule) in [
        (KindId::Bloom, 1, 1, 8, 0),
        (KindId::Bloom, 1, 2, 12, 0),
        (KindId::Bloom, 2, 0, 7, 0),
        (KindId::Counting, 0, 1, 5, 4),
        (KindId::Counting, 0, 2, 6, 8),
    ] {
        let places = places(kind, layout, per_key, hashes, rule);
        let mut strings = Strings(vec![vec![0; 12 * 64]; 3]);
        strings.0.push(vec![0; 4 * 64]);
        assert_eq!(places.shards(), 4);
        let names = [&b"s"[..]; 4];
        let bits = Bits::zeroed(40 * 64).expect("some lines");
        let mut family = (kind != KindId::Bloom).then(|| open(&places.header, None).expect("fine"));
        let mut ask = |h: u64, add: bool| match &mut family {
            Some(filter) if add => filter.add(h).expect("room"),
            Some(filter) => filter.count(h) > 0,
            None => {
                let shape = Shape::of(&places.header).expect("a good shape");
                let copy = || with_probe(&bits, &shape, Both(h));
                if add {
                    copy().1
                } else {
                    let found = Bits::zeroed(40 * 64).expect("some lines");
                    found.or_with(&bits);
                    with_probe(&found, &shape, Both(h)).0
                }
            }
        };
        for round in 0..60u64 {
            let hashes: Vec<u64> = (0..9).map(|i| remix(round / 2 * 5 + i)).collect();
            let doing = if round % 2 == 0 { Doing::Contains } else { Doing::Add };
            let expected: Vec<bool> = hashes.iter().map(|h| ask(*h, doing == Doing::Add)).collect();
            let mut commands = Commands::new(places, doing, hashes, &names, b"");
            strings.serve(&mut commands);
            let found: Vec<bool> = commands.answers.iter().map(|a| *a != 0).collect();
            assert_eq!(found, expected);
        }
        let bytes = |bits: &Bits| -> Vec<u8> {
            let words = bits.words().iter();
            words.flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
        };
        let memory = match &family {
            Some(filter) => bytes(&filter.sections()[0]),
            None => bytes(&bits),
        };
        assert_eq!(strings.0.concat(), memory);
    }
}

/// Replies that do not fit what was asked for are refused, whatever they are.
#[test]
fn wrong_replies() {
    let names = [&b"s"[..]; 4];
    let places = places(KindId::Bloom, 1, 1, 8, 0);
    let commands = |doing| Commands::new(places, doing, vec![1, 2, 3], &names, b"");
    for values in [vec![], vec![0; 7], vec![0; 25]] {
        for shard in 0..5 {
            let mut asked = commands(Doing::Add);
            asked.skip(shard);
            assert!(!asked.numbers(shard, &values));
        }
    }
    for shard in 0..5 {
        let mut asked = commands(Doing::Contains);
        asked.skip(shard);
        assert!(!asked.line(shard, &[0; 63]));
    }
}

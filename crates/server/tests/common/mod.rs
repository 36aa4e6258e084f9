//! Filters that count exactly, a model of their replies, and a log that accepts every batch.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use bloomery_core::kind::Refusal;
use bloomery_core::resp::Limits;
use bloomery_server::apply::{Outcome, Progress};
use bloomery_server::filter::{Done, Fault, Filter};
use bloomery_server::keyspace::{CommandFamily, Counters, Data, Entry, Keyspace, Pending};

pub const LIMITS: Limits = Limits {
    arguments: 1 << 20,
    argument_bytes: 1 << 20,
    request_bytes: 1 << 24,
    passes_over: false,
};

/// Counts copies of keys exactly, at most `most` in all.
struct Exact {
    copies: Mutex<HashMap<u64, u64>>,
    most: usize,
    counts: bool,
}

impl Filter for Exact {
    fn width(&self) -> usize {
        1
    }

    fn hash(&self, key: &[u8], out: &mut Vec<u64>) {
        out.push(key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        }));
    }

    fn contains(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Result<(), Fault> {
        let copies = self.copies.lock().unwrap();
        answers.extend(hashes.iter().map(|h| u8::from(copies.contains_key(h))));
        Ok(())
    }

    fn count(&self, hash: &[u64]) -> Result<u64, Fault> {
        Ok(self.copies.lock().unwrap().get(&hash[0]).copied().unwrap_or(0))
    }

    fn try_add(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Done {
        let mut copies = self.copies.lock().unwrap();
        for h in hashes {
            if copies.len() >= self.most && !copies.contains_key(h) {
                return Ok(Err(Refusal::Full("the filter is full".into())));
            }
            let count = copies.entry(*h).or_default();
            *count += 1;
            answers.push(u8::from(self.counts || *count == 1));
        }
        Ok(Ok(()))
    }

    fn try_remove(&self, hashes: &[u64], answers: &mut Vec<u8>) -> Done {
        let mut copies = self.copies.lock().unwrap();
        for h in hashes {
            let left = copies.get_mut(h).map(|count| {
                *count -= 1;
                *count
            });
            if left == Some(0) {
                copies.remove(h);
            }
            answers.push(u8::from(left.is_some()));
        }
        Ok(Ok(()))
    }

    fn every_add_counts(&self) -> bool {
        self.counts
    }

    fn needs_room(&self, _keys: usize) -> bool {
        false
    }

    fn make_room(&self, _keys: usize) -> Result<(), Fault> {
        Ok(())
    }

    fn growth_bytes(&self, _keys: usize) -> u64 {
        0
    }

    fn keys_per_look(&self) -> usize {
        3
    }

    fn is_quick(&self) -> bool {
        true
    }

    fn check_layers(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub fn put(keyspace: &Keyspace, name: &[u8], id: u64, family: CommandFamily, most: usize) {
    let counts = family == CommandFamily::Cf;
    let counters = Arc::new(Counters::default());
    counters.threshold.store(u64::MAX, Relaxed);
    let entry = Entry {
        id,
        filter: Arc::new(Exact { copies: Mutex::default(), most, counts }),
        family,
        limit: u64::MAX,
        full: "full".into(),
        loading: false,
        followed: false,
        counters,
    };
    keyspace.names_mut().entries.insert(name.to_vec(), Arc::new(entry));
}

/// A keyspace with `bits`, whose known keys need no record, and `copies`, which counts them.
pub fn keyspace(exclusive: bool) -> Arc<Keyspace> {
    let keyspace = Arc::new(Keyspace::default());
    keyspace.exclusive.store(exclusive, Relaxed);
    put(&keyspace, b"bits", 1, CommandFamily::Bf, usize::MAX);
    put(&keyspace, b"copies", 2, CommandFamily::Cf, usize::MAX);
    keyspace
}

pub fn packed(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Applies a batch as if the log had it.
pub fn applied(keyspace: &Keyspace, batch: &Pending) -> Vec<Outcome> {
    let data = |data: &Data| match data {
        Data::Keys(data, _) => data.clone(),
        Data::Given(payload) => payload.bytes().to_vec(),
    };
    let records: Vec<_> = batch.records.iter().map(|r| (r.id, r.op, data(&r.data))).collect();
    let mut outcomes = Vec::new();
    let names = keyspace.names();
    let each = records.iter().map(|(id, op, data)| (*id, *op, &data[..]));
    let progress = keyspace.apply(&names, each, &mut outcomes, None);
    assert_eq!(progress.unwrap(), Progress::Done);
    outcomes
}

/// A generator of pseudo-random numbers (xorshift).
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// The keys of one client, which no other client uses.
pub struct Model {
    pub chance: Chance,
    prefix: u8,
    bits: HashSet<u8>,
    copies: HashMap<u8, u64>,
}

impl Model {
    pub fn new(seed: u64, prefix: u8) -> Self {
        let (bits, copies) = (HashSet::new(), HashMap::new());
        Model { chance: Chance(seed), prefix, bits, copies }
    }

    /// Returns a random command and its reply.
    pub fn command(&mut self) -> (Vec<u8>, String) {
        let Model { chance, prefix, bits, copies } = self;
        let key = chance.below(12) as u8;
        let text = [*prefix, key];
        match chance.below(7) {
            0 => {
                let new = bits.insert(key);
                (packed(&[b"BF.ADD", b"bits", &text]), format!(":{}\r\n", u8::from(new)))
            }
            1 => {
                let known = bits.contains(&key);
                (packed(&[b"BF.EXISTS", b"bits", &text]), format!(":{}\r\n", u8::from(known)))
            }
            2 => {
                let other = [*prefix, (key + 1) % 12];
                let new = [key, other[1]].map(|key| u8::from(bits.insert(key)));
                let reply = format!("*2\r\n:{}\r\n:{}\r\n", new[0], new[1]);
                (packed(&[b"BF.MADD", b"bits", &text, &other]), reply)
            }
            3 => {
                *copies.entry(key).or_default() += 1;
                (packed(&[b"CF.ADD", b"copies", &text]), ":1\r\n".into())
            }
            4 => {
                let new = !copies.contains_key(&key);
                if new {
                    copies.insert(key, 1);
                }
                (packed(&[b"CF.ADDNX", b"copies", &text]), format!(":{}\r\n", u8::from(new)))
            }
            5 => {
                let known = copies.contains_key(&key);
                if let Some(count) = copies.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        copies.remove(&key);
                    }
                }
                (packed(&[b"CF.DEL", b"copies", &text]), format!(":{}\r\n", u8::from(known)))
            }
            _ => {
                let count = copies.get(&key).copied().unwrap_or(0);
                (packed(&[b"CF.COUNT", b"copies", &text]), format!(":{count}\r\n"))
            }
        }
    }
}

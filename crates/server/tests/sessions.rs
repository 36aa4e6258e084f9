//! Sessions against a plain model: every reply is what the log has, in the order of the commands.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use bloomery_core::kind::Refusal;
use bloomery_core::resp::Limits;
use bloomery_server::apply::{Outcome, Progress};
use bloomery_server::filter::{Done, Fault, Filter};
use bloomery_server::keyspace::{CommandFamily, Counters, Data, Entry, Keyspace, Pending};
use bloomery_server::session::{Ended, Scratch, Session};
use bloomery_server::writes::Answered;

const LIMITS: Limits =
    Limits { arguments: 1 << 20, argument_bytes: 1 << 20, request_bytes: 1 << 24 };

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

    fn check_layers(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn put(keyspace: &Keyspace, name: &[u8], id: u64, family: CommandFamily, most: usize) {
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
fn keyspace(exclusive: bool) -> Arc<Keyspace> {
    let keyspace = Arc::new(Keyspace::default());
    keyspace.exclusive.store(exclusive, Relaxed);
    put(&keyspace, b"bits", 1, CommandFamily::Bf, usize::MAX);
    put(&keyspace, b"copies", 2, CommandFamily::Cf, usize::MAX);
    keyspace
}

fn packed(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Applies a batch as if the log had it.
fn applied(keyspace: &Keyspace, batch: Pending) -> Vec<Outcome> {
    let data = |data: &Data| match data {
        Data::Keys(data, _) => data.clone(),
        Data::Given(payload) => payload.bytes().to_vec(),
    };
    let records: Vec<_> = batch.records.iter().map(|r| (r.id, r.op, data(&r.data))).collect();
    let (mut outcomes, mut partial) = (Vec::new(), None);
    let names = keyspace.names();
    let each = records.iter().map(|(id, op, data)| (*id, *op, &data[..]));
    let progress = keyspace.apply(&names, each, &mut outcomes, &mut partial, None);
    assert_eq!(progress.unwrap(), Progress::Done);
    outcomes
}

/// A client that commits its batches itself.
struct Client {
    session: Session,
    scratch: Scratch,
}

impl Client {
    fn new(keyspace: &Arc<Keyspace>) -> Self {
        let session = Session::new(keyspace.clone(), LIMITS);
        Client { session, scratch: Scratch::default() }
    }

    /// Returns whether all of it is processed: false while some of it waits for answers.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        let inner = &mut *self.session.lock();
        let taken = self.session.take_in(inner, bytes, &mut self.scratch);
        assert!(matches!(taken.ended, Ended::Nothing));
        taken.after == 0
    }

    fn commit(&self) {
        let outcomes = applied(&self.session.keyspace, self.session.keyspace.take());
        let answered = self.session.lock().answer(&outcomes, &[], &LIMITS);
        assert!(matches!(answered, Some(Answered::Done)));
    }

    /// Commits until everything is answered, and returns the replies.
    fn replies(&mut self) -> Vec<u8> {
        while self.session.lock().is_writing() {
            self.commit();
            self.feed(b"");
        }
        let inner = &mut *self.session.lock();
        let replies = inner.output.bytes.clone();
        inner.sent(&self.session.keyspace.latency);
        replies
    }
}

/// A generator of pseudo-random numbers (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

/// A random command, and the reply of the model to it.
fn command(
    chance: &mut Chance,
    bits: &mut HashMap<u8, u64>,
    copies: &mut HashMap<u8, u64>,
) -> (Vec<u8>, String) {
    let key = chance.below(12) as u8;
    let text = [b'k', key];
    match chance.below(7) {
        0 => {
            let new = bits.insert(key, 1).is_none();
            (packed(&[b"BF.ADD", b"bits", &text]), format!(":{}\r\n", u8::from(new)))
        }
        1 => {
            let there = bits.contains_key(&key);
            (packed(&[b"BF.EXISTS", b"bits", &text]), format!(":{}\r\n", u8::from(there)))
        }
        2 => {
            let other = [b'k', (key + 1) % 12];
            let new = [key, other[1]].map(|key| u8::from(bits.insert(key, 1).is_none()));
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
            let there = copies.contains_key(&key);
            if let Some(count) = copies.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    copies.remove(&key);
                }
            }
            (packed(&[b"CF.DEL", b"copies", &text]), format!(":{}\r\n", u8::from(there)))
        }
        _ => {
            let count = copies.get(&key).copied().unwrap_or(0);
            (packed(&[b"CF.COUNT", b"copies", &text]), format!(":{count}\r\n"))
        }
    }
}

#[test]
fn replies_are_those_of_a_model_however_the_bytes_are_split() {
    for seed in 1..=60 {
        let mut chance = Chance(seed);
        let keyspace = keyspace(seed % 2 == 0);
        let mut client = Client::new(&keyspace);
        let (mut bits, mut copies) = (HashMap::new(), HashMap::new());
        let (mut sent, mut expected) = (Vec::new(), String::new());
        for _ in 0..200 {
            let (bytes, reply) = command(&mut chance, &mut bits, &mut copies);
            sent.extend(bytes);
            expected += &reply;
        }
        let (mut replies, mut rest) = (Vec::new(), &sent[..]);
        while !rest.is_empty() {
            let length = match seed % 3 {
                0 => 1,
                1 => 1 + chance.below(rest.len().min(300)),
                _ => rest.len(),
            };
            let (now, later) = rest.split_at(length);
            rest = later;
            client.feed(now);
            if chance.below(3) == 0 {
                replies.extend(client.replies());
            }
        }
        replies.extend(client.replies());
        assert_eq!(String::from_utf8(replies).unwrap(), expected, "seed {seed}");
    }
}

#[test]
fn nothing_is_answered_or_visible_before_it_is_applied() {
    let keyspace = keyspace(true);
    let (mut writer, mut reader) = (Client::new(&keyspace), Client::new(&keyspace));
    assert!(writer.feed(&packed(&[b"BF.ADD", b"bits", b"a"])));
    assert!(writer.session.lock().output.bytes.is_empty());
    assert!(reader.feed(&packed(&[b"BF.EXISTS", b"bits", b"a"])));
    assert_eq!(reader.replies(), b":0\r\n");
    // Its own read waits for the write.
    assert!(!writer.feed(&packed(&[b"BF.EXISTS", b"bits", b"a"])));
    assert_eq!(writer.replies(), b":1\r\n:1\r\n");
}

#[test]
fn a_key_that_is_present_is_answered_without_a_record() {
    let keyspace = keyspace(true);
    let mut client = Client::new(&keyspace);
    client.feed(&packed(&[b"BF.ADD", b"bits", b"a"]));
    client.replies();
    client.feed(&packed(&[b"BF.ADD", b"bits", b"a"]));
    assert!(!client.session.lock().is_writing());
    assert!(keyspace.pending().records.is_empty());
    assert_eq!(client.replies(), b":0\r\n");
}

#[test]
fn commands_of_a_filter_that_was_replaced_run_again() {
    let keyspace = keyspace(false);
    let mut client = Client::new(&keyspace);
    let adds = [packed(&[b"BF.ADD", b"bits", b"a"]), packed(&[b"CF.ADD", b"copies", b"a"])];
    client.feed(&adds.concat());
    put(&keyspace, b"bits", 3, CommandFamily::Bf, usize::MAX);
    let outcomes = applied(&keyspace, keyspace.take());
    let answered = client.session.lock().answer(&outcomes, &[], &LIMITS);
    let Some(Answered::Conflicts(commands)) = answered else { panic!("no conflict") };
    assert_eq!(commands.len(), 1);
    assert_eq!((commands[0].get(0), commands[0].get(2)), (&b"BF.ADD"[..], &b"a"[..]));
    assert!(client.session.lock().output.bytes.is_empty());
    let again = [b":7\r\n".to_vec()];
    let answered = client.session.lock().answer(&outcomes, &again, &LIMITS);
    assert!(matches!(answered, Some(Answered::Done)));
    assert_eq!(client.replies(), b":7\r\n:1\r\n");
}

#[test]
fn a_refused_batch_gets_the_error_and_changes_nothing() {
    let keyspace = keyspace(true);
    let mut client = Client::new(&keyspace);
    client
        .feed(&[packed(&[b"BF.ADD", b"bits", b"a"]), packed(&[b"BF.ADD", b"bits", b"b"])].concat());
    drop(keyspace.take());
    client.session.lock().fail(b"-MISCONF\r\n");
    assert_eq!(client.replies(), b"-MISCONF\r\n-MISCONF\r\n");
    client.feed(&packed(&[b"BF.MEXISTS", b"bits", b"a", b"b"]));
    assert_eq!(client.replies(), b"*2\r\n:0\r\n:0\r\n");
}

#[test]
fn a_full_filter_refuses_the_key_and_takes_the_next() {
    let keyspace = keyspace(true);
    put(&keyspace, b"bits", 4, CommandFamily::Bf, 2);
    let mut client = Client::new(&keyspace);
    client.feed(&packed(&[b"BF.MADD", b"bits", b"a", b"b", b"c", b"a"]));
    assert_eq!(client.replies(), b"*3\r\n:1\r\n:1\r\n-ERR the filter is full\r\n");
}

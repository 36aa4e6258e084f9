//! Sessions against a plain model: every reply is what the log has, in the order of the commands.

mod common;

use std::sync::Arc;

use bloomery_server::keyspace::{CommandFamily, Keyspace};
use bloomery_server::session::{Ended, Scratch, Session};
use bloomery_server::writes::Answered;
use common::{LIMITS, Model, applied, keyspace, packed, put};

/// A client that commits its batches itself.
struct Client {
    session: Session,
    scratch: Scratch,
}

impl Client {
    fn new(keyspace: &Arc<Keyspace>) -> Self {
        let session = Session::new(1, keyspace.clone(), LIMITS);
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
        let outcomes = applied(&self.session.keyspace, &self.session.keyspace.take());
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
        inner.clear_sent(&self.session.keyspace.latency);
        replies
    }
}

#[test]
fn replies_are_those_of_a_model_however_the_bytes_are_split() {
    for seed in 1..=60 {
        let keyspace = keyspace(seed % 2 == 0);
        let mut client = Client::new(&keyspace);
        let mut model = Model::new(seed, b'k');
        let (mut sent, mut expected) = (Vec::new(), String::new());
        for _ in 0..200 {
            let (bytes, reply) = model.command();
            sent.extend(bytes);
            expected += &reply;
        }
        let (mut replies, mut rest) = (Vec::new(), &sent[..]);
        while !rest.is_empty() {
            let length = match seed % 3 {
                0 => 1,
                1 => 1 + model.chance.below(rest.len().min(300)),
                _ => rest.len(),
            };
            let (now, later) = rest.split_at(length);
            rest = later;
            client.feed(now);
            if model.chance.below(3) == 0 {
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
    let outcomes = applied(&keyspace, &keyspace.take());
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

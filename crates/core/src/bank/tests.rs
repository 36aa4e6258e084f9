//! A bank beside a model, killed at every store and cut off from power at any.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::*;
use crate::hash::{HashKind, KeyHasher, remix};

type Watcher = Box<dyn FnMut(&[u64])>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// Called before every store that others rely on, with the whole memory.
pub fn watch(words: &[u64]) {
    // Taken out meanwhile: the watcher opens banks, which store too.
    let Some(mut watcher) = WATCHER.take() else { return };
    watcher(words);
    WATCHER.set(Some(watcher));
}

/// A changed page as it is when only some of its words are: saved is what it was before.
pub fn watch_words(space: &mut Space, line: u32) {
    let Ok(after) = space.page(line).map(<[u64]>::to_vec) else { return };
    if !space.lasts {
        return;
    }
    let before = space.words()[SAVED..SAVED + after.len()].to_vec();
    for at in 0..after.len() {
        if before[at] != after[at] {
            let page = space.page_mut(line).expect("a page");
            page[..at].copy_from_slice(&after[..at]);
            page[at..].copy_from_slice(&before[at..]);
            watch(space.words());
        }
    }
    space.page_mut(line).expect("a page").copy_from_slice(&after);
}

/// Memory that lasts, with what a disk would hold after the last sync.
struct Disk {
    words: Vec<u64>,
    synced: Arc<Mutex<Vec<u64>>>,
}

impl Disk {
    fn of(words: Vec<u64>) -> Box<Disk> {
        Box::new(Disk { words, synced: Arc::default() })
    }
}

// SAFETY: a vector's words, which stay where they are until it grows.
unsafe impl Memory for Disk {
    fn start(&self) -> *mut u8 {
        self.words.as_ptr().cast_mut().cast()
    }

    fn nbytes(&self) -> usize {
        self.words.len() * 8
    }

    fn grow(&mut self, nbytes: usize) -> Result<(), Trouble> {
        self.words.resize(self.words.len().max(nbytes / 8), 0);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        *self.synced.lock().expect("one thread") = self.words.clone();
        Ok(())
    }

    fn lasts(&self) -> bool {
        true
    }
}

const BOOT: u64 = 77;

fn header(capacity: u64, error_rate: f64, page_lines: u64) -> Header {
    let cells = (capacity as f64 / (0.6 * error_rate)).ceil() as u64;
    Header {
        kind: KindId::Bank,
        layout: 0,
        lines_per_key: 0,
        num_hashes: 0,
        num_bits: 0,
        hasher: KeyHasher { kind: HashKind::Xxh3, seed: 0 },
        capacity,
        error_rate,
        nbytes: 0,
        extra: [page_lines, cells, 0, 0, 0, 0],
        checksum: LIVE,
    }
}

fn in_memory(header: &Header) -> Bank {
    Bank::create(header, Box::new(Anonymous::new(4096).expect("a page")), BOOT).expect("a bank")
}

fn image(bank: &Bank) -> Vec<u8> {
    let nbytes = bank.nbytes() as u64 - HEADER_BYTES as u64;
    let mut bytes = Header { nbytes, checksum: 0, ..*bank.header() }.encode().to_vec();
    let _ = bank.image(|piece| {
        bytes.extend_from_slice(piece);
        Ok::<(), ()>(())
    });
    bytes
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight"))).collect()
}

type Model = HashMap<u64, HashSet<u64>>;

fn holds(bank: &Bank, model: &Model) {
    for (user, keys) in model {
        for key in keys {
            assert!(bank.contains(*user, *key).expect("whole"), "user {user} lost {key}");
        }
        assert_eq!(bank.has(*user).expect("whole"), !keys.is_empty());
    }
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 += 1;
        remix(self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)) % sides
    }
}

/// Users of all sizes, dropped now and then, are what a set each would be; an image opens the same.
#[test]
fn a_bank_is_a_set_for_each_user() {
    for (capacity, page_lines) in [(3, 1), (30, 1), (100, 2), (1000, 7)] {
        let (mut bank, mut model, mut dice) =
            (in_memory(&header(capacity, 0.01, page_lines)), Model::new(), Dice(capacity));
        let mut wrong = 0;
        for step in 0..60_000 {
            // Small numbers of users come up more often: some users grow large.
            let most = 1 + dice.roll(200);
            let (user, key) = (remix(dice.roll(most)), remix(dice.roll(1 << 40)));
            let keys = model.entry(user).or_default();
            if dice.roll(5000) == 0 {
                assert_eq!(bank.drop_user(user).expect("whole"), !keys.is_empty());
                keys.clear();
            }
            let new = bank.add(user, key).expect("room");
            wrong += u64::from(!new && !keys.contains(&key));
            assert!(!new || !keys.contains(&key));
            keys.insert(key);
            if step % 20_000 == 0 {
                holds(&bank, &model);
            }
        }
        holds(&bank, &model);
        bank.verify().expect("whole");
        assert!(wrong < 600, "{wrong} of 60000 at 1%");
        assert_eq!(bank.users(), model.values().filter(|keys| !keys.is_empty()).count() as u64);
        let total: usize = model.values().map(HashSet::len).sum();
        assert!(bank.keys() <= total as u64 && bank.keys() > total as u64 * 98 / 100);
        let raw = image(&bank);
        let opened = Bank::open(Disk::of(words(&raw)), BOOT, true).expect("closed");
        holds(&opened, &model);
        assert!(bank.same(&opened).expect("whole") && opened.same(&bank).expect("whole"));
        bank.clear().expect("whole");
        assert_eq!((bank.users(), bank.keys()), (0, 0));
        assert!(!bank.same(&opened).expect("whole"));
    }
}

/// What batches answer is what single keys do.
#[test]
fn batches_answer_as_single_keys() {
    let (mut one, mut many) = (in_memory(&header(50, 0.01, 2)), in_memory(&header(50, 0.01, 2)));
    let mut dice = Dice(5);
    for _ in 0..50 {
        let users: Vec<u64> = (0..200).map(|_| remix(dice.roll(40))).collect();
        let keys: Vec<u64> = (0..200).map(|_| remix(dice.roll(3000))).collect();
        let pairs = || users.iter().zip(&keys);
        let expected: Vec<u8> =
            pairs().map(|(u, k)| u8::from(one.add(*u, *k).expect("room"))).collect();
        let mut found = Vec::new();
        many.add_many(Users::Each(&users), &keys, &mut found).expect("room");
        assert_eq!(found, expected);
        let mut found = Vec::new();
        many.contains_many(Users::Each(&users), &keys, &mut found).expect("whole");
        assert!(found.iter().all(|answer| *answer == 1));
        let mut found = Vec::new();
        many.contains_many(Users::One(users[0]), &keys, &mut found).expect("whole");
        let expected = keys.iter().map(|k| u8::from(one.contains(users[0], *k).expect("whole")));
        assert!(found.into_iter().eq(expected));
    }
    assert!(one.same(&many).expect("whole"));
}

/// One user with a thousand times the keys it was planned for: many layers, and the rate holds.
#[test]
fn a_user_outgrows_every_plan() {
    let mut bank = in_memory(&header(100, 0.02, 2));
    for at in 1..=100_000u64 {
        bank.add(7, remix(at)).expect("room");
        if [100, 300, 2000, 100_000].contains(&at) {
            let wrong =
                (0..50_000).filter(|i| bank.contains(7, remix(i | 1 << 50)).expect("whole"));
            let facts = bank.user(7).expect("whole").expect("a user");
            let observed = wrong.count() as f64 / 50_000.;
            assert!(facts.error_rate <= 0.02, "{facts:?}");
            assert!((observed - facts.error_rate).abs() < 0.003, "{at}: {observed} {facts:?}");
            assert!((1..=at).all(|i| bank.contains(7, remix(i)).expect("whole")));
        }
    }
    assert_eq!(bank.user(7).expect("whole").expect("a user").layers, 5);
    assert_eq!(bank.user(8).expect("whole"), None);
}

/// The keys that must be there, whatever happens: those whose add has returned, or was flushed.
#[derive(Default)]
struct Promised {
    added: Model,
    flushed: Model,
}

/// Drives a bank on a disk and lets `fate` look at each store; now and then it is flushed, closed
/// and opened again.
fn live(seed: u64, page_lines: u64, mut fate: impl FnMut(&[u64], &[u64], &Promised) + 'static) {
    let promised = Rc::new(RefCell::new(Promised::default()));
    let disk = Disk::of(Vec::new());
    let synced = Arc::clone(&disk.synced);
    let mut bank = Bank::create(&header(12, 0.01, page_lines), disk, BOOT).expect("a bank");
    let (seen, image) = (Rc::clone(&promised), Arc::clone(&synced));
    WATCHER.set(Some(Box::new(move |words| {
        fate(words, &image.lock().expect("one thread"), &seen.borrow());
    })));
    let mut dice = Dice(seed);
    for _ in 0..700 {
        match dice.roll(60) {
            0 => {
                bank.flush().expect("a disk");
                let mut promised = promised.borrow_mut();
                promised.flushed = promised.added.clone();
            }
            1 => {
                let user = dice.roll(9);
                let mut both = promised.borrow_mut();
                let had = both.added.remove(&user);
                both.flushed.remove(&user); // a drop may or may not survive what comes
                drop(both);
                assert_eq!(bank.drop_user(user).expect("whole"), had.is_some());
            }
            _ => {
                let most = 1 + dice.roll(9);
                let (user, key) = (dice.roll(most), remix(dice.roll(1 << 40)));
                bank.add(user, key).expect("room");
                promised.borrow_mut().added.entry(user).or_default().insert(key);
            }
        }
    }
    WATCHER.take();
    bank.close().expect("a disk");
    let kept = synced.lock().expect("one thread").clone();
    let opened = Bank::open(Disk::of(kept), BOOT + 1, true).expect("closed");
    holds(&opened, &promised.borrow().added);
}

/// Killed before any of its stores, the process leaves a file with every key whose add returned.
#[test]
fn killed_at_any_store() {
    for (seed, page_lines) in [(1, 1), (2, 2), (3, 1)] {
        let mut dice = Dice(seed);
        live(seed, page_lines, move |words, _, promised| {
            // Before the bank is made there is none to open.
            if words[STATE] == OPEN && dice.roll(8) == 0 {
                let bank = Bank::open(Disk::of(words.to_vec()), BOOT, false).expect("recovers");
                bank.verify().expect("whole");
                holds(&bank, &promised.added);
            }
        });
    }
}

/// Any sectors of what was written after a sync may be on the disk.
fn cut(words: &[u64], synced: &[u64], dice: &mut Dice) -> Vec<u64> {
    let mut found = words.to_vec();
    let share = dice.roll(5);
    for (at, sector) in found.chunks_mut(64).enumerate() {
        if dice.roll(4) < share {
            sector.fill(0);
            let old = synced.get(at * 64..).unwrap_or_default();
            sector.iter_mut().zip(old).for_each(|(new, old)| *new = *old);
        }
    }
    found
}

/// Cut off at any store, with any sectors on the disk: every key that was flushed is there, and the
/// bank can be used as before.
#[test]
fn power_cut_at_any_store() {
    for (seed, page_lines) in [(4, 1), (5, 2), (6, 3)] {
        let mut dice = Dice(seed);
        live(seed, page_lines, move |words, synced, promised| {
            if synced.is_empty() || synced[STATE] != OPEN || dice.roll(8) != 0 {
                return;
            }
            let disk = Disk::of(cut(words, synced, &mut dice));
            let mut bank = Bank::open(disk, BOOT + 1, false).expect("recovers");
            bank.verify().expect("whole");
            holds(&bank, &promised.flushed);
            for i in 0..60 {
                bank.add(100 + i % 30, remix(i)).expect("room");
            }
            bank.verify().expect("whole");
            holds(&bank, &promised.flushed);
            assert!((0..60).all(|i| bank.contains(100 + i % 30, remix(i)).expect("whole")));
        });
    }
}

/// Where nobody knows whether the machine was started anew, what was flushed is there all the same.
#[test]
fn power_cut_on_an_unknown_machine() {
    for (seed, before, now) in [(10, 0, 0), (11, BOOT, 0), (12, 0, BOOT)] {
        let mut dice = Dice(seed);
        live(seed, 1, move |words, synced, promised| {
            if synced.is_empty() || synced[STATE] != OPEN || dice.roll(30) != 0 {
                return;
            }
            let mut found = cut(words, synced, &mut dice);
            found[super::BOOT] = before;
            let bank = Bank::open(Disk::of(found), now, false).expect("recovers");
            bank.verify().expect("whole");
            holds(&bank, &promised.flushed);
        });
    }
}

/// A kill, then a power cut while the bank is being repaired: what was flushed is there.
#[test]
fn power_cut_while_recovering() {
    let mut dice = Dice(8);
    live(8, 1, move |words, synced, promised| {
        if synced.is_empty() || synced[STATE] != OPEN || dice.roll(60) != 0 {
            return;
        }
        let disk = Disk { words: words.to_vec(), synced: Arc::new(Mutex::new(synced.to_vec())) };
        let (image, flushed) = (Arc::clone(&disk.synced), promised.flushed.clone());
        let mut dice = Dice(dice.roll(1 << 40));
        WATCHER.set(Some(Box::new(move |words| {
            let found = cut(words, &image.lock().expect("one thread"), &mut dice);
            let bank = Bank::open(Disk::of(found), BOOT + 1, false).expect("recovers");
            holds(&bank, &flushed);
        })));
        Bank::open(Box::new(disk), BOOT, false).expect("recovers");
        WATCHER.take();
    });
}

/// A user whose layer alone is more than what may wait for a flush can still be added to, after a
/// flush too, and each key costs little: a layer is not copied, nor the disk waited for, each time.
#[test]
fn one_large_user_among_flushes() {
    let mut bank =
        Bank::create(&header(60_000, 0.01, 2), Disk::of(Vec::new()), BOOT).expect("a bank");
    for i in 0..40_000 {
        bank.add(1, remix(i)).expect("room");
    }
    let layer = bank.user(1).expect("whole").expect("a user").nbytes as usize / 64;
    assert!(layer > 2 * space::FLUSH_FROM, "{layer} lines");
    bank.flush().expect("a disk");
    let mut budget = 1_000_000;
    WATCHER.set(Some(Box::new(move |_| {
        budget -= 1;
        assert!(budget > 0, "an add that does not end");
    })));
    let before = bank.space.head(FLUSHED);
    for i in 40_000..50_000 {
        bank.add(1, remix(i)).expect("room");
    }
    WATCHER.take();
    let flushes = bank.space.head(FLUSHED) - before;
    assert!(flushes <= 10, "{flushes} flushes");
    bank.verify().expect("whole");
    assert!((0..50_000).all(|i| bank.contains(1, remix(i)).expect("whole")));
}

/// What waits for a flush does not pile up while small users are changed all over the bank.
#[test]
fn small_users_are_flushed_now_and_then() {
    let mut bank = Bank::create(&header(12, 0.01, 1), Disk::of(Vec::new()), BOOT).expect("a bank");
    for i in 0..20_000 {
        bank.add(i % 2000, remix(i)).expect("room");
    }
    bank.flush().expect("a disk");
    let (before, lines) = (bank.space.head(FLUSHED), bank.space.head(END));
    for i in 20_000..22_000 {
        bank.add(i % 2000, remix(i)).expect("room");
    }
    assert!(bank.space.head(FLUSHED) > before);
    assert!(bank.space.head(END) < lines * 9 / 8, "{lines} lines, now {}", bank.space.head(END));
}

/// Bytes changed anywhere give an error or an answer, never a panic, and never a runaway.
#[test]
fn hostile_bytes() {
    let mut bank = in_memory(&header(12, 0.01, 1));
    for i in 0..400 {
        bank.add(i % 5, remix(i)).expect("room");
    }
    let raw = words(&image(&bank));
    let mut dice = Dice(9);
    for round in 0..1500 {
        let mut forged = raw.clone();
        forged[15] = LIVE;
        for _ in 0..=dice.roll(4) {
            let at = 16 + dice.roll(forged.len() as u64 - 16) as usize;
            let at = if dice.roll(3) == 0 { 16 + dice.roll(17) as usize } else { at };
            forged[at] = match dice.roll(4) {
                0 => forged[dice.roll(forged.len() as u64) as usize],
                1 => forged[at] ^ 1 << dice.roll(64),
                2 => dice.roll(500) | dice.roll(500) << 32,
                _ => remix(dice.roll(u64::MAX)),
            };
        }
        let length = forged.len() - if round % 7 == 0 { dice.roll(600) as usize } else { 0 };
        forged.truncate(length);
        let Ok(mut bank) = Bank::open(Disk::of(forged), BOOT + round % 2, false) else { continue };
        let _ = bank.verify();
        for i in 0..40 {
            let _ = bank.contains(i % 6, remix(i));
            let _ = bank.add(i % 6, remix(1000 + i));
            let _ = bank.user(i % 6);
        }
        let _ = bank.drop_user(round % 5);
        let _ = bank.flush();
        let _ = bank.clear();
    }
}

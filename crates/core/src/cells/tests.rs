//! What the tests of both rules share, and headers that must be refused.

use crate::bits::Bits;
use crate::format::{FormatError, Header, KindId};
use crate::hash::{HashKind, KeyHasher, remix};
use crate::kind::{Fact, open};

pub(crate) fn header(kind: KindId, rule: u64, lines: u64, per_key: u8, hashes: u16) -> Header {
    Header {
        kind,
        layout: 0,
        lines_per_key: per_key,
        num_hashes: hashes,
        num_bits: lines * 512,
        hasher: KeyHasher { kind: HashKind::Xxh3, seed: 0 },
        capacity: 1,
        error_rate: 0.01,
        nbytes: lines * 64,
        extra: [rule, 0, 0, 0, 0, 0],
        checksum: 0,
    }
}

/// Random hashes, always the same.
pub(crate) fn hashes(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |i: u64| remix(seed ^ i.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// The key's cells as docs/format.md has them: (line, cell), each once.
pub(crate) fn cells_of(h: u64, header: &Header, cells: u64) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    for h in [h, remix(h ^ 0x9E6C_63D0_876A_3F6B)].iter().take(header.lines_per_key.into()) {
        let line = (u128::from(*h) * u128::from(header.nbytes / 64)) >> 64;
        let mut pattern = h.wrapping_mul(0xD6E8_FEB8_6659_FD93).wrapping_add(0x9E6C_63D0_876A_3F6B);
        for i in 0..u32::from(header.num_hashes) / u32::from(header.lines_per_key) {
            if i > 0 && i % 4 == 0 {
                pattern = (pattern ^ (pattern >> 32)).wrapping_mul(0xA076_1D64_78BD_642F);
            }
            let lane = pattern >> (48 - 16 * (i % 4)) & 0xFFFF;
            found.push((line as usize, (lane * cells) >> 16));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

pub(crate) fn fact(facts: &[(&str, Fact)], name: &str) -> f64 {
    match facts.iter().find(|(n, _)| *n == name).expect("a fact of that name").1 {
        Fact::Int(value) => value as f64,
        Fact::Float(value) => value,
        Fact::Bool(value) => f64::from(u8::from(value)),
    }
}

/// Every way of being wrong is refused before anything is allocated.
#[test]
fn hostile_headers_are_refused() {
    let good = header(KindId::Counting, 4, 3, 2, 6);
    assert!(open(&good, None).is_ok());
    let changes: [fn(&mut Header); 10] = [
        |h| h.lines_per_key = 0,
        |h| h.lines_per_key = 3,
        |h| h.num_hashes = 0,
        |h| h.num_hashes = 7,
        |h| h.num_hashes = 34,
        |h| h.num_bits += 512,
        |h| (h.nbytes, h.num_bits) = (0, 0),
        |h| (h.nbytes, h.num_bits) = (65, 520),
        |h| h.layout = 1,
        |h| h.extra[5] = 1,
    ];
    for change in changes {
        for (kind, rules) in [(KindId::Counting, [4, 8]), (KindId::Deletable, [16, 128])] {
            for rule in rules {
                let mut bad = Header { kind, extra: [rule, 0, 0, 0, 0, 0], ..good };
                change(&mut bad);
                let problem = open(&bad, None).err().expect("a refusal");
                assert!(matches!(problem, FormatError::Corrupt(_)), "{problem:?}");
            }
        }
    }
    for (kind, rule) in [(KindId::Counting, 5), (KindId::Deletable, 0)] {
        let bad = Header { kind, extra: [rule, 0, 0, 0, 0, 0], ..good };
        assert!(open(&bad, None).is_err());
    }
    let short = Bits::zeroed(64);
    assert!(open(&good, short).is_err());
}

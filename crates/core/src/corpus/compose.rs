//! Units and answers to lines again: what stays, and what was found.

use std::io::Write;

use super::split::{Piece, Split, Unit};

/// What became of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub documents: u64,
    /// Documents that go as a whole.
    pub gone: u64,
    /// Documents that lose a part.
    pub cut: u64,
    /// Units that could go: those with words.
    pub units: u64,
    pub units_gone: u64,
    pub characters: u64,
    pub characters_gone: u64,
    pub keys: u64,
}

/// The share of its keys that was seen of a unit that goes.
fn share(unit: &Unit) -> f64 {
    (f64::from(unit.seen) / f64::from(unit.keys) * 1e4).round() / 1e4
}

impl Split {
    fn of(&self, piece: &Piece) -> &[Unit] {
        &self.units[piece.units.clone()]
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts { keys: self.keys.len() as u64, ..Counts::default() };
        for piece in &self.pieces {
            let units = self.of(piece);
            let could = units.iter().filter(|unit| unit.keys > 0).count() as u64;
            let gone = units.iter().filter(|unit| unit.goes()).count() as u64;
            counts.documents += 1;
            counts.units += could;
            counts.units_gone += gone;
            counts.gone += u64::from(gone > 0 && gone == could);
            counts.cut += u64::from(gone > 0 && gone < could);
            for unit in units {
                counts.characters += unit.characters as u64;
                counts.characters_gone += if unit.goes() { unit.characters as u64 } else { 0 };
            }
        }
        counts
    }

    /// Writes the lines that stay, without the paragraphs that go. A document of which all
    /// paragraphs with words go goes as a whole.
    pub fn kept(&self, data: &[u8], out: &mut Vec<u8>) {
        for piece in &self.pieces {
            let units = self.of(piece);
            if !units.iter().any(Unit::goes) {
                out.extend_from_slice(&data[piece.line.clone()]);
                out.push(b'\n');
            } else if units.iter().any(|unit| unit.keys > 0 && !unit.goes()) {
                out.extend_from_slice(&data[piece.line.start..piece.text.start]);
                let mut first = true;
                for unit in units.iter().filter(|unit| !unit.goes()) {
                    if !first {
                        out.extend_from_slice(b"\\n");
                    }
                    first = false;
                    let start = piece.text.start;
                    out.extend_from_slice(&data[start + unit.span.start..start + unit.span.end]);
                }
                out.extend_from_slice(&data[piece.text.end..piece.line.end]);
                out.push(b'\n');
            }
        }
    }

    /// Writes what was found, as Dolma's taggers do: a line for each document, or with `found_only`
    /// for each with something to remove: its id, its line, and spans of characters, each with the
    /// newline behind it and the share of its keys that was seen.
    pub fn found(&self, data: &[u8], first_line: u64, found_only: bool, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            let units = self.of(piece);
            if found_only && !units.iter().any(Unit::goes) {
                continue;
            }
            out.extend_from_slice(b"{\"id\":");
            out.extend_from_slice(piece.id.as_ref().map_or(b"null", |id| &data[id.clone()]));
            let number = first_line + piece.number as u64;
            // Writing to memory does not fail.
            let _ = write!(out, ",\"line\":{number},\"attributes\":{{\"duplicates\":[");
            let (mut at, mut comma) = (0, "");
            for (number, unit) in units.iter().enumerate() {
                let end = at + unit.characters + usize::from(number + 1 < units.len());
                if unit.goes() {
                    let _ = write!(out, "{comma}[{at},{end},{:?}]", share(unit));
                    comma = ",";
                }
                at = end;
            }
            out.extend_from_slice(b"]}}\n");
        }
    }

    /// For each text, in order, the spans that go: first character, the one behind the last, share.
    pub fn spans(&self) -> Vec<Vec<(usize, usize, f64)>> {
        let spans = |piece: &Piece| {
            let units = self.of(piece);
            let mut at = 0;
            let mut found = Vec::new();
            for (number, unit) in units.iter().enumerate() {
                let end = at + unit.characters + usize::from(number + 1 < units.len());
                if unit.goes() {
                    found.push((at, end, share(unit)));
                }
                at = end;
            }
            found
        };
        self.pieces.iter().map(spans).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::Fault;
    use super::super::minhash::MinHash;
    use super::super::probe::probe;
    use super::super::split::{By, Splitter};
    use super::*;
    use crate::batch::Op;
    use crate::bits::Bits;
    use crate::hash::{HashKind, KeyHasher};
    use crate::shape::{Layout, Shape};

    const HASHER: KeyHasher = KeyHasher { kind: HashKind::Xxh3, seed: 0 };

    struct Seen(Bits, Shape);

    impl Seen {
        fn new() -> Seen {
            let shape = Shape {
                layout: Layout::Blocked,
                num_bits: 1 << 20,
                num_hashes: 8,
                lines_per_key: 1,
            };
            Seen(Bits::zeroed(shape.nbytes() as usize).unwrap(), shape)
        }

        fn run(&self, splitter: &Splitter, data: &str) -> (String, String, Counts) {
            let mut split = splitter.lines(data.as_bytes(), true, false, &HASHER);
            assert_eq!(split.faults, []);
            probe(&self.0, &self.1, &split.keys, &mut split.units, Op::Add);
            let (mut kept, mut found) = (Vec::new(), Vec::new());
            split.kept(data.as_bytes(), &mut kept);
            split.found(data.as_bytes(), 1, true, &mut found);
            (String::from_utf8(kept).unwrap(), String::from_utf8(found).unwrap(), split.counts())
        }
    }

    fn splitter(paragraphs: bool, by: By) -> Splitter {
        Splitter { field: b"text".to_vec(), paragraphs, by }
    }

    #[test]
    fn paragraphs_that_came_before_are_cut_out() {
        let lines = "{\"text\":\"one\\n\\ntwo \\u00e9\",\"id\":1}\n\
                     {\"id\":\"b\",\"text\":\"two é\\nthree\\none\\n\"}\n\n\
                     {\"id\":3,\"text\":\"\\none \\n\"}\n";
        let (kept, found, counts) = Seen::new().run(&splitter(true, By::Text), lines);
        assert_eq!(
            kept,
            "{\"text\":\"one\\n\\ntwo \\u00e9\",\"id\":1}\n{\"id\":\"b\",\"text\":\"three\\n\"}\n"
        );
        assert_eq!(
            found,
            "{\"id\":\"b\",\"line\":2,\"attributes\":{\"duplicates\":[[0,6,1.0],[12,16,1.0]]}}\n\
             {\"id\":3,\"line\":4,\"attributes\":{\"duplicates\":[[1,6,1.0]]}}\n"
        );
        let expected = Counts {
            documents: 3,
            gone: 1,
            cut: 1,
            units: 6,
            units_gone: 3,
            characters: 3 + 5 + 5 + 5 + 3 + 4,
            characters_gone: 5 + 3 + 4,
            keys: 6,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn empty_and_blank_documents_are_duplicates_too() {
        let lines = "{\"text\":\"\"}\n{\"text\":\" \"}\n{\"text\":\"\"}\n{\"text\":\" \"}\n\
                     {\"text\":\"\\n\"}\n{\"text\":\"one\\n\\n\"}\n{\"text\":\"two\\n\\n\"}\n";
        let (kept, _, counts) = Seen::new().run(&splitter(false, By::Text), lines);
        assert_eq!(kept.lines().collect::<Vec<_>>(), {
            let all: Vec<_> = lines.lines().collect();
            [all[0], all[1], all[4], all[5], all[6]]
        });
        assert_eq!((counts.gone, counts.cut), (2, 0));
        let (kept, found, counts) = Seen::new().run(&splitter(true, By::Text), lines);
        assert_eq!(kept.lines().collect::<Vec<_>>(), {
            let all: Vec<_> = lines.lines().collect();
            [all[0], all[5], all[6]]
        });
        assert_eq!((counts.gone, counts.cut, counts.units), (4, 0, 7));
        assert_eq!(found.lines().count(), 4);
    }

    #[test]
    fn a_share_of_ngrams_is_enough() {
        let words = |from: usize, to: usize| {
            let words: Vec<_> = (from..to).map(|n| format!("w{n}")).collect();
            format!("{{\"text\":\"{}\"}}\n", words.join(" "))
        };
        let by = By::Ngrams { words: 3, share: 0.8 };
        let seen = Seen::new();
        let splitter = splitter(false, by);
        // Ten 3-grams; of the next, eight of them and two new ones; of the last, seven.
        assert_eq!(seen.run(&splitter, &words(0, 12)).2.gone, 0);
        assert_eq!(seen.run(&splitter, &words(2, 14)).2.gone, 1);
        assert_eq!(seen.run(&splitter, &words(3, 15)).2.gone, 0);
    }

    #[test]
    fn what_a_unit_says_twice_it_has_not_seen_before() {
        let by = By::Ngrams { words: 2, share: 0.5 };
        let line = "{\"text\":\"la la la la la la\"}\n";
        let seen = Seen::new();
        let splitter = splitter(false, by);
        assert_eq!(seen.run(&splitter, line).2.gone, 0);
        assert_eq!(seen.run(&splitter, line).2.gone, 1);
    }

    #[test]
    fn near_duplicates_share_a_band() {
        let words: Vec<_> = (0..200).map(|n| format!("w{n}")).collect();
        let mut other = words.clone();
        other[100] = "other".to_string();
        let line = |words: &[String]| format!("{{\"text\":\"{}\"}}\n", words.join(" "));
        let by = By::Near { words: 5, minhash: MinHash::new(16, 8) };
        let seen = Seen::new();
        let splitter = splitter(false, by);
        assert_eq!(seen.run(&splitter, &line(&words)).2.gone, 0);
        assert_eq!(seen.run(&splitter, &line(&other)).2.gone, 1);
        other.iter_mut().for_each(|word| word.insert(0, 'x'));
        assert_eq!(seen.run(&splitter, &line(&other)).2.gone, 0);
    }

    #[test]
    fn faults_have_numbers_and_can_be_passed() {
        let data = b"{\"text\":\"a\"}\n\n{\"text\":\"\\ud800\"}\n{\"text\":\"b\"}\nx";
        let splitter = splitter(false, By::Text);
        let split = splitter.lines(data, true, false, &HASHER);
        assert_eq!(
            (split.faults.as_slice(), split.pieces.len()),
            (&[(2, Fault::Surrogate)][..], 1)
        );
        let split = splitter.lines(data, true, true, &HASHER);
        assert_eq!((split.faults.len(), split.pieces.len(), split.keys.len()), (2, 2, 2));
        assert_eq!((split.used, split.lines, split.pieces[1].number), (data.len(), 5, 3));
        let split = splitter.lines(data, false, true, &HASHER);
        assert_eq!((split.used, split.lines), (data.len() - 1, 4));
    }
}

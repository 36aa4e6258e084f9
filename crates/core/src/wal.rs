//! The write-ahead file of an SQLite database, as far as it tells whether something was lost.
//!
//! SQLite takes the first frame that is not valid for the end of the file: after a kill it is. A
//! commit behind it means damage, or a power cut that kept a later page and lost an earlier one.
//! (Frames behind it that are no commit may be those of a transaction that a full disk cut off.)

const HEAD: usize = 32;
const FRAME_HEAD: usize = 24;

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// SQLite's running checksum, over pairs of words of the order that the magic number names.
fn checksum(bytes: &[u8], big: bool, mut sums: [u32; 2]) -> [u32; 2] {
    for pair in bytes.as_chunks::<8>().0 {
        let [a, b] = [[pair[0], pair[1], pair[2], pair[3]], [pair[4], pair[5], pair[6], pair[7]]]
            .map(|raw| if big { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) });
        sums[0] = sums[0].wrapping_add(a).wrapping_add(sums[1]);
        sums[1] = sums[1].wrapping_add(b).wrapping_add(sums[0]);
    }
    sums
}

/// How many frames at the end were committed once and cannot be read any more.
pub fn lost_frames(wal: &[u8]) -> u64 {
    if wal.len() < HEAD + FRAME_HEAD {
        return 0;
    }
    let (head, rest) = wal.split_at(HEAD);
    let page = word(head, 8) as usize;
    let big = word(head, 0) & 1 == 1;
    let mut sums = checksum(&head[..24], big, [0; 2]);
    if word(head, 0) >> 1 != 0x377f_0682 >> 1
        || !(512..=65536).contains(&page)
        || sums != [word(head, 24), word(head, 28)]
    {
        return (rest.len() / FRAME_HEAD) as u64;
    }
    let frames = rest.chunks_exact(FRAME_HEAD + page);
    let (whole, mut valid, mut committed) = (frames.len(), 0, 0);
    for (index, frame) in frames.enumerate() {
        let salted = frame[8..16] == head[16..24];
        let commit = word(frame, 4) != 0;
        if valid == index {
            let next = checksum(&frame[FRAME_HEAD..], big, checksum(&frame[..8], big, sums));
            if salted && next == [word(frame, 16), word(frame, 20)] {
                (sums, valid) = (next, index + 1);
                committed = if commit { valid } else { committed };
                continue;
            }
        }
        if commit || !salted {
            return (whole - committed) as u64;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 512;

    /// A file with these frames, each a commit or not.
    fn wal(commits: &[bool]) -> Vec<u8> {
        let put = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
        let mut file = put(&[0x377f_0682, 3_007_000, PAGE as u32, 0, 7, 8]);
        let mut sums = checksum(&file, false, [0; 2]);
        file.extend(put(&sums));
        for (page, commit) in commits.iter().enumerate() {
            let head = put(&[page as u32, if *commit { 0x0305 } else { 0 }]);
            let body = vec![page as u8; PAGE];
            sums = checksum(&body, false, checksum(&head, false, sums));
            file.extend([head, put(&[7, 8]), put(&sums), body].concat());
        }
        file
    }

    /// Whole files, files cut off anywhere, and an end that was never committed have lost nothing.
    #[test]
    fn what_a_kill_leaves_is_no_loss() {
        let file = wal(&[true, false, true, false, false]);
        for length in 0..=file.len() {
            assert_eq!(lost_frames(&file[..length]), 0, "{length}");
        }
    }

    /// A byte that changed anywhere up to the last commit is seen, and anything may come.
    #[test]
    fn damage_is_seen() {
        let file = wal(&[true, false, true, true]);
        for at in 0..file.len() {
            for flip in [2, 128, 255] {
                let mut damaged = file.clone();
                damaged[at] ^= flip;
                assert!(lost_frames(&damaged) > 0, "{at}");
            }
        }
    }
}

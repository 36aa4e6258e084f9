//! Room for one more: entries are moved to their other buckets until one of the wanted buckets has
//! a free slot. Breadth first, so that few entries move: the nearest free slot is one to four moves
//! away even at 95% load, and every place looked at is asked for ahead of time.

use std::collections::HashSet;

use super::{Table, low, partner};

/// Buckets looked at before the table counts as full.
const MOST_NODES: usize = 1000;
/// Buckets asked for ahead of the one that is looked at. About every third has a free slot: to ask
/// for all that a full bucket leads to took twice as long.
const NODES_AHEAD: usize = 3;

#[derive(Clone, Copy)]
pub(super) struct Node {
    bucket: u64,
    /// What moves here, from the parent's slot, as it will look here.
    entry: u64,
    parent: u32,
    from: u64,
}

const ROOT: u32 = u32::MAX;

impl<const RING: bool> Table<RING> {
    /// Frees a slot in one of these buckets: in which one, and the slot. `None` if that takes too
    /// long, and then nothing moved.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(&mut self, roots: [u64; 2]) -> Option<(usize, u64)> {
        // The memory of the last search: there is one for every few keys, once the table is full.
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.clear();
        nodes.extend(roots.map(|bucket| Node { bucket, entry: 0, parent: ROOT, from: 0 }));
        let found = self.search(&mut nodes);
        let freed = found.map(|(at, free)| self.shift(&nodes, at, free));
        self.nodes = nodes;
        freed
    }

    /// Frees a slot in one of these buckets, however many entries have to move for it. There must be
    /// places for all entries and one more.
    #[cold]
    #[inline(never)]
    pub(super) fn clear_way(&mut self, roots: [u64; 2]) {
        let mut nodes =
            roots.map(|bucket| Node { bucket, entry: 0, parent: ROOT, from: 0 }).to_vec();
        let mut seen = HashSet::from(roots);
        let mut at = 0;
        let free = loop {
            // If entries have places at all, some way leads from a bucket of each to a free slot. A
            // panic marks the filter as broken, so that it never answers a wrong no.
            let node = *nodes.get(at).expect("a free slot for each entry");
            if let Some(free) = self.free(node.bucket) {
                break free;
            }
            for from in self.spots(node.bucket) {
                let (bucket, entry) = self.moved(node.bucket, self.get(from));
                if seen.insert(bucket) {
                    nodes.push(Node { bucket, entry, parent: at as u32, from });
                }
            }
            at += 1;
        };
        let (_, freed) = self.shift(&nodes, at, free);
        self.put(freed, 0);
    }

    /// The nearest bucket with a free slot: its node, and the slot.
    fn search(&self, nodes: &mut Vec<Node>) -> Option<(usize, u64)> {
        // Both roots are full, or nobody would search.
        let (mut at, mut parent) = (nodes.len(), 0);
        let mut slots = self.spots(nodes[0].bucket);
        loop {
            while nodes.len() < (at + NODES_AHEAD).min(MOST_NODES) && parent < at {
                let Some(from) = slots.next() else {
                    parent += 1;
                    slots = nodes.get(parent).map_or(0..0, |node| self.spots(node.bucket));
                    continue;
                };
                let (target, entry) = self.moved(nodes[parent].bucket, self.get(from));
                if !on_the_way(nodes, parent, target) && !is_there(nodes, parent, target) {
                    self.prefetch_bucket(target);
                    nodes.push(Node { bucket: target, entry, parent: parent as u32, from });
                }
            }
            if let Some(free) = self.free(nodes.get(at)?.bucket) {
                return Some((at, free));
            }
            at += 1;
        }
    }

    /// Moves the entries on the way to a free slot, the last one first: at no time is one of them
    /// in no slot. Returns the root and the slot that became free in it.
    fn shift(&mut self, nodes: &[Node], mut at: usize, mut free: u64) -> (usize, u64) {
        while nodes[at].parent != ROOT {
            let node = nodes[at];
            self.put(free, node.entry);
            (free, at) = (node.from, node.parent as usize);
        }
        (at, free)
    }

    /// The other bucket of an entry, and what it looks like there.
    #[inline(always)]
    pub(super) fn moved(&self, bucket: u64, value: u64) -> (u64, u64) {
        let tag = value >> self.tag_shift & self.tag_mask;
        if RING {
            return (self.across(bucket, tag), value);
        }
        let across = partner(tag);
        let flips = self.entry(0, across << self.level);
        let kept = self.field_mask & !low(self.tag_shift - self.kept(value));
        (bucket ^ across >> (64 - self.level), value ^ flips & kept)
    }
}

/// Does an entry beside this one, a copy of it, lead to this bucket already?
fn is_there(nodes: &[Node], parent: usize, bucket: u64) -> bool {
    let beside = nodes.iter().rev().take_while(|node| node.parent == parent as u32);
    beside.into_iter().any(|node| node.bucket == bucket)
}

/// Is this bucket one that the entry would come from? Then the moves would undo each other.
fn on_the_way(nodes: &[Node], mut at: usize, bucket: u64) -> bool {
    loop {
        if nodes[at].bucket == bucket {
            return true;
        }
        if nodes[at].parent == ROOT {
            return false;
        }
        at = nodes[at].parent as usize;
    }
}

//! The memory of a filter: 64-byte aligned, zeroed, in whole lines, and what can be done with bits
//! alone, such as to estimate the error rate of a blocked filter (`Bits::fill`). Bit p is bit
//! `p & 63` of word `p >> 6`: least significant first in little-endian bytes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[cfg(target_os = "linux")]
use memmap2::{Advice, UncheckedAdvice};
use memmap2::{MmapMut, MmapRaw};

use crate::budget::Charge;
use crate::scan::Scan;

#[cfg(target_endian = "big")]
compile_error!(
    "bloomery maps its little-endian files as they are; big-endian machines need a port"
);

pub const LINE_BYTES: usize = 64;
pub const LINE_BITS: u64 = 512;
pub const WORDS_PER_LINE: usize = 8;

/// Up to here memory is touched when it is made, and not page by page by the first keys. Beyond it,
/// memory that no key touches is never taken.
const TOUCH_TO: usize = 64 << 20;

/// From here on memory comes from the kernel with huge pages asked for. At 124 MB (100 M keys at
/// 1%) a C loop that touches random lines takes 8.7 ns with them and 12.1 without.
const HUGE_FROM: usize = 1 << 20;
/// The smallest page of any system.
const PAGE_BYTES: usize = 4096;
/// Memory that is not read any more is given back in multiples of it: whole pages on any system, whose
/// kernel would round the end of a range up.
const RELEASE_UNIT: usize = 1 << 20;
/// Others of this process that ask for memory have a turn after each of these when it is given back,
/// which take the kernel a millisecond: it lets nobody map or unmap anything meanwhile.
#[cfg(target_os = "linux")]
const STEP: usize = 4 << 20;

/// Memory from the kernel, which can be made larger where it is.
struct Mapped {
    map: ManuallyDrop<MmapRaw>,
    charge: Charge,
}

/// Is large memory given back by a thread? To unmap a gigabyte takes some 50 ms.
static UNMAP_ASIDE: AtomicBool = AtomicBool::new(false);
const UNMAP_ASIDE_FROM: usize = 16 << 20;

/// From now on large memory is given back by a thread of its own, for who has no time; it counts as
/// given back at once.
pub fn unmap_aside(aside: bool) {
    UNMAP_ASIDE.store(aside, Relaxed);
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: taken here alone, and not used after this.
        let map = unsafe { ManuallyDrop::take(&mut self.map) };
        if map.len() >= UNMAP_ASIDE_FROM && UNMAP_ASIDE.load(Relaxed) {
            // Without a thread to be had it is dropped here, with what was to run in it.
            let _ = std::thread::Builder::new().spawn(move || unmap(map));
        }
    }
}

/// Gives memory back in steps.
fn unmap(map: MmapRaw) {
    #[cfg(target_os = "linux")]
    for at in (0..map.len()).step_by(STEP) {
        let bytes = STEP.min(map.len() - at);
        // SAFETY: nobody has this memory any more.
        let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, at, bytes) };
    }
    drop(map);
}

/// Memory from the allocator, in whole lines.
struct Allocated {
    start: NonNull<u8>,
    layout: Layout,
    _charge: Charge,
}

// SAFETY: it owns the memory and does nothing with it but give it back.
unsafe impl Send for Allocated {}
// SAFETY: as above.
unsafe impl Sync for Allocated {}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and given back once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Owned or borrowed memory; a clone is the same memory, and may be used by another thread.
///
/// Through `words` all access is atomic with relaxed order, which compiles to plain moves: a reader
/// may run beside a writer. Who uses `as_ptr` instead answers for it:
///
/// - tables (`table/slots.rs`) and cells (`cells/mod.rs`) are read through `&self` and written
///   through `&mut self` of their filter, never at once;
/// - the plain filter's AVX2 loop (`avx2.rs`) writes whole lines while others may read them. Rust
///   has no name for that: by the letter of its memory model it is a race. It is an assumption about
///   x86-64, where a vector move does to each aligned word of 8 bytes what an atomic move does (none
///   is torn), and about the compiler, which could split such a move and has no reason to. A key's
///   bits only ever go from 0 to 1: a reader who sees some of them sees a key that is not yet added;
/// - memory that is mapped from a file may be written by another process at any time, which no
///   language has a rule for: the same assumption about whole words.
///
/// The pointer comes from whoever made the memory and never from a `&`, so that it may be written
/// through: Miri checks it (`make sanitize`).
#[derive(Clone)]
pub struct Bits {
    words: *mut AtomicU64,
    len: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is to memory kept alive by `_owner`, reached only as described above.
unsafe impl Send for Bits {}
// SAFETY: as above.
unsafe impl Sync for Bits {}

impl Bits {
    /// Zeroed memory for at least `bytes`, in whole lines; `None` if there is not that much.
    pub fn zeroed(bytes: usize) -> Option<Bits> {
        let bits = Bits::allocate(bytes, true, Charge::take)?;
        if bits.nbytes() <= TOUCH_TO {
            bits.touch();
        }
        Some(bits)
    }

    /// As `zeroed`, for a writer that goes from front to back: the kernel makes each page then.
    pub fn zeroed_by_writer(bytes: usize) -> Option<Bits> {
        Bits::allocate(bytes, true, Charge::take)
    }

    /// As `zeroed_by_writer`, also if all filters then have more than they may.
    pub fn zeroed_beyond_budget(bytes: usize) -> Option<Bits> {
        Bits::allocate(bytes, true, |bytes| Some(Charge::force(bytes)))
    }

    /// As `zeroed`, for who cannot wait: the kernel makes each page, a small one, when it is first
    /// written to, in half a microsecond (a huge one takes it 0.2 ms and, where it has to move
    /// others for it, 3 ms).
    pub fn zeroed_by_page(bytes: usize) -> Option<Bits> {
        Bits::allocate(bytes, false, Charge::take)
    }

    fn allocate(
        bytes: usize,
        huge: bool,
        charged: impl FnOnce(u64) -> Option<Charge>,
    ) -> Option<Bits> {
        let bytes = bytes.max(1).checked_next_multiple_of(LINE_BYTES)?;
        let len = bytes / 8;
        let charge = charged(bytes as u64)?;
        if bytes >= HUGE_FROM {
            let map = MmapRaw::from(MmapMut::map_anon(bytes).ok()?);
            #[cfg(target_os = "linux")]
            let _ = map.advise(if huge { Advice::HugePage } else { Advice::NoHugePage }); // a wish
            let words = map.as_mut_ptr().cast();
            let map = ManuallyDrop::new(map);
            return Some(Bits { words, len, _owner: Arc::new(Mapped { map, charge }) });
        }
        let layout = Layout::from_size_align(bytes, LINE_BYTES).ok()?;
        // SAFETY: at least one line.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let owner = Arc::new(Allocated { start, layout, _charge: charge });
        Some(Bits { words: start.as_ptr().cast(), len, _owner: owner })
    }

    /// Has the kernel make all of the memory now, which else comes page by page as it is written.
    /// For who has something else to do meanwhile: of a gigabyte it can take a second and more.
    ///
    /// By writes, which change nothing, and not by MADV_POPULATE_WRITE: that holds the lock on the
    /// map of the whole process, and any thread that maps or unmaps a page, as every allocator does
    /// now and then, waits for all that was asked for (50 ms for 4 MiB that the machine's host has
    /// yet to find; 250 ms one after the other were seen in the thread that serves). The fault of a
    /// write has the lock of this memory alone, for one page.
    pub fn touch(&self) {
        if self._owner.downcast_ref::<Mapped>().is_none() {
            return;
        }
        for word in self.words().iter().step_by(PAGE_BYTES / 8) {
            // New memory is 0, and what is not is there already. An `or` with 0 would become a read.
            let _ = word.compare_exchange(0, 0, Relaxed, Relaxed);
        }
    }

    /// Memory that belongs to `owner` (a mapped file). `None` unless aligned and in whole lines.
    ///
    /// # Safety
    /// `start` must stay readable, and writable if the filter is to be written, for `bytes` bytes
    /// as long as `owner` lives.
    pub unsafe fn borrowed(
        start: *mut u8,
        bytes: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Option<Bits> {
        let fits = start.align_offset(LINE_BYTES) == 0 && bytes.is_multiple_of(LINE_BYTES);
        fits.then(|| Bits { words: start.cast(), len: bytes / 8, _owner: owner })
    }

    /// A part of the same memory, whole lines each; `None` if it does not lie within.
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Bits> {
        let lines = offset.is_multiple_of(LINE_BYTES) && bytes.is_multiple_of(LINE_BYTES);
        let fits = lines && offset.checked_add(bytes)? <= self.nbytes();
        fits.then(|| Bits {
            words: self.words.wrapping_add(offset / 8),
            len: bytes / 8,
            _owner: Arc::clone(&self._owner),
        })
    }

    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: both constructors guarantee `len` aligned words that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.words, self.len) }
    }

    pub fn nbytes(&self) -> usize {
        self.len * 8
    }

    /// For who keeps readers and writers apart, or may let them meet (see above).
    pub fn as_ptr(&self) -> *mut u8 {
        self.words.cast()
    }

    /// Makes the memory larger, the new part zeroed; moved or copied, so that clones no longer share
    /// it. False if it could not be had, and then nothing has changed.
    pub fn grow(&mut self, bytes: usize) -> bool {
        #[cfg(target_os = "linux")]
        if bytes.is_multiple_of(LINE_BYTES)
            && let Some(owner) = Arc::get_mut(&mut self._owner)
            && let Some(Mapped { map, charge }) = owner.downcast_mut::<Mapped>()
            && let Some(more) = Charge::take(bytes.saturating_sub(map.len()) as u64)
        {
            let may_move = memmap2::RemapOptions::new().may_move(true);
            // SAFETY: the map is ours alone, and the pointer is set anew.
            if unsafe { map.remap(bytes, may_move) }.is_ok() {
                charge.merge(more);
                (self.words, self.len) = (map.as_mut_ptr().cast(), bytes / 8);
                return true;
            }
        }
        let Some(grown) = Bits::zeroed(bytes) else { return false };
        for (new, old) in grown.words().iter().zip(self.words()) {
            new.store(old.load(Relaxed), Relaxed);
        }
        *self = grown;
        true
    }

    /// Gives these bytes back to the kernel, in whole units, if no clone has them; returns where the
    /// next such range begins. They are 0 then, or what they were: do not read them any more.
    pub fn release(&mut self, bytes: Range<usize>) -> usize {
        let end = bytes.end.min(self.nbytes()) / RELEASE_UNIT * RELEASE_UNIT;
        #[cfg(target_os = "linux")]
        if bytes.start < end
            && let Some(owner) = Arc::get_mut(&mut self._owner)
            && let Some(Mapped { map, .. }) = owner.downcast_mut::<Mapped>()
        {
            let length = end - bytes.start;
            // SAFETY: nobody else has this memory, and words of it may be any. What the kernel does
            // not take now it takes when the map is dropped.
            let _ = unsafe {
                map.unchecked_advise_range(UncheckedAdvice::DontNeed, bytes.start, length)
            };
        }
        end.max(bytes.start)
    }

    /// Overwrites the bits from byte `offset`, a multiple of 8, on.
    pub fn fill_from(&self, offset: usize, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        let words = &self.words()[offset / 8..];
        for (word, chunk) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(*chunk), Relaxed);
        }
        if let (Some(word), [_, ..]) = (words.get(whole.len()), rest) {
            let mut raw = [0u8; 8];
            raw[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_le_bytes(raw), Relaxed);
        }
    }

    pub fn clear(&self) {
        self.words().iter().for_each(|w| w.store(0, Relaxed));
    }

    /// `self |= other`; atomic a word at a time, so that no bit set meanwhile is lost.
    pub fn or_with(&self, other: &Bits) {
        for (a, b) in self.words().iter().zip(other.words()) {
            let missing = b.load(Relaxed) & !a.load(Relaxed);
            if missing != 0 {
                a.fetch_or(missing, Relaxed);
            }
        }
    }

    pub fn and_with(&self, other: &Bits) {
        for (a, b) in self.words().iter().zip(other.words()) {
            let extra = a.load(Relaxed) & !b.load(Relaxed);
            if extra != 0 {
                a.fetch_and(!extra, Relaxed);
            }
        }
    }

    pub fn is_subset_of(&self, other: &Bits) -> bool {
        self.words().iter().zip(other.words()).all(|(a, b)| a.load(Relaxed) & !b.load(Relaxed) == 0)
    }

    /// Is no bit set past the first `num_bits`? Such bits would count as fill and never be asked.
    pub fn padding_is_clear(&self, num_bits: u64) -> bool {
        let (word, bit) = ((num_bits / 64) as usize, num_bits % 64);
        self.words()[word..].iter().enumerate().all(|(i, w)| {
            let kept = if i == 0 { (1u64 << bit) - 1 } else { 0 };
            w.load(Relaxed) & !kept == 0
        })
    }

    /// What the estimated error rate of a blocked filter is made of: how many bits are set in how
    /// many lines, and the chance that all of a key's bits in one line are, `each` of them in either
    /// half. That is the mean over the lines, since a fuller line errs more often.
    pub fn fill(&self, each: u32, scan: Scan) -> (u64, u64, f64) {
        let powers: Vec<f64> =
            (0..=256).map(|set| (f64::from(set) / 256.0).powi(each as i32)).collect();
        let (mut set, mut chance, mut lines) = (0u64, 0.0, 0u64);
        let parts = scan.parts(self.words());
        for line in parts.flat_map(|part| part.chunks_exact(WORDS_PER_LINE)) {
            let half = |words: &[AtomicU64]| {
                words.iter().map(|w| w.load(Relaxed).count_ones()).sum::<u32>() as usize
            };
            let (low, high) = (half(&line[..4]), half(&line[4..]));
            set += (low + high) as u64;
            chance += powers[low] * powers[high];
            lines += 1;
        }
        (set, lines, chance / lines as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only whole units go, only once nobody else has them, and what lies behind them stays.
    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn memory_is_released_in_units_unless_it_is_shared() {
        let mut bits = Bits::zeroed(4 * RELEASE_UNIT).unwrap();
        bits.words().iter().for_each(|word| word.store(7, Relaxed));
        let sevens = |bits: &Bits, from: usize| {
            bits.words()[from / 8..].iter().all(|word| word.load(Relaxed) == 7)
        };
        let clone = bits.clone();
        assert_eq!(bits.release(0..RELEASE_UNIT), RELEASE_UNIT);
        assert!(sevens(&bits, 0));
        drop(clone);
        assert_eq!(bits.release(0..RELEASE_UNIT - 1), 0);
        assert!(sevens(&bits, 0));
        assert_eq!(bits.release(0..3 * RELEASE_UNIT - 1), 2 * RELEASE_UNIT);
        assert!(sevens(&bits, 2 * RELEASE_UNIT));
        assert_eq!(sevens(&bits, 0), !cfg!(target_os = "linux"));
        assert_eq!(bits.release(2 * RELEASE_UNIT..usize::MAX), 4 * RELEASE_UNIT);
    }
}

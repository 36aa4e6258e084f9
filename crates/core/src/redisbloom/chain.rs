//! The filter behind BF: a chain of Bloom filters, each for more keys and half the error rate of the
//! one before it.

use super::chain_dump::{Plan, dump_bytes};
use super::dump::{Layered, Malformed, lines};
use super::layer::{Layer, Numbers, Options};
use super::murmur::{MULTIPLIER, murmur2, murmur64a};
use super::{Kept, beyond};
use crate::bits::Bits;
use crate::kind::{Fact, Refusal};
use crate::scan::{Figures, Scan};
use crate::shape::MAX_BITS;

/// RedisBloom makes no filter that errs more often.
const MOST_ERROR_RATE: f64 = 0.25;
/// What each further layer keeps of the error rate; the first one of a chain that grows too.
pub const TIGHTENING: f64 = 0.5;
const MOST_EXPANSION: u32 = 32768;
const SEED_32: u32 = 0x9747_B28C;

pub struct Chain {
    /// The oldest first; never empty.
    pub(super) layers: Vec<Layer>,
    pub(super) keys: u64,
    /// How many times larger each layer is than the one before; nonscaling filters keep it too.
    pub(super) growth: u32,
    pub(super) options: Options,
    pub(super) kept: Kept,
}

impl Chain {
    /// The dump's header of an empty filter. An expansion of 0 is nonscaling; a nonscaling filter
    /// may have another, which its header keeps.
    pub fn plan_new(
        error_rate: f64,
        capacity: u64,
        expansion: u32,
        nonscaling: bool,
    ) -> Result<Vec<u8>, Refusal> {
        if error_rate.is_nan() || expansion > MOST_EXPANSION {
            return Err(beyond());
        }
        let nonscaling = nonscaling || expansion == 0;
        let capped = error_rate.min(MOST_ERROR_RATE);
        let first = if nonscaling { capped } else { capped * TIGHTENING };
        let scaling = if nonscaling { Options::NONSCALING } else { 0 };
        let options = Options(Options::NO_ROUND | Options::HASH_64 | scaling);
        let numbers = Numbers::new(capacity, first, options).ok_or_else(beyond)?;
        Ok(Plan { layers: vec![numbers], growth: expansion, options }.dump())
    }

    /// An empty filter; error rates above 0.25 become 0.25.
    pub fn new(error_rate: f64, capacity: u64, expansion: u32) -> Result<Chain, Refusal> {
        let dump = Chain::plan_new(error_rate, capacity, expansion, false)?;
        Chain::from_header(&dump, u64::MAX).map_err(|problem| match problem {
            Malformed::NoMemory(nbytes) => Refusal::NoMemory(nbytes),
            _ => beyond(),
        })
    }

    /// Where a key's bits begin, and how far apart they are. Filters from before version 2 have 32
    /// bits of each.
    #[inline(always)]
    pub fn hashes(key: &[u8], hash_64: bool) -> [u64; 2] {
        if !hash_64 {
            let first = murmur2(key, SEED_32);
            return [first.into(), murmur2(key, first).into()];
        }
        let first = murmur64a(key, MULTIPLIER);
        [first, murmur64a(key, first)]
    }

    pub fn hash_64(&self) -> bool {
        self.options.has(Options::HASH_64)
    }

    #[inline(always)]
    pub fn contains(&self, hashes: [u64; 2]) -> bool {
        self.layers.iter().rev().any(|layer| layer.contains(hashes))
    }

    /// Asks for the memory of a key that is soon to be added.
    #[inline(always)]
    pub fn prefetch(&self, hashes: [u64; 2]) {
        self.layers[self.layers.len() - 1].prefetch(hashes);
    }

    /// Adds the key; true if it is definitely new.
    #[inline(always)]
    pub fn add(&mut self, hashes: [u64; 2]) -> Result<bool, Refusal> {
        self.kept.change()?;
        let last = self.layers.len() - 1;
        if self.layers[..last].iter().rev().any(|layer| layer.contains(hashes)) {
            return Ok(false);
        }
        let Numbers { keys, capacity, .. } = self.layers[last].numbers;
        if keys >= capacity {
            if self.layers[last].contains(hashes) {
                return Ok(false);
            }
            self.grow()?;
        }
        let new = self.layers.last_mut().is_some_and(|newest| {
            let new = newest.set(hashes);
            newest.numbers.keys += u64::from(new);
            new
        });
        self.keys += u64::from(new);
        Ok(new)
    }

    #[cold]
    fn grow(&mut self) -> Result<(), Refusal> {
        if self.options.has(Options::NONSCALING) {
            return Err(Refusal::Full("non scaling filter is full".into()));
        }
        let numbers = self.next_layer().ok_or_else(beyond)?;
        let nbytes = lines(dump_bytes(self.layers.len() + 1) as u64);
        let head = Bits::zeroed(nbytes as usize).ok_or(Refusal::NoMemory(nbytes))?;
        let bits = self.kept.layer(lines(numbers.nbytes()))?;
        self.kept.head = head;
        self.layers.push(Layer::new(numbers, bits));
        Ok(())
    }

    /// The numbers of the layer that comes next; `None` if there can be none.
    fn next_layer(&self) -> Option<Numbers> {
        let Numbers { capacity, error_rate, .. } = self.layers[self.layers.len() - 1].numbers;
        let capacity = capacity.checked_mul(self.growth.into())?;
        let numbers = Numbers::new(capacity, error_rate * TIGHTENING, self.options)?;
        let whole = numbers.nbytes() + self.parts().map(|(_, nbytes)| nbytes).sum::<u64>();
        (whole <= MAX_BITS / 8).then_some(numbers)
    }

    #[cold]
    pub(super) fn next_bytes(&self) -> Option<u64> {
        let grows = !self.options.has(Options::NONSCALING);
        self.next_layer().filter(|_| grows).map(|numbers| lines(numbers.nbytes()))
    }

    pub fn clear(&mut self) -> Result<(), Refusal> {
        self.kept.change()?;
        if self.layers.len() > 1 {
            let nbytes = lines(dump_bytes(1) as u64);
            self.kept.head = Bits::zeroed(nbytes as usize).ok_or(Refusal::NoMemory(nbytes))?;
            self.layers.truncate(1);
        }
        self.kept.drop_spare();
        self.layers[0].bits.clear();
        self.layers[0].numbers.keys = 0;
        self.keys = 0;
        Ok(())
    }

    /// Keys that were new when they came.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// `None` if nonscaling.
    pub fn expansion(&self) -> Option<u32> {
        (!self.options.has(Options::NONSCALING)).then_some(self.growth)
    }

    /// Bytes, as BF.INFO counts them.
    pub fn size(&self) -> u64 {
        32 + self.layers.iter().map(|layer| 64 + layer.numbers.nbytes()).sum::<u64>()
    }

    pub fn facts(&self) -> Vec<(&'static str, Fact)> {
        let Figures { error_rate, fill_ratio, .. } = self.figures(Scan::ALL);
        vec![
            ("estimated_count", Fact::Int(self.keys)),
            ("estimated_error_rate", Fact::Float(error_rate)),
            ("fill_ratio", Fact::Float(fill_ratio)),
        ]
    }

    pub fn figures(&self, scan: Scan) -> Figures {
        let total: f64 = self.layers.iter().map(|layer| layer.numbers.num_bits as f64).sum();
        let (mut set, mut clear) = (0.0, 1.0);
        for layer in &self.layers {
            let fill = layer.fill_ratio(scan);
            set += fill * layer.numbers.num_bits as f64;
            clear *= 1.0 - fill.powi(layer.numbers.num_hashes as i32);
        }
        Figures { count: self.keys as f64, error_rate: 1.0 - clear, fill_ratio: set / total }
    }
}

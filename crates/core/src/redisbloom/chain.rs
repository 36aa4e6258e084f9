//! The filter behind BF: a chain of Bloom filters, each for more keys and half the error rate of the
//! one before it.

use std::sync::atomic::Ordering::Relaxed;

use super::dump::{Layered, Malformed, Reader, lines};
use super::murmur::{MULTIPLIER, murmur64a};
use super::{Kept, beyond};
use crate::bits::Bits;
use crate::format::KindId;
use crate::kind::{Fact, Refusal};
use crate::shape::MAX_BITS;

/// The two constants as RedisBloom writes them: with more digits some numbers of hashes differ.
#[expect(clippy::approx_constant, reason = "as said above")]
const LN2: f64 = 0.693147180559945;
const LN2_SQUARED: f64 = 0.480453013918201;
/// RedisBloom makes no filter that errs more often.
const MOST_ERROR_RATE: f64 = 0.25;
/// What each further layer keeps of the error rate; the first one of a chain that grows too.
const TIGHTENING: f64 = 0.5;
pub const MOST_EXPANSION: u32 = 32768;
/// Halving leaves nothing of any error rate after so many.
const MOST_LAYERS: u32 = 1074;
/// Options of a dump: bits are not rounded up to a power of two, and hashes have 64 bits. Filters
/// that RedisBloom 1 made have neither.
const OPTIONS: u32 = 5;
const NONSCALING: u32 = 8;

/// The numbers of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    pub num_bits: u64,
    /// Keys that were new when they came.
    pub keys: u64,
    pub error_rate: f64,
    pub bits_per_key: f64,
    pub num_hashes: u32,
    pub capacity: u64,
}

impl Numbers {
    /// `None` if there can be no such layer.
    fn new(capacity: u64, error_rate: f64) -> Option<Numbers> {
        let sound = capacity > 0 && error_rate > 0.0 && error_rate < 1.0;
        let bits_per_key = -(error_rate.ln() / LN2_SQUARED);
        let num_hashes = (LN2 * bits_per_key).ceil() as u32;
        let num_bits = bits_of(capacity, bits_per_key)?;
        let keys = 0;
        sound.then_some(Numbers { num_bits, keys, error_rate, bits_per_key, num_hashes, capacity })
    }

    fn nbytes(&self) -> u64 {
        self.num_bits / 8
    }
}

fn bits_of(capacity: u64, bits_per_key: f64) -> Option<u64> {
    let bits = capacity as f64 * bits_per_key;
    (bits <= MAX_BITS as f64).then(|| (bits as u64).max(1).next_multiple_of(64))
}

pub struct Layer {
    pub numbers: Numbers,
    bits: Bits,
    words: u64,
    /// The reciprocal of `words`, in place of a division a probe.
    reciprocal: u64,
}

impl Layer {
    fn new(numbers: Numbers, bits: Bits) -> Layer {
        let words = numbers.num_bits / 64;
        Layer { numbers, bits, words, reciprocal: u64::MAX / words }
    }

    /// The word and the bit of `x % num_bits`. There are whole words, so the remainder is of 58
    /// bits, for which the quotient by the reciprocal is right or one too small.
    #[inline(always)]
    pub(super) fn place(&self, x: u64) -> (usize, u64) {
        let high = x >> 6;
        let quotient = ((u128::from(high) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = high - quotient * self.words;
        let word = if rest >= self.words { rest - self.words } else { rest };
        (word as usize, 1 << (x & 63))
    }

    #[inline(always)]
    fn contains(&self, [start, step]: [u64; 2]) -> bool {
        let words = self.bits.words();
        let mut x = start;
        for _ in 0..self.numbers.num_hashes {
            let (word, bit) = self.place(x);
            if words[word].load(Relaxed) & bit == 0 {
                return false;
            }
            x = x.wrapping_add(step);
        }
        true
    }

    /// Sets the key's bits; true if one of them was clear.
    #[inline(always)]
    fn set(&mut self, [start, step]: [u64; 2]) -> bool {
        let words = self.bits.words();
        let (mut x, mut clear) = (start, 0);
        for _ in 0..self.numbers.num_hashes {
            let (word, bit) = self.place(x);
            let old = words[word].load(Relaxed);
            words[word].store(old | bit, Relaxed); // nobody else writes: the filter is ours
            clear |= !old & bit;
            x = x.wrapping_add(step);
        }
        clear != 0
    }

    fn fill_ratio(&self) -> f64 {
        let set: u64 = self.bits.words().iter().map(|w| w.load(Relaxed).count_ones() as u64).sum();
        set as f64 / self.numbers.num_bits as f64
    }
}

pub struct Chain {
    /// The oldest first; never empty.
    layers: Vec<Layer>,
    keys: u64,
    /// How many times larger each layer is than the one before; nonscaling filters keep it too.
    growth: u32,
    nonscaling: bool,
    kept: Kept,
}

/// A chain without its memory.
pub struct Plan {
    layers: Vec<Numbers>,
    growth: u32,
    nonscaling: bool,
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
        let numbers = Numbers::new(capacity, first).ok_or_else(beyond)?;
        Ok(Plan { layers: vec![numbers], growth: expansion, nonscaling }.dump())
    }

    /// An empty filter; error rates above 0.25 become 0.25.
    pub fn new(error_rate: f64, capacity: u64, expansion: u32) -> Result<Chain, Refusal> {
        let dump = Chain::plan_new(error_rate, capacity, expansion, false)?;
        Chain::from_header(&dump, u64::MAX).map_err(|problem| match problem {
            Malformed::NoMemory(nbytes) => Refusal::NoMemory(nbytes),
            _ => beyond(),
        })
    }

    #[inline(always)]
    pub fn hashes(key: &[u8]) -> [u64; 2] {
        let first = murmur64a(key, MULTIPLIER);
        [first, murmur64a(key, first)]
    }

    #[inline(always)]
    pub fn contains(&self, hashes: [u64; 2]) -> bool {
        self.layers.iter().rev().any(|layer| layer.contains(hashes))
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
        if self.nonscaling {
            return Err(Refusal::Full("non scaling filter is full".into()));
        }
        let Numbers { capacity, error_rate, .. } = self.layers[self.layers.len() - 1].numbers;
        let capacity = capacity.checked_mul(self.growth.into()).ok_or_else(beyond)?;
        let numbers = Numbers::new(capacity, error_rate * TIGHTENING).ok_or_else(beyond)?;
        let whole = numbers.nbytes() + self.parts().map(|(_, nbytes)| nbytes).sum::<u64>();
        if whole > MAX_BITS / 8 {
            return Err(beyond());
        }
        let get = |nbytes: u64| Bits::zeroed(nbytes as usize).ok_or(Refusal::NoMemory(nbytes));
        let bits = get(lines(numbers.nbytes()))?;
        self.kept.head = get(lines(dump_bytes(self.layers.len() + 1) as u64))?;
        self.layers.push(Layer::new(numbers, bits));
        Ok(())
    }

    pub fn clear(&mut self) -> Result<(), Refusal> {
        self.kept.change()?;
        if self.layers.len() > 1 {
            let nbytes = lines(dump_bytes(1) as u64);
            self.kept.head = Bits::zeroed(nbytes as usize).ok_or(Refusal::NoMemory(nbytes))?;
            self.layers.truncate(1);
        }
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
        (!self.nonscaling).then_some(self.growth)
    }

    /// Bytes, as BF.INFO counts them.
    pub fn size(&self) -> u64 {
        32 + self.layers.iter().map(|layer| 64 + layer.numbers.nbytes()).sum::<u64>()
    }

    pub fn facts(&self) -> Vec<(&'static str, Fact)> {
        let total: f64 = self.layers.iter().map(|layer| layer.numbers.num_bits as f64).sum();
        let (mut set, mut clear) = (0.0, 1.0);
        for layer in &self.layers {
            let fill = layer.fill_ratio();
            set += fill * layer.numbers.num_bits as f64;
            clear *= 1.0 - fill.powi(layer.numbers.num_hashes as i32);
        }
        vec![
            ("estimated_count", Fact::Int(self.keys)),
            ("estimated_error_rate", Fact::Float(1.0 - clear)),
            ("fill_ratio", Fact::Float(set / total)),
        ]
    }
}

fn dump_bytes(layers: usize) -> usize {
    20 + 53 * layers
}

impl Plan {
    fn dump(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(dump_bytes(self.layers.len()));
        let keys: u64 = self.layers.iter().map(|layer| layer.keys).sum();
        let options = if self.nonscaling { OPTIONS | NONSCALING } else { OPTIONS };
        out.extend(keys.to_le_bytes());
        for word in [self.layers.len() as u32, options, self.growth] {
            out.extend(word.to_le_bytes());
        }
        for layer in &self.layers {
            for word in [layer.nbytes(), layer.num_bits, layer.keys] {
                out.extend(word.to_le_bytes());
            }
            out.extend(layer.error_rate.to_le_bytes());
            out.extend(layer.bits_per_key.to_le_bytes());
            out.extend(layer.num_hashes.to_le_bytes());
            out.extend(layer.capacity.to_le_bytes());
            out.push(0); // the power of two to which bits were rounded up
        }
        out
    }
}

impl Layered for Chain {
    const KIND: KindId = KindId::RedisBloom;
    const MOST_HEADER: usize = 20 + 53 * MOST_LAYERS as usize;
    type Plan = Plan;

    fn plan(dump: &[u8]) -> Result<Plan, Malformed> {
        let mut read = Reader::new(dump);
        let (keys, count) = (read.u64()?, read.u32()?);
        let (options, growth) = (read.u32()?, read.u32()?);
        let nonscaling = options & NONSCALING != 0;
        let bad = |what: String| Err(Malformed::Header(what));
        if count == 0 || count > MOST_LAYERS || (nonscaling && count != 1) {
            return bad(format!("{count} layers, must be 1 to {MOST_LAYERS}, 1 if nonscaling"));
        }
        if dump.len() != dump_bytes(count as usize) {
            let expected = dump_bytes(count as usize);
            return bad(format!("{} bytes for {count} layers, expected {expected}", dump.len()));
        }
        if options & !NONSCALING != OPTIONS {
            return bad(format!("options {options}, must be 5 or 13"));
        }
        if growth > MOST_EXPANSION || (growth == 0 && !nonscaling) {
            return bad(format!("an expansion of {growth}, must be 1 to {MOST_EXPANSION}"));
        }
        let (mut layers, mut total) = (Vec::<Numbers>::new(), (0u64, 0u64));
        for i in 0..count {
            let nbytes = read.u64()?;
            let layer = Numbers {
                num_bits: read.u64()?,
                keys: read.u64()?,
                error_rate: read.f64()?,
                bits_per_key: read.f64()?,
                num_hashes: read.u32()?,
                capacity: read.u64()?,
            };
            let rounded = read.u8()?;
            if !is_sound(&layer) || rounded != 0 || nbytes != layer.nbytes() {
                return bad(format!("the numbers of layer {i} do not fit each other: {layer:?}"));
            }
            if let Some(before) = layers.last() {
                let capacity = before.capacity.checked_mul(growth.into());
                if Some(layer.capacity) != capacity
                    || layer.error_rate != before.error_rate * TIGHTENING
                {
                    return bad(format!("layer {i} does not follow from the one before"));
                }
            } else if !nonscaling && layer.error_rate >= TIGHTENING {
                return bad(format!("the first layer's error rate is {}", layer.error_rate));
            }
            total = (total.0.saturating_add(layer.keys), total.1.saturating_add(layer.num_bits));
            layers.push(layer);
        }
        if total.0 != keys || total.1 > MAX_BITS {
            return bad(format!("{keys} keys, {} in all layers, of {} bits", total.0, total.1));
        }
        Ok(Plan { layers, growth, nonscaling })
    }

    fn sizes(plan: &Plan) -> Vec<u64> {
        plan.layers.iter().map(Numbers::nbytes).collect()
    }

    fn build(plan: Plan, memory: Vec<Bits>, kept: Kept) -> Chain {
        let keys = plan.layers.iter().map(|layer| layer.keys).sum();
        let layers = plan.layers.into_iter().zip(memory);
        let layers = layers.map(|(numbers, bits)| Layer::new(numbers, bits)).collect();
        Chain { layers, keys, growth: plan.growth, nonscaling: plan.nonscaling, kept }
    }

    fn dump_header(&self) -> Vec<u8> {
        let layers = self.layers.iter().map(|layer| layer.numbers).collect();
        Plan { layers, growth: self.growth, nonscaling: self.nonscaling }.dump()
    }

    fn parts(&self) -> impl Iterator<Item = (&Bits, u64)> {
        self.layers.iter().map(|layer| (&layer.bits, layer.numbers.nbytes()))
    }

    fn kept(&self) -> &Kept {
        &self.kept
    }

    fn change(&mut self) -> Result<(), Refusal> {
        self.kept.change()
    }

    fn describe(&self) -> (u64, f64, u16) {
        let first = &self.layers[0].numbers;
        let asked = if self.nonscaling { 1.0 } else { 1.0 / TIGHTENING };
        (first.capacity, first.error_rate * asked, first.num_hashes as u16)
    }
}

/// Do a layer's numbers follow from its capacity and its error rate? Logarithms of another machine
/// may differ in their last bit.
fn is_sound(layer: &Numbers) -> bool {
    let Some(expected) = Numbers::new(layer.capacity, layer.error_rate) else { return false };
    let per_key = layer.bits_per_key;
    (per_key - expected.bits_per_key).abs() <= 1e-12 * expected.bits_per_key
        && Some(layer.num_bits) == bits_of(layer.capacity, per_key)
        && f64::from(layer.num_hashes) == (LN2 * per_key).ceil()
        && layer.keys <= layer.capacity
}

//! A chain as RedisBloom dumps it.

use super::Kept;
use super::chain::{Chain, MOST_EXPANSION, TIGHTENING};
use super::dump::{Layered, Malformed, Reader};
use super::layer::{Layer, Numbers, is_sound};
use crate::bits::Bits;
use crate::format::KindId;
use crate::kind::Refusal;
use crate::shape::MAX_BITS;

/// Halving leaves nothing of any error rate after so many.
const MOST_LAYERS: u32 = 1074;
/// Options of a dump: bits are not rounded up to a power of two, and hashes have 64 bits. Filters
/// that RedisBloom 1 made have neither.
const OPTIONS: u32 = 5;
const NONSCALING: u32 = 8;

/// A chain without its memory.
pub struct Plan {
    pub layers: Vec<Numbers>,
    pub growth: u32,
    pub nonscaling: bool,
}

pub fn dump_bytes(layers: usize) -> usize {
    20 + 53 * layers
}

impl Plan {
    pub fn dump(&self) -> Vec<u8> {
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
    const EMPTY_CHUNKS: bool = true;
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

//! A chain as RedisBloom dumps it.

use super::Kept;
use super::chain::{Chain, TIGHTENING};
use super::dump::{Layered, Malformed, Reader};
use super::layer::{Layer, Numbers, Options};
use crate::bits::Bits;
use crate::format::KindId;
use crate::kind::Refusal;
use crate::shape::MAX_BITS;

/// Halving leaves nothing of any error rate after so many.
const MOST_LAYERS: u32 = 1074;
/// A chain without its memory.
pub struct Plan {
    pub layers: Vec<Numbers>,
    pub growth: u32,
    pub options: Options,
}

pub fn dump_bytes(layers: usize) -> usize {
    20 + 53 * layers
}

impl Plan {
    pub fn dump(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(dump_bytes(self.layers.len()));
        let keys: u64 = self.layers.iter().map(|layer| layer.keys).sum();
        out.extend(keys.to_le_bytes());
        for word in [self.layers.len() as u32, self.options.0, self.growth] {
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
            out.push(layer.power);
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
        let (options, growth) = (Options(read.u32()?), read.u32()?);
        let bad = |what: String| Err(Malformed::Header(what));
        let nonscaling = options.has(Options::NONSCALING);
        if count == 0 || count > MOST_LAYERS || (nonscaling && count != 1) {
            return bad(format!("{count} layers, must be 1 to {MOST_LAYERS}, 1 if nonscaling"));
        }
        if dump.len() != dump_bytes(count as usize) {
            let expected = dump_bytes(count as usize);
            return bad(format!("{} bytes for {count} layers, expected {expected}", dump.len()));
        }
        if !Options::KNOWN.contains(&options.0) {
            return bad(format!("options {}, must be one of {:?}", options.0, Options::KNOWN));
        }
        if growth == 0 && !nonscaling {
            return bad("an expansion of 0 in a filter that grows".into());
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
                power: read.u8()?,
            };
            if !layer.is_sound(options) || nbytes != layer.nbytes() {
                return bad(format!("the numbers of layer {i} do not fit each other: {layer:?}"));
            }
            if let Some(before) = layers.last() {
                // What is rounded up to a power of two holds more keys than were asked for.
                let asked = before.capacity.checked_mul(growth.into());
                let capacity =
                    if options.has(Options::NO_ROUND) { asked } else { Some(layer.capacity) };
                if Some(layer.capacity) != capacity
                    || layer.error_rate != before.error_rate * TIGHTENING
                {
                    return bad(format!("layer {i} does not follow from the one before"));
                }
            }
            total = (total.0.saturating_add(layer.keys), total.1.saturating_add(layer.num_bits));
            layers.push(layer);
        }
        if total.0 != keys || total.1 > MAX_BITS {
            return bad(format!("{keys} keys, {} in all layers, of {} bits", total.0, total.1));
        }
        Ok(Plan { layers, growth, options })
    }

    fn sizes(plan: &Plan) -> Vec<u64> {
        plan.layers.iter().map(Numbers::nbytes).collect()
    }

    fn build(plan: Plan, memory: Vec<Bits>, kept: Kept) -> Chain {
        let keys = plan.layers.iter().map(|layer| layer.keys).sum();
        let layers = plan.layers.into_iter().zip(memory);
        let layers = layers.map(|(numbers, bits)| Layer::new(numbers, bits)).collect();
        Chain { layers, keys, growth: plan.growth, options: plan.options, kept }
    }

    fn dump_header(&self) -> Vec<u8> {
        let layers = self.layers.iter().map(|layer| layer.numbers).collect();
        Plan { layers, growth: self.growth, options: self.options }.dump()
    }

    fn parts(&self) -> impl Iterator<Item = (&Bits, u64)> {
        self.layers.iter().map(|layer| (&layer.bits, layer.numbers.nbytes()))
    }

    fn kept(&self) -> &Kept {
        &self.kept
    }

    #[inline(always)]
    fn lacks(&self, keys: u64) -> Option<u64> {
        let newest = &self.layers[self.layers.len() - 1].numbers;
        if newest.capacity.saturating_sub(newest.keys) >= keys {
            return None;
        }
        self.kept.lacks(self.next_bytes()?)
    }

    fn spare(&mut self, memory: Bits) {
        self.kept.spare = Some(memory);
    }

    fn change(&mut self) -> Result<(), Refusal> {
        self.kept.change()
    }

    fn describe(&self) -> (u64, f64, u16) {
        let first = &self.layers[0].numbers;
        let asked = first.error_rate / TIGHTENING;
        let scaling = !self.options.has(Options::NONSCALING);
        // Before version 2 the first layer had the error rate that was asked for.
        let error_rate = if scaling && asked < 1.0 { asked } else { first.error_rate };
        (first.capacity, error_rate, first.num_hashes as u16)
    }
}

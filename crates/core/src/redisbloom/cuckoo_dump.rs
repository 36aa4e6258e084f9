//! A cuckoo filter's numbers, and how RedisBloom dumps them.

use super::Kept;
use super::buckets::Layer;
use super::cuckoo::Cuckoo;
use super::dump::{Layered, Malformed, Reader};
use crate::bits::Bits;
use crate::format::KindId;
use crate::kind::Refusal;
use crate::shape::MAX_BITS;

pub const MOST_BYTES: u64 = MAX_BITS / 8;
const HEADER_BYTES: usize = 38;

/// The numbers that a filter is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Of the first layer: a power of two.
    pub buckets: u64,
    pub bucket_size: u16,
    pub max_iterations: u16,
    /// How many times more buckets each layer has than the one before: a power of two, or 0 if
    /// there is to be no other layer.
    pub expansion: u16,
    pub keys: u64,
    /// Keys removed since the last compaction.
    pub removed: u64,
}

impl Numbers {
    /// Buckets of a layer and its bytes; `None` if there can be no such layer.
    pub fn layer(&self, number: u64) -> Option<(u64, u64)> {
        let growth = u64::from(self.expansion).checked_pow(number.try_into().ok()?)?;
        let buckets = self.buckets.checked_mul(growth)?;
        let nbytes = buckets.checked_mul(self.bucket_size.into())?;
        (buckets > 0 && nbytes <= MOST_BYTES).then_some((buckets, nbytes))
    }

    pub fn dump(&self, layers: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        for word in [self.keys, self.buckets, self.removed, layers] {
            out.extend(word.to_le_bytes());
        }
        for half in [self.bucket_size, self.max_iterations, self.expansion] {
            out.extend(half.to_le_bytes());
        }
        out
    }
}

/// A filter without its memory.
pub struct Plan {
    numbers: Numbers,
    /// Buckets and bytes of each.
    layers: Vec<(u64, u64)>,
}

impl Layered for Cuckoo {
    const KIND: KindId = KindId::RedisCuckoo;
    const MOST_HEADER: usize = HEADER_BYTES;
    const EMPTY_CHUNKS: bool = false;
    type Plan = Plan;

    fn plan(dump: &[u8]) -> Result<Plan, Malformed> {
        let bad = |what: String| Err(Malformed::Header(what));
        if dump.len() != HEADER_BYTES {
            return Err(Malformed::Short);
        }
        let mut read = Reader::new(dump);
        let (keys, buckets, removed, count) = (read.u64()?, read.u64()?, read.u64()?, read.u64()?);
        let (bucket_size, max_iterations, expansion) = (read.u16()?, read.u16()?, read.u16()?);
        let numbers = Numbers { buckets, bucket_size, max_iterations, expansion, keys, removed };
        if !buckets.is_power_of_two()
            || bucket_size == 0
            || bucket_size > 255
            || max_iterations == 0
            || (expansion != 0 && !expansion.is_power_of_two())
        {
            return bad(format!("the numbers do not fit each other: {numbers:?}"));
        }
        if count == 0 || count > u64::from(u16::MAX) || (expansion == 0 && count != 1) {
            return bad(format!("{count} layers, must be 1 to 65535, 1 if it is not to grow"));
        }
        let (mut layers, mut total) = (Vec::new(), 0u64);
        for number in 0..count {
            let layer = numbers.layer(number);
            total = total.saturating_add(layer.map_or(u64::MAX, |(_, nbytes)| nbytes));
            match layer {
                Some(layer) if total <= MOST_BYTES => layers.push(layer),
                _ => return bad(format!("{count} layers, which are too large: {numbers:?}")),
            }
        }
        // `keys` is as it may be: while a dump is loaded, or compacted half loaded, there are fewer.
        Ok(Plan { numbers, layers })
    }

    fn sizes(plan: &Plan) -> Vec<u64> {
        plan.layers.iter().map(|(_, nbytes)| *nbytes).collect()
    }

    fn build(plan: Plan, memory: Vec<Bits>, kept: Kept) -> Cuckoo {
        let layers = plan.layers.into_iter().zip(memory);
        let layers = layers.map(|((buckets, _), bits)| Layer { bits, buckets }).collect();
        Cuckoo { numbers: plan.numbers, layers, kept }
    }

    fn dump_header(&self) -> Vec<u8> {
        self.numbers.dump(self.layers.len() as u64)
    }

    fn parts(&self) -> impl Iterator<Item = (&Bits, u64)> {
        let size = u64::from(self.numbers.bucket_size);
        self.layers.iter().map(move |layer| (&layer.bits, layer.buckets * size))
    }

    fn kept(&self) -> &Kept {
        &self.kept
    }

    #[inline(always)]
    fn lacks(&self, _keys: u64) -> Option<u64> {
        self.kept.lacks(self.kept.wanted?)
    }

    fn spare(&mut self, memory: Bits) {
        self.kept.spare = Some(memory);
    }

    fn change(&mut self) -> Result<(), Refusal> {
        self.kept.change()
    }

    fn describe(&self) -> (u64, f64, u16) {
        let Numbers { buckets, bucket_size, .. } = self.numbers;
        // Of a full layer, roughly; a division gives the same everywhere, which a power may not.
        let error_rate = (2.0 * f64::from(bucket_size) / 255.0).min(0.999);
        (buckets * u64::from(bucket_size), error_rate, 2)
    }

    fn dumps_nothing(&self) -> bool {
        self.numbers.keys == 0
    }
}

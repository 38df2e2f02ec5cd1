//! Keys of sorts.

use crate::gpu::{Array, DeviceError};

/// Keys, which are sorted in ascending order.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// Unsigned numbers.
    U32(&'a Array<u32>),
    /// Signed numbers.
    I32(&'a Array<i32>),
    /// The total order of IEEE numbers by their bits: NaN with the sign set, minus infinity, ...,
    /// -0.0, +0.0, ..., infinity, other NaN. Zeros of different signs are different keys.
    F32(&'a Array<f32>),
    /// Unsigned numbers in two words, of equally long arrays.
    U64 {
        /// The upper 32 bits.
        high: &'a Array<u32>,
        /// The lower 32 bits.
        low: &'a Array<u32>,
    },
}

/// Keys of which only some bits differ; every [`Keys`] is one.
#[derive(Clone, Copy)]
pub struct KeysOfBits<'a> {
    pub(super) keys: Keys<'a>,
    pub(super) bits: u32,
}

impl<'a> Keys<'a> {
    /// Returns the keys with only the `bits` lowest bits in use: fewer passes sort them. Higher
    /// bits are ignored.
    #[must_use]
    pub fn bits(self, bits: u32) -> KeysOfBits<'a> {
        let all = if matches!(self, Keys::U64 { .. }) { 64 } else { 32 };
        KeysOfBits { keys: self, bits: bits.min(all) }
    }

    /// Returns how many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Keys::U32(keys) => keys.len(),
            Keys::I32(keys) => keys.len(),
            Keys::F32(keys) => keys.len(),
            Keys::U64 { high, low } => high.len().min(low.len()),
        }
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the keys as words.
    pub(super) fn words(&self) -> Result<Words, DeviceError> {
        Ok(match self {
            Keys::U32(keys) => Words::One((*keys).clone(), Flip::NONE),
            Keys::I32(keys) => Words::One(keys.cast()?, Flip::SIGNED),
            Keys::F32(keys) => Words::One(keys.cast()?, Flip::FLOAT),
            Keys::U64 { high, low } => Words::Two { high: (*high).clone(), low: (*low).clone() },
        })
    }
}

impl<'a> From<Keys<'a>> for KeysOfBits<'a> {
    fn from(keys: Keys<'a>) -> Self {
        keys.bits(64)
    }
}

/// Transformation of words so that their unsigned order is that of the keys: `flip` is applied to
/// all, and `negative` to those whose highest bit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flip {
    pub flip: u32,
    pub negative: u32,
}

impl Flip {
    pub const NONE: Flip = Flip { flip: 0, negative: 0 };
    const SIGNED: Flip = Flip { flip: 1 << 31, negative: 0 };
    const FLOAT: Flip = Flip { flip: 1 << 31, negative: (1 << 31) - 1 };
}

/// Keys as words.
pub(super) enum Words {
    One(Array<u32>, Flip),
    Two { high: Array<u32>, low: Array<u32> },
}

/// Keys of two words, of which the `bits` lowest bits count.
#[derive(Clone, Copy)]
pub(super) struct WideKeys<'a> {
    pub high: &'a Array<u32>,
    pub low: &'a Array<u32>,
    pub bits: u32,
}

impl WideKeys<'_> {
    /// Returns the bits of a high word that count.
    pub fn high_mask(&self) -> u32 {
        u32::MAX >> (64 - self.bits)
    }
}

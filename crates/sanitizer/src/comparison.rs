//! Compares the results of a dispatch on a device with the interpreter's.

use std::fmt;

use naga::{Scalar, ScalarKind};

use super::interpreter::Interpreter;
use super::memory::{self, Memory, Root, WORD, Write};
use super::program::Leaf;
use super::value::ORDER;

/// Tolerance for numbers of 4 bytes, relative to the largest that the dispatch read or wrote. WGSL
/// requires 2^-11 of sines and cosines; everything else is more precise. Sums may be rounded in any
/// order, and products and sums at once: small differences of large numbers are not reported.
const APART: f64 = 1.0 / 1024.0;
/// Numbers of 8 bytes, which have no such functions.
const APART_F64: f64 = 1.0 / (1u64 << 40) as f64;

/// Words of a buffer of which a device has made something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of differing words.
    pub words: usize,
    pub binding: usize,
    /// The first of them.
    pub word: usize,
    pub device: String,
    pub text: String,
    /// Number and text of the line that wrote it; `None` if the text does not write it.
    pub line: Option<(u32, String)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { words, binding, word, device, text, line } = self;
        write!(
            f,
            "the device has not what the text says in {words} words of binding {binding}: at first {device} for {text} in word {word}, "
        )?;
        match line {
            Some((number, line)) => write!(f, "from line {number}, `{line}`"),
            None => write!(f, "which no line writes"),
        }
    }
}

impl Interpreter<'_> {
    /// Notes how large a number in a buffer is.
    pub(super) fn scale(&mut self, root: Root, leaf: Leaf, bits: u64) {
        if leaf.scalar.kind == ScalarKind::Float && matches!(root, Root::Buffer(_)) {
            let size = number(leaf.scalar, bits).abs();
            let largest = &mut self.largest[usize::from(leaf.scalar.width == 8)];
            if size.is_finite() && size > *largest {
                *largest = size;
            }
        }
    }

    /// Compares the contents of a buffer on a device with those that the dispatch has left in it
    /// here.
    ///
    /// Integers have to be equal; others may be rounded, as WGSL allows. Values that depend on the
    /// order in which invocations reach an atomic operation are skipped, and so is everything in a
    /// dispatch whose control flow depends on it.
    pub fn compare(&self, binding: usize, device: &[u8]) -> Option<Difference> {
        if self.ordered {
            return None;
        }
        let memory = &self.buffers[binding];
        let mut words = (0..memory.bytes.len() / WORD).filter(|&word| self.differs(memory, device, word));
        let word = words.next()?;
        let words = 1 + words.count();
        let written = memory.written(word);
        let scalar = written.map_or(Scalar::U32, |write| write.scalar);
        let line = written.map(|write| self.program.line(write.by)).map(|(number, line)| (number, line.into()));
        let [device, text] =
            [device, &memory.bytes].map(|bytes| shown(scalar, memory::read(bytes, word * WORD, scalar)));
        Some(Difference { words, binding, word, device, text, line })
    }

    fn differs(&self, memory: &Memory, device: &[u8], word: usize) -> bool {
        let both = |scalar| [device, &memory.bytes].map(|bytes| memory::read(bytes, word * WORD, scalar));
        let before = word.checked_sub(1).and_then(|before| memory.written(before));
        match memory.written(word) {
            // The second word of a number of 8 bytes.
            None if before.is_some_and(|write| write.scalar.width == 8) => false,
            Some(_) if memory.taint((word * WORD) as u64) == ORDER => false,
            Some(Write { scalar, .. }) if scalar.kind == ScalarKind::Float => {
                let [a, b] = both(scalar).map(|bits| number(scalar, bits));
                let wide = usize::from(scalar.width == 8);
                let apart = self.largest[wide] * [APART, APART_F64][wide];
                !(a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= apart)
            }
            written => {
                let [a, b] = both(written.map_or(Scalar::U32, |write| write.scalar));
                a != b
            }
        }
    }
}

fn number(scalar: Scalar, bits: u64) -> f64 {
    if scalar.width == 8 { f64::from_bits(bits) } else { f64::from(f32::from_bits(bits as u32)) }
}

fn shown(scalar: Scalar, bits: u64) -> String {
    match (scalar.kind, scalar.width) {
        (ScalarKind::Float, _) => format!("{:e}", number(scalar, bits)),
        (ScalarKind::Sint, 4) => (bits as u32 as i32).to_string(),
        (ScalarKind::Sint, _) => (bits as i64).to_string(),
        _ => bits.to_string(),
    }
}

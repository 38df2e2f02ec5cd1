//! Fingerprints: numbers that identify models by all that their values depend on.

use super::{Contents, Leaf, PointOrder, Result, Space, Support, Vector};
use crate::comm::Op;
use crate::fft::Values;
use crate::gpu::{Array, DeviceElement};
use crate::grid::{Box3, extent};
use crate::hash::{START, fnv1a, mix, placed};
use crate::rank::Rank;

/// A 64-bit hash of what was written into it, in order.
///
/// It is equal on all ranks, for every number of ranks and every process grid. Two models with
/// equal fingerprints compute the same function, with an error probability of 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Fingerprint(START)
    }
}

impl Fingerprint {
    /// Creates the fingerprint of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the hash.
    #[must_use]
    pub fn value(self) -> u64 {
        mix(self.0)
    }

    /// Writes a number.
    pub fn number(&mut self, number: u64) {
        self.0 = fnv1a(self.0, &number.to_le_bytes());
    }

    /// Writes a text, with its length.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0 = fnv1a(self.0, text.as_bytes());
    }

    /// Writes the bits of numbers that are the same on all ranks.
    pub fn numbers(&mut self, numbers: &[f64]) {
        self.number(numbers.len() as u64);
        numbers.iter().for_each(|number| self.number(number.to_bits()));
    }

    /// Writes the names of the leaves, their places on all ranks and their types.
    ///
    /// Collective. Ghost cells and the process grid do not count.
    ///
    /// # Errors
    /// - [`OperatorError::Comm`](super::OperatorError::Comm) if ranks cannot be reached.
    pub fn space(&mut self, rank: &Rank, space: &Space) -> Result<()> {
        self.number(space.len() as u64);
        for (name, leaf) in space.leaves() {
            self.text(name);
            self.leaf(rank, leaf)?;
        }
        Ok(())
    }

    fn leaf(&mut self, rank: &Rank, leaf: &Leaf) -> Result<()> {
        self.text(leaf.support.kind());
        self.number(u64::from(leaf.values == Values::Complex));
        self.number(u64::from(leaf.components));
        self.number(leaf.batch);
        match &leaf.support {
            Support::Cells { mesh } | Support::Modes { mesh, .. } => {
                mesh.shape().iter().for_each(|n| self.number(*n));
                self.numbers(&mesh.size());
            }
            Support::Points { total, order, .. } => {
                self.number(*total);
                if let PointOrder::Numbers(numbers) = order {
                    let sum = numbers.get().iter().map(|number| placed(*number, 0)).fold(0, u64::wrapping_add);
                    self.over_ranks(rank, sum)?;
                }
            }
            Support::Vector { len } | Support::Parameters { len } => self.number(*len),
        }
        Ok(())
    }

    /// Writes the sum of a number over all ranks.
    fn over_ranks(&mut self, rank: &Rank, own: u64) -> Result<()> {
        self.number(rank.comm.reduced([own], Op::Sum)?[0]);
        Ok(())
    }

    /// Writes the space of a field and the bits of its values. Ghost cells do not count.
    ///
    /// Collective; blocks, and reads all values on the host.
    ///
    /// # Errors
    /// - [`OperatorError::Device`](super::OperatorError::Device) if the device fails.
    /// - [`OperatorError::Comm`](super::OperatorError::Comm) if ranks cannot be reached.
    pub fn field(&mut self, rank: &mut Rank, field: &Vector) -> Result<()> {
        self.space(rank, field.space())?;
        for ((_, leaf), contents) in field.space().leaves().zip(field.contents()) {
            match contents {
                Contents::Host(values) => self.numbers(values),
                Contents::Device(array) => self.array(rank, leaf, array)?,
            }
        }
        Ok(())
    }

    /// Writes words at the places of a leaf, as many at each as the array has.
    pub(crate) fn array<T: DeviceElement>(&mut self, rank: &mut Rank, leaf: &Leaf, array: &Array<T>) -> Result<()> {
        let values = rank.recorder.download(array, 0, array.len())?;
        self.words(rank, leaf, bytemuck::cast_slice(&values))
    }

    /// Writes words of this rank at the places of a leaf, as many at each as are given.
    pub(crate) fn words(&mut self, rank: &Rank, leaf: &Leaf, words: &[u32]) -> Result<()> {
        if !leaf.is_distributed() {
            self.number(words.len() as u64);
            words.iter().for_each(|word| self.number(u64::from(*word)));
            return Ok(());
        }
        let places = leaf.places().max(1) as usize;
        let (each, numbers) = ((words.len() / places) as u64, leaf.numbers());
        let mut sum = 0_u64;
        for_each_place(rank, leaf, &mut |at, site| {
            for word in 0..each {
                let (field, part) = (word / numbers, word % numbers);
                let index = (field * places as u64 + at) * numbers + part;
                let bits = u64::from(words[index as usize]);
                sum = sum.wrapping_add(placed(mix(site).wrapping_add(word), bits));
            }
        })?;
        self.over_ranks(rank, sum)
    }
}

/// Calls `visit` with each place of this rank and its number among those of all ranks.
pub(super) fn for_each_place(rank: &Rank, leaf: &Leaf, visit: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let mut in_box = |own: &Box3, [n1, n2]: [u64; 2], (offset, strides): (u64, [u64; 3])| {
        for i in own[0].clone() {
            for j in own[1].clone() {
                for k in own[2].clone() {
                    let at = [i - own[0].start, j - own[1].start, k - own[2].start];
                    let local = (0..3).map(|a| at[a] * strides[a]).sum::<u64>();
                    visit(offset + local, (i * n1 + j) * n2 + k);
                }
            }
        }
    };
    match &leaf.support {
        Support::Cells { mesh } => {
            let (layout, [_, n1, n2]) = (mesh.layout(), mesh.shape());
            in_box(&layout.own, [n1, n2], (layout.offset(), layout.strides()));
        }
        Support::Modes { mesh, half } => {
            let (own, [_, n1, n2]) = (mesh.modes(*half), mesh.shape());
            let [_, e1, e2] = extent(&own);
            in_box(&own, [n1, if *half { n2 / 2 + 1 } else { n2 }], (0, [e1 * e2, e2, 1]));
        }
        Support::Points { own, order: PointOrder::Ranks, .. } => {
            let mut first = [*own];
            rank.comm.scan_exclusive(&mut first, Op::Sum)?;
            (0..*own).for_each(|at| visit(at, first[0] + at));
        }
        Support::Points { order: PointOrder::Numbers(numbers), .. } => {
            (0..).zip(numbers.get()).for_each(|(at, &number)| visit(at, number));
        }
        Support::Vector { len } | Support::Parameters { len } => (0..*len).for_each(|at| visit(at, at)),
    }
    Ok(())
}

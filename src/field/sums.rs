//! Sums and extremes over the cells of all ranks.

use std::sync::Arc;

use super::{Field, FieldError, Result};
use crate::comm::{Op, Reducible};
use crate::exchange::{ExactSum, Terms};
use crate::gpu::Array;
use crate::gpu::primitives::{Count, Number, Reduce};
use crate::rank::Rank;

impl Rank {
    /// Returns the sum of all components over the cells of all ranks; NaN if an element is not
    /// finite. The result has the same bits on any number of ranks: elements are rounded to
    /// integers of 62 bits less the logarithm of their number, relative to the largest, which are
    /// added exactly. [Collective](Self); blocks.
    ///
    /// # Errors
    /// - [`FieldError::Device`] if the device fails.
    /// - [`FieldError::Comm`] if ranks pass fields on different meshes, or another rank fails.
    pub fn sum(&mut self, field: &Field) -> Result<f64> {
        let own = self.own_cells(field)?;
        self.exact_sum("Rank::sum", &own, None, field)
    }

    /// Returns the sum of the products of two fields over all components and the cells of all
    /// ranks; NaN if a product is not finite. Products are rounded to f32 and added as in
    /// [`sum`](Self::sum). [Collective](Self); blocks.
    ///
    /// # Errors
    /// - [`FieldError::Layout`] if the fields are on different meshes.
    /// - [`FieldError::Length`] if they have different numbers of components.
    /// - Same as [`sum`](Self::sum).
    pub fn dot(&mut self, a: &Field, b: &Field) -> Result<f64> {
        a.same_mesh("Rank::dot", b)?;
        FieldError::check_length("Rank::dot: number of components", a.components(), b.components())?;
        let own = [self.own_cells(a)?, self.own_cells(b)?];
        self.exact_sum("Rank::dot", &own[0], Some(&own[1]), a)
    }

    fn exact_sum(&mut self, call: &str, x: &Array<f32>, y: Option<&Array<f32>>, of: &Field) -> Result<f64> {
        let comm = self.comm_on(call, of.mesh(), of.components());
        let sums = self.exact_sums();
        let total = of.mesh().total_cells().saturating_mul(of.components());
        let terms = Terms { x, y, index: None, sums: 1, batches: 1, total };
        Ok(sums.totals(&mut self.recorder, Some(&comm), &terms)?[0])
    }

    /// Returns the smallest element over all components and the cells of all ranks. NaN elements
    /// may be ignored. [Collective](Self); blocks.
    ///
    /// # Errors
    /// - [`FieldError::Device`] if the device fails.
    /// - [`FieldError::Comm`] if ranks pass fields on different meshes, or another rank fails.
    pub fn min<T: Number + Reducible>(&mut self, field: &Field<T>) -> Result<T> {
        self.extreme("Rank::min", field, Op::Min)
    }

    /// Returns the largest element over all components and the cells of all ranks. NaN elements may
    /// be ignored. [Collective](Self); blocks.
    ///
    /// # Errors
    /// Same as [`min`](Self::min).
    pub fn max<T: Number + Reducible>(&mut self, field: &Field<T>) -> Result<T> {
        self.extreme("Rank::max", field, Op::Max)
    }

    /// Returns the kernels of exact sums.
    pub(crate) fn exact_sums(&mut self) -> Arc<ExactSum> {
        self.shared()
    }

    fn extreme<T: Number + Reducible>(&mut self, call: &str, field: &Field<T>, op: Op) -> Result<T> {
        let own = self.own_cells(field)?;
        let output = self.gpu.array("field::extreme", 1)?;
        let reduce = self.shared::<Reduce>();
        let recorder = &mut self.recorder;
        reduce.record(recorder, op, &own, &output, Count::All)?;
        let mut found = recorder.download(&output, 0, 1)?;
        self.comm_on(call, field.mesh(), field.components()).all_reduce(&mut found, op)?;
        Ok(found[0])
    }
}

//! Transforms of fields that lie in any boxes.
//!
//! ```text
//! field boxes --Reshape--> field parts --Transform--> spectrum parts --Reshape--> spectrum boxes
//! ```

use super::callbacks::TransformCallbacks;
use super::error::FftError;
use super::plan::Plan;
use super::spec::Spec;
use super::transform::{Transform, Value};
use super::tuning::Tuning;
use crate::exchange::{Exchange, ExchangeError, GridComms, Reshape};
use crate::gpu::{Array, DeviceElement, DeviceError, Gpu, Recorder};
use crate::grid::{Box3, Cost, FieldLayout, Redistribution, split};

/// A [`Transform`] of fields that are distributed over arbitrary boxes: bricks, slabs and pencils of any direction, with
/// any owners.
///
/// - Every rank has one box of the cells and one of the modes, possibly empty; each list tiles its mesh, which is
///   [`Spec::cells`] and [`Spec::spectrum`]. Arrays are C order over the box; fields of a batch follow each other.
/// - A redistribution before and one after the transform move what is elsewhere. One that moves nothing on any rank is left
///   out, with its array: the best boxes are those of [`Transform::field_part`] and [`Transform::spectrum_part`].
/// - It exchanges over [`GridComms::world`], where no other exchange may be in flight meanwhile.
/// - The result is that of [`Transform`], to the bit.
///
/// ```
/// use meshloom::comm::Communicator;
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::exchange::GridComms;
/// use meshloom::fft::{BoxTransform, Spec, Tuning, Values};
/// use meshloom::grid::{Grid, bricks};
///
/// # fn main() -> Result<(), meshloom::Error> {
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let mut lines = GridComms::new(&Communicator::solo(), Grid::new([1, 1], 1)?)?;
/// let spec = Spec::new(Values::Real, [4, 3, 2]);
/// // The boxes of all ranks: here of one.
/// let (cells, modes) = (bricks(spec.cells, [1, 1, 1]), bricks(spec.spectrum(), [1, 1, 1]));
/// let mut transform = BoxTransform::<f32>::new(&gpu, &spec, &lines, &cells, &modes, &Tuning::of(&gpu))?;
///
/// let (field, spectrum) = (transform.field(&gpu)?, transform.spectrum(&gpu)?);
/// recorder.upload(&field, 0, &[1.0; 24])?;
/// transform.forward(&mut recorder, &mut lines, &field, &spectrum)?;
/// assert_eq!(recorder.download(&spectrum, 0, 1)?, [[24.0, 0.0]]);
/// # Ok(())
/// # }
/// ```
pub struct BoxTransform<T = f32> {
    transform: Transform<T>,
    layout: FieldLayout,
    field: Moves,
    spectrum: Moves,
    exchange: Exchange,
}

/// From the user's boxes to the parts of the transform, and back.
struct Moves {
    there: Reshape,
    back: Reshape,
}

impl Moves {
    fn new(there: Redistribution, fields: u64) -> Self {
        let there = Reshape::new(there, fields);
        Moves { back: there.reversed(), there }
    }

    fn stays(&self) -> bool {
        self.there.plan().is_identity()
    }

    /// An array in the parts of the transform: the user's own where nothing moves.
    fn part<T: DeviceElement>(&self, gpu: &Gpu, own: &Array<T>) -> Result<Array<T>, DeviceError> {
        if self.stays() { Ok(own.clone()) } else { gpu.array("fft::part", self.there.output_len()) }
    }

    fn check<T: DeviceElement>(&self, name: &str, array: &Array<T>) -> Result<(), DeviceError> {
        let (have, want) = (array.len(), self.there.input_len());
        if have == want {
            return Ok(());
        }
        let why = format!("a {name} of {have} elements, this rank's box has {want}");
        Err(DeviceError::Misuse { what: "BoxTransform".into(), why })
    }
}

impl<T: Value> BoxTransform<T> {
    /// The transform that `spec` says (values and precision are those of `T`), of fields in `field_boxes` to spectra in
    /// `spectrum_boxes`, each one box a rank in the order of ranks. The transform itself runs over the grid of `lines`. All
    /// ranks give the same lists and the same `tuning`.
    ///
    /// # Errors
    /// [`FftError::Layout`] for boxes that do not tile cells or modes, or are not as many as ranks; as
    /// [`Transform::with`] otherwise.
    pub fn new(
        gpu: &Gpu,
        spec: &Spec,
        lines: &GridComms,
        field_boxes: &[Box3],
        spectrum_boxes: &[Box3],
        tuning: &Tuning,
    ) -> Result<Self, FftError> {
        Self::with(gpu, spec, lines, field_boxes, spectrum_boxes, tuning, &TransformCallbacks::default())
    }

    /// The same with callbacks, which are given indices of the whole mesh.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with(
        gpu: &Gpu,
        spec: &Spec,
        lines: &GridComms,
        field_boxes: &[Box3],
        spectrum_boxes: &[Box3],
        tuning: &Tuning,
        callbacks: &TransformCallbacks,
    ) -> Result<Self, FftError> {
        let (grid, rank) = (lines.grid(), lines.rank());
        let transform = Transform::with(gpu, spec, grid, rank, tuning, callbacks)?;
        let spec = &transform.plan().spec;
        let cells: Vec<Box3> = (0..grid.ranks()).map(|rank| grid.part(spec.cells, rank)).collect();
        let modes = spectrum_parts(transform.plan());
        let field = Redistribution::new(spec.cells, field_boxes, &cells, rank)?;
        let spectrum = Redistribution::new(spec.spectrum(), &modes, spectrum_boxes, rank)?.reversed();
        Ok(BoxTransform {
            layout: transform.field_layout(),
            field: Moves::new(field, spec.fields),
            spectrum: Moves::new(spectrum, spec.fields),
            exchange: Exchange::new(lines.world().clone()),
            transform,
        })
    }

    /// The same with other chunks between the boxes; see [`Exchange::with_chunks`].
    #[must_use]
    pub fn with_chunks(mut self, chunk_bytes: u64, depth: usize) -> Self {
        self.exchange = self.exchange.with_chunks(chunk_bytes, depth);
        self
    }

    /// The transform between the redistributions.
    pub fn transform(&self) -> &Transform<T> {
        &self.transform
    }

    /// This rank's box of cells.
    pub fn field_box(&self) -> &Box3 {
        self.field.there.plan().from()
    }

    /// This rank's box of modes.
    pub fn spectrum_box(&self) -> &Box3 {
        self.spectrum.there.plan().from()
    }

    /// Redistributions that a transform makes: none, one or two.
    pub fn redistributions(&self) -> usize {
        [&self.field, &self.spectrum].iter().filter(|moves| !moves.stays()).count()
    }

    /// What the redistributions so far have cost this rank; those of the transform itself are with its [`GridComms`].
    pub fn cost(&self) -> Cost {
        self.exchange.cost()
    }

    /// An array for this rank's box of the fields.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn field(&self, gpu: &Gpu) -> Result<Array<T>, DeviceError> {
        gpu.array("fft::field", self.field.there.input_len())
    }

    /// An array for this rank's box of the spectra.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn spectrum(&self, gpu: &Gpu) -> Result<Array<T::Mode>, DeviceError> {
        gpu.array("fft::spectrum", self.spectrum.there.input_len())
    }

    /// The spectrum of `field`, which is left as it was. All ranks call it.
    ///
    /// # Errors
    /// [`ExchangeError`] of the device or the ranks; [`DeviceError::Misuse`] for arrays of the wrong length.
    pub fn forward(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        field: &Array<T>,
        spectrum: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        self.there(recorder, lines, field, spectrum, Transform::forward)
    }

    /// The field of `spectrum`, which is left as it was. All ranks call it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn inverse(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        spectrum: &Array<T::Mode>,
        field: &Array<T>,
    ) -> Result<(), ExchangeError> {
        self.back(recorder, lines, spectrum, field, |transform, recorder, lines, spectrum, field, layout| {
            transform.inverse(recorder, lines, spectrum, None, field, layout)
        })
    }

    /// The adjoint of [`forward`](Self::forward), as [`Transform::forward_adjoint`] says. All ranks call it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); [`DeviceError::Misuse`] for a transform with callbacks.
    pub fn forward_adjoint(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        spectrum: &Array<T::Mode>,
        field: &Array<T>,
    ) -> Result<(), ExchangeError> {
        self.back(recorder, lines, spectrum, field, Transform::forward_adjoint)
    }

    /// The adjoint of [`inverse`](Self::inverse), as [`Transform::inverse_adjoint`] says. All ranks call it.
    ///
    /// # Errors
    /// As [`forward_adjoint`](Self::forward_adjoint).
    pub fn inverse_adjoint(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        field: &Array<T>,
        spectrum: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        self.there(recorder, lines, field, spectrum, Transform::inverse_adjoint)
    }

    fn there(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        field: &Array<T>,
        spectrum: &Array<T::Mode>,
        run: impl Fn(
            &Transform<T>,
            &mut Recorder,
            &mut GridComms,
            &Array<T>,
            &FieldLayout,
            &Array<T::Mode>,
        ) -> Result<(), ExchangeError>,
    ) -> Result<(), ExchangeError> {
        self.check(field, spectrum)?;
        let cells = self.field.part(recorder.gpu(), field)?;
        if !self.field.stays() {
            self.field.there.run(recorder, &mut self.exchange, field, &cells)?;
        }
        let modes = self.spectrum.part(recorder.gpu(), spectrum)?;
        run(&self.transform, recorder, lines, &cells, &self.layout, &modes)?;
        if !self.spectrum.stays() {
            self.spectrum.back.run(recorder, &mut self.exchange, &modes, spectrum)?;
        }
        Ok(())
    }

    fn back(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        spectrum: &Array<T::Mode>,
        field: &Array<T>,
        run: impl Fn(
            &Transform<T>,
            &mut Recorder,
            &mut GridComms,
            &Array<T::Mode>,
            &Array<T>,
            &FieldLayout,
        ) -> Result<(), ExchangeError>,
    ) -> Result<(), ExchangeError> {
        self.check(field, spectrum)?;
        let modes = self.spectrum.part(recorder.gpu(), spectrum)?;
        if !self.spectrum.stays() {
            self.spectrum.there.run(recorder, &mut self.exchange, spectrum, &modes)?;
        }
        let cells = self.field.part(recorder.gpu(), field)?;
        run(&self.transform, recorder, lines, &modes, &cells, &self.layout)?;
        if !self.field.stays() {
            self.field.back.run(recorder, &mut self.exchange, &cells, field)?;
        }
        Ok(())
    }

    fn check(&self, field: &Array<T>, spectrum: &Array<T::Mode>) -> Result<(), DeviceError> {
        self.field.check("field", field)?;
        self.spectrum.check("spectrum", spectrum)
    }
}

/// The parts of the spectrum of all ranks. The exchanges of the plan of one say which line of the grid cuts which axis in
/// the end, the same for all; an exchange that is left out is among one rank, whose cut is none.
fn spectrum_parts(plan: &Plan) -> Vec<Box3> {
    let (shape, grid) = (plan.spec.spectrum(), plan.grid);
    let mut cuts = [Some(0), Some(1), None];
    for exchange in plan.forward.exchanges() {
        (cuts[exchange.from_axis], cuts[exchange.to_axis]) = (Some(exchange.grid_axis), None);
    }
    let part = |rank: usize| {
        [0, 1, 2].map(|axis| match cuts[axis] {
            Some(line) => split(shape[axis], grid.along(line) as u64, grid.at(rank)[line] as u64),
            None => 0..shape[axis],
        })
    };
    (0..grid.ranks()).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::super::core::Limits;
    use super::*;
    use crate::fft::Values;
    use crate::grid::Grid;

    #[test]
    fn one_rank_knows_the_parts_of_all() {
        let limits =
            Limits { workgroup_bytes: 16384, invocations: 256, points: 16, alone: 16, shared: true, columns: 16 };
        for parts in [[1, 1], [4, 1], [1, 4], [2, 3], [3, 2], [5, 1]] {
            let (ranks, shape) = (parts[0] * parts[1], [4, 9, 10]);
            for spec in [
                Spec::new(Values::Real, shape),
                Spec::new(Values::Real, shape).natural(),
                Spec::new(Values::Complex, shape).axes([true, false, true]),
                Spec::new(Values::Complex, shape).axes([true, true, false]).natural(),
                Spec::new(Values::Complex, shape).axes([false, false, true]),
                Spec::new(Values::Complex, shape).axes([true, false, false]),
                Spec::new(Values::Complex, shape).axes([false, true, false]),
                Spec::new(Values::Real, shape).points([8, 12, 16]).modes([3, 5, 7]),
            ] {
                let grid = Grid::new(parts, ranks).unwrap();
                let plans: Vec<_> = (0..ranks).map(|rank| Plan::new(&spec, grid, rank, limits, 2).unwrap()).collect();
                let all: Vec<_> = plans.iter().map(|plan| plan.spectrum.clone()).collect();
                assert!(plans.iter().all(|plan| spectrum_parts(plan) == all), "{spec:?} on {parts:?}");
            }
        }
    }
}

//! Transforms of fields that lie in any boxes.
//!
//! ```text
//! field boxes --Reshape--> field parts --Transform--> spectrum parts --Reshape--> spectrum boxes
//! ```

use super::callbacks::TransformCallbacks;
use std::fmt;

use super::error::FftError;
use super::plan::Plan;
use super::spec::{Spec, Value};
use super::transform::Transform;
use super::tuning::TransformTuning;
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
/// use meshloom::fft::{BoxTransform, Boxes, Spec, TransformTuning, Values};
/// use meshloom::grid::{Grid, bricks};
///
/// # fn main() -> Result<(), meshloom::Error> {
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let mut comms = GridComms::new(&Communicator::solo(), Grid::new([1, 1], 1)?)?;
/// let spec = Spec::new(Values::Real, [4, 3, 2]);
/// // The boxes of all ranks: here of one.
/// let (cells, modes) = (bricks(spec.cells, [1, 1, 1]), bricks(spec.spectrum(), [1, 1, 1]));
/// let boxes = Boxes { field: &cells, spectrum: &modes };
/// let mut transform = BoxTransform::<f32>::new(&gpu, &spec, &comms, boxes, &TransformTuning::of(&gpu))?;
///
/// let (field, spectrum) = (transform.field(&gpu)?, transform.spectrum(&gpu)?);
/// recorder.upload(&field, 0, &[1.0; 24])?;
/// transform.forward(&mut recorder, &mut comms, &field, &spectrum)?;
/// assert_eq!(recorder.download(&spectrum, 0, 1)?, [[24.0, 0.0]]);
/// # Ok(())
/// # }
/// ```
pub struct BoxTransform<T = f32> {
    transform: Transform<T>,
    layout: FieldLayout,
    field: BoxReshape,
    spectrum: BoxReshape,
    exchange: Exchange,
}

impl<T> fmt::Debug for BoxTransform<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxTransform").field("transform", &self.transform).finish_non_exhaustive()
    }
}

/// The boxes of a [`BoxTransform`], one per rank in the order of ranks, the same lists on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Boxes<'a> {
    /// Of cells.
    pub field: &'a [Box3],
    /// Of modes.
    pub spectrum: &'a [Box3],
}

/// The redistribution from a caller's boxes to the parts of the transform, and its reverse.
struct BoxReshape {
    /// What the arrays are, for errors.
    name: &'static str,
    to_parts: Reshape,
    to_boxes: Reshape,
}

impl BoxReshape {
    fn new(name: &'static str, to_parts: Redistribution, fields: u64) -> Self {
        let to_parts = Reshape::new(to_parts, fields);
        BoxReshape { name, to_boxes: to_parts.reversed(), to_parts }
    }

    /// Whether nothing moves on any rank.
    fn is_identity(&self) -> bool {
        self.to_parts.plan().is_identity()
    }

    /// An array in the parts of the transform: the caller's own where nothing moves.
    fn part<T: DeviceElement>(&self, gpu: &Gpu, own: &Array<T>) -> Result<Array<T>, DeviceError> {
        if self.is_identity() { Ok(own.clone()) } else { gpu.array("fft::part", self.to_parts.output_len()) }
    }

    fn check<T: DeviceElement>(&self, array: &Array<T>) -> Result<(), DeviceError> {
        let (have, want) = (array.len(), self.to_parts.input_len());
        if have == want {
            return Ok(());
        }
        let why = format!("a {} of {have} elements, this rank's box has {want}", self.name);
        Err(DeviceError::Misuse { what: "BoxTransform".into(), why })
    }
}

/// Runs `transform` on the parts of the transform, between the redistributions of its input and its output.
fn redistributed<A: DeviceElement, B: DeviceElement>(
    recorder: &mut Recorder,
    exchange: &mut Exchange,
    (from, input): (&BoxReshape, &Array<A>),
    (to, output): (&BoxReshape, &Array<B>),
    transform: impl FnOnce(&mut Recorder, &Array<A>, &Array<B>) -> Result<(), ExchangeError>,
) -> Result<(), ExchangeError> {
    from.check(input)?;
    to.check(output)?;
    let input_part = from.part(recorder.gpu(), input)?;
    if !from.is_identity() {
        from.to_parts.run(recorder, exchange, input, &input_part)?;
    }
    let output_part = to.part(recorder.gpu(), output)?;
    transform(recorder, &input_part, &output_part)?;
    if !to.is_identity() {
        to.to_boxes.run(recorder, exchange, &output_part, output)?;
    }
    Ok(())
}

impl<T: Value> BoxTransform<T> {
    /// The transform that `spec` says (values and precision are those of `T`), of fields and spectra in `boxes`. The transform
    /// itself runs over the grid of `comms`. All ranks give the same boxes and the same `tuning`.
    ///
    /// # Errors
    /// [`FftError::Layout`] for boxes that do not tile cells or modes, or are not as many as ranks; as
    /// [`Transform::with`] otherwise.
    pub fn new(
        gpu: &Gpu,
        spec: &Spec,
        comms: &GridComms,
        boxes: Boxes<'_>,
        tuning: &TransformTuning,
    ) -> Result<Self, FftError> {
        Self::with(gpu, spec, comms, boxes, tuning, &TransformCallbacks::default())
    }

    /// The same with callbacks, which are given indices of the whole mesh.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with(
        gpu: &Gpu,
        spec: &Spec,
        comms: &GridComms,
        boxes: Boxes<'_>,
        tuning: &TransformTuning,
        callbacks: &TransformCallbacks,
    ) -> Result<Self, FftError> {
        let (grid, rank) = (comms.grid(), comms.rank());
        let transform = Transform::with(gpu, spec, grid, rank, tuning, callbacks)?;
        let spec = &transform.plan().spec;
        let cells: Vec<Box3> = (0..grid.ranks()).map(|rank| grid.part(spec.cells, rank)).collect();
        let modes = spectrum_parts(transform.plan());
        let field = Redistribution::new(spec.cells, boxes.field, &cells, rank)?;
        let spectrum = Redistribution::new(spec.spectrum(), &modes, boxes.spectrum, rank)?.reversed();
        Ok(BoxTransform {
            layout: transform.field_layout(),
            field: BoxReshape::new("field", field, spec.fields),
            spectrum: BoxReshape::new("spectrum", spectrum, spec.fields),
            exchange: Exchange::new(comms.world().clone()),
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
        self.field.to_parts.plan().from()
    }

    /// This rank's box of modes.
    pub fn spectrum_box(&self) -> &Box3 {
        self.spectrum.to_parts.plan().from()
    }

    /// Redistributions that a transform makes: none, one or two.
    pub fn redistributions(&self) -> usize {
        [&self.field, &self.spectrum].iter().filter(|reshape| !reshape.is_identity()).count()
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
        gpu.array("fft::field", self.field.to_parts.input_len())
    }

    /// An array for this rank's box of the spectra.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn spectrum(&self, gpu: &Gpu) -> Result<Array<T::Mode>, DeviceError> {
        gpu.array("fft::spectrum", self.spectrum.to_parts.input_len())
    }

    /// The spectrum of `field`, which is left as it was. All ranks call it.
    ///
    /// # Errors
    /// [`ExchangeError`] of the device or the ranks; [`DeviceError::Misuse`] for arrays of the wrong length.
    pub fn forward(
        &mut self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        spectrum: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        let BoxTransform { transform, layout, field: cells, spectrum: modes, exchange } = self;
        redistributed(recorder, exchange, (cells, field), (modes, spectrum), |recorder, field, spectrum| {
            transform.forward(recorder, comms, field, layout, spectrum)
        })
    }

    /// The field of `spectrum`, which is left as it was. All ranks call it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn inverse(
        &mut self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        spectrum: &Array<T::Mode>,
        field: &Array<T>,
    ) -> Result<(), ExchangeError> {
        let BoxTransform { transform, layout, field: cells, spectrum: modes, exchange } = self;
        redistributed(recorder, exchange, (modes, spectrum), (cells, field), |recorder, spectrum, field| {
            transform.inverse(recorder, comms, spectrum, None, field, layout)
        })
    }

    /// The adjoint of [`forward`](Self::forward), as [`Transform::forward_adjoint`] says. All ranks call it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); [`DeviceError::Misuse`] for a transform with callbacks.
    pub fn forward_adjoint(
        &mut self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        spectrum: &Array<T::Mode>,
        field: &Array<T>,
    ) -> Result<(), ExchangeError> {
        let BoxTransform { transform, layout, field: cells, spectrum: modes, exchange } = self;
        redistributed(recorder, exchange, (modes, spectrum), (cells, field), |recorder, spectrum, field| {
            transform.forward_adjoint(recorder, comms, spectrum, field, layout)
        })
    }

    /// The adjoint of [`inverse`](Self::inverse), as [`Transform::inverse_adjoint`] says. All ranks call it.
    ///
    /// # Errors
    /// As [`forward_adjoint`](Self::forward_adjoint).
    pub fn inverse_adjoint(
        &mut self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        spectrum: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        let BoxTransform { transform, layout, field: cells, spectrum: modes, exchange } = self;
        redistributed(recorder, exchange, (cells, field), (modes, spectrum), |recorder, field, spectrum| {
            transform.inverse_adjoint(recorder, comms, field, layout, spectrum)
        })
    }
}

/// The parts of the spectrum of all ranks. Which axis of the grid cuts which axis of the spectrum follows from the exchanges of one rank's
/// plan and is the same for all; an exchange that is left out is among one rank and cuts nothing.
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

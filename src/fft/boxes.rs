//! Redistribution of fields and spectra between any boxes and the parts of a plan.
//!
//! ```text
//! field boxes --Reshape--> field parts --Transform--> spectrum parts --Reshape--> spectrum boxes
//! ```

use super::error::FftError;
use super::plan::Plan;
use crate::exchange::{ExchangeError, GridComms, Reshape};
use crate::gpu::{Array, DeviceElement, DeviceError, Gpu, Recorder};
use crate::grid::{Box3, FieldLayout, Redistribution};

/// The boxes in which fields and spectra lie: bricks, slabs or pencils of any direction, with any
/// owners.
///
/// Each list has one box per rank, in the order of ranks, possibly empty, and is the same on all
/// ranks. The boxes of `field` tile [`Spec::cells`](super::Spec::cells), those of `spectrum`
/// [`Spec::spectrum`](super::Spec::spectrum). Arrays are in C order over the box, without ghost
/// cells; the fields of a batch follow each other.
///
/// - A redistribution before and one after the transform move the elements that are on another
///   rank. One that moves nothing on any rank is left out, with its array.
/// - They exchange over [`GridComms::world_exchange`].
///
/// ```
/// use meshloom::comm::Communicator;
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::exchange::GridComms;
/// use meshloom::fft::{Boxes, Spec, Transform, TransformOptions};
/// use meshloom::grid::{Grid, bricks};
///
/// # fn main() -> Result<(), meshloom::Error> {
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let mut comms = GridComms::new(&Communicator::solo(), Grid::new([1, 1], 1)?)?;
/// let spec = Spec::of::<f32>([4, 3, 2]);
/// // The boxes of all ranks: here of one.
/// let boxes = Boxes { field: bricks(spec.cells, [1, 1, 1]), spectrum: bricks(spec.spectrum(), [1, 1, 1]) };
/// let options = TransformOptions::default().boxes(boxes);
/// let transform = Transform::<f32>::with(&gpu, &spec, comms.grid(), comms.rank(), &options)?;
///
/// let layout = transform.field_layout();
/// let (field, spectrum) = (transform.field(&gpu, &layout)?, transform.spectrum(&gpu)?);
/// recorder.upload(&field, 0, &[1.0; 24])?;
/// transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?;
/// assert_eq!(recorder.download(&spectrum, 0, 1)?, [[24.0, 0.0]]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Boxes {
    /// The boxes of cells.
    pub field: Vec<Box3>,
    /// The boxes of modes.
    pub spectrum: Vec<Box3>,
}

/// The redistribution between the boxes of a caller and the parts of a plan.
pub(super) struct BoxMoves {
    /// This rank's box.
    pub part: Box3,
    /// The redistributions to the parts and back; `None` if nothing moves on any rank.
    moves: Option<Moves>,
}

struct Moves {
    to_parts: Reshape,
    to_boxes: Reshape,
    layout: FieldLayout,
}

impl BoxMoves {
    /// Creates the redistributions of field and spectrum.
    pub fn of_plan(plan: &Plan, boxes: Option<&Boxes>) -> Result<[Self; 2], FftError> {
        let Some(boxes) = boxes else {
            return Ok([&plan.field, &plan.spectrum].map(|part| BoxMoves { part: part.clone(), moves: None }));
        };
        let Plan { spec, grid, rank, .. } = plan;
        let cells: Vec<Box3> = (0..grid.ranks()).map(|rank| grid.part(spec.cells, rank)).collect();
        let field = Redistribution::new(spec.cells, &boxes.field, &cells, *rank)?;
        let spectrum = Redistribution::new(spec.spectrum(), &spectrum_parts(plan), &boxes.spectrum, *rank)?;
        Ok([field, spectrum.reversed()].map(|to_parts| BoxMoves {
            part: to_parts.from.clone(),
            moves: (!to_parts.is_identity).then(|| {
                let layout = FieldLayout::new(to_parts.to.clone(), [[0; 2]; 3]);
                let to_parts = Reshape::new(to_parts, spec.fields);
                Moves { to_boxes: to_parts.reversed(), to_parts, layout }
            }),
        }))
    }

    /// Returns the layout of this rank's part of the plan if arrays are redistributed.
    pub fn part_layout(&self) -> Option<&FieldLayout> {
        self.moves.as_ref().map(|moves| &moves.layout)
    }

    /// Returns an array for this rank's part of the plan: `array` itself if nothing moves.
    pub fn part_array<T: DeviceElement>(&self, gpu: &Gpu, array: &Array<T>) -> Result<Array<T>, DeviceError> {
        match &self.moves {
            Some(moves) => gpu.array("fft::part", moves.to_parts.output_len()),
            None => Ok(array.clone()),
        }
    }

    /// Moves the boxes in `array` to the parts of the plan.
    pub fn to_part<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        array: &Array<T>,
    ) -> Result<Array<T>, ExchangeError> {
        let part = self.part_array(recorder.gpu(), array)?;
        if let Some(moves) = &self.moves {
            moves.to_parts.run(recorder, comms.world_exchange(), array, &part)?;
        }
        Ok(part)
    }

    /// Moves the parts of the plan to the boxes in `array`.
    pub fn to_boxes<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        part: &Array<T>,
        array: &Array<T>,
    ) -> Result<(), ExchangeError> {
        match &self.moves {
            Some(moves) => moves.to_boxes.run(recorder, comms.world_exchange(), part, array),
            None => Ok(()),
        }
    }
}

/// Returns the parts of the spectrum of all ranks.
///
/// The exchanges of one rank's plan tell which axis of the grid cuts which axis of the spectrum;
/// the answer is the same on all ranks. An exchange that is left out is among one rank and cuts
/// nothing.
fn spectrum_parts(plan: &Plan) -> Vec<Box3> {
    let (shape, grid) = (plan.spec.spectrum(), plan.grid);
    let mut cuts = [Some(0), Some(1), None];
    for exchange in plan.forward.exchanges() {
        (cuts[exchange.from_axis], cuts[exchange.to_axis]) = (Some(exchange.grid_axis), None);
    }
    let part = |rank: usize| {
        [0, 1, 2].map(|axis| match cuts[axis] {
            Some(line) => grid.shares_along(line).split(shape[axis], grid.at(rank)[line]),
            None => 0..shape[axis],
        })
    };
    (0..grid.ranks()).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::Spec;
    use crate::fft::core::FLOOR;
    use crate::grid::{Grid, Shares};

    #[test]
    fn one_rank_knows_the_parts_of_all() {
        for parts in [[1, 1], [4, 1], [1, 4], [2, 3], [3, 2], [5, 1]] {
            let (ranks, shape) = (parts[0] * parts[1], [4, 9, 10]);
            for spec in [
                Spec::of::<f32>(shape),
                Spec::of::<f32>(shape).natural(),
                Spec::of::<[f32; 2]>(shape).axes([true, false, true]),
                Spec::of::<[f32; 2]>(shape).axes([true, true, false]).natural(),
                Spec::of::<[f32; 2]>(shape).axes([false, false, true]),
                Spec::of::<[f32; 2]>(shape).axes([true, false, false]),
                Spec::of::<[f32; 2]>(shape).axes([false, true, false]),
                Spec::of::<f32>(shape).points([8, 12, 16]).modes([3, 5, 7]),
            ] {
                let unequal: Vec<f64> = (0..ranks).map(|rank| (1 + rank) as f64).collect();
                for shares in [Shares::from(ranks), Shares::new(&unequal).unwrap()] {
                    let grid = Grid::new(parts, shares).unwrap();
                    let plans = (0..ranks).map(|rank| Plan::new(&spec, grid, rank, FLOOR, 2).unwrap());
                    let plans: Vec<_> = plans.collect();
                    let all: Vec<_> = plans.iter().map(|plan| plan.spectrum.clone()).collect();
                    assert!(plans.iter().all(|plan| spectrum_parts(plan) == all), "{spec:?} on {grid:?}");
                }
            }
        }
    }
}

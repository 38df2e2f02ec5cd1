//! Observations of a run: fields, diagnostics, pictures.

use super::plan::FIELDS;
use super::real::Real;
use super::samples::Samples;
use super::{ShallowWater, ShallowWaterError};
use meshloom::Rank;
use meshloom::comm::Op;
use meshloom::exchange::{ExactSum, Terms};
use meshloom::gpu::Array;
use meshloom::gpu::primitives::{Count, Permute};
use meshloom::host_memory;

/// Figures of a moment, the same on all ranks and for every number of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Diagnostics {
    /// Steps done.
    pub step: u64,
    /// Seconds since the start of the flow.
    pub seconds: f64,
    /// Mean height of the water, in m.
    pub mean_height: f64,
    /// The least elevation of the surface over its rest, in m.
    pub min_eta: f64,
    /// The greatest.
    pub max_eta: f64,
    /// The greatest speed along x, in m/s.
    pub max_u: f64,
    /// The greatest along y.
    pub max_v: f64,
    /// Mean over cells of `(h (u^2 + v^2) + g eta^2) / 2`, in m^3/s^2.
    pub energy: f64,
}

impl Diagnostics {
    /// Returns the figures behind the step, in the order of the fields.
    #[must_use]
    pub fn figures(&self) -> [f64; 7] {
        [self.seconds, self.mean_height, self.min_eta, self.max_eta, self.max_u, self.max_v, self.energy]
    }
}

/// This rank's own cells at a moment, C order, the southern row first.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow<T> {
    /// Elevation of the surface over its rest, in m; the height of the water is this and the depth.
    pub elevation: Vec<T>,
    /// u on east faces and v on north faces, in m/s.
    pub velocity: [Vec<T>; 2],
}

/// Elevations of a regular subset of cells, the northern row first.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Elevations in m, row by row.
    pub elevation: Vec<f32>,
}

/// Kernels and arrays for observations, on the device.
struct Observed<T> {
    shown: Array<T>,
    terms: Array<f32>,
    extremes: Array<T>,
}

impl<T: Real> ShallowWater<T> {
    /// Records what is seen of the state.
    fn observe(&self, rank: &mut Rank) -> Result<Observed<T>, ShallowWaterError> {
        let (cells, groups) = (self.part.cells(), u64::from(self.part.params.groups));
        let parts = if T::DOUBLE { 4 } else { 2 };
        let seen = Observed {
            shown: rank.gpu.array("shallow_water::shown", FIELDS * cells)?,
            terms: rank.gpu.array("shallow_water::terms", parts * cells)?,
            extremes: rank.gpu.array("shallow_water::extremes", 4 * groups)?,
        };
        let arrays = [self.now.raw(), seen.shown.raw(), seen.terms.raw(), seen.extremes.raw()];
        rank.recorder.dispatch(&self.kernels.observe, &arrays, self.params(), groups)?;
        Ok(seen)
    }

    /// Returns this rank's part of the flow. Waits for the device; no communication.
    ///
    /// # Errors
    /// [`Error::Device`](meshloom::Error::Device), as [`ShallowWaterError::Library`].
    pub fn flow(&self, rank: &mut Rank) -> Result<Flow<T>, ShallowWaterError> {
        let (seen, cells) = (self.observe(rank)?, self.part.cells());
        let mut field = |number: u64| rank.recorder.download(&seen.shown, number * cells, cells);
        Ok(Flow { elevation: field(0)?, velocity: [field(1)?, field(2)?] })
    }

    /// Returns the figures of the moment. Sums are exact, so that they do not depend on the order
    /// of cells. Collective. Blocks.
    ///
    /// # Errors
    /// [`ShallowWaterError::Unstable`], the same on all ranks, where the flow is not finite; those
    /// of the device and the ranks.
    pub fn diagnostics(&self, rank: &mut Rank) -> Result<Diagnostics, ShallowWaterError> {
        let seen = self.observe(rank)?;
        let cells: u64 = self.config.cells.iter().product();
        let batches = if T::DOUBLE { 4 } else { 2 };
        let terms = Terms { x: &seen.terms, y: None, index: None, sums: 1, batches, total: cells };
        let sums = ExactSum::default().totals(&mut rank.recorder, Some(&rank.comm), &terms)?;
        if sums.iter().any(|sum| !sum.is_finite()) {
            return Err(ShallowWaterError::Unstable { step: self.steps });
        }
        // With f64 the third and fourth are what the first two lack.
        let mean = |which: usize| sums.iter().skip(which).step_by(2).sum::<f64>() / cells as f64;
        let found = rank.recorder.download(&seen.extremes, 0, seen.extremes.len())?;
        let mut most = [f64::NEG_INFINITY; 4];
        for values in found.chunks_exact(4) {
            values.iter().zip(&mut most).for_each(|(value, most)| *most = most.max(value.wide()));
        }
        rank.comm.all_reduce(&mut most, Op::Max)?;
        Ok(Diagnostics {
            step: self.steps,
            seconds: self.seconds(),
            mean_height: self.config.depth + mean(0),
            min_eta: -most[0],
            max_eta: most[1],
            max_u: most[2],
            max_v: most[3],
            energy: mean(1),
        })
    }

    /// Returns the elevation on a regular subset of cells, at most 480 along an axis, on rank 0;
    /// `None` elsewhere. Collective. Blocks.
    ///
    /// # Errors
    /// Those of the device and the ranks.
    pub fn picture(&self, rank: &mut Rank) -> Result<Option<Picture>, ShallowWaterError> {
        let Samples { index, pixels, size: [width, height] } = &self.samples;
        let values = rank.gpu.array::<T>("shallow_water::picture", index.len())?;
        Permute::new().gather(&mut rank.recorder, &self.now, index, &values, 1, Count::All)?;
        let values = rank.recorder.download(&values, 0, values.len())?;
        let values = host_memory::collect("a picture", values.into_iter().map(|value| value.wide() as f32))?;
        let (all, places) = (rank.comm.gather_v(0, &values)?, rank.comm.gather_v(0, pixels)?);
        let (Some(all), Some(places)) = (all, places) else { return Ok(None) };
        let mut elevation = host_memory::zeros("a picture", (width * height) as usize)?;
        places.data().iter().zip(all.data()).for_each(|(&place, &value)| elevation[place as usize] = value);
        Ok(Some(Picture { width: *width as usize, height: *height as usize, elevation }))
    }
}

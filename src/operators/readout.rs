//! Fields at fixed points, and sums along lines of sight.

use super::cost::CallCost;
use super::error::OperatorError;
use super::field::{Contents, Field};
use super::gather::Gather;
use super::ghosts::{Ghosted, real_cells};
use super::linear::{Adjoint, Linear};
use super::space::{Leaf, RegularGrid, Space};
use super::worker::Worker;
use crate::gpu::Array;
use crate::mesh::{Mesh, PaintedValues, Painter, PointsInCells, ValuePainter, Window};

/// The values of a field at fixed points, through a [`Window`] (CIC: interpolation between the eight cells around a point). Its adjoint paints
/// values of either sign, the same to the bit for every number of ranks: [`ValuePainter`].
///
/// A cell's value stands at its lower corner, as for [`Painter`]: cell `c` is at `c * distance`.
pub struct Readout {
    points: PointsInCells,
    ghosted: Ghosted,
    painter: Painter,
    values: ValuePainter,
    fields: u64,
    domain: Space,
    target: Space,
}

/// The cell of a grid that a position of its periodic box lies in.
fn cell_of(regular: &RegularGrid, position: [f64; 3]) -> [u64; 3] {
    PointsInCells::cell_of(position, regular.size, regular.shape)
}

impl Readout {
    /// Reads the only leaf of `domain`, real cells without ghosts, at `positions` of its periodic box. Each rank gives positions in cells that it
    /// owns ([`RegularGrid::owns`], [`PointsInCells::cell_of`]); the results are in their order. All ranks call it. Submits what was recorded
    /// before.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces, or a position in another rank's cell; [`OperatorError::Mesh`] for one that is not finite.
    pub fn new(
        worker: &mut Worker<'_>,
        domain: &Space,
        window: Window,
        positions: &[[f64; 3]],
    ) -> Result<Self, OperatorError> {
        const NAME: &str = "readout";
        let (name, leaf, regular) = real_cells(worker, domain, NAME)?;
        let foreign = |position: &&[f64; 3]| {
            position.iter().all(|x| x.is_finite()) && !regular.owns(cell_of(regular, **position))
        };
        let found = positions.iter().find(foreign);
        let mut wrong = [u64::from(found.is_some())];
        worker.comm().all_reduce(&mut wrong, crate::comm::Op::Sum)?;
        if wrong[0] > 0 {
            let why = match found {
                Some(position) => format!(
                    "rank {} does not own cell {:?}, in which {position:?} is; give each position to the rank that owns its cell",
                    regular.rank,
                    cell_of(regular, *position)
                ),
                None => format!("{} other ranks were given positions in cells that they do not own", wrong[0]),
            };
            return Err(OperatorError::invalid(NAME, why));
        }
        let widths = PointsInCells::ghost_widths(window, false);
        let mesh = Mesh::new(regular.shape, regular.size, regular.grid, regular.rank, widths);
        let ghosted = Ghosted::new(regular, mesh.layout.ghosts, leaf.fields());
        let comm = worker.comm().clone();
        let points = PointsInCells::distribute(
            &mut worker.context.recorder,
            &comm,
            regular.grid,
            mesh,
            regular.size,
            positions,
        )?;
        let target = Leaf { domain: Leaf::points(points.len(), points.total()).domain, ..leaf.clone() };
        let (painter, values) = (Painter::new(window), ValuePainter::new(window));
        let (fields, target) = (leaf.fields(), Space::of(name, target)?);
        Ok(Readout { points, ghosted, painter, values, fields, domain: domain.clone(), target })
    }
}

impl Linear for Readout {
    fn name(&self) -> String {
        "readout".into()
    }

    fn domain(&self) -> &Space {
        &self.domain
    }

    fn target(&self) -> &Space {
        &self.target
    }

    fn forward(&self, worker: &mut Worker<'_>, x: &Field, y: &mut Field) -> Result<(), OperatorError> {
        let (recorder, comms) = worker.parts();
        let (mesh, count) = (self.points.mesh(), self.points.len());
        let whole = recorder.gpu().array("operators::readout", mesh.layout.len() * self.fields)?;
        self.ghosted.fill(recorder, comms, x.single()?, &whole)?;
        if self.fields == 1 {
            return Ok(self.painter.readout(recorder, self.points.particles(), mesh, &whole, 0, y.single()?)?);
        }
        let one = recorder.gpu().array("operators::readout", count)?;
        for field in 0..self.fields {
            self.painter.readout(recorder, self.points.particles(), mesh, &whole, field, &one)?;
            recorder.copy(&one, 0, y.single()?, field * count, count)?;
        }
        Ok(())
    }

    fn adjoint(&self, worker: &mut Worker<'_>, y: &Field, x: &mut Field) -> Result<(), OperatorError> {
        let (recorder, comms) = worker.parts();
        let (mesh, count) = (self.points.mesh(), self.points.len());
        let own = x.single()?.len() / self.fields.max(1);
        for field in 0..self.fields {
            let (particles, values) = (self.points.particles(), y.single()?);
            let painted = PaintedValues { particles, values, first: field * count, total: self.points.total() };
            self.values.paint(recorder, comms, (mesh, self.ghosted.ghosts()), painted, (x.single()?, field * own))?;
        }
        Ok(())
    }

    fn costs(&self) -> [CallCost; 2] {
        let (points, nodes) = (self.points.len(), u64::from(self.painter.window().order()).pow(3));
        let (cells, ghosts) = (self.points.mesh().layout.len(), self.ghosted.cost());
        let there = CallCost::passes(self.fields, self.fields * points * (20 + 4 * nodes));
        // Painting adds two words of each node; cells are cleared and read in two words.
        let back = CallCost::passes(3 * self.fields, self.fields * (points * (24 + 16 * nodes) + 20 * cells));
        let exchanged = CallCost { messages: ghosts.messages, sent: 2 * ghosts.sent, ..CallCost::default() };
        [there + ghosts, back + exchanged]
    }
}

/// Integrals along lines of sight through a periodic box: the sum of the field at samples in the middle of equal steps, times the step, by CIC. A
/// result for each line is on every rank.
pub struct LinesOfSight {
    readout: Readout,
    /// Steps of the samples of this rank.
    weights: Array<f32>,
    sums: Adjoint<Gather>,
    target: Space,
}

/// A line from one point to another.
pub type Line = [[f64; 3]; 2];

impl LinesOfSight {
    /// Integrals of the only leaf of `domain`, one real field of cells, along `lines`, the same on every rank, with steps of `step` at most. Each rank
    /// takes the samples in its own cells. All ranks call it. Submits what was recorded before.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces, a step that is no length, lines that are not finite or without length.
    pub fn new(worker: &mut Worker<'_>, domain: &Space, lines: &[Line], step: f64) -> Result<Self, OperatorError> {
        const NAME: &str = "lines of sight";
        let (name, leaf, regular) = real_cells(worker, domain, NAME)?;
        if leaf.fields() != 1 {
            return Err(OperatorError::invalid(NAME, format!("{domain} is not one field")));
        }
        if !(step.is_finite() && step > 0.0) {
            return Err(OperatorError::invalid(NAME, format!("a step of {step}; it must be a length")));
        }
        let (mut positions, mut steps, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, [from, to]) in lines.iter().enumerate() {
            let length = (0..3).map(|a| (to[a] - from[a]).powi(2)).sum::<f64>().sqrt();
            if !(length.is_finite() && length > 0.0 && length / step < f64::from(u32::MAX)) {
                return Err(OperatorError::invalid(
                    NAME,
                    format!("line {number} from {from:?} to {to:?} in steps of {step}"),
                ));
            }
            let samples = (length / step).ceil() as u64;
            for sample in 0..samples {
                let t = (sample as f64 + 0.5) / samples as f64;
                let position = [0, 1, 2].map(|a| from[a] + t * (to[a] - from[a]));
                if regular.owns(cell_of(regular, position)) {
                    positions.push(position);
                    steps.push((length / samples as f64) as f32);
                    numbers.push(number as u32);
                }
            }
        }
        let readout = Readout::new(worker, domain, Window::Cic, &positions)?;
        let upload = |worker: &mut Worker<'_>, words: &[u32]| -> Result<Array<u32>, OperatorError> {
            let array = worker.gpu().array("operators::lines", words.len() as u64)?;
            worker.context.recorder.upload(&array, 0, words)?;
            Ok(array)
        };
        let weights = upload(worker, bytemuck::cast_slice(&steps))?.cast()?;
        let index = upload(worker, &numbers)?;
        let target = Space::of(name, Leaf::vector(lines.len() as u64))?;
        let sums = Adjoint(Gather::new(&target, Linear::target(&readout), index)?);
        Ok(LinesOfSight { readout, weights, sums, target })
    }

    /// Values at the samples, times their steps or to be.
    fn samples(&self, worker: &Worker<'_>) -> Result<[Field; 2], OperatorError> {
        let field = || Field::new(worker.gpu(), Linear::target(&self.readout));
        Ok([field()?, field()?])
    }

    fn weigh(&self, worker: &mut Worker<'_>, x: &Field, y: &Field) -> Result<(), OperatorError> {
        let weights = Field::over(Linear::target(&self.readout), vec![Contents::Device(self.weights.clone())])?;
        worker.product(x, &weights, y)
    }
}

impl Linear for LinesOfSight {
    fn name(&self) -> String {
        "lines of sight".into()
    }

    fn domain(&self) -> &Space {
        Linear::domain(&self.readout)
    }

    fn target(&self) -> &Space {
        &self.target
    }

    fn forward(&self, worker: &mut Worker<'_>, x: &Field, y: &mut Field) -> Result<(), OperatorError> {
        let [mut samples, weighted] = self.samples(worker)?;
        self.readout.forward(worker, x, &mut samples)?;
        self.weigh(worker, &samples, &weighted)?;
        self.sums.forward(worker, &weighted, y)
    }

    fn adjoint(&self, worker: &mut Worker<'_>, y: &Field, x: &mut Field) -> Result<(), OperatorError> {
        let [mut samples, weighted] = self.samples(worker)?;
        self.sums.adjoint(worker, y, &mut samples)?;
        self.weigh(worker, &samples, &weighted)?;
        self.readout.adjoint(worker, &weighted, x)
    }

    fn costs(&self) -> [CallCost; 2] {
        let ([there, back], [sums, spread]) = (self.readout.costs(), self.sums.costs());
        let weigh = CallCost::passes(1, 12 * self.weights.len());
        [there + weigh + sums, back + weigh + spread]
    }
}

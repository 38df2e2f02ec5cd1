//! Fields at fixed points.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::ghosts::{Ghosted, real_cells};
use super::leaf::{Leaf, Support};
use super::linear::{Direction, Linear};
use super::point_numbers::{PointNumbers, PointOrder};
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::grid::{Cost, Mesh};
use crate::mesh::{MeshError, PaintedValues, Painter, PointsInCells, ValuePainter, Window};
use crate::rank::Rank;

/// The values of a field at fixed points, through a [`Window`]. Its adjoint paints signed values
/// with the same bits on any number of ranks ([`ValuePainter`]). Cell `c` is at `c * distance`, as
/// for [`Painter`].
pub struct Readout {
    points: PointsInCells,
    ghosted: Ghosted,
    painter: Painter,
    values: ValuePainter,
    fields: u64,
    signature: Signature,
}

/// Returns the cell that contains a position of the periodic box.
pub(super) fn cell_of(mesh: &Mesh, position: [f64; 3]) -> [u64; 3] {
    PointsInCells::cell_of(position, mesh.size(), mesh.shape())
}

impl Readout {
    /// Creates the operator for the only leaf of `domain`, real cells without ghosts. Each rank
    /// passes the positions in its own cells ([`Mesh::owns`], [`PointsInCells::cell_of`]).
    /// Results keep their order; points are numbered by their positions. Collective; submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces, or a position in a cell of another rank.
    /// - [`OperatorError::Mesh`] if a position is not finite.
    pub fn new(rank: &mut Rank, domain: &Space, window: Window, positions: &[[f64; 3]]) -> Result<Self> {
        let numbers = PointNumbers::of_positions(&mut rank.recorder, positions)?;
        Self::at_points(rank, domain, window, positions, PointOrder::Numbers(numbers))
    }

    /// Creates the operator at points in `order`.
    pub(super) fn at_points(
        rank: &mut Rank,
        domain: &Space,
        window: Window,
        positions: &[[f64; 3]],
        order: PointOrder,
    ) -> Result<Self> {
        const NAME: &str = "readout";
        let (name, leaf, mesh) = real_cells(rank, domain, NAME)?;
        let foreign =
            |position: &&[f64; 3]| position.iter().all(|x| x.is_finite()) && !mesh.owns(cell_of(mesh, **position));
        let fault = positions.iter().find(foreign).map(|position| {
            let cell = cell_of(mesh, *position);
            format!("it does not own cell {cell:?}, in which {position:?} is; give each position to the rank that owns its cell")
        });
        if let Some(why) = rank.comm.first_fault(fault.as_deref())? {
            return Err(OperatorError::invalid(NAME, why));
        }
        let with_ghosts = PointsInCells::with_ghosts(mesh, window, false).map_err(MeshError::from)?;
        let ghosted = Ghosted::new(NAME, &with_ghosts, leaf.fields())?;
        let comm = rank.comm.clone();
        let points = PointsInCells::distribute(&mut rank.recorder, &comm, &with_ghosts, positions, None)?;
        let support = Support::Points { own: points.len(), total: points.total(), order };
        let target = Leaf { support, ..leaf.clone() };
        let (painter, values) = (Painter::new(window), ValuePainter::new(window));
        let (fields, target) = (leaf.fields(), Space::of(name, target)?);
        Ok(Readout { points, ghosted, painter, values, fields, signature: Signature::new(NAME, domain, &target) })
    }
}

impl Linear for Readout {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let (mesh, count, particles) = (self.points.mesh(), self.points.len(), self.points.particles());
        let (v, out) = (v.single()?, out.single()?);
        if direction == Direction::Adjoint {
            let own = out.len() / self.fields.max(1);
            let greatest = &self.values.greatest(recorder, comms.world(), v)?;
            for field in 0..self.fields {
                let total = self.points.total();
                let painted = PaintedValues { particles, values: v, first: field * count, greatest, total };
                self.values.paint(recorder, comms, (mesh, self.ghosted.ghosts()), painted, (out, field * own))?;
            }
            return Ok(());
        }
        let whole = recorder.gpu().array("operators::readout", mesh.layout().len() * self.fields)?;
        self.ghosted.fill(recorder, comms, v, &whole)?;
        if self.fields == 1 {
            return Ok(self.painter.readout(recorder, particles, mesh, &whole, 0, out)?);
        }
        let one = recorder.gpu().array("operators::readout", count)?;
        for field in 0..self.fields {
            self.painter.readout(recorder, particles, mesh, &whole, field, &one)?;
            recorder.copy(&one, 0, out, field * count, count)?;
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.text(&format!("{:?}", self.painter.window()));
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let (points, nodes) = (self.points.len(), u64::from(self.painter.window().order()).pow(3));
        let (cells, ghosts) = (self.points.mesh().array_len(), self.ghosted.cost());
        let there = Cost::kernels(self.fields, self.fields * points * (20 + 4 * nodes));
        // The greatest value is found once. Painting adds two words of each node; cells are cleared
        // and read in two words.
        let back = Cost::kernels(1 + 2 * self.fields, self.fields * (points * (24 + 16 * nodes) + 20 * cells));
        let exchanged = Cost { messages: ghosts.messages, sent_bytes: 2 * ghosts.sent_bytes, ..Cost::default() };
        [there + ghosts, back + exchanged]
    }
}

//! Painting of particles whose positions and weights are arguments, and fields at fixed points.

use std::rc::Rc;

use super::fourier::cut_alike;
use super::{
    Contents, Differentiable, Direction, Fingerprint, Ghosted, Leaf, Linear, Linearized, OperatorCost, PointNumbers,
    PointOrder, Result, Signature, Space, Support, Vector, real_cells, refuse,
};
use crate::fft::Values;
use crate::gpu::Array;
use crate::grid::{Cost, Mesh};
use crate::mesh::{
    MeshError, MovedParticles, Movements, PaintedValues, Painter, PointsInCells, PositionDerivatives, ValuePainter,
    Window,
};
use crate::rank::Rank;

/// The density of particles as a function of their positions, and of their weights if the domain
/// has them.
///
/// | leaf of the domain | values |
/// |---|---|
/// | real, three components | points: positions in the periodic box; cells: displacements of particles from the sites of a lattice, one at each cell (cell `c` is at `c * distance`) |
/// | real, one component, at the same places; optional | weights of either sign; 1 without this leaf |
///
/// The value is the leaf `density`, relative to the mean density of particles of weight 1: with `m`
/// cells and `n` particles of all ranks, `m / n` times the sum of the weights in each cell.
/// Positions are wrapped into the box and may be anywhere; each particle is sent to the rank that
/// owns its cell. A mesh of one cell along an axis has the projection along it: painted with
/// weights that depend on the position, it is a lens plane.
///
/// Without weights the mass is conserved as [`Painter`] does, exactly before the density is rounded
/// to f32; with weights to the rounding of the shares of a particle in f32. Values and products
/// have the same bits on any number of ranks. The derivative of the window of order p by positions
/// has the order p - 1: that of [`Window::Cic`] jumps at nodes, so fits should use
/// [`Window::Tsc`] or [`Window::Pcs`].
///
/// Cost: all methods are collective; the value blocks, to check that positions are finite. Between
/// ranks the value sends 24 bytes per particle (28 with a weight), each product 12 or 16.
///
/// ```
/// use meshloom::mesh::Window;
/// use meshloom::operators::{Leaf, Model, Paint, Space, Vector};
///
/// meshloom::run(|rank| {
///     let mesh = rank.mesh([4; 3]).periodic([8.0; 3]).build()?;
///     let own = if rank.index() == 0 { 2 } else { 0 };
///     let domain = Space::of("positions", Leaf::points(own, 2).components(3))?;
///     let paint = Model::new(Paint::new(rank, &domain, &mesh, Window::Tsc)?);
///     let mut x = Vector::zeros(&mut rank.recorder, paint.domain())?;
///     let positions = [[1.0, 7.9], [2.0, 4.0], [3.0, -1.0]];        // all x, then y, then z
///     x.set(&mut rank.recorder, "positions", &positions.map(|along| along[..own as usize].to_vec()).concat())?;
///     let density = paint.value(rank, &x)?.get(&mut rank.recorder, "density")?;
///     assert!((density.iter().sum::<f64>() - 64.0).abs() < 1e-4);   // the mean is 1
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct Paint {
    mesh: Mesh,
    ghosted: Ghosted,
    painter: Painter,
    values: ValuePainter,
    adjoint: PositionDerivatives,
    /// Indices of the leaves in the domain.
    moved: usize,
    weights: Option<usize>,
    /// The mesh whose cells are the sites of the particles.
    lattice: Option<Mesh>,
    signature: Signature,
}

const PAINT: &str = "paint";

/// Returns the reason why particles of `domain` cannot be painted on `mesh`, if there is one.
fn fault(domain: &Space, mesh: &Mesh) -> Option<String> {
    let leaves = || domain.leaves().map(|(_, leaf)| leaf);
    let mut components: Vec<u32> = leaves().map(|leaf| leaf.components).collect();
    components.sort_unstable();
    let is_placed = |leaf: &Leaf| matches!(leaf.support, Support::Cells { .. } | Support::Points { .. });
    let is_real = leaves().all(|leaf| leaf.values == Values::Real && leaf.batch == 1 && is_placed(leaf));
    if !matches!(components[..], [3] | [1, 3]) || !is_real {
        return Some(format!(
            "expected one real leaf of three components at points or cells, and at most one of one component for the \
             weights, got {domain}"
        ));
    }
    let mut supports = leaves().map(|leaf| &leaf.support);
    match (supports.next(), supports.next()) {
        (Some(one), Some(other)) if one != other => {
            Some(format!("expected positions and weights at the same places, got {domain}"))
        }
        (Some(Support::Cells { mesh: sites }), _) if sites.size() != mesh.size() || sites.has_ghosts() => {
            Some(format!(
                "expected sites without ghost cells in a box of sides {:?}, those of the mesh, got sides {:?}; make both \
                 with the same sides",
                mesh.size(),
                sites.size()
            ))
        }
        _ => None,
    }
}

impl Paint {
    /// Creates the operator from particles of `domain` to the cells of `mesh`, which may be cut in
    /// another way than the cells of `domain`. Collective; records nothing.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) if the leaves of `domain` are
    ///   not as above, its cells lie in a box of other sides than `mesh`, or `mesh` has open faces,
    ///   ghost cells or parts with fewer cells than the window needs.
    pub fn new(rank: &mut Rank, domain: &Space, mesh: &Mesh, window: Window) -> Result<Self> {
        let target = Space::of("density", Leaf::cells(mesh))?;
        let (_, _, mesh) = real_cells(rank, &target, PAINT)?;
        let fault = fault(domain, mesh);
        if let Some(why) = rank.comm.first_fault(fault.as_deref())? {
            return refuse(PAINT, why);
        }
        let [moved, weights] = [3, 1].map(|n| domain.leaves().position(|(_, leaf)| leaf.components == n));
        let moved = moved.unwrap_or(0);
        let lattice = match domain.leaves().nth(moved).map(|(_, leaf)| &leaf.support) {
            Some(Support::Cells { mesh: sites }) => {
                cut_alike(sites, rank, PAINT)?;
                Some(sites.clone())
            }
            _ => None,
        };
        let mesh = PointsInCells::with_ghosts(mesh, window, false).map_err(MeshError::from)?;
        Ok(Paint {
            ghosted: Ghosted::new(PAINT, &mesh, 1)?,
            mesh,
            painter: Painter::new(window),
            values: ValuePainter::new(window),
            adjoint: PositionDerivatives::new(window),
            moved,
            weights,
            lattice,
            signature: Signature::new(PAINT, domain, &target),
        })
    }

    /// Returns the arrays of the vectors and the weights of a vector of the domain.
    fn parts<'a>(&self, x: &'a Vector) -> Result<(&'a Array<f32>, Option<&'a Array<f32>>)> {
        let array = |at: usize| match x.contents().get(at) {
            Some(Contents::Device(array)) => Ok(array),
            _ => refuse(PAINT, format!("{} is not on the device", x.space())),
        };
        Ok((array(self.moved)?, self.weights.map(array).transpose()?))
    }

    fn send(&self, rank: &mut Rank, x: &Vector) -> Result<MovedParticles> {
        self.signature.domain.admits(x.space(), PAINT)?;
        let (vectors, weights) = self.parts(x)?;
        let movements = Movements { vectors, lattice: self.lattice.as_ref(), weights };
        Ok(MovedParticles::send(rank, &self.mesh, movements)?)
    }

    fn density(&self, rank: &mut Rank, particles: &MovedParticles, y: &Vector) -> Result<()> {
        self.signature.target.admits(y.space(), PAINT)?;
        let parts = rank.parts(self.mesh.grid())?;
        let painters = (&self.painter, &self.values, self.ghosted.ghosts());
        Ok(particles.density(parts.recorder, parts.comms, painters, y.single()?)?)
    }
}

impl Differentiable for Paint {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        let particles = self.send(rank, x)?;
        self.density(rank, &particles, y)
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        let particles = self.send(rank, x)?;
        self.density(rank, &particles, y)?;
        Ok(Box::new(PaintAt { operator: self, particles }))
    }

    fn derivative(self: Rc<Self>, rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearized>> {
        let particles = self.send(rank, x)?;
        Ok(Box::new(PaintAt { operator: self, particles }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.text(&format!("{:?}", self.painter.window()));
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        let particles = self.signature.domain.own_numbers() / if self.weights.is_some() { 4 } else { 3 };
        let (nodes, cells) = (u64::from(self.painter.window().order()).pow(3), self.mesh.array_len());
        let ghosts = self.ghosted.cost();
        let exchanged = Cost { messages: ghosts.messages, sent_bytes: 2 * ghosts.sent_bytes, ..Cost::default() };
        // Painting adds two words of each node; cells are cleared and read in two words.
        let painted = Cost::kernels(2, particles * (20 + 16 * nodes) + 20 * cells) + exchanged;
        let placed = Cost::kernels(2, particles * 84);
        OperatorCost {
            apply: placed + painted,
            jvp: Cost::kernels(2, particles * 100) + painted,
            vjp: Cost::kernels(3, particles * (88 + 8 * nodes)) + ghosts,
        }
    }
}

/// The derivative at the particles where they are.
struct PaintAt {
    operator: Rc<Paint>,
    particles: MovedParticles,
}

impl Linearized for PaintAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        let operator = &*self.operator;
        operator.signature.check(dx, dy)?;
        let painters = (&operator.values, operator.ghosted.ghosts());
        Ok(self.particles.density_change(rank, painters, operator.parts(dx)?, dy.single()?)?)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        let operator = &*self.operator;
        operator.signature.check(dx, dy)?;
        let field = rank.gpu.array("operators::paint", operator.mesh.array_len())?;
        let parts = rank.parts(operator.mesh.grid())?;
        operator.ghosted.fill(parts.recorder, parts.comms, dy.single()?, &field)?;
        Ok(self.particles.cotangents(rank, (&operator.adjoint, &operator.painter), &field, operator.parts(dx)?)?)
    }
}

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
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces, or a position
    ///   in a cell of another rank.
    /// - [`OperatorError::Mesh`](super::OperatorError::Mesh) if a position is not finite.
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
            return refuse(NAME, why);
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

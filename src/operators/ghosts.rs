//! Ghost cells as operators: copies of owned cells, and sums to the owners; and stencils, which
//! read them: finite differences and smoothing.

use super::{
    Direction, Fingerprint, Leaf, Linear, OperatorError, Result, Signature, Space, Support, Vector, real_cells, refuse,
};
use crate::exchange::ghost_cells::GhostCells;
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, Kernel, KernelSource, Recorder};
use crate::grid::{Cost, FieldLayout, GhostPlan, Mesh, extent, volume};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct EmbedParams {
        /// Own cells by axis, and number of fields.
        own: [u32; 4],
        /// The first own cell in the array, and the strides.
        origin: [u32; 4],
        /// Cells of a field with its ghost cells.
        field: u32,
    }
}

fn embed(back: bool) -> KernelSource {
    KernelSource::new("operators::embed", include_str!("../../shaders/operators/embed.wgsl"))
        .params::<EmbedParams>()
        .flag("back", back)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    vec![embed(false), embed(true), stencil()]
}

/// Moves fields between layouts with and without ghost cells.
pub(crate) struct Ghosted {
    ghosts: GhostCells,
    fields: u64,
    embed: [Kernel; 2],
}

impl Ghosted {
    /// Creates it for `fields` fields of a mesh with ghost cells. Errors name `operator`.
    pub fn new(operator: &str, mesh: &Mesh, fields: u64) -> Result<Self> {
        let plan = mesh.ghost_plan();
        let plan = plan.map_err(|error| OperatorError::invalid(operator, error.to_string()))?;
        Ok(Self::of(plan, fields))
    }

    /// Creates it for `fields` fields with the ghost cells of `plan`.
    pub fn of(plan: GhostPlan, fields: u64) -> Self {
        let embed = [false, true].map(|back| Kernel::trusted(embed(back)));
        Ghosted { ghosts: GhostCells::new(plan), fields, embed }
    }

    /// Returns the layout of a field with its ghost cells.
    pub fn layout(&self) -> &FieldLayout {
        &self.ghosts.plan.layout
    }

    /// Returns the exchange of ghost cells.
    pub fn ghosts(&self) -> &GhostCells {
        &self.ghosts
    }

    fn params(&self) -> (EmbedParams, u64) {
        let layout = self.layout();
        let ([n0, n1, n2], [i, j, k]) = (extent(&layout.own), layout.strides());
        let params = EmbedParams {
            own: [n0, n1, n2, self.fields].map(|n| n as u32),
            origin: [layout.offset(), i, j, k].map(|n| n as u32),
            field: layout.len() as u32,
        };
        (params, volume(&layout.own) * self.fields)
    }

    /// Copies `own` to `whole` and fills the ghost cells.
    pub fn fill(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        own: &Array<f32>,
        whole: &Array<f32>,
    ) -> Result<(), ExchangeError> {
        let (params, count) = self.params();
        recorder.each(&self.embed[0], &[own.raw(), whole.raw()], &params, count)?;
        self.ghosts.exchange(recorder, comms, whole)
    }

    /// Adds the ghost cells of all ranks to the cells of their owners, and copies these to `own`.
    /// Changes `whole`.
    pub fn collect(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        whole: &Array<f32>,
        own: &Array<f32>,
    ) -> Result<(), ExchangeError> {
        self.ghosts.reduce(recorder, comms, whole)?;
        let (params, count) = self.params();
        Ok(recorder.each(&self.embed[1], &[whole.raw(), own.raw()], &params, count)?)
    }

    /// Returns the cost of either for this rank.
    pub fn cost(&self) -> Cost {
        let plan = &self.ghosts.plan;
        let (mut cost, mut cells) = (Cost::default(), 0);
        for sweep in &plan.sweeps {
            for link in &sweep.owned {
                cells += link.block.len();
                cost.messages += 1;
                cost.sent_bytes += 4 * self.fields * link.block.len();
            }
        }
        let links: usize = plan.sweeps.iter().map(|sweep| sweep.owned.len() + sweep.ghosts.len()).sum();
        let bytes = 8 * self.fields * (volume(&self.layout().own) + 2 * cells);
        Cost::kernels(1 + links as u64, bytes) + cost
    }
}

/// Copies of owned cells in ghost cells: from cells to cells with ghost cells. Its adjoint adds
/// ghost cells to the cells of their owners, in an order that depends on the decomposition.
/// Adjoints of [`StencilOperator`](super::StencilOperator) and [`Readout`](super::Readout) have an
/// order that does not.
pub struct Ghosts {
    ghosted: Ghosted,
    signature: Signature,
}

impl Ghosts {
    /// Creates the operator for the only leaf of `domain`, real cells without ghost cells. `widths`
    /// are those below and above by axis, equal on all ranks.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    pub fn new(rank: &mut Rank, domain: &Space, widths: [[u64; 2]; 3]) -> Result<Self> {
        const NAME: &str = "ghost cells";
        let (name, leaf, mesh) = real_cells(rank, domain, NAME)?;
        let mesh = mesh.with_ghosts(widths).map_err(|error| OperatorError::invalid(NAME, error.to_string()))?;
        let ghosted = Ghosted::new(NAME, &mesh, leaf.fields())?;
        let target = Space::of(name, Leaf { support: Support::Cells { mesh }, ..leaf.clone() })?;
        Ok(Ghosts { ghosted, signature: Signature::new(NAME, domain, &target) })
    }
}

impl Linear for Ghosts {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let (v, out) = (v.single()?, out.single()?);
        if direction == Direction::Forward {
            return Ok(self.ghosted.fill(recorder, comms, v, out)?);
        }
        let whole = recorder.gpu().array("operators::ghosts", v.len())?;
        recorder.copy(v, 0, &whole, 0, v.len())?;
        Ok(self.ghosted.collect(recorder, comms, &whole, out)?)
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<()> {
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let cost = self.ghosted.cost();
        let len = self.ghosted.layout().len() * self.ghosted.fields;
        [cost, cost + Cost::kernels(1, 8 * len)]
    }
}

crate::gpu::kernel_params! {
    struct StencilParams {
        /// Own cells by axis, and number of fields.
        own: [u32; 4],
        /// Cells of the array by axis, with ghost cells.
        shape: [u32; 4],
        /// Ghost cells below.
        ghosts: [u32; 4],
        /// Cells of the mesh, and a bit for each axis that wraps around without ghost cells.
        mesh: [u32; 4],
        /// Cells of a field with its ghost cells.
        field: u32,
        taps: u32,
    }
}

/// Maximum number of taps: the limit of software renderers for loops of an invocation.
const MOST_TAPS: usize = 1024;

fn stencil() -> KernelSource {
    KernelSource::new("operators::stencil", include_str!("../../shaders/operators/stencil.wgsl"))
        .params::<StencilParams>()
}

/// A weighted neighbor: its offset in cells along each axis, and the weight.
pub type Tap = ([i64; 3], f64);

/// `y[c] = sum over taps of weight * x[c + offset]` on a periodic grid. Its adjoint has the
/// negative offsets. Both add in the order of the taps, so that the bits do not depend on the
/// number of ranks.
///
/// Axes that are not cut over ranks wrap around without ghost cells. On one rank the cost is one
/// pass of 8 bytes per cell.
pub struct StencilOperator {
    /// The stencil and its adjoint.
    sides: [Side; 2],
    cut: bool,
    kernel: Kernel,
    signature: Signature,
}

/// A stencil with the ghost cells that it reads.
struct Side {
    ghosted: Ghosted,
    taps: Array<i32>,
    params: StencilParams,
}

impl StencilOperator {
    /// Creates the stencil for the only leaf of `space`, real cells without ghost cells. Submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces, no taps or more than 1024, offsets not
    ///   shorter than an axis, and weights that are not finite.
    pub fn new(rank: &mut Rank, space: &Space, taps: &[Tap]) -> Result<Self> {
        const NAME: &str = "stencil";
        let (_, leaf, mesh) = real_cells(rank, space, NAME)?;
        for (offset, weight) in taps {
            let long = (0..3).find(|&a| offset[a].unsigned_abs() >= mesh.shape()[a].max(1) && offset[a] != 0);
            if long.is_some() || !weight.is_finite() {
                let why = format!("offset {offset:?} with weight {weight} on a grid of {:?} cells", mesh.shape());
                return refuse(NAME, why);
            }
        }
        if taps.is_empty() || taps.len() > MOST_TAPS {
            let why = format!("{} taps; 1 to {MOST_TAPS} are allowed, and a Convolution takes any number", taps.len());
            return refuse(NAME, why);
        }
        let cut = [0, 1, 2].map(|a| mesh.grid().along(a) > 1);
        let mut side = |sign: i64| -> Result<Side> {
            // The reach of the taps below and above.
            let reach = |a: usize, side: i64| {
                taps.iter().map(|(offset, _)| (side * sign * offset[a]).max(0)).max().unwrap_or(0)
            };
            let widths = [0, 1, 2].map(|a| if cut[a] { [reach(a, -1) as u64, reach(a, 1) as u64] } else { [0; 2] });
            let with_ghosts =
                mesh.with_ghosts(widths).map_err(|error| OperatorError::invalid(NAME, error.to_string()))?;
            let ghosted = Ghosted::new(NAME, &with_ghosts, leaf.fields())?;
            let words: Vec<i32> = taps
                .iter()
                .flat_map(|(offset, weight)| {
                    let [i, j, k] = offset.map(|along| (sign * along) as i32);
                    [i, j, k, (*weight as f32).to_bits() as i32]
                })
                .collect();
            let layout = ghosted.layout();
            let word = |v: [u64; 3], w: u64| [v[0], v[1], v[2], w].map(|n| n as u32);
            let closed = (0..3).map(|a| u64::from(!cut[a]) << a).sum();
            let params = StencilParams {
                own: word(extent(&layout.own), leaf.fields()),
                shape: word(layout.shape(), 0),
                ghosts: word([0, 1, 2].map(|a| layout.ghosts[a][0]), 0),
                mesh: word(mesh.shape(), closed),
                field: layout.len() as u32,
                taps: taps.len() as u32,
            };
            Ok(Side { ghosted, taps: rank.recorder.uploaded("operators::taps", &words)?, params })
        };
        let sides = [side(1)?, side(-1)?];
        let (cut, kernel) = (cut.contains(&true), Kernel::trusted(stencil()));
        Ok(StencilOperator { sides, cut, kernel, signature: Signature::new(NAME, space, space) })
    }
}

impl Linear for StencilOperator {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let Side { ghosted, taps, params } = &self.sides[direction as usize];
        let fields = u64::from(params.own[3]);
        let mut field = v.single()?.clone();
        if self.cut {
            let whole = recorder.gpu().array("operators::stencil", ghosted.layout().len() * fields)?;
            ghosted.fill(recorder, comms, &field, &whole)?;
            field = whole;
        }
        let arrays = [field.raw(), taps.raw(), out.single()?.raw()];
        Ok(recorder.each(&self.kernel, &arrays, params, volume(&ghosted.layout().own) * fields)?)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        let taps = &self.sides[0].taps;
        let taps = rank.recorder.download(taps, 0, taps.len())?;
        taps.iter().for_each(|word| out.number(u64::from(*word as u32)));
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        self.sides.each_ref().map(|Side { ghosted, params, .. }| {
            let pass = Cost::kernels(1, 8 * volume(&ghosted.layout().own) * u64::from(params.own[3]));
            if self.cut { ghosted.cost() + pass } else { pass }
        })
    }
}

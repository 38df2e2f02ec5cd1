//! Ghost cells as operators: copies of owned cells, and sums to the owners.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::fourier::cells_of;
use super::leaf::{Leaf, Support};
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::exchange::ghost_cells::GhostCells;
use crate::exchange::{ExchangeError, GridComms};
use crate::fft::Values;
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
    [false, true].map(embed).into()
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

/// Returns the only leaf of a space: real cells of a periodic mesh without ghost cells, cut for
/// this rank.
pub(super) fn real_cells<'a>(
    rank: &mut Rank,
    space: &'a Space,
    operator: &str,
) -> Result<(&'a str, &'a Leaf, &'a Mesh)> {
    let found = cells_of(rank, space, operator)?;
    let periodic = found.2.periodic();
    if periodic != [true; 3] {
        let why = format!("expected a mesh that is periodic along all axes, got {periodic:?}");
        return Err(OperatorError::invalid(operator, why));
    }
    match found.1.values {
        Values::Real => Ok(found),
        Values::Complex => {
            Err(OperatorError::invalid(operator, "complex fields; give real and imaginary parts as two components"))
        }
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

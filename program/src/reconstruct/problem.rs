//! Problem of a reconstruction: data, their run, and its distribution over ranks.

use meshloom::comm::Op;
use meshloom::inference::SampleGroups;
use meshloom::io::{IoError, NpyFile, printable_path};
use meshloom::operators::{Model, Vector};
use meshloom::pm::{Config, GradientMemory, Observable, SimulationOperator};
use meshloom::{Error, Mesh, Rank};
use serde_json::Value;

use super::outputs::{fingerprint, read_cells};
use super::parameters::Parameters;
use super::spectra::Spectra;
use crate::failure::{Ended, Failure};

/// Objects of a reconstruction on one rank.
pub struct Problem<'p, 'w> {
    pub parameters: &'p Parameters,
    pub groups: SampleGroups,
    pub rank: &'w mut Rank,
    pub config: Config,
    pub run: Model,
    pub memory: GradientMemory,
    /// The cells of the density, and of the noise.
    pub cells: Mesh,
    pub sites: Mesh,
    /// This rank's cells of the data, and of the white noise that is behind them where it is known.
    pub values: Vec<f32>,
    pub truth: Option<Vec<f32>>,
    /// [`Parameters::problem`].
    pub identity: Value,
}

/// Returns the file of the density, and the run that it is of.
pub fn density(parameters: &Parameters) -> Result<(NpyFile, Config), Error> {
    let file = NpyFile::open(&parameters.density)?.accept_integers();
    let mesh = match *file.shape() {
        [mesh, a, b] if a == mesh && b == mesh => mesh,
        _ => {
            let wanted = "(m, m, m): the density on the cells of a cubic mesh";
            return Err(IoError::shape(file.path(), file.shape(), wanted).into());
        }
    };
    let config = parameters.config(mesh);
    config.validate()?;
    Ok((file, config))
}

impl<'p, 'w> Problem<'p, 'w> {
    /// Reads and checks the files, and plans the run on the ranks of this group. Collective over
    /// all groups.
    pub fn new(
        group: &'w mut Rank,
        groups: SampleGroups,
        parameters: &'p Parameters,
        (file, config): (NpyFile, Config),
    ) -> Result<Self, Ended> {
        let (grid, rank) = (config.grid(group.comm.shares())?, group.comm.rank());
        let (cells, sites) = (config.cell_mesh(grid, rank)?, config.site_mesh(grid, rank)?);
        let values = read_cells(&file, &cells)?;
        if let Some(wrong) = not_of_mean_one(group, &values, parameters.noise, config.mesh)? {
            return Err(Failure::Failed(format!("{}: {wrong}", printable_path(&parameters.density))).into());
        }
        let truth =
            parameters.options.truth.as_ref().map(|path| read_cells(&NpyFile::open(path)?, &sites)).transpose()?;
        let identity = parameters.problem(&config, fingerprint(&group.comm, &cells, &values)?);
        let (every, observables) = (parameters.checkpoint_every(), [Observable::Density]);
        let operator =
            SimulationOperator::new(group, Config { grid: Some(grid.parts()), ..config.clone() }, every, &observables)?;
        let (memory, run) = (operator.memory(), Model::new(operator));
        Ok(Problem { parameters, groups, rank: group, config, run, memory, cells, sites, values, truth, identity })
    }

    /// Returns a field of the run's domain, or its target.
    pub fn field(&mut self, of_domain: bool, values: &[f32]) -> Result<Vector, Error> {
        let space = if of_domain { self.run.domain() } else { self.run.target() };
        let field = Vector::new(&self.rank.gpu, space)?;
        let name = space.names().next().unwrap_or_default();
        self.rank.recorder.upload(field.array(name)?, 0, values)?;
        Ok(field)
    }

    /// Returns the data as a field.
    pub fn data(&mut self) -> Result<Vector, Error> {
        let values = std::mem::take(&mut self.values);
        let data = self.field(false, &values);
        self.values = values;
        data
    }

    /// Returns the power of the data's noise, in (Mpc/h)^3.
    pub fn noise_power(&self) -> f64 {
        self.parameters.noise.powi(2) * self.cells.cell_volume()
    }

    /// Returns the greatest power of the data's signal over that of their noise. Collective.
    /// Blocks.
    pub fn signal(&mut self) -> Result<f64, Error> {
        let data = self.data()?;
        let power = Spectra::new(self.rank, &self.cells)?.power(self.rank, &data)?;
        Ok(power.iter().map(|bin| bin.power / self.noise_power() - 1.0).fold(0.0, f64::max))
    }
}

/// Returns the number of groups: that of the call, or else the greatest that leaves each the memory
/// that it needs, and its ranks where a state has groups of `each`. Collective.
pub fn groups_of(rank: &Rank, parameters: &Parameters, config: &Config, each: Option<usize>) -> Result<usize, Ended> {
    let (ranks, shares) = (rank.comm.size(), rank.comm.shares());
    let own = rank.memory_share().unwrap_or(u64::MAX);
    let mut room = [own];
    rank.comm.all_reduce(&mut room, Op::Min)?;
    let fits = |groups| {
        let memory = config.gradient_memory(shares.of_groups(groups), parameters.checkpoint_every());
        let resumes = each.is_none_or(|each| ranks / groups == each);
        resumes && memory.is_ok_and(|memory| memory.total() <= room[0])
    };
    Ok(parameters.sample_groups(ranks, fits)?)
}

/// Returns what is wrong with a density whose mean is not 1, as far as noise explains. The same on
/// all ranks.
fn not_of_mean_one(rank: &Rank, values: &[f32], noise: f64, mesh: u64) -> Result<Option<String>, Error> {
    let mut sum = [values.iter().map(|&value| f64::from(value)).sum::<f64>()];
    rank.comm.all_reduce(&mut sum, Op::Sum)?;
    let cells = (mesh as f64).powi(3);
    let (mean, most) = (sum[0] / cells, 1e-3 + 6.0 * noise / cells.sqrt());
    Ok(((mean - 1.0).abs() > most).then(|| {
        format!("its mean is {mean:.4}, and 1 within {most:.1e}, what noise explains, is needed: give 1 + contrast, as `simulate --save-density` writes it")
    }))
}

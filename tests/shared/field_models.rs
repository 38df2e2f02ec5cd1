//! A likelihood of fields whose fits are compared over ranks: Gaussian data of a field that depends
//! on a scale and on smoothed excitations.

use std::path::Path;

use meshloom::Rank;
use meshloom::comm::Communicator;
use meshloom::fft::Operator;
use meshloom::gpu::{Gpu, Options};
use meshloom::grid::Grid;
use meshloom::inference::{
    CgOptions, Curvature, Draw, Existing, Fit, FitOptions, Identity, InferenceError, IterationOptions, LogLikelihood,
    LogLikelihoodAt, NewtonOptions, SampleGroups, Sampling, Stream, VectorSpace,
};
use meshloom::operators::{Fingerprint, FourierFilter, Leaf, Linearization, Model, PointwiseOperator, Space, Vector};

/// Data of a model, with noise of standard deviation 1 in the units of both.
pub struct WhiteNoise {
    pub model: Model,
    pub data: Vector,
}

impl WhiteNoise {
    /// On `shape` cells; the data are what the model gives for the white noise of stream 1.
    pub fn new(rank: &mut Rank, shape: [u64; 3]) -> Result<Self, InferenceError> {
        let size = shape.map(|n| n as f64);
        let mesh = crate::process_grid::mesh(rank, shape, size);
        let cells = Space::of("xi", Leaf::cells(&mesh))?;
        let smooth = Operator { constant: [3.0, 0.0], factor: &|_, wave| (-wave.k * wave.k).exp(), laplacian: None };
        let smooth = Model::new(FourierFilter::new(rank, &cells, &smooth)?).named("s")?;
        let scale = Model::identity(&Space::of("scale", Leaf::vector(1))?)?;
        let both = smooth.zip(&scale)?;
        let text = "fn f(s: f32, scale: f32) -> f32 { return 4.0 * exp(0.5 * scale + s); }";
        let model = both.then(&Model::new(PointwiseOperator::wgsl(text, "f", both.target(), "y")?))?;
        let mut truth = Vector::new(&rank.gpu, model.domain())?;
        rank.white_noise(Stream(1), &mut truth)?;
        let data = model.value(rank, &truth)?;
        Ok(WhiteNoise { model, data })
    }
}

impl LogLikelihood<Rank> for WhiteNoise {
    fn name(&self) -> String {
        self.model.name().into()
    }

    fn identity(&self, rank: &mut Rank) -> Result<Identity, InferenceError> {
        let [mut data, mut model] = [Fingerprint::new(); 2];
        data.field(rank, &self.data)?;
        self.model.identify(rank, &mut model)?;
        Ok(Identity { data: data.value(), model: model.value(), ..Identity::default() })
    }

    fn data(&self, rank: &mut Rank) -> Result<Vector, InferenceError> {
        Ok(Vector::new(&rank.gpu, self.model.target())?)
    }

    fn energy(&self, rank: &mut Rank, x: &Vector) -> Result<f64, InferenceError> {
        let (rest, _) = self.normalized_residual(rank, x)?.unwrap();
        Ok(rank.vector_dot(&rest, &rest)? / 2.0)
    }

    fn at<'a>(&'a self, rank: &mut Rank, x: &Vector) -> Result<Box<dyn LogLikelihoodAt<Rank> + 'a>, InferenceError> {
        let at = self.model.at(rank, x)?;
        let mut rest = Vector::new(&rank.gpu, self.model.target())?;
        rest.copy_from(&mut rank.recorder, &at.value)?;
        rank.vector_axpby(-1.0, &self.data, 1.0, &mut rest)?;
        Ok(Box::new(At { at, rest }))
    }

    fn normalized_residual(&self, rank: &mut Rank, x: &Vector) -> Result<Option<(Vector, u64)>, InferenceError> {
        let mut rest = self.model.value(rank, x)?;
        rank.vector_axpby(1.0, &self.data, -1.0, &mut rest)?;
        Ok(Some((rest, self.degrees_of_freedom())))
    }

    fn degrees_of_freedom(&self) -> u64 {
        self.data.space().leaves().map(|(_, leaf)| leaf.total()).sum()
    }
}

struct At {
    at: Linearization,
    rest: Vector,
}

impl LogLikelihoodAt<Rank> for At {
    fn energy(&self, rank: &mut Rank) -> Result<f64, InferenceError> {
        Ok(rank.vector_dot(&self.rest, &self.rest)? / 2.0)
    }

    fn gradient(&self, rank: &mut Rank, out: &mut Vector) -> Result<(), InferenceError> {
        Ok(self.at.vjp(rank, &self.rest, out)?)
    }

    fn metric(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        let mut right = Vector::new(&rank.gpu, self.at.model().target())?;
        self.at.jvp(rank, v, &mut right)?;
        Ok(self.at.vjp(rank, &right, out)?)
    }

    fn left_sqrt(&self, rank: &mut Rank, eta: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        Ok(self.at.vjp(rank, eta, out)?)
    }

    fn right_sqrt(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        Ok(self.at.jvp(rank, v, out)?)
    }

    fn coordinates(&self, rank: &mut Rank, x: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        Ok(self.at.model().apply(rank, x, out)?)
    }
}

/// Straight samples, then bent ones, few steps of each kind.
pub fn few(iteration: u32) -> IterationOptions {
    let steps = NewtonOptions {
        cg: Some(CgOptions { maxiter: Some(4), ..CgOptions::resnorm(0.0) }),
        ..NewtonOptions::default()
    };
    IterationOptions {
        pairs: [2, 4][iteration as usize % 2],
        sampling: if iteration == 0 { Sampling::Linear(Draw::New) } else { Sampling::Curved(Draw::New) },
        linear: CgOptions { maxiter: Some(5), ..CgOptions::resnorm(0.0) },
        curve: steps.steps(1),
        position: steps.steps(2),
        ..IterationOptions::default()
    }
}

/// Result of a fit, as bits: its energies, the cells of this rank with the mean and standard
/// deviation of the model there, and the scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub energies: Vec<u64>,
    pub cells: Vec<(u64, [u32; 3])>,
    pub scale: Vec<u32>,
}

/// Setup of a fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run<'a> {
    /// Parts of a group's process grid along the second axis; 1 where it is 0.
    pub across: usize,
    /// Iterations; 2 where it is 0.
    pub iterations: u32,
    /// Bytes of device memory.
    pub memory: Option<u64>,
    /// State that it continues from.
    pub state: Option<&'a Path>,
    /// The metric of the steps of the position.
    pub curvature: Curvature,
}

/// Returns a fit by `groups` groups of all ranks of `comm`.
pub fn fit(comm: &Communicator, options: &Options, groups: usize, run: Run<'_>) -> Result<Found, InferenceError> {
    let (groups, own) = SampleGroups::split(comm, groups)?;
    let gpu = Gpu::open(options, 0)?;
    let (ranks, across) = (own.size(), run.across.max(1));
    let mut rank = Rank::new(own, gpu)?;
    let grid = Grid::new([ranks / across, across], ranks)
        .map_err(|error| InferenceError::Invalid { what: "grid".into(), why: error.to_string() })?;
    crate::process_grid::set(grid);
    let shape = [6, 5, 8];
    let likelihood = WhiteNoise::new(&mut rank, shape)?;
    let start = Vector::zeros(&mut rank.recorder, likelihood.model.domain())?;
    let iterations = if run.iterations == 0 { 2 } else { run.iterations };
    let mut options = FitOptions::new(iterations).memory(run.memory);
    options = options.each(|iteration| IterationOptions { curvature: run.curvature, ..few(iteration) });
    if let Some(state) = run.state {
        options = options.state(state, Existing::Resume);
    }
    let fit = Fit::new(&mut rank, &likelihood, &groups, &start, &options)?.run(&mut rank)?;
    let (samples, history) = (fit.samples(), fit.history());
    let like = likelihood.data(&mut rank)?;
    let mut value = |rank: &mut Rank, x: &Vector| Ok(likelihood.model.value(rank, x)?);
    let (mean, std) = samples.mean_and_std(&mut rank, &groups, &like, &mut value)?;
    let mut bits = |field: &Vector, name: &str| -> Result<Vec<u32>, InferenceError> {
        Ok(field.get(&mut rank.recorder, name)?.iter().map(|&value| (value as f32).to_bits()).collect())
    };
    let columns = [bits(&samples.position, "xi")?, bits(&mean, "y")?, bits(&std, "y")?];
    let scale = bits(&samples.position, "scale")?;
    let part = grid.part(shape, rank.index());
    let cells = part[0].clone().flat_map(|i| {
        let part = part.clone();
        part[1].clone().flat_map(move |j| part[2].clone().map(move |k| (i * 5 + j) * 8 + k))
    });
    let cells = cells.enumerate().map(|(at, cell)| (cell, [0, 1, 2].map(|column| columns[column][at]))).collect();
    Ok(Found { energies: history.iter().map(|report| report.energy.to_bits()).collect(), cells, scale })
}

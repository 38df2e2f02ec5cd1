//! The problem: data and where they are, the model, the likelihood.

use std::ops::Range;
use std::path::Path;

use meshloom::Error;
use meshloom::Rank;
use meshloom::grid::{Box3, Grid, LayoutError, Mesh, MeshOptions};
use meshloom::host_memory;
use meshloom::inference::{
    AmplitudePrior, AxesPrior, CorrelatedField, Data, FieldPrior, Identity, InferenceError, Likelihood, LogLikelihood,
    NoiseLevel, PriorSpectrum,
};
use meshloom::io::{IoError, NpyFile, printable_path};
use meshloom::operators::{Leaf, Model, PointwiseOperator};
use serde_json::Value;

use super::offset::Observed;
use super::parameters::{HyperParameters, Kind, Noise, RunParameters};
use crate::failure::Failure;

/// The grid of the data, and that of the field, which is longer unless it is periodic.
pub struct Grids {
    /// The data's shape, as in the file.
    pub shape: Vec<u64>,
    /// Shape padded in front with axes of one cell.
    pub cells: [u64; 3],
    pub padded: [u64; 3],
    /// Sides of a cell.
    pub distances: [f64; 3],
}

/// Returns the next even number whose only prime factors are 2, 3 and 5.
fn smooth(least: u64) -> u64 {
    let is_smooth = |n: u64| {
        let rest = [2, 3, 5].into_iter().fold(n, |mut rest, prime| {
            while rest.is_multiple_of(prime) {
                rest /= prime;
            }
            rest
        });
        rest == 1
    };
    (least..).find(|&n| n.is_multiple_of(2) && is_smooth(n)).unwrap_or(least)
}

impl Grids {
    /// Creates the grid of data of this shape.
    ///
    /// # Errors
    /// A message for data without axes or with more than three, and for another number of distances
    /// than axes.
    pub fn new(shape: &[u64], parameters: &RunParameters) -> Result<Self, Failure> {
        let axes = shape.len();
        if !(1..=3).contains(&axes) || shape.iter().product::<u64>() < 2 {
            return Err(Failure::Failed(format!(
                "data of shape {shape:?}; they have one to three axes and two cells at least"
            )));
        }
        let mut cells = [1; 3];
        cells[3 - axes..].copy_from_slice(shape);
        let longest = cells.iter().copied().max().unwrap_or(1);
        let sides = match parameters.options.distances.as_deref() {
            None => vec![1.0 / longest as f64; axes],
            Some(&[side]) => vec![side; axes],
            Some(sides) if sides.len() == axes => sides.to_vec(),
            Some(sides) => {
                let why = format!(
                    "--distances has {} numbers, the data have {axes} axes; give one, or one for each",
                    sides.len()
                );
                return Err(Failure::Usage(why));
            }
        };
        // An axis that the data do not have is a length of 1, which spectra do not have either.
        let mut distances = [1.0; 3];
        distances[3 - axes..].copy_from_slice(&sides);
        let pad = |n: u64| match n {
            1 => 1,
            n if parameters.pad == 1.0 => n,
            n => smooth((n as f64 * parameters.pad).ceil() as u64),
        };
        Ok(Grids { shape: shape.to_vec(), padded: cells.map(pad), cells, distances })
    }

    /// Returns the data's cells among those of a part of the field's grid.
    pub fn seen(&self, part: &Box3) -> Box3 {
        [0, 1, 2].map(|a| part[a].start.min(self.cells[a])..part[a].end.min(self.cells[a]))
    }

    /// Lines of a part's own cells that are the data's: where each stands in the part, and in the
    /// file.
    pub fn lines(&self, part: &Box3) -> Vec<(usize, Range<u64>)> {
        let seen = self.seen(part);
        let [_, n1, n2] = [0, 1, 2].map(|a| part[a].end - part[a].start);
        let (mut lines, [_, c1, c2]) = (Vec::new(), self.cells);
        if seen[2].is_empty() {
            return lines;
        }
        for i in seen[0].clone() {
            for j in seen[1].clone() {
                let own = ((i - part[0].start) * n1 + (j - part[1].start)) * n2 + (seen[2].start - part[2].start);
                let first = (i * c1 + j) * c2;
                lines.push((own as usize, first + seen[2].start..first + seen[2].end));
            }
        }
        lines
    }

    /// Returns the index of an element of the data.
    fn index(&self, element: u64) -> String {
        let mut rest = element;
        let mut index: Vec<String> = self
            .shape
            .iter()
            .rev()
            .map(|n| {
                let at = rest % n;
                rest /= n;
                at.to_string()
            })
            .collect();
        index.reverse();
        format!("[{}]", index.join(", "))
    }
}

/// Problem of an inference.
pub struct Problem {
    pub grids: Grids,
    pub mesh: Mesh,
    pub field: CorrelatedField,
    /// Signal before exposure and mask, on the field's grid.
    pub signal: Model,
    pub likelihood: Likelihood,
    /// Prior of the field, with the mean that the data determine unless it was given.
    pub hyper: HyperParameters,
    /// Identity of the problem: its parameters and fingerprints of its files.
    pub identity: Value,
}

/// Files of the shape of the data, read for a part of the field's grid.
struct Files<'a> {
    grids: &'a Grids,
    part: Box3,
}

impl Files<'_> {
    /// Returns this rank's values; NaN beyond the data.
    fn read(&self, path: &Path) -> Result<Vec<f64>, Error> {
        let file = NpyFile::open(path)?.accept_integers();
        file.expect_shape(&self.grids.shape)?;
        let len: u64 = (0..3).map(|a| self.part[a].end - self.part[a].start).product();
        let mut values = host_memory::fill("data", f64::NAN, len as usize)?;
        for (own, elements) in self.grids.lines(&self.part) {
            let line = file.read_f64(elements)?;
            values[own..own + line.len()].copy_from_slice(&line);
        }
        Ok(values)
    }

    /// Refuses values that count and are not sound.
    fn check(
        &self,
        path: &Path,
        values: &[f64],
        mask: &[bool],
        wanted: &str,
        sound: impl Fn(f64) -> bool,
    ) -> Result<(), Error> {
        for (own, elements) in self.grids.lines(&self.part) {
            let wrong = |at: &usize| mask[*at] && !(values[*at].is_finite() && sound(values[*at]));
            let len = (elements.end - elements.start) as usize;
            if let Some(at) = (own..own + len).find(wrong) {
                let index = self.grids.index(elements.start + (at - own) as u64);
                let why = format!("element {index} is {}; {wanted}", values[at]);
                return Err(InferenceError::Invalid { what: printable_path(path).to_string(), why }.into());
            }
        }
        Ok(())
    }

    /// Exposures of counts, or noise of each value, where a file has them.
    fn beside(&self, parameters: &RunParameters, kind: Kind, mask: &[bool]) -> Result<Option<Vec<f64>>, Error> {
        let (path, wanted, least) = match (kind, &parameters.options.exposure, &parameters.options.noise) {
            (Kind::Poisson, Some(path), _) => (path, "exposures are 0 or more, or mask it", 0.0),
            (Kind::Gaussian | Kind::StudentT, _, Some(Noise::File(path))) => {
                (path, "noise is positive, or mask it", f64::MIN_POSITIVE)
            }
            _ => return Ok(None),
        };
        let values = self.read(path)?;
        self.check(path, &values, mask, wanted, |value| value >= least)?;
        Ok(Some(values))
    }

    /// Which of this rank's cells have data that count.
    fn mask(&self, path: Option<&Path>) -> Result<Vec<bool>, Error> {
        let len: u64 = (0..3).map(|a| self.part[a].end - self.part[a].start).product();
        let mut mask = host_memory::fill("the mask of data", false, len as usize)?;
        for (own, elements) in self.grids.lines(&self.part) {
            mask[own..own + (elements.end - elements.start) as usize].fill(true);
        }
        if let Some(path) = path {
            let values = self.read(path)?;
            self.check(path, &values, &mask, "a mask is of 0 and 1, or of booleans", |value| {
                value == 0.0 || value == 1.0
            })?;
            mask.iter_mut().zip(values).for_each(|(own, value)| *own &= value == 1.0);
        }
        Ok(mask)
    }
}

/// Returns the prior of the field.
fn prior(hyper: &HyperParameters, shape: [u64; 3]) -> FieldPrior {
    let amplitude = AmplitudePrior::NonParametric {
        of: PriorSpectrum::Power,
        fluctuations: hyper.fluctuations,
        slope: hyper.slope,
        flexibility: hyper.flexibility,
        asperity: hyper.asperity,
    };
    let axes = [0, 1, 2].map(|a| shape[a] > 1);
    FieldPrior {
        name: String::new(),
        offset_mean: hyper.offset_mean.unwrap_or_default(),
        offset_std: hyper.offset_std,
        axes: vec![AxesPrior { name: String::new(), axes, amplitude }],
    }
}

/// Returns the mesh of the field, cut by `grid`.
fn mesh_of(rank: &Rank, grid: Grid, grids: &Grids) -> Result<Mesh, LayoutError> {
    let size = [0, 1, 2].map(|a| grids.padded[a] as f64 * grids.distances[a]);
    let options = MeshOptions { size, grid: Some(grid.parts()), ..MeshOptions::new(grids.padded) };
    Mesh::new(&options, grid.shares(), rank.index())
}

/// Returns the correlated field and the signal made of it.
pub fn model_of(
    rank: &mut Rank,
    grid: Grid,
    grids: &Grids,
    hyper: &HyperParameters,
    lognormal: bool,
) -> Result<(Mesh, CorrelatedField, Model), Error> {
    let mesh = mesh_of(rank, grid, grids)?;
    let field = CorrelatedField::new(rank, &mesh, &prior(hyper, grids.padded))?;
    let text = if lognormal {
        "fn signal(s: f32) -> f32 { return exp(s); }"
    } else {
        "fn signal(s: f32) -> f32 { return s; }"
    };
    let model = field.model()?;
    let signal = Model::new(PointwiseOperator::wgsl(text, "signal", model.target(), "signal")?);
    let signal = model.then(&signal)?;
    Ok((mesh, field, signal))
}

impl Problem {
    /// Reads the data and makes the likelihood. Collective over a group.
    ///
    /// # Errors
    /// Those of files, and of data that cannot be.
    pub fn new(
        rank: &mut Rank,
        grid: Grid,
        parameters: &RunParameters,
        grids: Grids,
        (data, kind, lognormal): (&Path, Kind, bool),
    ) -> Result<Self, Error> {
        let files = Files { grids: &grids, part: mesh_of(rank, grid, &grids)?.own().clone() };
        let values = files.read(data)?;
        let mask = files.mask(parameters.options.mask.as_deref())?;
        let (wanted, is_sound): (_, fn(f64) -> bool) = match kind {
            Kind::Poisson => {
                ("counts are whole numbers from 0 on, or mask it", |count| count >= 0.0 && count.fract() == 0.0)
            }
            _ => ("data are finite numbers, or mask it", |_| true),
        };
        files.check(data, &values, &mask, wanted, is_sound)?;
        let beside = files.beside(parameters, kind, &mask)?;
        let uniform = if let Some(Noise::Number(sigma)) = parameters.options.noise { sigma } else { 1.0 };
        let mut hyper = parameters.hyper.clone();
        if hyper.offset_mean.is_none() {
            let seen = (0..values.len()).filter(|&at| mask[at]);
            let mut observed = host_memory::reserve("data", seen.clone().count())?;
            observed.extend(seen.map(|at| (values[at], beside.as_ref().map_or(uniform, |each| each[at]))));
            hyper.offset_mean = Some(Observed { kind, lognormal, values: &observed }.offset(&rank.comm)?);
        }
        let (mesh, field, signal) = model_of(rank, grid, &grids, &hyper, lognormal)?;
        let is_masked = parameters.options.mask.is_some() || grids.cells != grids.padded;
        let leaf = Leaf::cells(&mesh);
        let given = Data { name: "data", leaf: &leaf, values: &values, mask: is_masked.then_some(&mask) };
        let noise = beside.as_deref().map_or(NoiseLevel::Uniform(uniform), NoiseLevel::Each);
        let likelihood = match kind {
            Kind::Poisson => Likelihood::poisson(rank, &given, beside.as_deref())?,
            Kind::Gaussian => Likelihood::gaussian(rank, &given, noise)?,
            Kind::StudentT => Likelihood::student_t(rank, &given, noise, parameters.dof)?,
        };
        let likelihood = likelihood.amend(&signal)?;
        let mut identity = parameters.problem((kind, lognormal), &hyper);
        let Identity { data, mask, noise, .. } = likelihood.identity(rank)?;
        for (name, mark) in [("data", data), ("mask", mask), ("noise", noise)] {
            identity["fingerprints"][name] = format!("{mark:016x}").into();
        }
        Ok(Problem { grids, mesh, field, signal, likelihood, hyper, identity })
    }
}

/// Returns the shape of the data, and whether they are integers.
///
/// # Errors
/// Those of the file.
pub fn look(path: &Path) -> Result<(Vec<u64>, bool), IoError> {
    let file = NpyFile::open(path)?;
    Ok((file.shape().to_vec(), file.dtype().is_integer()))
}

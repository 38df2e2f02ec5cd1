//! Correlated fields: Gaussian fields whose power spectrum is inferred with them.
//!
//! | item | what it is |
//! |---|---|
//! | [`FieldPrior`], [`AxesPrior`], [`AmplitudePrior`] | what is known before any data |
//! | [`CorrelatedField`] | the operator from latent values to the field |
//!
//! The model is that of Arras et al. (2022, Nature Astronomy 6, 259). With excitations xi of the
//! modes of a grid, their amplitude A by wavenumber and the Hartley transform H, the field is
//! `offset + H(A xi)`. `A` is the harmonic amplitude of NIFTy over the volume.

mod amplitude;
mod modulation;
mod packing;

use std::rc::Rc;

use crate::exchange::Terms;
use crate::gpu::{Array, Kernel, KernelSource, StackKernels};
use crate::grid::{Cost, Mesh};
use crate::operators::{
    Contents, Differentiable, Direction, ExcitedModes, Fingerprint, Hartley, Leaf, Linear, Linearized, Model,
    OperatorCost, OperatorError, PointwiseOperator, Signature, Space, Support, Vector, Wavenumbers,
};
use crate::rank::Rank;

use super::error::{InferenceError, Result};
use crate::host_memory;
use amplitude::{Amplitude, AmplitudeAt, Parts};
pub use amplitude::{AmplitudePrior, AxesPrior, FieldPrior, MaternScale, PriorSpectrum};
use modulation::{Modulation, Pass};
use packing::Packing;

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [amplitude::kernels(), modulation::kernels(), packing::kernels()].concat()
}

/// Name in errors and reports.
const NAME: &str = "correlated field";

/// The operator from standard normal latent values to a correlated field around 0. Clones share one
/// operator.
///
/// | leaf | what it excites |
/// |---|---|
/// | `xi` | the modes of the grid: one number each, cut over ranks as they are |
/// | `zero_mode` | the deviation of the mean of the field from its offset |
/// | `fluctuations`, `slope` | height and slope of the power spectrum |
/// | `flexibility`, `asperity`, `spectrum` | deviations from a power law: size, roughness, and two
/// numbers of each step |
/// | `scale`, `cutoff`, `slope` | those of a Matérn spectrum |
///
/// Each is under the branches of its field and group of axes; fixed hyper-parameters have no leaf.
/// Excitations of several groups of axes are transformed together.
///
/// Beside the transform a mode costs 12 bytes for the value, 20 for the tangent and 28 for the
/// cotangent. Ranks exchange modes in the transform, and in the cotangent sums of two words for
/// each wavenumber.
#[derive(Clone)]
pub struct CorrelatedField(Rc<Inner>);

struct Inner {
    signature: Signature,
    /// The leaf of excitations.
    modes: Space,
    /// Its name.
    xi: String,
    packing: Packing,
    groups: Vec<Group>,
    hartley: Hartley,
    offset_mean: f64,
    /// All settings of the prior.
    prior: String,
}

/// The modes along a group of axes.
struct Group {
    wavenumbers: Wavenumbers,
    amplitude: Amplitude,
    modulation: Modulation,
    /// Volume of the axes.
    volume: f64,
}

impl std::fmt::Debug for CorrelatedField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CorrelatedField({} -> {})", self.0.signature.domain, self.0.signature.target)
    }
}

/// Returns the name of a leaf below branches; empty ones do not count.
fn below(branches: &[&str], leaf: &str) -> String {
    let branches = branches.iter().filter(|branch| !branch.is_empty());
    branches.map(|branch| format!("{branch}/")).collect::<String>() + leaf
}

/// Returns the leaves of a group of axes: free hyper-parameters and excitations of the spectrum.
fn leaves_of(field: &str, group: &AxesPrior, bins: usize) -> Vec<(String, Leaf)> {
    let hyper = group.amplitude.hyper(bins > 2);
    let free = hyper.iter().filter(|(_, [_, std], _)| *std != 0.0);
    let mut leaves: Vec<(String, Leaf)> =
        free.map(|(name, ..)| (below(&[field, &group.name], name), Leaf::vector(1))).collect();
    if hyper.iter().any(|(name, ..)| *name == "flexibility") {
        leaves.push((below(&[field, &group.name], "spectrum"), Leaf::vector(2 * (bins as u64 - 2))));
    }
    leaves
}

fn invalid(why: impl Into<String>) -> InferenceError {
    InferenceError::Invalid { what: NAME.into(), why: why.into() }
}

/// Refuses groups that leave an axis out or have one twice.
fn check(mesh: &Mesh, prior: &FieldPrior) -> Result<()> {
    for axis in (0..3).filter(|&a| mesh.shape()[a] > 1) {
        let groups = prior.axes.iter().filter(|group| group.axes[axis]).count();
        if groups != 1 {
            return Err(invalid(format!("axis {axis} is in {groups} of the groups of axes; it must be in one")));
        }
    }
    if let Some(group) = prior.axes.iter().find(|group| (0..3).all(|a| !group.axes[a] || mesh.shape()[a] == 1)) {
        return Err(invalid(format!("the group of axes `{}` has no axis of more than one cell", group.name)));
    }
    let place = |group: &AxesPrior| prior.axes.iter().filter(|other| other.name == group.name).count();
    match prior.axes.iter().find(|group| place(group) > 1) {
        Some(group) => Err(invalid(format!("two groups of axes have the name `{}`; give each its own", group.name))),
        None if prior.axes.is_empty() => Err(invalid("no axes: a grid of one cell has no correlations")),
        None if !prior.offset_mean.is_finite() => Err(invalid(format!("its offset is {}", prior.offset_mean))),
        None => Ok(()),
    }
}

impl CorrelatedField {
    /// Creates the field of `prior` on the cells of a mesh, without its ghost cells. Collective;
    /// blocks.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] for invalid hyper-parameters, or axes in no group or in
    ///   several.
    /// - [`InferenceError::Operators`] for a grid that transforms cannot cut.
    pub fn new(rank: &mut Rank, mesh: &Mesh, prior: &FieldPrior) -> Result<Self> {
        let mesh = &mesh.without_ghosts();
        check(mesh, prior)?;
        let wavenumbers = prior.axes.iter().map(|group| Wavenumbers::unique_along(mesh, group.axes));
        let wavenumbers: Vec<Wavenumbers> = wavenumbers.collect::<Result<_, _>>()?;
        let zero = below(&[&prior.name], "zero_mode");
        let mut small: Vec<(String, Leaf)> = Vec::new();
        for (group, wavenumbers) in prior.axes.iter().zip(&wavenumbers) {
            small.extend(leaves_of(&prior.name, group, wavenumbers.len()));
        }
        small.extend((prior.offset_std[1] != 0.0).then(|| (zero.clone(), Leaf::vector(1))));
        // Hyper-parameters are leaves of one number.
        let names: Vec<String> = small.iter().filter(|leaf| leaf.1.len() == 1).map(|leaf| leaf.0.clone()).collect();
        let xi = below(&[&prior.name], "xi");
        let modes = Space::of(&xi, Leaf::modes(mesh))?;
        let domain = Space::new(small)?.joined(&modes, NAME)?;
        let target = Space::of("field", Leaf::cells(mesh))?;
        let hartley = Hartley::new(rank, &target)?;
        let packing = Packing::new(names);
        let mut groups = Vec::new();
        for (group, wavenumbers) in prior.axes.iter().zip(wavenumbers) {
            let index = wavenumbers.index(rank, &modes)?;
            let along = |a: usize| if group.axes[a] { mesh.size()[a] } else { 1.0 };
            let volume = (0..3).map(along).product();
            let parts = Parts {
                wavenumbers: wavenumbers.values(),
                multiplicity: multiplicity(rank, mesh, (group, &index), wavenumbers.len())?,
                packing: &packing,
                branch: &below(&[&prior.name, &group.name], ""),
                zero: (&zero, prior.offset_std),
                follows: !groups.is_empty(),
                volume,
            };
            let amplitude = Amplitude::new(&mut rank.recorder, &group.amplitude, parts)?;
            let modulation = Modulation::new(&mut rank.recorder, index, amplitude.len())?;
            groups.push(Group { wavenumbers, amplitude, modulation, volume });
        }
        // A fit uses all of them, and on one rank it works on stacks of samples.
        let of_amplitudes = groups.iter().flat_map(|group| &group.amplitude.kernels);
        let of_modulations = groups.iter().flat_map(|group| group.modulation.kernels());
        let kernels: Vec<&Kernel> = of_amplitudes.chain(of_modulations).collect();
        let for_stacks = (rank.size() == 1).then(StackKernels::begin);
        Kernel::compile_ahead(&rank.gpu, &kernels);
        drop(for_stacks);
        let (offset_mean, prior) = (prior.offset_mean, format!("{prior:?}"));
        Ok(CorrelatedField(Rc::new(Inner {
            signature: Signature::new(NAME, &domain, &target),
            modes,
            xi,
            packing,
            groups,
            hartley,
            offset_mean,
            prior,
        })))
    }

    /// Returns the model of the field with its offset, a leaf `field` at the cells of the grid.
    ///
    /// # Errors
    /// - [`InferenceError::Operators`] if the offset cannot be added.
    pub fn model(&self) -> Result<Model> {
        let text = format!("fn offset(x: f32) -> f32 {{ return x + f32({:?}); }}", self.0.offset_mean as f32);
        let offset = PointwiseOperator::wgsl(&text, "offset", &self.0.signature.target, "field")?;
        Ok(Model::new(self.clone()).then(&Model::new(offset))?)
    }

    /// Returns the wavenumbers (2 pi over a length) of a group of axes, from 0 on.
    #[must_use]
    pub fn wavenumbers(&self, group: usize) -> &[f64] {
        self.0.groups[group].wavenumbers.values()
    }

    /// Returns the amplitude at each wavenumber of a group of axes: the standard deviation of the
    /// excitations of a mode in the field. The power spectrum is its square times the volume.
    /// Blocks.
    ///
    /// # Errors
    /// - [`InferenceError::Operators`] if `x` lacks a latent value of this field.
    /// - Errors of the device.
    pub fn amplitude(&self, rank: &mut Rank, x: &Vector, group: usize) -> Result<Vec<f64>> {
        let recorder = &mut rank.recorder;
        let packed = self.0.packing.pack(recorder, x)?;
        let amplitude = &self.0.groups[group].amplitude;
        let at = amplitude.apply(recorder, x, &packed)?;
        let found = recorder.download(&at.amplitude, 0, amplitude.len())?;
        Ok(host_memory::collect("a spectrum", found.into_iter().map(f64::from))?)
    }

    /// Returns the [`amplitude`](Self::amplitude) of a group of axes as a model, whose target is
    /// the vector `amplitude`: data can constrain it, and samples have its mean and deviation. Its
    /// domain has the latent values of the field without `xi`. Blocks.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] if the field has no such group, or its amplitude is fixed.
    pub fn amplitude_model(&self, rank: &mut Rank, group: usize) -> Result<Model> {
        if group >= self.0.groups.len() {
            return Err(invalid(format!("expected a group below {}, got {group}", self.0.groups.len())));
        }
        let model = AmplitudeModel::new(rank, self, group)?;
        match model.domain().is_empty() {
            true => Err(invalid("its amplitude is fixed, so it is no model; give a hyper-parameter a deviation")),
            false => Ok(Model::new(model)),
        }
    }

    /// Returns the power spectrum of a group of axes as a model, whose target is the vector
    /// `power_spectrum`: the square of the amplitude times the volume of the axes. Blocks.
    ///
    /// # Errors
    /// Same as [`amplitude_model`](Self::amplitude_model).
    pub fn power_spectrum_model(&self, rank: &mut Rank, group: usize) -> Result<Model> {
        let amplitude = self.amplitude_model(rank, group)?;
        Ok(amplitude.power(2.0)?.scaled(self.0.groups[group].volume)?.named("power_spectrum")?)
    }

    /// Creates an array of modes with undefined values.
    fn array(&self, rank: &Rank) -> Result<Array<f32>, OperatorError> {
        Ok(rank.gpu.array("inference::modes", self.0.groups[0].modulation.index.len())?)
    }

    /// Returns modes as a vector.
    fn over(&self, modes: Array<f32>) -> Result<Vector, OperatorError> {
        Vector::over(&self.0.modes, vec![Contents::Device(modes)])
    }

    /// Computes the field; returns the inputs of its derivatives.
    fn value(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Point, OperatorError> {
        self.fits(x, y)?;
        let packed = self.0.packing.pack(&mut rank.recorder, x)?;
        let mut modes = x.array(&self.0.xi)?.clone();
        let mut groups = Vec::new();
        for group in &self.0.groups {
            let next = self.array(rank)?;
            let recorder = &mut rank.recorder;
            let at = group.amplitude.apply(recorder, x, &packed)?;
            group.modulation.record(recorder, Pass::Value, (at.amplitude.raw(), &[&modes, &next]), None)?;
            groups.push(GroupAt { at, modes });
            modes = next;
        }
        self.0.hartley.run(rank, Direction::Adjoint, &self.over(modes)?, y)?;
        Ok(Point { packed, groups })
    }
}

/// Returns a vector of ones of a leaf.
pub(super) fn ones(rank: &mut Rank, space: &Space) -> Result<Vector, OperatorError> {
    let one = PointwiseOperator::wgsl("fn one(x: f32) -> f32 { return 1.0; }", "one", space, "ones")?;
    let zeros = Vector::zeros(&mut rank.recorder, space)?;
    Model::new(one).value(rank, &zeros)
}

/// Counts the modes of each wavenumber of a group of axes over all ranks, at one place of the other
/// axes.
fn multiplicity(
    rank: &mut Rank,
    mesh: &Mesh,
    (group, index): (&AxesPrior, &Array<u32>),
    bins: usize,
) -> Result<Array<f32>> {
    let others: u64 = (0..3).filter(|&a| !group.axes[a]).map(|a| mesh.shape()[a]).product();
    let ones = ones(rank, &Space::of("modes", Leaf::modes(mesh))?)?;
    let x = ones.single()?;
    // Products with ones, so that the kernel is that of the cotangents.
    let terms = Terms { x, y: Some(x), index: Some(index), sums: bins as u64, batches: 1, total: mesh.total_cells() };
    let sum = rank.exact_sums();
    let (recorder, comm) = (&mut rank.recorder, &rank.comm);
    let counts = sum.totals(recorder, Some(comm), &terms)?;
    let counts: Vec<f32> = counts.into_iter().map(|count| (count / others as f64) as f32).collect();
    Ok(recorder.uploaded("inference::multiplicity", &counts)?)
}

/// The inputs of the derivatives at a point.
struct Point {
    packed: Array<f32>,
    groups: Vec<GroupAt>,
}

/// The amplitudes of a group of axes, and the modes that they multiply.
struct GroupAt {
    at: AmplitudeAt,
    modes: Array<f32>,
}

struct At {
    field: CorrelatedField,
    point: Point,
}

impl Differentiable for CorrelatedField {
    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.value(rank, x, y).map(|_| ())
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        let point = self.value(rank, x, y)?;
        Ok(Box::new(At { field: (*self).clone(), point }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        out.text(&self.0.prior);
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        let [to_modes, to_cells] = self.0.hartley.costs();
        let (groups, modes) = (self.0.groups.len() as u64, 4 * self.0.groups[0].modulation.index.len());
        let dispatches =
            |which: usize| -> u64 { self.0.groups.iter().map(|group| group.amplitude.dispatches()[which]).sum() };
        let bins: u64 = self.0.groups.iter().map(|group| 4 * group.amplitude.len()).sum();
        let ranks = self.0.modes.only().and_then(|(_, leaf)| leaf.mesh()).map_or(1, |mesh| mesh.grid().ranks());
        let steps = 2 * u64::from(ranks.next_power_of_two().ilog2());
        let sums =
            Cost { messages: 2 * groups * steps, sent_bytes: steps * (4 * groups + 2 * bins), ..Cost::default() };
        OperatorCost {
            apply: to_cells + Cost::kernels(1 + groups + dispatches(0), 3 * groups * modes + 6 * bins),
            jvp: to_cells + Cost::kernels(1 + groups + dispatches(1), 5 * groups * modes + 8 * bins),
            vjp: to_modes + sums + Cost::kernels(1 + 2 * groups + dispatches(2), 7 * groups * modes + 7 * bins),
        }
    }
}

impl Linearized for At {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.field.fits(dx, dy)?;
        let Inner { packing, xi, hartley, .. } = &*self.field.0;
        let d_packed = packing.pack(&mut rank.recorder, dx)?;
        let mut d_modes = dx.array(xi)?.clone();
        for (group, GroupAt { at, modes }) in self.field.0.groups.iter().zip(&self.point.groups) {
            let next = self.field.array(rank)?;
            let recorder = &mut rank.recorder;
            let amplitudes = group.amplitude.jvp(recorder, (&self.point.packed, at), (dx, &d_packed))?;
            group.modulation.record(recorder, Pass::Tangent, (amplitudes.raw(), &[modes, &d_modes, &next]), None)?;
            d_modes = next;
        }
        hartley.run(rank, Direction::Adjoint, &self.field.over(d_modes)?, dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.field.fits(dx, dy)?;
        let Inner { packing, xi, hartley, groups, modes, .. } = &*self.field.0;
        let mut cotangent = Vector::new(&rank.gpu, modes)?;
        hartley.run(rank, Direction::Forward, dy, &mut cotangent)?;
        let mut cotangent = cotangent.array(xi)?.clone();
        let packed = packing.undefined(&rank.recorder, dx)?;
        let total = modes.only().map_or(0, |(_, leaf)| leaf.total());
        for (number, (group, GroupAt { at, modes })) in groups.iter().zip(&self.point.groups).enumerate().rev() {
            let next = if number == 0 { dx.array(xi)?.clone() } else { self.field.array(rank)? };
            let (x, y, index) = (&cotangent, Some(modes), Some(&group.modulation.index));
            let terms = Terms { x, y, index, sums: group.amplitude.len(), batches: 1, total };
            let sum = rank.exact_sums();
            let (recorder, comm) = (&mut rank.recorder, &rank.comm);
            let (words, modulation) = (terms.words(recorder)?, &group.modulation);
            let bits = match &modulation.order {
                Some(order) => {
                    let products = recorder.gpu().array("inference::terms", modes.len())?;
                    let own = (Some(&products), &words);
                    modulation.vjp(recorder, &at.amplitude, modes, [&cotangent, &next], own)?;
                    let terms = Terms { x: &products, y: None, ..terms };
                    sum.accumulate(recorder, Some(comm), (&terms, Some(order)), &words)?
                }
                None => {
                    modulation.vjp(recorder, &at.amplitude, modes, [&cotangent, &next], (None, &words))?;
                    sum.accumulate(recorder, Some(comm), (&terms, None), &words)?
                }
            };
            // Groups come from the last one to the first.
            let is_first = number + 1 == groups.len();
            group.amplitude.vjp(recorder, (&self.point.packed, at), (&words, bits), (dx, &packed, is_first))?;
            cotangent = next;
        }
        packing.unpack(&mut rank.recorder, &packed, dx)
    }

    fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>, OperatorError> {
        let Inner { xi, groups, modes, .. } = &*self.field.0;
        let mut amplitude = ones(rank, modes)?.single()?.clone();
        for (group, GroupAt { at, .. }) in groups.iter().zip(&self.point.groups) {
            let next = self.field.array(rank)?;
            let arrays = (at.amplitude.raw(), &[&amplitude, &next][..]);
            group.modulation.record(&mut rank.recorder, Pass::Value, arrays, None)?;
            amplitude = next;
        }
        let mesh = modes.only().and_then(|(_, leaf)| leaf.mesh()).cloned();
        Ok(mesh.map(|mesh| ExcitedModes { leaf: xi.clone(), mesh, amplitude: Some(amplitude) }).into_iter().collect())
    }
}

/// The amplitude at each wavenumber of a group of axes, as a function of the latent values of the
/// field beside the excitations of modes. Every rank computes the same.
struct AmplitudeModel {
    signature: Signature,
    field: CorrelatedField,
    group: usize,
    /// The number of each wavenumber.
    index: Array<u32>,
    /// The tangents of pairs of an amplitude and its tangent.
    tangents: Model,
}

impl AmplitudeModel {
    /// Creates the model of a group of axes, with the leaf `amplitude`.
    fn new(rank: &mut Rank, field: &CorrelatedField, group: usize) -> Result<Self, OperatorError> {
        let domain = field.0.signature.domain.filtered(|name| name != field.0.xi);
        let bins = field.0.groups[group].amplitude.len();
        let target = Space::of("amplitude", Leaf::vector(bins))?;
        let index = rank.recorder.uploaded("inference::bins", &host_memory::collect("wavenumbers", 0..bins as u32)?)?;
        let pairs = Space::of("pair", Leaf::vector(bins).complex())?;
        let second = "fn second(pair: vec2<f32>) -> f32 { return pair.y; }";
        let tangents = Model::new(PointwiseOperator::wgsl(second, "second", &pairs, "amplitude")?);
        Ok(AmplitudeModel {
            signature: Signature::new("amplitude", &domain, &target),
            field: field.clone(),
            group,
            index,
            tangents,
        })
    }

    /// Computes the amplitude; returns the inputs of its derivatives.
    fn value(&self, rank: &mut Rank, x: &Vector, y: &Vector) -> Result<(Array<f32>, AmplitudeAt), OperatorError> {
        self.fits(x, y)?;
        let inner = &self.field.0;
        let packed = inner.packing.pack(&mut rank.recorder, x)?;
        let at = inner.groups[self.group].amplitude.apply(&mut rank.recorder, x, &packed)?;
        let y = y.array("amplitude")?;
        rank.recorder.copy(&at.amplitude, 0, y, 0, y.len())?;
        Ok((packed, at))
    }
}

impl Differentiable for AmplitudeModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.value(rank, x, y).map(|_| ())
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        let (packed, at) = self.value(rank, x, y)?;
        Ok(Box::new(AmplitudeModelAt { model: self, packed, at }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        out.text(&self.field.0.prior);
        out.number(self.group as u64);
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        let amplitude = &self.field.0.groups[self.group].amplitude;
        let [value, tangent, cotangent] = amplitude.dispatches();
        let bytes = 4 * amplitude.len();
        OperatorCost {
            apply: Cost::kernels(1 + value, 8 * bytes),
            jvp: Cost::kernels(2 + tangent, 15 * bytes),
            vjp: Cost::kernels(3 + cotangent, 12 * bytes),
        }
    }
}

struct AmplitudeModelAt {
    model: Rc<AmplitudeModel>,
    packed: Array<f32>,
    at: AmplitudeAt,
}

impl Linearized for AmplitudeModelAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.model.fits(dx, dy)?;
        let inner = &self.model.field.0;
        let d_packed = inner.packing.pack(&mut rank.recorder, dx)?;
        let amplitude = &inner.groups[self.model.group].amplitude;
        let pairs = amplitude.jvp(&mut rank.recorder, (&self.packed, &self.at), (dx, &d_packed))?;
        let tangents = &self.model.tangents;
        tangents.apply(rank, &Vector::over(tangents.domain(), vec![Contents::Device(pairs.cast()?)])?, dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.model.fits(dx, dy)?;
        let inner = &self.model.field.0;
        // Spectra of other groups have the cotangent 0.
        for (name, leaf) in dx.space().leaves() {
            if matches!(leaf.support, Support::Vector { len } if len > 1) {
                rank.recorder.clear(dx.array(name)?);
            }
        }
        // Hyper-parameters of other groups, too.
        let packed = inner.packing.undefined(&rank.recorder, dx)?;
        rank.recorder.clear(&packed);
        let amplitude = &inner.groups[self.model.group].amplitude;
        let (x, index) = (dy.array("amplitude")?, Some(&self.model.index));
        // The cotangent as sums of one term each, which the kernel reads.
        let terms = Terms { x, y: None, index, sums: amplitude.len(), batches: 1, total: 1 };
        let sum = rank.exact_sums();
        let (words, bits) = sum.integers(&mut rank.recorder, None, &terms)?;
        amplitude.vjp(&mut rank.recorder, (&self.packed, &self.at), (&words, bits), (dx, &packed, true))?;
        inner.packing.unpack(&mut rank.recorder, &packed, dx)
    }
}

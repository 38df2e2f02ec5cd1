//! Fourier and Hartley transforms as operators, and multiplication in Fourier space from cells to
//! cells: filters and convolutions.

use super::{
    Contents, Direction, Fingerprint, Leaf, Linear, OperatorError, Result, Signature, Space, Support, Vector, refuse,
};
use crate::exchange::{ExchangeError, GridComms};
use crate::fft::{
    Filter, FilterOptions, Norm, Operator, OperatorTables, Route, Spec, Spectral, Transform, TransformCallbacks,
    TransformOptions, Value, Values,
};
use crate::gpu::{Array, Callback, Gpu, Recorder};
use crate::grid::{Cost, FieldLayout, Grid, Mesh, extent};
use crate::rank::{Parts, Rank};

/// Bytes of a message in cost reports.
const CHUNK: u64 = 2 << 20;

/// The Fourier transform from cells to modes with `exp(-2 pi i j k / n)`: of real fields to half
/// spectra, of complex fields to all modes.
///
/// The [`Adjoint`](super::Adjoint) is not the inverse. It has the factor of the forward transform.
/// The inner product of half spectra adds the stored modes, so modes that stand for two have the
/// weight 1/2. [`inverse`](Self::inverse) inverts the transform.
/// [`FourierFilter`](super::FourierFilter) multiplies modes in fewer passes. Cost: that of
/// [`Transform`].
pub struct Fourier {
    transform: AnyTransform,
    norm: Norm,
    is_inverse: bool,
    signature: Signature,
}

/// Names of the transform and its inverse.
const NAMES: [&str; 2] = ["Fourier transform", "inverse Fourier transform"];

/// A transform of real or of complex fields.
enum AnyTransform {
    Real(Transform<f32>),
    Complex(Transform<[f32; 2]>),
}

/// Returns the only leaf of a space, cells without ghost cells that are cut for this rank, with its
/// name and grid. [Collective](Rank) for a new grid.
pub(super) fn cells_of<'a>(rank: &mut Rank, space: &'a Space, operator: &str) -> Result<(&'a str, &'a Leaf, &'a Mesh)> {
    match space.only() {
        Some((name, leaf @ Leaf { support: Support::Cells { mesh }, .. })) if !mesh.has_ghosts() => {
            cut_alike(mesh, rank, operator)?;
            Ok((name, leaf, mesh))
        }
        _ => refuse(operator, format!("{space} is not one field of cells without ghosts")),
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
        return refuse(operator, format!("expected a mesh that is periodic along all axes, got {periodic:?}"));
    }
    match found.1.values {
        Values::Real => Ok(found),
        Values::Complex => refuse(operator, "complex fields; give real and imaginary parts as two components"),
    }
}

/// Checks that a grid is cut for this rank. [Collective](Rank) for a new grid.
pub(super) fn cut_alike(mesh: &Mesh, rank: &mut Rank, operator: &str) -> Result<()> {
    if (mesh.grid().ranks(), mesh.rank()) == (rank.size(), rank.index()) {
        rank.parts(mesh.grid())?;
        return Ok(());
    }
    let (grid, index, ranks) = (mesh.grid(), rank.index(), rank.size());
    let why = format!(
        "the fields are cut for rank {} of {grid} ranks, this is rank {index} of {ranks}; create their mesh with `Rank::mesh` of this rank",
        mesh.rank()
    );
    refuse(operator, why)
}

/// Returns the cost of a route for this rank, with modes of 8 bytes.
fn route_cost(route: &Route) -> Cost {
    let mut exchanges = Cost::default();
    route.exchanges().for_each(|transpose| exchanges += transpose.cost(8, CHUNK));
    Cost::kernels(route.dispatches(), route.traffic()) + exchanges
}

pub(super) fn transform<T: Value>(gpu: &Gpu, leaf: &Leaf, mesh: &Mesh, norm: Norm) -> Result<Transform<T>> {
    let spec = Spec::of::<T>(mesh.shape()).fields(leaf.fields()).norm(norm);
    Ok(Transform::with(gpu, &spec, mesh.grid(), mesh.rank(), &TransformOptions::default())?)
}

impl Fourier {
    /// Creates the transform of the only leaf of `domain`, cells without ghost cells, to a leaf of
    /// the same name.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    /// - [`OperatorError::Fft`] for shapes that this device cannot transform.
    pub fn new(rank: &mut Rank, domain: &Space, norm: Norm) -> Result<Self> {
        let [name_of_transform, _] = NAMES;
        let (name, leaf, mesh) = cells_of(rank, domain, name_of_transform)?;
        let half = leaf.values == Values::Real;
        let modes = Support::Modes { mesh: mesh.clone(), half };
        let target = Space::of(name, Leaf { support: modes, ..leaf.clone() }.complex())?;
        let gpu = &rank.gpu;
        let transform = match leaf.values {
            Values::Real => AnyTransform::Real(transform(gpu, leaf, mesh, norm)?),
            Values::Complex => AnyTransform::Complex(transform(gpu, leaf, mesh, norm)?),
        };
        let signature = Signature::new(name_of_transform, domain, &target);
        Ok(Fourier { transform, norm, is_inverse: false, signature })
    }

    /// Returns the inverse, from modes to cells: `inverse(forward(x))` is `x` for
    /// [`Norm::Backward`] and [`Norm::Ortho`].
    ///
    /// Imaginary parts of modes that are real for every real field have no effect.
    #[must_use]
    pub fn inverse(self) -> Fourier {
        let Signature { domain, target, .. } = &self.signature;
        let is_inverse = !self.is_inverse;
        Fourier { signature: Signature::new(NAMES[usize::from(is_inverse)], target, domain), is_inverse, ..self }
    }
}

impl<T: Value<Mode = [f32; 2]>> Transform<T> {
    /// Runs the transform or its inverse between cells and modes, or the adjoint of one of them.
    fn call(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        is_inverse: bool,
        direction: Direction,
        cells: &Array<T>,
        modes: &Array<[f32; 2]>,
    ) -> Result<(), ExchangeError> {
        let layout = &self.field_layout();
        match (is_inverse, direction) {
            (false, Direction::Forward) => self.forward(recorder, comms, cells, layout, modes),
            (false, Direction::Adjoint) => self.forward_adjoint(recorder, comms, modes, cells, layout),
            (true, Direction::Forward) => self.inverse(recorder, comms, modes, cells, layout),
            (true, Direction::Adjoint) => self.inverse_adjoint(recorder, comms, cells, layout, modes),
        }
    }
}

impl Linear for Fourier {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let (v, out) = (v.single()?, out.single()?);
        let (cells, modes) = if self.is_inverse == (direction == Direction::Forward) { (out, v) } else { (v, out) };
        match &self.transform {
            AnyTransform::Real(transform) => {
                transform.call(recorder, comms, self.is_inverse, direction, cells, &modes.cast()?)?
            }
            AnyTransform::Complex(transform) => {
                transform.call(recorder, comms, self.is_inverse, direction, &cells.cast()?, &modes.cast()?)?;
            }
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.text(&format!("{:?}", self.norm));
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let plan = match &self.transform {
            AnyTransform::Real(transform) => transform.plan(),
            AnyTransform::Complex(transform) => transform.plan(),
        };
        let [forward, inverse] = [&plan.forward, &plan.inverse].map(route_cost);
        if self.is_inverse { [inverse, forward] } else { [forward, inverse] }
    }
}

/// The Hartley transform from cells to modes, `Re F x + Im F x` with the unnormalized Fourier
/// transform `F`. It is a real symmetric matrix whose square is the number of cells. Its modes are
/// all modes of the grid with one real number each, as many as cells.
///
/// It is a complex transform that reads and writes real numbers: 40 bytes per cell in three
/// dimensions, 24 in two.
pub struct Hartley {
    transform: Transform<f32, f32>,
    signature: Signature,
}

impl Hartley {
    /// Creates the transform of the only leaf of `domain`, real cells without ghost cells, to a
    /// leaf of the same name.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    /// - [`OperatorError::Fft`] for shapes that this device cannot transform.
    pub fn new(rank: &mut Rank, domain: &Space) -> Result<Self> {
        const NAME: &str = "Hartley transform";
        let (name, leaf, mesh) = cells_of(rank, domain, NAME)?;
        if leaf.values == Values::Complex {
            return refuse(NAME, "complex fields; transform real and imaginary parts as two components");
        }
        let modes = Support::Modes { mesh: mesh.clone(), half: false };
        let target = Space::of(name, Leaf { support: modes, ..leaf.clone() })?;
        let spec = Spec::of::<[f32; 2]>(mesh.shape()).fields(leaf.fields());
        let transform = Transform::hartley(&rank.gpu, &spec, mesh.grid(), mesh.rank())?;
        Ok(Hartley { transform, signature: Signature::new(NAME, domain, &target) })
    }
}

impl Linear for Hartley {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let (v, out, layout) = (v.single()?, out.single()?, &self.transform.field_layout());
        match direction {
            Direction::Forward => self.transform.forward(recorder, comms, v, layout, out)?,
            Direction::Adjoint => self.transform.forward_adjoint(recorder, comms, v, out, layout)?,
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<()> {
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let plan = self.transform.plan();
        [&plan.forward, &plan.inverse].map(route_cost)
    }
}

/// `inverse(multiplier * forward(x))`: smoothing, derivatives, inverse Laplacians and convolutions
/// whose multiplier is a product of one factor for each axis. It takes five passes instead of
/// seven. Its adjoint has the conjugate multiplier.
///
/// A multiplier of real fields must be Hermitian: the table of an axis is even with a real
/// constant, or odd with an imaginary one.
pub struct FourierFilter {
    filters: AnyFilter,
    layout: FieldLayout,
    signature: Signature,
    cost: Cost,
    /// The fingerprint of the multiplier over all modes.
    multiplier: u64,
}

/// The filter and its adjoint, of real or complex fields.
enum AnyFilter {
    Real([Filter<f32>; 2]),
    Complex([Filter<[f32; 2]>; 2]),
}

impl FourierFilter {
    /// Creates the filter of the only leaf of `space`, cells without ghost cells. Wavenumbers have
    /// the unit of the size of the grid. Submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    /// - [`OperatorError::Fft`] for shapes that this device cannot transform.
    pub fn new(rank: &mut Rank, space: &Space, multiplier: &Operator<'_>) -> Result<Self> {
        Self::padded(rank, space, multiplier, None)
    }

    /// Creates a filter without periodic images: fields are padded with zeros to `points` along
    /// each axis. Wavenumbers belong to the padded box.
    ///
    /// # Errors
    /// - Same as [`new`](Self::new).
    pub fn padded(rank: &mut Rank, space: &Space, multiplier: &Operator<'_>, points: Option<[u64; 3]>) -> Result<Self> {
        const NAME: &str = "Fourier filter";
        let (_, leaf, mesh) = cells_of(rank, space, NAME)?;
        let spec = Spec { values: leaf.values, ..Spec::of::<f32>(mesh.shape()) }.fields(leaf.fields());
        let spec = points.map_or(spec.clone(), |points| spec.points(points));
        let distances = mesh.cell_size();
        let size = [0, 1, 2].map(|a| distances[a] * spec.points[a] as f64);
        let layout = mesh.layout().clone();
        let whole = multiplier.tables(spec.points, size, &spec.points.map(|n| 0..n));
        let mut mark = Fingerprint::new();
        spec.points.iter().for_each(|n| mark.number(*n));
        whole.constant.iter().chain(&whole.values).for_each(|value| mark.number(u64::from(value.to_bits())));
        let (filters, cost) = match leaf.values {
            Values::Real => {
                let (filters, cost) = pair::<f32>(rank, mesh.grid(), &spec, size, multiplier)?;
                (AnyFilter::Real(filters), cost)
            }
            Values::Complex => {
                let (filters, cost) = pair::<[f32; 2]>(rank, mesh.grid(), &spec, size, multiplier)?;
                (AnyFilter::Complex(filters), cost)
            }
        };
        Ok(FourierFilter {
            filters,
            layout,
            signature: Signature::new(NAME, space, space),
            cost,
            multiplier: mark.value(),
        })
    }
}

/// Creates the filter and its adjoint.
fn pair<T: Value>(
    rank: &mut Rank,
    grid: Grid,
    spec: &Spec,
    size: [f64; 3],
    multiplier: &Operator<'_>,
) -> Result<([Filter<T>; 2], Cost)> {
    let gpu = rank.gpu.clone();
    let options = FilterOptions::default();
    let Parts { recorder, comms, .. } = rank.parts(grid)?;
    let part = Filter::<T>::part_of(&gpu, spec, comms, &options)?;
    let tables = multiplier.tables(spec.points, size, &part);
    let [x, y] = tables.constant;
    let conjugate = OperatorTables { constant: [x, -y], ..tables.clone() };
    let mut filter = |tables: OperatorTables| {
        let spectral = Spectral::new(recorder, &[tables], &part)?;
        Ok::<_, OperatorError>(Filter::<T>::new(&gpu, spec, comms, &spectral.trusted_callback(), &options)?)
    };
    let filters = [filter(tables)?, filter(conjugate)?];
    let cost = filters[0].routes().into_iter().fold(Cost::default(), |cost, route| cost + route_cost(route));
    Ok((filters, cost))
}

impl Linear for FourierFilter {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let (v, out, layout) = (v.single()?, out.single()?, &self.layout);
        match &self.filters {
            AnyFilter::Real(filters) => filters[direction as usize].apply(recorder, comms, v, layout, out, layout)?,
            AnyFilter::Complex(filters) => {
                filters[direction as usize].apply(recorder, comms, &v.cast()?, layout, &out.cast()?, layout)?;
            }
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.number(self.multiplier);
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        [self.cost; 2]
    }
}

crate::gpu::kernel_params! {
    struct ConvolveParams {
        /// The first mode of this rank.
        convolve_first: [u32; 4],
        /// Modes of this rank by axis, and 1 for the conjugate.
        convolve_local: [u32; 4],
    }
}

const CALLBACK: &str = "
// Multiplies a mode by that of the kernel, or by its conjugate.
fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    let local = at.xyz - params.convolve_first.xyz;
    let shape = params.convolve_local;
    let mode = load_convolve((local.x * shape.y + local.y) * shape.z + local.z);
    return multiply(value, Complex(mode.x, select(mode.y, -mode.y, shape.w == 1u)));
}";

/// The periodic convolution `y[c] = sum over d of kernel[d] * x[c - d]`. It is an integral if the
/// kernel contains the volume of a cell. Its adjoint has the reversed kernel. The inverse transform
/// multiplies modes by the kernel's modes as it loads them: six passes and 8 bytes per mode.
pub struct Convolution {
    forward: Transform<f32>,
    inverse: [Transform<f32>; 2],
    kernel: Array<[f32; 2]>,
    signature: Signature,
}

impl Convolution {
    /// Creates the convolution of the only leaf of `space`, real cells, with `kernel`: one field on
    /// the same grid, centered at cell 0. Collective.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    /// - [`OperatorError::Fft`] for shapes that this device cannot transform.
    pub fn new(rank: &mut Rank, space: &Space, kernel: &Vector) -> Result<Self> {
        const NAME: &str = "convolution";
        let (_, leaf, mesh) = real_cells(rank, space, NAME)?;
        let (_, own, other) = real_cells(rank, kernel.space(), NAME)?;
        if other != mesh || own.fields() != 1 {
            return refuse(NAME, format!("{space} with {}; the kernel is one field of the same grid", kernel.space()));
        }
        let gpu = rank.gpu.clone();
        let transform = |fields: u64, inverse: Option<Callback>| {
            let spec = Spec::of::<f32>(mesh.shape()).fields(fields);
            let callbacks = TransformCallbacks { inverse, ..TransformCallbacks::default() };
            let options = TransformOptions::default().callbacks(callbacks);
            Transform::<f32>::with(&gpu, &spec, mesh.grid(), mesh.rank(), &options)
        };
        let one = transform(1, None)?;
        let modes = one.spectrum(&gpu)?;
        let (recorder, comms) = space.parts(rank)?;
        one.forward(recorder, comms, kernel.single()?, &one.field_layout(), &modes)?;
        let part = one.spectrum_part();
        let ([i, j, k], first) = (extent(&part), [0, 1, 2].map(|a| part[a].start as u32));
        let inverse = |conjugate: u32| {
            let params = ConvolveParams {
                convolve_first: [first[0], first[1], first[2], 0],
                convolve_local: [i as u32, j as u32, k as u32, conjugate],
            };
            // The callback reads only the modes of this rank, which belong to the transform, too.
            let callback = Callback::trusted(CALLBACK).read("convolve", &modes).params(&params);
            transform(leaf.fields(), Some(callback))
        };
        let inverse = [inverse(0)?, inverse(1)?];
        let forward = transform(leaf.fields(), None)?;
        Ok(Convolution { forward, inverse, kernel: modes, signature: Signature::new(NAME, space, space) })
    }
}

impl Linear for Convolution {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let modes = self.forward.spectrum(recorder.gpu())?;
        let layout = self.forward.field_layout();
        self.forward.forward(recorder, comms, v.single()?, &layout, &modes)?;
        Ok(self.inverse[direction as usize].inverse(recorder, comms, &modes, out.single()?, &layout)?)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        let Some((name, leaf)) = self.signature.domain.only() else { return Ok(()) };
        let Some(mesh) = leaf.mesh() else { return Ok(()) };
        let modes = Space::of(name, Leaf::half_spectrum(mesh))?;
        out.field(rank, &Vector::over(&modes, vec![Contents::Device(self.kernel.cast()?)])?)
    }

    fn costs(&self) -> [Cost; 2] {
        let plan = self.forward.plan();
        let kernel = Cost::kernels(0, 8 * self.kernel.len() * plan.spec.fields);
        [route_cost(&plan.forward) + route_cost(&plan.inverse) + kernel; 2]
    }
}

//! Transforms and filters of fields.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;
use std::sync::Arc;

use super::error::TransformError;
use super::filter::Filter;
use super::operator::Wave;
use super::options::{FilterOptions, TransformOptions};
use super::precision::Precision;
use super::spec::{Spec, SpectrumLayout, Value};
use super::transform::Transform;
use crate::field::Field;
use crate::gpu::{Array, Callback, DeviceElement};
use crate::grid::{Box3, LayoutError, Mesh, extent, volume};
use crate::host_memory;
use crate::rank::{Parts, PlanKey, Rank};

/// The modes of a [`Field`], on its mesh. [`Rank::fft`] creates it.
///
/// The spectrum of a real field of shape `[n0, n1, n2]` has the shape `[n0, n1, n2 / 2 + 1]`, that of a
/// complex field the shape of the field. [`layout`](Self::layout) tells which modes this rank holds.
pub struct Spectrum<T: Value = f32> {
    mesh: Mesh,
    layout: SpectrumLayout,
    array: Array<T::Mode>,
    components: u64,
}

impl<T: Value> fmt::Debug for Spectrum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spectrum")
            .field("mesh", &self.mesh)
            .field("layout", &self.layout)
            .field("components", &self.components)
            .finish_non_exhaustive()
    }
}

impl<T: Value> Spectrum<T> {
    /// Returns the mesh of the field.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns which modes this rank holds, and where they lie in the array.
    pub fn layout(&self) -> &SpectrumLayout {
        &self.layout
    }

    /// Returns the array of this rank: its modes in C order, component by component.
    pub fn array(&self) -> &Array<T::Mode> {
        &self.array
    }

    /// Returns the number of components of a mode.
    pub fn components(&self) -> u64 {
        self.components
    }
}

/// A wavevector `2 pi m / L` of mode numbers `m` and side lengths `L`, in the inverse unit of the mesh size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wavevector(pub [f64; 3]);

impl Wavevector {
    /// Returns `|k|^2`.
    pub fn squared(&self) -> f64 {
        self.0.iter().map(|k| k * k).sum()
    }

    /// Returns `|k|`.
    pub fn norm(&self) -> f64 {
        self.squared().sqrt()
    }
}

impl Index<usize> for Wavevector {
    type Output = f64;

    fn index(&self, axis: usize) -> &f64 {
        &self.0[axis]
    }
}

/// A factor of a mode: real (`f64`) or complex (`[f64; 2]`: real and imaginary part).
pub trait ModeFactor: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        /// Whether factors have an imaginary part.
        const COMPLEX: bool;

        /// The real and the imaginary part.
        fn parts(self) -> [f64; 2];
    }
}

impl ModeFactor for f64 {}
impl ModeFactor for [f64; 2] {}

impl sealed::Sealed for f64 {
    const COMPLEX: bool = false;

    fn parts(self) -> [f64; 2] {
        [self, 0.0]
    }
}

impl sealed::Sealed for [f64; 2] {
    const COMPLEX: bool = true;

    fn parts(self) -> [f64; 2] {
        self
    }
}

crate::gpu::kernel_params! {
    struct FactorsParams {
        /// The first mode of this rank.
        factors_first: [u32; 4],
        /// Modes of this rank along each axis.
        factors_extent: [u32; 4],
    }
}

/// The transform of fields on a mesh.
struct TransformOf<T> {
    mesh: Mesh,
    components: u64,
    element: PhantomData<T>,
}

impl<T> PartialEq for TransformOf<T> {
    fn eq(&self, other: &Self) -> bool {
        (&self.mesh, self.components) == (&other.mesh, other.components)
    }
}

impl<T: Value> PlanKey for TransformOf<T> {
    type Plan = Transform<T>;

    fn memory_bytes(plan: &Transform<T>) -> u64 {
        plan.table_bytes()
    }
}

impl Rank {
    fn transform<T: Value>(&mut self, mesh: &Mesh, components: u64) -> Result<Arc<Transform<T>>, TransformError> {
        let key = TransformOf { mesh: mesh.clone(), components, element: PhantomData };
        self.plan(key, |rank| {
            let spec = Spec::of::<T>(mesh.shape()).fields(components);
            Ok(Transform::with(&rank.gpu, &spec, mesh.grid(), mesh.rank(), &TransformOptions::default())?)
        })
    }

    /// Computes the forward Fourier transform of `field`, component by component: the sum over all cells
    /// of `x exp(-2 pi i j m / n)`, without a factor. Ghost cells are neither read nor written.
    ///
    /// [Collective](Self); records, and blocks only for exchanges between ranks. Kernels and tables are
    /// kept for later transforms on the same mesh.
    ///
    /// # Errors
    /// - [`TransformError::Fft`] if the device cannot transform fields of this shape or element.
    /// - [`TransformError::Exchange`] if the device or another rank fails.
    pub fn fft<T: Value>(&mut self, field: &Field<T>) -> Result<Spectrum<T>, TransformError> {
        let transform = self.transform::<T>(field.mesh(), field.components())?;
        let mut spectrum = Spectrum {
            mesh: field.mesh().clone(),
            layout: transform.spectrum_layout(),
            array: transform.spectrum(&self.gpu)?,
            components: field.components(),
        };
        self.fft_into(field, &mut spectrum)?;
        Ok(spectrum)
    }

    /// Same as [`fft`](Self::fft), into an existing spectrum. Allocates no device memory once it has run.
    ///
    /// # Errors
    /// - [`TransformError::Fft`] if `spectrum` is of another mesh or has another number of components.
    /// - Same as [`fft`](Self::fft).
    pub fn fft_into<T: Value>(&mut self, field: &Field<T>, spectrum: &mut Spectrum<T>) -> Result<(), TransformError> {
        fits("Rank::fft", field, spectrum)?;
        let transform = self.transform::<T>(field.mesh(), field.components())?;
        let Parts { recorder, comms, .. } = self.parts(field.mesh().grid())?;
        Ok(transform.forward(recorder, comms, field.array(), field.mesh().layout(), &spectrum.array)?)
    }

    /// Returns the modes of this rank, component by component, each in the order of [`SpectrumLayout::modes`]. Blocks.
    ///
    /// # Errors
    /// [`TransformError::Fft`] if the device fails or host memory is missing.
    pub fn download_modes<T: Value>(&mut self, spectrum: &Spectrum<T>) -> Result<Vec<T::Mode>, TransformError> {
        Ok(self.recorder.download(&spectrum.array, 0, spectrum.array.len())?)
    }

    /// Computes the inverse Fourier transform of `spectrum`, divided by the number of cells, so that it
    /// undoes [`fft`](Self::fft). Ghost cells of the field are 0.
    ///
    /// [Collective](Self); records, and blocks only for exchanges between ranks.
    ///
    /// # Errors
    /// Same as [`fft`](Self::fft).
    pub fn inverse<T: Value>(&mut self, spectrum: &Spectrum<T>) -> Result<Field<T>, TransformError> {
        let mut field = self.new_field(&spectrum.mesh, spectrum.components)?;
        self.inverse_into(spectrum, &mut field)?;
        Ok(field)
    }

    /// Same as [`inverse`](Self::inverse), into an existing field, of which ghost cells keep their values.
    /// Allocates no device memory once it has run.
    ///
    /// # Errors
    /// Same as [`fft_into`](Self::fft_into).
    pub fn inverse_into<T: Value>(
        &mut self,
        spectrum: &Spectrum<T>,
        field: &mut Field<T>,
    ) -> Result<(), TransformError> {
        fits("Rank::inverse", field, spectrum)?;
        let transform = self.transform::<T>(field.mesh(), field.components())?;
        let Parts { recorder, comms, .. } = self.parts(field.mesh().grid())?;
        Ok(transform.inverse(recorder, comms, &spectrum.array, field.array(), field.mesh().layout())?)
    }

    /// Multiplies the modes of `field` by `factor(k)`: a forward transform, a multiplication and an inverse
    /// transform in as few passes over memory as possible.
    ///
    /// Use [`Filter::of_modes`] and [`filter_into`](Self::filter_into) to apply one filter several times:
    /// `factor` is evaluated on the host for every mode. [Collective](Self); records, and blocks only for
    /// exchanges between ranks.
    ///
    /// ```
    /// meshloom::run(|rank| {
    ///     let mesh = rank.mesh([16, 16, 16]).periodic([1.0; 3]).build()?;
    ///     let wave = rank.fill(&mesh, |[x, _, _]| (std::f64::consts::TAU * x).sin())?;
    ///     // The derivative along the first axis: the factor is i k.
    ///     let slope = rank.filter(&wave, |k| [0.0, k[0]])?;
    ///     assert!((rank.max(&slope)? - std::f32::consts::TAU).abs() < 1e-4);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - Same as [`Filter::of_modes`].
    /// - [`TransformError::Exchange`] if the device or another rank fails.
    pub fn filter<T: Value, F: ModeFactor>(
        &mut self,
        field: &Field<T>,
        factor: impl Fn(Wavevector) -> F,
    ) -> Result<Field<T>, TransformError> {
        let filter = Filter::with_factors(self, field.mesh(), field.components(), factor)?;
        let mut output = self.new_field(field.mesh(), field.components())?;
        self.filter_into(field, &filter, &mut output)?;
        Ok(output)
    }

    /// Applies a filter to `field`. Ghost cells of `output` keep their values. Allocates no device memory
    /// once it has run. [Collective](Self); records, and blocks only for exchanges between ranks.
    ///
    /// # Errors
    /// - [`TransformError::Fft`] if the fields are on different meshes.
    /// - [`TransformError::Exchange`] if the filter was created for another mesh or number of components, or the device or another rank fails.
    pub fn filter_into<T: Value>(
        &mut self,
        field: &Field<T>,
        filter: &Filter<T>,
        output: &mut Field<T>,
    ) -> Result<(), TransformError> {
        field.same_mesh("Rank::filter_into", output)?;
        let Parts { recorder, comms, .. } = self.parts(field.mesh().grid())?;
        let layout = field.mesh().layout();
        Ok(filter.apply(recorder, comms, field.array(), layout, output.array(), layout)?)
    }
}

fn fits<T: Value>(what: &'static str, field: &Field<T>, spectrum: &Spectrum<T>) -> Result<(), LayoutError> {
    if (field.mesh(), field.components()) == (&spectrum.mesh, spectrum.components) {
        return Ok(());
    }
    let text = |mesh: &Mesh, components: u64| match components {
        1 => mesh.to_string(),
        count => format!("{mesh}, {count} components"),
    };
    let (expected, found) = (text(field.mesh(), field.components()), text(&spectrum.mesh, spectrum.components));
    Err(LayoutError::OtherMesh { what, expected, found })
}

impl<T: Value> Filter<T> {
    /// Creates the filter that multiplies the modes of fields on `mesh` by `factor(k)`, for
    /// [`Rank::filter_into`]. Evaluates `factor` on the host for every mode that this rank multiplies, in
    /// f64. [Collective](Rank) when the process grid of `mesh` is used for the first time.
    ///
    /// - A factor at `k = 0` that is not finite counts as 0, so that `-1 / k.squared()` solves Poisson's equation.
    /// - An even axis has one mode for the wavenumbers `+pi n / L` and `-pi n / L`. Its factor is the mean
    ///   of the factors for both signs: 0 for odd functions such as `[0.0, k[0]]`.
    /// - For real fields `factor(-k)` must be the complex conjugate of `factor(k)`.
    ///
    /// # Errors
    /// - [`TransformError::Factor`] if a factor is not finite.
    /// - [`TransformError::Fft`] if the device cannot transform fields of this shape or element.
    /// - [`TransformError::Exchange`] if the device or another rank fails.
    pub fn of_modes<F: ModeFactor>(
        rank: &mut Rank,
        mesh: &Mesh,
        factor: impl Fn(Wavevector) -> F,
    ) -> Result<Self, TransformError> {
        Self::with_factors(rank, mesh, 1, factor)
    }

    /// Same as [`of_modes`](Self::of_modes), for fields of several components, all with the same factor.
    ///
    /// # Errors
    /// Same as [`of_modes`](Self::of_modes).
    pub fn with_factors<F: ModeFactor>(
        rank: &mut Rank,
        mesh: &Mesh,
        components: u64,
        factor: impl Fn(Wavevector) -> F,
    ) -> Result<Self, TransformError> {
        let comm = rank.comm.clone();
        let Parts { gpu, recorder, comms } = rank.parts(mesh.grid())?;
        let (spec, options) = (Spec::of::<T>(mesh.shape()).fields(components), FilterOptions::default());
        comm.together(|| {
            let part = Self::part_of(gpu, &spec, comms, &options)?;
            let factors = factors(mesh, &part, &factor)?;
            let callback = match (F::COMPLEX, T::PRECISION) {
                (false, Precision::Single) => {
                    let real = factors.iter().map(|factor| factor[0] as f32);
                    table(recorder, &part, &host_memory::collect("factors of modes", real)?, REAL)?
                }
                (false, Precision::Double) => {
                    let real = factors.iter().map(|factor| factor[0]);
                    table(recorder, &part, &host_memory::collect("factors of modes", real)?, REAL)?
                }
                (true, Precision::Single) => {
                    let complex = factors.iter().map(|factor| factor.map(|x| x as f32));
                    table(recorder, &part, &host_memory::collect("factors of modes", complex)?, COMPLEX)?
                }
                (true, Precision::Double) => table(recorder, &part, &factors, COMPLEX)?,
            };
            Ok(Self::new(gpu, &spec, comms, &callback, &options)?)
        })
    }
}

const PLACE: &str = include_str!("../../shaders/fft/factors.wgsl");
const REAL: &str = include_str!("../../shaders/fft/factors_real.wgsl");
const COMPLEX: &str = include_str!("../../shaders/fft/factors_complex.wgsl");

/// Uploads a table and returns the callback that multiplies by it.
fn table<V: DeviceElement>(
    recorder: &mut crate::gpu::Recorder,
    part: &Box3,
    values: &[V],
    text: &str,
) -> Result<Callback, TransformError> {
    let array = recorder.gpu().array("fft::factors", values.len() as u64)?;
    recorder.upload(&array, 0, values)?;
    let [i, j, k] = extent(part).map(|n| n as u32);
    let [x, y, z] = [0, 1, 2].map(|a| part[a].start as u32);
    let params = FactorsParams { factors_first: [x, y, z, 0], factors_extent: [i, j, k, 0] };
    Ok(Callback::trusted([PLACE, text].concat()).read("factors", &array).params(&params))
}

/// The factors of the modes of `part`, in C order.
fn factors<F: ModeFactor>(
    mesh: &Mesh,
    part: &Box3,
    factor: &impl Fn(Wavevector) -> F,
) -> Result<Vec<[f64; 2]>, TransformError> {
    let (shape, size) = (mesh.shape(), mesh.size());
    let waves = [0, 1, 2].map(|a| part[a].clone().map(|i| Wave::new(i, shape[a], size[a])).collect::<Vec<_>>());
    let mut all = host_memory::reserve("factors of modes", volume(part) as usize)?;
    for x in &waves[0] {
        for y in &waves[1] {
            for z in &waves[2] {
                let value = mean_factor([x, y, z], factor);
                if value.iter().all(|part| part.is_finite()) {
                    all.push(value);
                } else if [x, y, z].iter().all(|wave| wave.k == 0.0) {
                    all.push([0.0; 2]);
                } else {
                    let k = [x.k, y.k, z.k];
                    return Err(TransformError::Factor { k, value });
                }
            }
        }
    }
    Ok(all)
}

/// The mean of the factor over the signs of wavenumbers that stand for both.
fn mean_factor<F: ModeFactor>(waves: [&Wave; 3], factor: &impl Fn(Wavevector) -> F) -> [f64; 2] {
    let (mut sum, mut count) = ([0.0; 2], 0.0);
    for signs in 0..8 {
        let is_negative = |axis: usize| signs >> axis & 1 == 1;
        if (0..3).any(|axis| is_negative(axis) && !waves[axis].nyquist) {
            continue;
        }
        let k = [0, 1, 2].map(|axis| if is_negative(axis) { -waves[axis].k } else { waves[axis].k });
        let parts = factor(Wavevector(k)).parts();
        sum = [sum[0] + parts[0], sum[1] + parts[1]];
        count += 1.0;
    }
    sum.map(|part| part / count)
}

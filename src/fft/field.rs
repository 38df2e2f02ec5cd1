//! Transforms of fields on a mesh, and of host arrays.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{FftError, Spec, SpectrumLayout, Transform, TransformError, TransformOptions, Value};
use crate::comm::Communicator;
use crate::exchange::GridComms;
use crate::field::Field;
use crate::gpu::{Array, Gpu, Recorder};
use crate::grid::{Grid, LayoutError, Mesh};
use crate::rank::{Parts, PlanKey, Rank};

/// The modes of a [`Field`], on its mesh. [`Rank::fft`] creates it.
///
/// The spectrum of a real field of shape `[n0, n1, n2]` has the shape `[n0, n1, n2 / 2 + 1]`, that
/// of a complex field the shape of the field. [`layout`](Self::layout) tells which modes this rank
/// holds.
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
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns which modes this rank holds, and where they lie in the array.
    #[must_use]
    pub fn layout(&self) -> &SpectrumLayout {
        &self.layout
    }

    /// Returns the array of this rank: its modes in C order, component by component.
    #[must_use]
    pub fn array(&self) -> &Array<T::Mode> {
        &self.array
    }

    /// Returns the number of components of a mode.
    #[must_use]
    pub fn components(&self) -> u64 {
        self.components
    }
}

/// The key of the transform of fields on a mesh.
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

    /// Computes the forward Fourier transform of `field`, component by component: the sum over all
    /// cells of `x exp(-2 pi i j m / n)`, without a factor. Ghost cells are neither read nor
    /// written.
    ///
    /// [Collective](Self); records, and blocks only for exchanges between ranks. Kernels and tables
    /// are kept for later transforms on the same mesh.
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

    /// Same as [`fft`](Self::fft), into an existing spectrum. Allocates no device memory once it
    /// has run.
    ///
    /// # Errors
    /// - [`TransformError::Fft`] if `spectrum` is of another mesh or has another number of
    ///   components.
    /// - Same as [`fft`](Self::fft).
    pub fn fft_into<T: Value>(&mut self, field: &Field<T>, spectrum: &mut Spectrum<T>) -> Result<(), TransformError> {
        check_mesh("Rank::fft", field, spectrum)?;
        let transform = self.transform::<T>(field.mesh(), field.components())?;
        let Parts { recorder, comms, .. } = self.parts(field.mesh().grid())?;
        Ok(transform.forward(recorder, comms, field.array(), field.mesh().layout(), &spectrum.array)?)
    }

    /// Returns the modes of this rank, component by component, each in the order of
    /// [`SpectrumLayout::modes`]. Blocks.
    ///
    /// # Errors
    /// [`TransformError::Fft`] if the device fails or host memory is missing.
    pub fn download_modes<T: Value>(&mut self, spectrum: &Spectrum<T>) -> Result<Vec<T::Mode>, TransformError> {
        Ok(self.recorder.download(&spectrum.array, 0, spectrum.array.len())?)
    }

    /// Computes the inverse Fourier transform of `spectrum`, divided by the number of cells, so
    /// that it undoes [`fft`](Self::fft). Ghost cells of the field are 0.
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

    /// Same as [`inverse`](Self::inverse), into an existing field, of which ghost cells keep their
    /// values. Allocates no device memory once it has run.
    ///
    /// # Errors
    /// Same as [`fft_into`](Self::fft_into).
    pub fn inverse_into<T: Value>(
        &mut self,
        spectrum: &Spectrum<T>,
        field: &mut Field<T>,
    ) -> Result<(), TransformError> {
        check_mesh("Rank::inverse", field, spectrum)?;
        let transform = self.transform::<T>(field.mesh(), field.components())?;
        let Parts { recorder, comms, .. } = self.parts(field.mesh().grid())?;
        Ok(transform.inverse(recorder, comms, &spectrum.array, field.array(), field.mesh().layout())?)
    }
}

fn check_mesh<T: Value>(what: &'static str, field: &Field<T>, spectrum: &Spectrum<T>) -> Result<(), LayoutError> {
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

/// Returns the spectrum of a field of `shape` in C order, like NumPy's `fftn` (complex numbers) and
/// `rfftn` (real numbers, half the modes of the last axis). Blocks.
///
/// Compiles kernels at the first call for a shape; the device keeps them.
///
/// ```
/// use meshloom::{fft, gpu::{Gpu, Options}};
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let modes = fft::local(&gpu, [1, 1, 4], &[1.0_f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(modes, [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]);
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// - [`FftError::Length`] if `field` is not as long as `shape` requires.
/// - [`FftError`] if this device cannot transform such fields.
/// - [`TransformError`] if the device fails.
pub fn local<T: Value>(gpu: &Gpu, shape: [u64; 3], field: &[T]) -> Result<Vec<T::Mode>, TransformError> {
    let (transform, mut recorder, mut comms) = alone::<T>(gpu, shape)?;
    let layout = transform.field_layout();
    let array = transform.field(gpu, &layout)?;
    check_length("field", field.len(), array.len())?;
    recorder.upload(&array, 0, field)?;
    let spectrum = transform.spectrum(gpu)?;
    transform.forward(&mut recorder, &mut comms, &array, &layout, &spectrum)?;
    Ok(recorder.download(&spectrum, 0, spectrum.len())?)
}

/// Returns the field of `shape` with this spectrum, like NumPy's `ifftn` and `irfftn`: the inverse
/// of [`local`]. Blocks.
///
/// ```
/// use meshloom::{fft, gpu::{Gpu, Options}};
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let field: Vec<f32> = fft::local_inverse(&gpu, [1, 1, 4], &[[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]])?;
/// assert_eq!(field, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// Same as [`local`].
pub fn local_inverse<T: Value>(gpu: &Gpu, shape: [u64; 3], spectrum: &[T::Mode]) -> Result<Vec<T>, TransformError> {
    let (transform, mut recorder, mut comms) = alone::<T>(gpu, shape)?;
    let layout = transform.field_layout();
    let array = transform.spectrum(gpu)?;
    check_length("spectrum", spectrum.len(), array.len())?;
    recorder.upload(&array, 0, spectrum)?;
    let field = transform.field(gpu, &layout)?;
    transform.inverse(&mut recorder, &mut comms, &array, &field, &layout)?;
    Ok(recorder.download(&field, 0, field.len())?)
}

/// Creates a transform for one rank, with a recorder and communicators.
fn alone<T: Value>(gpu: &Gpu, shape: [u64; 3]) -> Result<(Transform<T>, Recorder, GridComms), TransformError> {
    let grid = Grid::new([1, 1], 1)?;
    Ok((Transform::new(gpu, shape, grid, 0)?, Recorder::new(gpu)?, GridComms::new(&Communicator::solo(), grid)?))
}

fn check_length(what: &'static str, have: usize, want: u64) -> Result<(), FftError> {
    if have as u64 == want { Ok(()) } else { Err(FftError::Length { what, have, want }) }
}

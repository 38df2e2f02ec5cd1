//! Convolution with a field.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::fourier::route_cost;
use super::ghosts::real_cells;
use super::leaf::Leaf;
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::{Contents, Vector};
use crate::fft::{Spec, Transform, TransformCallbacks, TransformOptions};
use crate::gpu::{Array, Callback};
use crate::grid::{Cost, extent};
use crate::rank::Rank;

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
            let why = format!("{space} with {}; the kernel is one field of the same grid", kernel.space());
            return Err(OperatorError::invalid(NAME, why));
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

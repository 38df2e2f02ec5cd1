//! The Hartley transform: real fields and as many real modes.

use super::cost::CallCost;
use super::error::OperatorError;
use super::field::Field;
use super::fourier::{cells_of, cut_alike, route_cost, transform};
use super::leaf::{Leaf, Support};
use super::linear::Linear;
use super::pointwise::{Form, Pointwise, PointwiseError, PointwiseParams, kernel};
use super::space::Space;
use super::worker::Worker;
use crate::fft::{Norm, Transform, Values};
use crate::gpu::{Array, Kernel, KernelSource};
use crate::grid::volume;

/// The Hartley transform from cells to modes, `Re F x + Im F x` with the unnormalised Fourier transform `F`: a real symmetric matrix, whose
/// square is the number of cells. Modes are all those of the grid, one number each, so that a latent field has as many numbers as the real one
/// and each counts once.
///
/// It is a complex transform between two pointwise passes: 72 bytes per cell instead of the 48 of the transform itself. The half spectrum has
/// the same numbers, but the mirror of a mode is on another rank, and to bring it here costs an exchange of as many bytes.
pub struct Hartley {
    transform: Transform<[f32; 2]>,
    domain: Space,
    target: Space,
    /// `x + 0 i`, then `Re z + Im z` and `Re z - Im z`.
    kernels: [Kernel; 3],
}

/// The pointwise functions, and how their results lie.
const FUNCTIONS: [(&str, &str, [Form; 2]); 3] = [
    ("hartley_load", "fn f(x: f32) -> vec2<f32> { return vec2<f32>(x, 0.0); }", [Form::Apart, Form::Pairs]),
    ("hartley_sum", "fn f(z: vec2<f32>) -> f32 { return z.x + z.y; }", [Form::Pairs, Form::Apart]),
    ("hartley_difference", "fn f(z: vec2<f32>) -> f32 { return z.x - z.y; }", [Form::Pairs, Form::Apart]),
];

fn source([label, text]: [&str; 2], [given, result]: [Form; 2]) -> Result<KernelSource, PointwiseError> {
    let function = Pointwise::new(text, "f")?;
    Ok(kernel(format!("operators::{label}"), &function, [&[given], &[result]], false).0)
}

/// The kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    FUNCTIONS.into_iter().filter_map(|(label, text, forms)| source([label, text], forms).ok()).collect()
}

impl Hartley {
    /// The transform of the only leaf of `domain`, real cells without ghosts, to a leaf of the same name.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces; [`OperatorError::Fft`] for what cannot be transformed on this device.
    pub fn new(worker: &Worker<'_>, domain: &Space) -> Result<Self, OperatorError> {
        const NAME: &str = "Hartley transform";
        let (name, leaf, regular) = cells_of(domain, NAME)?;
        cut_alike(regular, &worker.comms, NAME)?;
        if leaf.values == Values::Complex {
            return Err(OperatorError::invalid(
                NAME,
                "complex fields; transform real and imaginary parts as two components",
            ));
        }
        let modes = Support::Modes { regular: regular.clone(), half: false };
        let target = Space::of(name, Leaf { support: modes, ..leaf.clone() })?;
        let transform = transform(worker.gpu(), leaf, regular, Norm::Backward)?;
        let compiled = |(label, text, forms): (&str, &str, [Form; 2])| {
            let source = source([label, text], forms);
            source.map(Kernel::trusted).map_err(|error| OperatorError::Pointwise { operator: NAME.into(), error })
        };
        let [load, sum, difference] = FUNCTIONS.map(compiled);
        Ok(Hartley { transform, domain: domain.clone(), target, kernels: [load?, sum?, difference?] })
    }

    fn lens(&self) -> [u64; 2] {
        let plan = self.transform.plan();
        [&plan.field, &plan.spectrum].map(|part| volume(part) * plan.spec.fields)
    }
}

fn params(count: u64) -> PointwiseParams {
    PointwiseParams { count: count as u32, places: count as u32 }
}

impl Linear for Hartley {
    fn name(&self) -> String {
        "Hartley transform".into()
    }

    fn domain(&self) -> &Space {
        &self.domain
    }

    fn target(&self) -> &Space {
        &self.target
    }

    fn forward(&self, worker: &mut Worker<'_>, x: &Field, y: &mut Field) -> Result<(), OperatorError> {
        let ([cells, modes], (recorder, comms)) = (self.lens(), worker.parts());
        let field: Array<[f32; 2]> = recorder.gpu().array("operators::hartley", cells)?;
        let spectrum: Array<[f32; 2]> = recorder.gpu().array("operators::hartley", modes)?;
        let [load, sum, _] = &self.kernels;
        recorder.each(load, &[x.single()?.raw(), field.raw()], &params(cells), cells)?;
        self.transform.forward(recorder, comms, &field, &self.transform.field_layout(), &spectrum)?;
        Ok(recorder.each(sum, &[spectrum.raw(), y.single()?.raw()], &params(modes), modes)?)
    }

    fn adjoint(&self, worker: &mut Worker<'_>, y: &Field, x: &mut Field) -> Result<(), OperatorError> {
        let ([cells, modes], (recorder, comms)) = (self.lens(), worker.parts());
        let field: Array<[f32; 2]> = recorder.gpu().array("operators::hartley", cells)?;
        let spectrum: Array<[f32; 2]> = recorder.gpu().array("operators::hartley", modes)?;
        let [load, _, difference] = &self.kernels;
        recorder.each(load, &[y.single()?.raw(), spectrum.raw()], &params(modes), modes)?;
        // The other way has the other sign in the exponent.
        self.transform.forward_adjoint(recorder, comms, &spectrum, &field, &self.transform.field_layout())?;
        Ok(recorder.each(difference, &[field.raw(), x.single()?.raw()], &params(cells), cells)?)
    }

    fn costs(&self) -> [CallCost; 2] {
        let plan = self.transform.plan();
        let ends = CallCost::passes(2, 12 * self.lens().iter().sum::<u64>());
        [&plan.forward, &plan.inverse].map(|route| route_cost(route) + ends)
    }
}

//! The kernels of the model.

use super::plan::{ModelParams, TILE};
use super::real::Real;
use meshloom::gpu::{Kernel, KernelSource};

/// Returns a kernel over numbers of one precision.
fn source<T: Real>(label: &str, text: &'static str) -> KernelSource {
    KernelSource::new(label, text).params::<ModelParams<T>>().element("Real", T::ELEMENT)
}

/// Returns a kernel over tiles of the state.
fn tiled<T: Real>(label: &str, text: &'static str, compatible: bool) -> KernelSource {
    source::<T>(label, text)
        .module("shallow_water::cells", include_str!("../../../shaders/shallow_water/cells.wgsl"))
        .flag("compatible", compatible)
        .constant("TILE_X", TILE[0] as u32)
        .constant("TILE_Y", TILE[1] as u32)
}

fn step<T: Real>(compatible: bool) -> KernelSource {
    let text = include_str!("../../../shaders/shallow_water/step.wgsl");
    // The rows of a tile, and at most three rounds before the first.
    tiled::<T>("shallow_water::step", text, compatible).group(TILE[0] as u32).loop_rounds(TILE[1] as u32 + 3)
}

fn observe<T: Real>(compatible: bool) -> KernelSource {
    let text = include_str!("../../../shaders/shallow_water/observe.wgsl");
    tiled::<T>("shallow_water::observe", text, compatible).flag("double", T::DOUBLE)
}

fn start<T: Real>() -> KernelSource {
    source::<T>("shallow_water::start", include_str!("../../../shaders/shallow_water/start.wgsl"))
}

/// Returns the kernels in all forms that any device compiles; those for double precision are left
/// out.
pub(super) fn all() -> Vec<KernelSource> {
    let forms = [false, true].into_iter();
    let forms = forms.flat_map(|compatible| [step::<f32>(compatible), observe::<f32>(compatible)]);
    forms.chain([start::<f32>()]).collect()
}

/// The kernels of a run.
pub(super) struct Kernels {
    pub start: Kernel,
    pub step: Kernel,
    pub observe: Kernel,
}

impl Kernels {
    pub fn new<T: Real>(compatible: bool) -> Self {
        // SAFETY: every index is guarded by the number of cells or within a tile; the tests run all
        // forms in the sanitizer.
        let unchecked = |source| unsafe { Kernel::new_unchecked(source) };
        let [start, step, observe] = [start::<T>(), step::<T>(compatible), observe::<T>(compatible)].map(unchecked);
        Kernels { start, step, observe }
    }
}

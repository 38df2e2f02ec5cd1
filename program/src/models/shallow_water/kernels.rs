//! The kernels of the model.

use super::plan::{PartParams, TILE};
use super::real::Real;
use meshloom::gpu::{DeviceElement, Element, Kernel, KernelSource};

/// Returns a kernel over numbers of one precision.
fn source(label: &str, text: &'static str, real: Element) -> KernelSource {
    KernelSource::new(label, text).params::<PartParams>().element("Real", real)
}

/// Returns a kernel over tiles of the state.
fn tiled(label: &str, text: &'static str, real: Element, compatible: bool) -> KernelSource {
    source(label, text, real)
        .module("shallow_water::cells", include_str!("../../../shaders/shallow_water/cells.wgsl"))
        .module("shallow_water::friction", include_str!("../../../shaders/shallow_water/friction.wgsl"))
        .flag("compatible", compatible)
        .constant("TILE_X", TILE[0] as u32)
        .constant("TILE_Y", TILE[1] as u32)
}

fn step(real: Element, compatible: bool) -> KernelSource {
    tiled("shallow_water::step", include_str!("../../../shaders/shallow_water/step.wgsl"), real, compatible)
}

fn observe(real: Element, compatible: bool) -> KernelSource {
    let text = include_str!("../../../shaders/shallow_water/observe.wgsl");
    tiled("shallow_water::observe", text, real, compatible).flag("double", real == Element::F64)
}

fn start(real: Element) -> KernelSource {
    source("shallow_water::start", include_str!("../../../shaders/shallow_water/start.wgsl"), real)
}

/// Returns the kernels in all forms that any device compiles; those for double precision are left
/// out.
pub(super) fn all() -> Vec<KernelSource> {
    let forms = [false, true].into_iter();
    let forms = forms.flat_map(|compatible| [step(Element::F32, compatible), observe(Element::F32, compatible)]);
    forms.chain([start(Element::F32)]).collect()
}

/// The kernels of a run.
pub(super) struct Kernels {
    pub start: Kernel,
    pub step: Kernel,
    pub observe: Kernel,
}

impl Kernels {
    pub fn new<T: Real>(compatible: bool) -> Self {
        let real = <T as DeviceElement>::ELEMENT;
        // SAFETY: every index is guarded by the number of cells or within a tile; the tests run all
        // forms in the sanitizer.
        let unchecked = |source| unsafe { Kernel::new_unchecked(source) };
        let [start, step, observe] = [start(real), step(real, compatible), observe(real, compatible)].map(unchecked);
        Kernels { start, step, observe }
    }
}

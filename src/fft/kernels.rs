
use super::axis::passes;
use super::callbacks::PassCallbacks;
use super::core::Limits;
use super::line::{LineFormat, LineKernel, Order, Side, Span, Work};
use super::precision::Precision;
use super::spectral::radial;
use crate::gpu::{Callback, KernelSource};

const PLAIN: Side = Side { format: LineFormat::Complex, order: Order::Strided, span: Span::Whole };

/// Returns the kernels that do not transform lines; see [`line_kernels`] for those that do.
pub(crate) fn kernels() -> Vec<KernelSource> {
    vec![radial()]
}

/// Returns the kernels that transform lines of `lengths` on devices with `limits`, in every form that plans
/// use: along contiguous and strided axes; real, half and complex; strided and in the blocks of exchanges;
/// in place, padded and cut; with callbacks; filters; and all passes of long lines. Leaves out lengths that
/// do not fit.
#[doc(hidden)]
pub fn line_kernels(precision: Precision, lengths: &[u64], limits: Limits) -> Vec<KernelSource> {
    let mut all = Vec::new();
    for &n in lengths {
        for axis in [1, 2] {
            for (work, sides, callbacks) in forms(n, axis) {
                let passes = passes(precision, axis, n, work, sides, limits).unwrap_or_default();
                for (i, pass) in passes.iter().enumerate() {
                    let mut callbacks = callbacks.clone();
                    if i > 0 {
                        (callbacks.load, callbacks.load_mode) = (None, None);
                    }
                    if i + 1 < passes.len() {
                        (callbacks.store, callbacks.store_mode) = (None, None);
                    }
                    let in_place = within(&pass.kernel).then_some(LineKernel { in_place: true, ..pass.kernel });
                    let kernels = [Some(pass.kernel), in_place].into_iter().flatten();
                    all.extend(kernels.map(|kernel| kernel.source(&pass.shape, &callbacks).0));
                }
            }
        }
    }
    all
}

/// Returns whether plans may run the kernel in place.
fn within(LineKernel { input, output, four_step, .. }: &LineKernel) -> bool {
    let plain = [input.order, output.order] == [Order::Strided; 2] && input.span == output.span;
    let still = four_step.is_none_or(|step| step.input == step.output && input.format == output.format);
    plain && still
}

/// Returns the work, the sides and the callbacks of all forms for lines of `n` points.
fn forms(n: u64, axis: usize) -> Vec<(Work, [Side; 2], PassCallbacks)> {
    let blocked = |side: Side| Side { order: Order::Blocked, ..side };
    let spanned = |side: Side, span: Span| Side { span, ..side };
    let (head, kept) = (Span::Head(n.div_ceil(2)), Span::Modes(n.div_ceil(2)));
    let mut forms = vec![(Work::Copy, [PLAIN, blocked(PLAIN)], PassCallbacks::default())];
    let real = [Side { format: LineFormat::Real, ..PLAIN }, Side { format: LineFormat::Half, ..PLAIN }];
    for [cells, modes] in [[PLAIN; 2], real].into_iter().take(axis) {
        let value = if cells.format == LineFormat::Real { "Real" } else { "Complex" };
        let there =
            PassCallbacks { load: Some(on("on_load", value)), store_mode: Some(on_mode()), ..PassCallbacks::default() };
        let back = PassCallbacks {
            load_mode: Some(on_mode()),
            store: Some(on("on_store", value)),
            ..PassCallbacks::default()
        };
        let none = PassCallbacks::default();
        for (cells, modes, [there, back]) in [
            (cells, modes, [&none, &none]),
            (cells, blocked(modes), [&none, &none]),
            (spanned(cells, head), spanned(modes, kept), [&none, &none]),
            (cells, modes, [&there, &back]),
        ] {
            forms.push((Work::Forward, [cells, modes], there.clone()));
            forms.push((Work::Backward, [modes, cells], back.clone()));
        }
    }
    let hartley = Side { format: LineFormat::Hartley, ..PLAIN };
    for sides in [[hartley, PLAIN], [PLAIN, hartley], [hartley; 2]] {
        forms.push((Work::Forward, sides, PassCallbacks::default()));
    }
    let filter = PassCallbacks { filter: Some(on_mode()), ..PassCallbacks::default() };
    for side in [PLAIN, blocked(PLAIN), spanned(PLAIN, head)] {
        forms.extend([1, 3].map(|results| (Work::Filter(results), [side; 2], filter.clone())));
    }
    forms
}

/// Returns a callback that uses all its arguments.
fn on(function: &str, value: &str) -> Callback {
    Callback::trusted(format!(
        "fn {function}(value: {value}, at: vec4<u32>) -> {value} {{ return value * Real(at.x + at.w); }}"
    ))
}

crate::gpu::kernel_params! { struct Factor { by: [f32; 4] } }

fn on_mode() -> Callback {
    Callback::trusted(
        "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    return multiply(value, Complex(Real(params.by.x), Real(at.y + result)));
}",
    )
    .params(&Factor { by: [0.0; 4] })
}

//! The generator of transform kernels: one dispatch transforms all lines of an array along one axis.
//!
//! ```text
//! load from global memory -> radix stage -> exchange through workgroup memory -> radix stage -> .. -> store
//! ```
//!
//! A line of `n` points is held in the registers of `lanes` invocations, about [`POINTS`] each; a workgroup holds several
//! lines. Stages are Stockham's autosort (Cochran et al. 1967): with `L` the product of the radices done so far, the
//! butterfly `j` of a stage of radix `R` takes the points `j + i n / R`, turns them by `exp(-+2 pi i (j mod L) i / (L R))`
//! from a table that the host made in f64, and puts them to `(j - j mod L) R + j mod L + i L`. Real and imaginary
//! parts go through workgroup memory together where both fit, else one after the other.
//!
//! Real lines of even length are transformed as complex ones of half the length (Press et al., *Numerical Recipes*,
//! 12.3); odd ones with a zero imaginary part. Never two rows at once: the arithmetic of a line does not depend on its
//! neighbours, so results are the same for every distribution.
//!
//! Idle lanes and lines beyond the end load a clamped place and store nothing: all barriers stand in uniform flow.
//! Everything here is pure.

use super::butterfly::{Code, literal};
use super::size::radices;
use crate::device::{Access, Element, KernelSource};

/// Points that an invocation holds, about.
pub(super) const POINTS: u64 = 16;

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Complex to complex, forward: `exp(-2 pi i j k / n)`.
    Forward,
    /// Complex to complex, backward, unnormalised.
    Backward,
    /// Real to the half spectrum of `n / 2 + 1` modes.
    RealToComplex,
    /// The half spectrum to real, unnormalised; imaginary parts that a real line cannot have are ignored.
    ComplexToReal,
}

/// How the points of a line lie in an array of `outer x n x inner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// At a fixed stride.
    Plain,
    /// In the blocks of a transpose: `parts` pieces of the axis, each a C order array of its own.
    Blocked,
}

/// A transform kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LineKernel {
    /// Points of a line (of the real line, for real transforms).
    pub n: u64,
    /// What becomes of it.
    pub kind: Kind,
    /// Order of the input.
    pub input: Order,
    /// Order of the output.
    pub output: Order,
    /// Whether neighbouring lines, rather than neighbouring points, are neighbours in memory.
    pub strided: bool,
    /// Whether the input is multiplied by spectral tables on load.
    pub spectral: bool,
}

/// What a device allows a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u64,
    /// Invocations a workgroup.
    pub invocations: u64,
}

/// How a kernel is laid out over a workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Invocations a line.
    pub lanes: u64,
    /// Lines a workgroup.
    pub lines: u64,
    /// Whether real and imaginary parts are exchanged together.
    pub together: bool,
}

/// WGSL fields of the parameters; [`LineParams`] is the same in Rust.
const PARAMS: &str = "input: vec4<u32>, output: vec4<u32>, lines: u32, inner: u32, outer: u32, parts_in: u32, parts_out: u32, \
                      rows_in: u32, rows_out: u32, inner_last: u32, starts: vec4<u32>, constant: vec2<f32>, scale: f32, pad: f32";

/// Parameters of a dispatch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct LineParams {
    /// Offset, strides of the outer index (slow, fast), stride of a point.
    pub input: [u32; 4],
    /// The same of the output.
    pub output: [u32; 4],
    /// Lines in all.
    pub lines: u32,
    /// Lines that are neighbours in memory.
    pub inner: u32,
    /// Lines that are not: `lines / inner`.
    pub outer: u32,
    /// Parts of a blocked input.
    pub parts_in: u32,
    /// Parts of a blocked output.
    pub parts_out: u32,
    /// Length of the fast part of the outer index of the input.
    pub rows_in: u32,
    /// The same of the output.
    pub rows_out: u32,
    /// For spectral tables: length of the last axis in `inner`.
    pub inner_last: u32,
    /// For spectral tables: where the second and third axis begin, and the length of a half.
    pub starts: [u32; 4],
    /// For spectral tables: the complex constant.
    pub constant: [f32; 2],
    /// Factor of the output.
    pub scale: f32,
    /// Padding.
    pub pad: f32,
}

impl LineKernel {
    /// Points of the complex transform inside.
    fn points(&self) -> u64 {
        match self.kind {
            Kind::RealToComplex | Kind::ComplexToReal if self.n % 2 == 0 => self.n / 2,
            _ => self.n,
        }
    }

    /// Modes of the half spectrum.
    fn modes(&self) -> u64 {
        self.n / 2 + 1
    }

    /// Points of a line as it is read and as it is written.
    pub(super) fn lengths(&self) -> [u64; 2] {
        match self.kind {
            Kind::Forward | Kind::Backward => [self.n; 2],
            Kind::RealToComplex => [self.n, self.modes()],
            Kind::ComplexToReal => [self.modes(), self.n],
        }
    }

    /// Points of a line in workgroup memory.
    fn shared_points(&self) -> u64 {
        match self.kind {
            Kind::Forward | Kind::Backward => self.points(),
            _ => self.points() + 1,
        }
    }

    /// The longest complex line that `limits` allow: real and imaginary parts take turns in workgroup memory.
    pub fn longest(limits: Limits) -> u64 {
        (limits.workgroup_bytes / 4).min(limits.invocations * POINTS)
    }

    /// How it is laid out, or none if a line does not fit.
    pub fn shape(&self, limits: Limits) -> Option<Shape> {
        let lanes = self.points().div_ceil(POINTS);
        if lanes > limits.invocations {
            return None;
        }
        // 128 bytes of neighbouring columns, or a workgroup of a few dozen lanes.
        let wanted = if self.strided { 16 } else { (128 / lanes).clamp(1, 32) };
        let fit = |together: bool| {
            let bytes = self.shared_points() * if together { 8 } else { 4 };
            wanted.min(limits.invocations / lanes).min(limits.workgroup_bytes / bytes)
        };
        let enough = if self.strided { 8 } else { 1 };
        let together = fit(true) >= enough.min(fit(false));
        let lines = fit(together);
        (lines > 0).then(|| Shape { lanes, lines: 1 << lines.ilog2(), together })
    }

    /// The kernel's text for `shape`.
    pub fn source(&self, shape: Shape) -> KernelSource {
        let real_in = self.kind == Kind::RealToComplex;
        let real_out = self.kind == Kind::ComplexToReal;
        let element = |real: bool| if real { Element::F32 } else { Element::Complex32 };
        let name = format!("fft::{:?}({})", self.kind, self.n);
        let source = KernelSource::new(name, Writer::new(*self, shape).write())
            .params(PARAMS)
            .array("input", element(real_in), Access::Read)
            .array("output", element(real_out), Access::ReadWrite)
            .array("roots", Element::Complex32, Access::Read)
            .group((shape.lanes * shape.lines) as u32);
        if self.spectral { source.array("table", Element::F32, Access::Read) } else { source }
    }

    /// Complex elements (or, of real lines, pairs of reals) that a line reads and writes: for counting traffic in bytes.
    pub fn line_bytes(&self) -> [u64; 2] {
        match self.kind {
            Kind::Forward | Kind::Backward => [8 * self.n; 2],
            Kind::RealToComplex => [4 * self.n, 8 * self.modes()],
            Kind::ComplexToReal => [8 * self.modes(), 4 * self.n],
        }
    }
}

/// The table of roots of unity `exp(-2 pi i k / n)` that kernels of length `n` read.
pub fn roots(n: u64) -> Vec<[f32; 2]> {
    let angle = |k: u64| -2.0 * std::f64::consts::PI * k as f64 / n as f64;
    (0..n).map(|k| [angle(k).cos() as f32, angle(k).sin() as f32]).collect()
}

/// A point of a line on its way: where it stands and what it is called.
struct Point {
    at: String,
    value: String,
    /// What must hold for it to be there at all.
    valid: Option<String>,
}

struct Writer {
    kernel: LineKernel,
    shape: Shape,
    code: Code,
    /// Whether workgroup memory may still be read by other lanes.
    dirty: bool,
}

impl Writer {
    fn new(kernel: LineKernel, shape: Shape) -> Self {
        Writer { kernel, shape, code: Code::default(), dirty: false }
    }

    fn sign(&self) -> f64 {
        if matches!(self.kernel.kind, Kind::Forward | Kind::RealToComplex) { -1.0 } else { 1.0 }
    }

    fn write(mut self) -> String {
        let LineKernel { n, kind, .. } = self.kernel;
        let Shape { lanes, lines, together } = self.shape;
        let points = self.kernel.points();
        let radices = radices(points);
        let mut done = 1;
        let mut moving: Vec<Point> = Vec::new();
        for (stage, &radix) in radices.iter().enumerate() {
            let butterflies = points / radix;
            let per_lane = butterflies.div_ceil(lanes);
            let j: Vec<String> = (0..per_lane)
                .map(|b| self.code.value(clamped(b * lanes, (b + 1) * lanes > butterflies, butterflies)))
                .collect();
            let places: Vec<String> =
                j.iter().flat_map(|j| (0..radix).map(move |i| format!("{j} + {}u", i * butterflies))).collect();
            let values = if stage == 0 { self.first(&places) } else { self.exchange(&moving, &places) };
            moving.clear();
            for (b, j) in j.iter().enumerate() {
                let mut x = values[b * radix as usize..(b + 1) * radix as usize].to_vec();
                let mut low = "0u".to_string();
                if done > 1 {
                    low = self.code.value(format!("{j} % {done}u"));
                    for (i, x) in x.iter_mut().enumerate().skip(1) {
                        let root = self.root(&format!("{low} * {}u", i as u64 * (n / (done * radix))));
                        *x = self.code.value(format!("multiply({x}, {root})"));
                    }
                }
                let y = self.code.transform(&x, self.sign());
                let base = if done > 1 {
                    self.code.value(format!("({j} - {low}) * {radix}u + {low}"))
                } else {
                    self.code.value(format!("{j} * {radix}u"))
                };
                let first = b as u64 * lanes;
                let valid = (first + lanes > butterflies).then(|| format!("lane + {first}u < {butterflies}u"));
                for (i, value) in y.into_iter().enumerate() {
                    moving.push(Point { at: format!("{base} + {}u", i as u64 * done), value, valid: valid.clone() });
                }
            }
            done *= radix;
        }
        self.last(moving);

        let per_line = self.kernel.shared_points();
        let cell = if together { "vec2<f32>" } else { "f32" };
        let split = if self.kernel.strided {
            format!("let column = local % {lines}u;\n    let lane = local / {lines}u;")
        } else {
            format!("let lane = local % {lanes}u;\n    let column = local / {lanes}u;")
        };
        let place =
            if self.kernel.strided { format!("at * {lines}u + column") } else { format!("column * {per_line}u + at") };
        let [length_in, length_out] = self.kernel.lengths();
        let address = |order: Order, name: &str, length: u64| match order {
            Order::Plain => format!(
                "fn {name}_at(outer: u32, at: u32, inner: u32) -> u32 {{\n    return params.{name}.x + outer / params.rows_{s} * params.{name}.y \
                 + outer % params.rows_{s} * params.{name}.z + at * params.{name}.w + inner;\n}}",
                s = if name == "input" { "in" } else { "out" }
            ),
            Order::Blocked => format!(
                "fn {name}_at(outer: u32, at: u32, inner: u32) -> u32 {{\n    return blocked(outer, at, inner, {length}u, params.parts_{s});\n}}",
                s = if name == "input" { "in" } else { "out" }
            ),
        };
        let spectral = if self.kernel.spectral { SPECTRAL } else { "" };
        format!(
            "// One-dimensional transforms of {n} points: {kind:?}.\n\
             // Workgroup: {lines} lines of {lanes} invocations; workgroup memory {} bytes.\n\
             var<workgroup> shared_line: array<{cell}, {}>;\n\
             {COMMON}{spectral}\n{}\n{}\n\
             fn place(column: u32, at: u32) -> u32 {{ return {place}; }}\n\
             @compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) id: vec3<u32>,\n    \
             @builtin(num_workgroups) count: vec3<u32>,\n    @builtin(local_invocation_index) local: u32,\n) {{\n    {split}\n    \
             let line = group_number(id, count) * {lines}u + column;\n    let present = line < params.lines;\n    \
             let clamped = min(line, params.lines - 1u);\n    let outer = clamped / params.inner;\n    let inner = clamped % params.inner;\n{}}}\n",
            lines * per_line * if together { 8 } else { 4 },
            lines * per_line,
            address(self.kernel.input, "input", length_in),
            address(self.kernel.output, "output", length_out),
            self.code.text
        )
    }

    /// The root of unity with this index, turned the way of the transform.
    fn root(&mut self, index: &str) -> String {
        let root = self.code.value(format!("load_roots({index})"));
        if self.sign() < 0.0 { root } else { self.code.value(format!("vec2<f32>({root}.x, -{root}.y)")) }
    }

    /// Values of the first stage at these places.
    fn first(&mut self, places: &[String]) -> Vec<String> {
        let LineKernel { n, kind, spectral, .. } = self.kernel;
        let points = self.kernel.points();
        match kind {
            Kind::Forward | Kind::Backward => places
                .iter()
                .map(|at| {
                    let at = self.code.value(at);
                    let loaded = self.code.value(format!("load_input(input_at(outer, {at}, inner))"));
                    if spectral { self.code.value(format!("spectral({loaded}, {at}, inner)")) } else { loaded }
                })
                .collect(),
            Kind::RealToComplex => places
                .iter()
                .map(|at| {
                    let at = self.code.value(if points == n { at.clone() } else { format!("2u * ({at})") });
                    let real = format!("load_input(input_at(outer, {at}, inner))");
                    let other = if points == n {
                        "0.0".to_string()
                    } else {
                        format!("load_input(input_at(outer, {at} + 1u, inner))")
                    };
                    self.code.value(format!("vec2<f32>({real}, {other})"))
                })
                .collect(),
            Kind::ComplexToReal => {
                let modes = self.kernel.modes();
                let lanes = self.shape.lanes;
                let mut loaded = Vec::new();
                for b in 0..modes.div_ceil(lanes) {
                    let first = b * lanes;
                    let partial = first + lanes > modes;
                    let at = self.code.value(clamped(first, partial, modes));
                    let value = self.code.value(format!("load_input(input_at(outer, {at}, inner))"));
                    // A real line has real modes here.
                    let own =
                        if n % 2 == 0 { format!("{at} == 0u || {at} == {}u", n / 2) } else { format!("{at} == 0u") };
                    let value = self.code.value(format!("vec2<f32>({value}.x, select({value}.y, 0.0, {own}))"));
                    loaded.push(Point { at, value, valid: partial.then(|| format!("lane + {first}u < {modes}u")) });
                }
                let places: Vec<String> = places.iter().map(|at| self.code.value(at)).collect();
                if points == n {
                    let low: Vec<String> = places.iter().map(|at| format!("min({at}, {n}u - {at})")).collect();
                    let values = self.exchange(&loaded, &low);
                    return places
                        .iter()
                        .zip(values)
                        .map(|(at, value)| {
                            self.code.value(format!(
                                "vec2<f32>({value}.x, select({value}.y, -{value}.y, {at} > {}u))",
                                n / 2
                            ))
                        })
                        .collect();
                }
                let mirrored = places.iter().map(|at| format!("{points}u - {at}"));
                let both: Vec<String> = places.iter().cloned().chain(mirrored).collect();
                let values = self.exchange(&loaded, &both);
                let (here, there) = values.split_at(places.len());
                places
                    .iter()
                    .zip(here.iter().zip(there))
                    .map(|(at, (x, y))| {
                        let y = self.code.value(format!("vec2<f32>({y}.x, -{y}.y)"));
                        let root = self.root(at);
                        let odd = self.code.value(format!("multiply({x} - {y}, {root})"));
                        self.code.value(format!("{x} + {y} + vec2<f32>(-{odd}.y, {odd}.x)"))
                    })
                    .collect()
            }
        }
    }

    /// Stores what the last stage left.
    fn last(&mut self, moving: Vec<Point>) {
        let LineKernel { n, kind, .. } = self.kernel;
        let (points, modes) = (self.kernel.points(), self.kernel.modes());
        let store = |code: &mut Code, at: &str, value: &str, valid: &[&str]| {
            let valid: Vec<&str> = std::iter::once("present").chain(valid.iter().copied()).collect();
            code.line(format!(
                "if {} {{ store_output(output_at(outer, {at}, inner), {value} * params.scale); }}",
                valid.join(" && ")
            ));
        };
        match kind {
            Kind::RealToComplex if points < n => {
                let lanes = self.shape.lanes;
                let per_lane = modes.div_ceil(lanes);
                let k: Vec<String> = (0..per_lane)
                    .map(|b| self.code.value(clamped(b * lanes, (b + 1) * lanes > modes, modes)))
                    .collect();
                let both: Vec<String> = k
                    .iter()
                    .map(|k| format!("select({k}, 0u, {k} == {points}u)"))
                    .chain(k.iter().map(|k| format!("select({points}u - {k}, 0u, {k} == 0u)")))
                    .collect();
                let values = self.exchange(&moving, &both);
                let (here, there) = values.split_at(k.len());
                for (b, k) in k.iter().enumerate() {
                    let x = &here[b];
                    let y = self.code.value(format!("vec2<f32>({0}.x, -{0}.y)", there[b]));
                    let even = self.code.value(format!("({x} + {y}) * {}", literal(0.5)));
                    let odd = self.code.value(format!("vec2<f32>({x}.y - {y}.y, {y}.x - {x}.x) * {}", literal(0.5)));
                    let root = self.root(k);
                    let value = self.code.value(format!("{even} + multiply({odd}, {root})"));
                    let first = b as u64 * lanes;
                    let valid = (first + lanes > modes).then(|| format!("lane + {first}u < {modes}u"));
                    store(&mut self.code, k, &value, &valid.as_deref().into_iter().collect::<Vec<_>>());
                }
            }
            _ => {
                for Point { at, value, valid } in moving {
                    let at = self.code.value(at);
                    let mut valid: Vec<String> = valid.into_iter().collect();
                    if kind == Kind::RealToComplex {
                        valid.push(format!("{at} < {modes}u"));
                    }
                    let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
                    match kind {
                        Kind::ComplexToReal if points < n => {
                            store(&mut self.code, &format!("2u * {at}"), &format!("{value}.x"), &valid);
                            store(&mut self.code, &format!("2u * {at} + 1u"), &format!("{value}.y"), &valid);
                        }
                        Kind::ComplexToReal => store(&mut self.code, &at, &format!("{value}.x"), &valid),
                        _ => store(&mut self.code, &at, &value, &valid),
                    }
                }
            }
        }
    }

    /// Moves points between lanes through workgroup memory; returns the values at `places`.
    fn exchange(&mut self, points: &[Point], places: &[String]) -> Vec<String> {
        let parts: &[&str] = if self.shape.together { &[""] } else { &[".x", ".y"] };
        let targets: Vec<String> =
            points.iter().map(|point| self.code.value(format!("place(column, {})", point.at))).collect();
        let origins: Vec<String> = places.iter().map(|at| self.code.value(format!("place(column, {at})"))).collect();
        let mut read = Vec::new();
        for part in parts {
            if std::mem::replace(&mut self.dirty, true) {
                self.code.line("workgroupBarrier();");
            }
            for (point, target) in points.iter().zip(&targets) {
                let write = format!("shared_line[{target}] = {}{part};", point.value);
                self.code.line(point.valid.as_ref().map_or(write.clone(), |valid| format!("if {valid} {{ {write} }}")));
            }
            self.code.line("workgroupBarrier();");
            read.push(origins.iter().map(|at| self.code.value(format!("shared_line[{at}]"))).collect::<Vec<_>>());
        }
        match <[Vec<String>; 2]>::try_from(read) {
            Ok([x, y]) => x.iter().zip(&y).map(|(x, y)| self.code.value(format!("vec2<f32>({x}, {y})"))).collect(),
            Err(mut whole) => whole.pop().unwrap_or_default(),
        }
    }
}

/// A lane's index from `first` on, held below `end` where it could go beyond.
fn clamped(first: u64, partial: bool, end: u64) -> String {
    let index = if first == 0 { "lane".to_string() } else { format!("lane + {first}u") };
    if partial { format!("min({index}, {}u)", end - 1) } else { index }
}

/// Helpers of every kernel. `blocked` is the address of a point in an array whose axis of `length` is cut into `parts`:
/// the larger parts first, as [`split`](crate::layout::split) does.
const COMMON: &str = "\
fn multiply(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
fn blocked(outer: u32, at: u32, inner: u32, length: u32, parts: u32) -> u32 {
    let small = length / parts;
    let larger = length % parts * (small + 1u);
    let low = at < larger;
    let size = select(max(small, 1u), small + 1u, low);
    let first = select(larger, 0u, low);
    let start = first + (at - first) / size * size;
    return params.outer * params.inner * start + (outer * size + at - start) * params.inner + inner;
}
";

/// Multiplies a mode by the factors of an [`Operator`](super::Operator).
const SPECTRAL: &str = "\
fn spectral(value: vec2<f32>, at: u32, inner: u32) -> vec2<f32> {
    let second = params.starts.x + inner / params.inner_last;
    let third = params.starts.y + inner % params.inner_last;
    let top = load_table(at) * load_table(second) * load_table(third);
    let low = load_table(params.starts.z + at) + load_table(params.starts.z + second) + load_table(params.starts.z + third);
    let turned = multiply(params.constant, value);
    return turned * select(top / low, 0.0, low == 0.0);
}
";

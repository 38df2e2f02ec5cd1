// One step of a reduction along an axis: `out` holds a value for each part of the axis, the fold of
// the elements part, part + params.parts, part + 2 params.parts, ...
//
// Layout: params.dims has the extent of each axis and the strides of `out` and of `input` along it,
// the last axis fastest. The parts are axis params.axis of them. Sums of single precision carry
// their rounding errors (Neumaier, ZAMM 54 (1974)): a sum and the sum of its errors, for the real
// and for the imaginary part. With `first` the input holds values, with `last` the output does.
// Workgroup: GROUP invocations, one element of the output each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> input: array<From>;
var<storage, read_write> out: array<To>;

#if carried
#import gpu::two_floats

fn added(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let sum = two_sum(a.x, b.x);
    return vec2<f32>(sum.x, a.y + b.y + sum.y);
}
// Drops a rounding error that is not finite, so that an infinite sum stays infinite.
fn rounded(a: vec2<f32>) -> f32 {
    return select(a.x + a.y, a.x, (bitcast<u32>(a.y) & 0x7f800000u) == 0x7f800000u);
}
#if complex
fn join(a: State, b: State) -> State { return State(added(a.xy, b.xy), added(a.zw, b.zw)); }
#if first
fn begin(x: From) -> State { return State(x.x, 0.0, x.y, 0.0); }
#else
fn begin(x: From) -> State { return x; }
#endif
#if last
fn end(x: State) -> To { return To(rounded(x.xy), rounded(x.zw)); }
#else
fn end(x: State) -> To { return x; }
#endif
#else
fn join(a: State, b: State) -> State { return added(a, b); }
#if first
fn begin(x: From) -> State { return State(x, 0.0); }
#else
fn begin(x: From) -> State { return x; }
#endif
#if last
fn end(x: State) -> To { return rounded(x); }
#else
fn end(x: State) -> To { return x; }
#endif
#endif
#else
fn begin(x: From) -> State { return x; }
fn end(x: State) -> To { return x; }
#if sum
fn join(a: State, b: State) -> State { return a + b; }
#else
#import gpu::values
#if times
fn join(a: State, b: State) -> State { return product(a, b); }
#else
#if min
fn join(a: State, b: State) -> State { return smaller(a, b); }
#else
fn join(a: State, b: State) -> State { return larger(a, b); }
#endif
#endif
#endif
#endif

fn each_invocation(i: u32) {
    var at = vec2<u32>(0u);
    var part = 0u;
    var rest = i;
    for (var n = params.rank; n > 0u; n--) {
        let row = params.dims[n - 1u];
        let above = rest / row.x;
        let k = rest - above * row.x;
        if n - 1u == params.axis { part = k; }
        at += k * row.yz;
        rest = above;
    }
    var state = begin(load_input(at.y));
    for (var left = (params.length - 1u - part) / params.parts; left > 0u; left--) {
        at.y += params.step;
        state = join(state, begin(load_input(at.y)));
    }
    store_out(at.x, end(state));
}

#each_invocation params.count

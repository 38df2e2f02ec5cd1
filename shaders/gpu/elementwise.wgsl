// One function of one or two operands at each element of a strided array: out = operation(a, b).
//
// Layout: params.dims has the extent of each axis and the strides of `out`, `a` and `b` along it,
// the last axis fastest. A stride is negative as a two's complement, and 0 where an operand
// repeats. An operand without an array is the scalar of the parameters. With `in_place` the operand
// a is `out`. With `take` the coordinate of `a` along params.axis is the element of `index` at this
// coordinate.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
#if a_array
var<storage, read> a: array<A>;
#endif
#if b_array
var<storage, read> b: array<B>;
#endif
#if take
var<storage, read> index: array<u32>;
#endif
var<storage, read_write> out: array<Out>;

#import gpu::values
#import gpu::operation

#if scalar
#if double
fn scalar_part(parts: vec4<f32>) -> Real { return Real(parts.x) + Real(parts.y) + Real(parts.z); }
#else
fn scalar_part(parts: vec4<f32>) -> Real { return parts.x; }
#endif
#if complex
fn scalar() -> Value { return Value(scalar_part(params.scalar[0]), scalar_part(params.scalar[1])); }
#else
fn scalar() -> Value { return scalar_part(params.scalar[0]); }
#endif
#endif

#if a_widens
fn as_a(x: A) -> Value { return Value(Real(x), Real(0.0)); }
#else
fn as_a(x: A) -> Value { return Value(x); }
#endif
#if b_widens
fn as_b(x: B) -> Value { return Value(Real(x), Real(0.0)); }
#else
fn as_b(x: B) -> Value { return Value(x); }
#endif

// Steps of `out`, `a` and `b` from the first element of axis d to element k.
fn steps(d: u32, k: u32) -> vec3<u32> {
    let row = params.dims[d];
#if take
    var looked_up = k;
    if d == params.axis { looked_up = load_index(k); }
    return vec3<u32>(k * row.y, looked_up * row.z, k * row.w);
#else
    return k * row.yzw;
#endif
}

fn each(i: u32) {
    var at = vec3<u32>(params.start_out, params.start_a, params.start_b);
    var rest = i;
    for (var d = params.rank - 1u; d > 0u; d--) {
        let above = rest / params.dims[d].x;
        at += steps(d, rest - above * params.dims[d].x);
        rest = above;
    }
    at += steps(0u, rest);
#if in_place
    let x = as_a(load_out(at.x));
#else
#if a_array
    let x = as_a(load_a(at.y));
#else
    let x = scalar();
#endif
#endif
#if binary
#if b_array
    let y = as_b(load_b(at.z));
#else
    let y = scalar();
#endif
    store_out(at.x, Out(operation(x, y)));
#else
    store_out(at.x, Out(operation(x)));
#endif
}

#each params.count

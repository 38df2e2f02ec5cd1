// What all kernels that transform lines share: complex numbers, which line is which, and where its
// points lie.
//
// Lines are counted by c.x (fastest), c.y and c.z (the field of a batch). Parameters: `LineParams`
// in fft/line.rs.

fn multiply(a: Complex, b: Complex) -> Complex {
    // Which of the products are rounded is said, so that all passes round alike.
    return Complex(fma(a.x, b.x, -(a.y * b.y)), fma(a.x, b.y, a.y * b.x));
}

// A zero that no compiler knows to be one, another for each of three. What is read again with it in
// the index is read again, where compilers would keep it in registers all the while.
fn unknown_zero(which: u32) -> u32 {
    return select(select(params.line_input_more.w + params.line_output_more.w, params.line_output_more.w, which == 2u),
        params.line_input_more.w, which == 1u);
}

// The same number, through a choice that no compiler can make. A sum of its parts is then never
// made one operation with a product that they are, which would round otherwise than where the two
// stand in different kernels.
fn kept_apart(value: Complex) -> Complex { return select(value, Complex(), unknown_zero(1u) != 0u); }
fn kept_apart_real(value: Real) -> Real { return select(value, Real(), unknown_zero(1u) != 0u); }

// A real number as a complex one whose imaginary part no compiler knows to be 0, another one for
// each point: arithmetic with zeros that are known, or known to be equal, would be contracted
// otherwise than where they come from memory.
fn from_real(value: Real) -> Complex { return Complex(value, select(Real(), value, unknown_zero(1u) != 0u)); }

// The counters of a line by its number.
fn counters(line: u32) -> vec3<u32> {
    let rest = line / params.line_sizes.x;
    return vec3<u32>(line % params.line_sizes.x, rest % params.line_sizes.y, rest / params.line_sizes.y);
}

// The factor of the output.
fn factor() -> Real {
#if double
    return Real(params.line_scale.x) + Real(params.line_scale.y) + Real(params.line_scale.z);
#else
    return params.line_scale.x;
#endif
}

// The factor of modes that stand for two in half a Hermitian line.
fn interior() -> Real { return Real(params.line_scale.w); }

#if input_blocked
fn input_line(c: vec3<u32>) -> vec2<u32> {
    return params.line_starts.xy + blocked_line(c, params.line_input, params.line_input_more);
}
#if input_listed
fn input_at(line: vec2<u32>, at: u32) -> u32 {
    return in_block(line, at, params.line_input.x, params.line_input_more.x, load_line_parts(params.line_blocks.x + at));
}
#else
fn input_at(line: vec2<u32>, at: u32) -> u32 {
    return blocked(line, at, params.line_input.x, params.line_input_more.x, params.line_blocks.xy, params.line_inverse.xy);
}
#endif
#else
fn input_line(c: vec3<u32>) -> u32 { return strided_line(c, params.line_input); }
fn input_at(line: u32, at: u32) -> u32 { return line + at * params.line_input_more.x; }
#endif

#if output_blocked
fn output_line(c: vec3<u32>) -> vec2<u32> {
    return params.line_starts.zw + blocked_line(c, params.line_output, params.line_output_more);
}
#if output_listed
fn output_at(line: vec2<u32>, at: u32) -> u32 {
    return in_block(line, at, params.line_output.x, params.line_output_more.x, load_line_parts(params.line_blocks.z + at));
}
#else
fn output_at(line: vec2<u32>, at: u32) -> u32 {
    return blocked(line, at, params.line_output.x, params.line_output_more.x, params.line_blocks.zw, params.line_inverse.zw);
}
#endif
#else
fn output_line(c: vec3<u32>) -> u32 { return strided_line(c, params.line_output); }
fn output_at(line: u32, at: u32) -> u32 { return line + at * params.line_output_more.x; }
#endif

// The first point of a line whose points lie at a fixed stride.
fn strided_line(c: vec3<u32>, v: vec4<u32>) -> u32 { return v.x + v.y * c.x + v.z * c.y + v.w * c.z; }

// The outer and inner index of a line in blocks.
fn blocked_line(c: vec3<u32>, outer: vec4<u32>, inner: vec4<u32>) -> vec2<u32> {
    return vec2<u32>(outer.y * c.x + outer.z * c.y + outer.w * c.z, inner.y * c.x + inner.z * c.y + inner.w * c.z);
}

// The address of a point in the block whose first point and number of points `block` has.
fn in_block(line: vec2<u32>, at: u32, lines: u32, width: u32, block: vec2<u32>) -> u32 {
    return lines * block.x + (line.x * block.y + at - block.x) * width + line.y;
}

// The address of a point in an array whose axis is cut into parts, the larger ones first, as
// `grid::split` does. The quotient comes from a product in f32, corrected by one, which is faster
// than an integer division.
fn blocked(line: vec2<u32>, at: u32, lines: u32, width: u32, blocks: vec2<u32>, inverse: vec2<f32>) -> u32 {
    let larger = at < blocks.x;
    let size = select(blocks.y, blocks.y + 1u, larger);
    let first = select(blocks.x, 0u, larger);
    let offset = at - first;
    var part = u32(f32(offset) * select(inverse.y, inverse.x, larger));
    part -= select(0u, 1u, part * size > offset);
    part += select(0u, 1u, (part + 1u) * size <= offset);
    let start = first + part * size;
    return lines * start + (line.x * size + at - start) * width + line.y;
}

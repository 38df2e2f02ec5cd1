// Numbers as unevaluated sums of two floats, the greater first: some 45 bits. See Dekker,
// Numerische Mathematik 18 (1971). Products split factors in halves of 12 bits, so that neither
// fused operations nor their absence matter.
//
// Compilers take sums of floats for those of real numbers, for which (a + b) - a is b (Metal's and
// DirectX's may always). A word that is 0 only when the kernel runs, params.nothing, hides from
// them what a number is. Every sum and product that is part of another is held: one that is left
// out is enough for them to find that the lower float is 0.

fn held(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ params.nothing); }

/// a + b, exactly.
fn two_sum(a: f32, b: f32) -> vec2<f32> {
    let sum = held(a + b);
    let rest = held(sum - a);
    return vec2<f32>(sum, held(a - held(sum - rest)) + held(b - rest));
}

/// a + b, exactly, where a is the greater.
fn normalized(a: f32, b: f32) -> vec2<f32> {
    let sum = held(a + b);
    return vec2<f32>(sum, b - held(sum - a));
}

/// Returns a b, exact except for underflow.
fn two_product(a: f32, b: f32) -> vec2<f32> {
    let product = held(a * b);
    let a_high = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
    let b_high = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
    let a_low = held(a - a_high);
    let b_low = held(b - b_high);
    let high = held(held(a_high * b_high) - product);
    return vec2<f32>(product, held(held(high + held(a_high * b_low)) + held(a_low * b_high)) + held(a_low * b_low));
}

fn sum2(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let sum = two_sum(a.x, b.x);
    return normalized(sum.x, sum.y + (a.y + b.y));
}

fn product2(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let product = two_product(a.x, b.x);
    return normalized(product.x, product.y + (a.x * b.y + a.y * b.x));
}

fn quotient2(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let first = a.x / b.x;
    let rest = sum2(a, -product2(b, vec2<f32>(first, 0.0)));
    return normalized(first, rest.x / b.x);
}

/// Returns the natural logarithm of a positive number: the logarithm of its power of two plus
/// 2 artanh((m - 1) / (m + 1)) of its mantissa m between the roots of 1/2 and 2. For 0, and for
/// numbers too small for a normal float, it is minus infinity, which WGSL does not guarantee (some
/// devices return -88). For negative numbers it is NaN.
fn log2floats(a: vec2<f32>) -> vec2<f32> {
    let bits = bitcast<u32>(a.x);
    if (bits & 0x7fffffffu) < 0x00800000u { return vec2<f32>(bitcast<f32>(0xff800000u ^ params.nothing), 0.0); }
    if bits == 0x7f800000u { return a; }
    if bits > 0x7f800000u { return vec2<f32>(bitcast<f32>(0x7fc00000u ^ params.nothing), 0.0); }
    let above = select(0u, 1u, (bits & 0x007fffffu) > 0x003504f3u);
    let power = i32(bits >> 23u) - 127 + i32(above);
    let m = bitcast<f32>((bits & 0x007fffffu) | ((127u - above) << 23u));
    // The second float in the same units; in two steps, since the power may be beyond the range.
    let half = power / 2;
    let rest = a.y * bitcast<f32>(u32(127 - half) << 23u) * bitcast<f32>(u32(127 - (power - half)) << 23u);
    let z = quotient2(sum2(vec2<f32>(m - 1.0, 0.0), vec2<f32>(rest, 0.0)), sum2(two_sum(m, 1.0), vec2<f32>(rest, 0.0)));
    let w = product2(z, z);
    let tail = w.x * w.x
        * (0.2 + w.x * (0.14285714 + w.x * (0.11111111 + w.x * (0.09090909 + w.x * (0.07692308 + w.x * 0.06666667)))));
    // The third in two floats.
    let series = sum2(vec2<f32>(1.0, tail), product2(w, vec2<f32>(0.33333334, -9.934108e-9)));
    // The logarithm of 2 in two floats.
    let whole = two_product(f32(power), 0.6931472);
    let powers = normalized(whole.x, whole.y + f32(power) * -1.9046543e-9);
    return sum2(powers, 2.0 * product2(z, series));
}

/// Returns the exponential of a number of 0 or less: that of an eighth of what is left of whole
/// powers of two, three times squared. Below -80 it is 0.
fn exp2floats(a: vec2<f32>) -> vec2<f32> {
    if a.x < -80.0 { return vec2<f32>(0.0); }
    let power = round(a.x * 1.442695);
    let x = 0.125 * sum2(a, -product2(vec2<f32>(power, 0.0), vec2<f32>(0.6931472, -1.9046543e-9)));
    // 1 + x (1 + x / 2 (1 + x / 3 (1 + tail))), where |x| is .044 at most.
    let tail = 0.25 * x.x * (1.0 + 0.2 * x.x * (1.0 + 0.16666667 * x.x));
    let third = product2(x, vec2<f32>(0.33333334, -9.934108e-9));
    var e = sum2(vec2<f32>(1.0, 0.0), product2(third, two_sum(1.0, tail)));
    e = sum2(vec2<f32>(1.0, 0.0), 0.5 * product2(x, e));
    e = sum2(vec2<f32>(1.0, 0.0), product2(x, e));
    for (var i = 0u; i < 3u; i++) { e = product2(e, e); }
    return e * bitcast<f32>(u32(127 + i32(power)) << 23u);
}

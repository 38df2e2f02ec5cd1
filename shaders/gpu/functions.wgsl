// Functions of f32 to a few units in the last place, where those of shaders may err by thousands
// (Vulkan's atan by 4096). Polynomials: Moshier, Methods and Programs for Mathematical Functions
// (1989), single precision.

#import gpu::two_floats

fn not_a_number() -> f32 { return bitcast<f32>(0x7fc00000u ^ params.nothing); }
fn infinity() -> f32 { return bitcast<f32>(0x7f800000u ^ params.nothing); }
fn with_sign_of(magnitude: f32, x: f32) -> f32 {
    // Not by a mask of bits, which llvmpipe loses where it is merged with other conditions.
    return select(abs(magnitude), -abs(magnitude), (bitcast<u32>(x) >> 31u) == 1u);
}

/// Returns exp(x) - 1 for |x| of .35 at most.
fn small_expm1(x: f32) -> f32 {
    let p = 0.50000001201 + x * (0.16666665459 + x * (0.041665795894
        + x * (0.0083334519073 + x * (0.00139819995 + x * 0.00019875691500))));
    return x + x * x * p;
}
fn exp_of(x: f32) -> f32 {
    if is_nan(x) { return x; }
    if x > 88.72284 { return infinity(); }
    if x < -103.97 { return 0.0; }
    let power = round(x * 1.442695);
    let rest = held(x - power * 0.693359375) + power * 2.12194440e-4;
    // Two factors, since 2^128 and 2^-149 are beyond normal numbers.
    let half = i32(power) / 2;
    let scale = vec2<f32>(bitcast<f32>(u32(127 + half) << 23u), bitcast<f32>(u32(127 + i32(power) - half) << 23u));
    return (1.0 + small_expm1(rest)) * scale.x * scale.y;
}
fn expm1_of(x: f32) -> f32 {
    if abs(x) < 0.34 { return small_expm1(x); }
    return exp_of(x) - 1.0;
}
fn log_of(x: f32) -> f32 { return log2floats(vec2<f32>(x, 0.0)).x; }
fn log1p_of(x: f32) -> f32 {
    if abs(x) < 1.0e-4 { return x - 0.5 * x * x; }
    if single_bits(x) == 0x7f800000u { return x; }
    return log2floats(two_sum(1.0, x)).x;
}
// The logarithm to a base by the two floats of the reciprocal of the base's logarithm.
fn log_by(x: f32, factor: vec2<f32>) -> f32 {
    let log = log2floats(vec2<f32>(x, 0.0));
    if (single_bits(log.x) & 0x7f800000u) == 0x7f800000u { return log.x; }
    return product2(log, factor).x;
}
fn log2_of(x: f32) -> f32 { return log_by(x, vec2<f32>(1.442695, 1.925963e-8)); }
fn log10_of(x: f32) -> f32 { return log_by(x, vec2<f32>(0.4342945, -1.010305e-8)); }
fn exp2_of(x: f32) -> f32 {
    let exponent = product2(vec2<f32>(clamp(x, -200.0, 200.0), 0.0), vec2<f32>(0.6931472, -1.9046543e-9));
    let result = exp_of(exponent.x);
    return select(select(result + result * exponent.y, result, result == infinity()), x, is_nan(x));
}
fn power_of(x: f32, y: f32) -> f32 {
    if y == 0.0 || x == 1.0 { return 1.0; }
    if is_nan(x) || is_nan(y) { return x + y; }
    let is_integer = y == floor(y);
    let is_odd = is_integer && abs(y) < 16777216.0 && fract(0.5 * y) != 0.0;
    if abs(x) == 1.0 && abs(y) == infinity() { return 1.0; }
    if x < 0.0 && !is_integer && x != -infinity() { return not_a_number(); }
    var result = 0.0;
    if x == 0.0 {
        result = select(0.0, infinity(), y < 0.0);
    } else {
        let log = log2floats(vec2<f32>(abs(x), 0.0));
        let whole = log.x * y;
        if abs(whole) < 200.0 && abs(y) > 1.0e-30 {
            let exact = product2(log, vec2<f32>(y, 0.0));
            result = exp_of(exact.x);
            if result < infinity() { result += result * exact.y; }
        } else {
            result = exp_of(whole);
        }
    }
    return select(result, with_sign_of(result, x), is_odd);
}

// Sine and cosine of x. NaN where |x| is beyond 2.6e7: neighboring floats are more than a period
// apart soon after.
fn sin_cos(x: f32) -> vec2<f32> {
    if !(abs(x) < 2.6e7) { return vec2<f32>(not_a_number()); }
    let turns = round(x * 0.63661977);
    // Half of pi in three floats.
    let high = two_product(turns, 1.5707964);
    let low = two_product(turns, -4.371139e-8);
    let first = two_sum(x, -high.x);
    let rest = first.x + (first.y - high.y - low.x - low.y + turns * 1.7151245e-15);
    let z = rest * rest;
    let sine = rest + rest * z * (-0.16666654611 + z * (0.0083321608736 - z * 0.00019515295891));
    let cosine = 1.0 - 0.5 * z + z * z * (0.04166664568298827 + z * (-0.001388731625493765 + z * 0.00002443315711809948));
    let quarter = u32(i32(turns) & 3);
    let swapped = select(vec2<f32>(sine, cosine), vec2<f32>(cosine, sine), (quarter & 1u) == 1u);
    return vec2<f32>(
        select(swapped.x, -swapped.x, quarter >= 2u),
        select(swapped.y, -swapped.y, quarter == 1u || quarter == 2u),
    );
}
fn tan_of(x: f32) -> f32 {
    let both = sin_cos(x);
    return both.x / both.y;
}

fn arctan_of(x: f32) -> f32 {
    let a = abs(x);
    var base = 0.0;
    var y = a;
    if a > 2.414213562373095 {
        base = 1.5707964;
        y = -1.0 / a;
    } else if a > 0.4142135623730950 {
        base = 0.78539816;
        y = (a - 1.0) / (a + 1.0);
    }
    let z = y * y;
    let p = -0.333329491539 + z * (0.199777106478 + z * (-0.138776856032 + z * 0.0805374449538));
    let result = base + (y + y * z * p);
    return select(with_sign_of(result, x), x, is_nan(x));
}
fn arctan2_of(y: f32, x: f32) -> f32 {
    if is_nan(x) || is_nan(y) { return x + y; }
    let ends = vec2<f32>(abs(x), abs(y));
    let is_negative = (bitcast<u32>(x) >> 31u) == 1u;
    var angle = 0.0;
    if ends.y > 0.0 {
        if ends.x == ends.y { angle = 0.78539816; } else { angle = arctan_of(ends.y / ends.x); }
        if ends.x == 0.0 { angle = 1.5707964; }
    }
    return with_sign_of(select(angle, 3.1415927 - angle, is_negative), y);
}
fn arcsin_of(x: f32) -> f32 {
    let a = abs(x);
    if !(a <= 1.0) { return not_a_number(); }
    let is_large = a > 0.5;
    let z = select(a * a, 0.5 * (1.0 - a), is_large);
    let y = select(a, sqrt(z), is_large);
    let p = 0.16666752422 + z * (0.074953002686 + z * (0.045470025998 + z * (0.024181311049 + z * 0.042163199048)));
    let result = y + y * z * p;
    return with_sign_of(select(result, 1.5707964 - 2.0 * result, is_large), x);
}
fn arccos_of(x: f32) -> f32 {
    if !(abs(x) <= 1.0) { return not_a_number(); }
    if x > 0.5 { return 2.0 * arcsin_of(sqrt(0.5 * (1.0 - x))); }
    if x < -0.5 { return 3.1415927 - 2.0 * arcsin_of(sqrt(0.5 * (1.0 + x))); }
    return 1.5707964 - arcsin_of(x);
}

fn sinh_of(x: f32) -> f32 {
    let a = abs(x);
    if a > 20.0 {
        let half = exp_of(0.5 * a);
        return with_sign_of(0.5 * half * half, x);
    }
    let e = expm1_of(a);
    return with_sign_of(0.5 * (e + e / (e + 1.0)), x);
}
fn cosh_of(x: f32) -> f32 {
    let half = exp_of(0.5 * abs(x));
    if abs(x) > 20.0 { return 0.5 * half * half; }
    return 0.5 * (half * half + 1.0 / (half * half));
}
fn tanh_of(x: f32) -> f32 {
    if is_nan(x) { return x; }
    let e = expm1_of(min(2.0 * abs(x), 40.0));
    return with_sign_of(e / (e + 2.0), x);
}
fn arcsinh_of(x: f32) -> f32 {
    let a = abs(x);
    if a > 1.0e9 { return with_sign_of(log_of(a) + 0.6931472, x); }
    return with_sign_of(log1p_of(a + a * a / (1.0 + sqrt(1.0 + a * a))), x);
}
fn arccosh_of(x: f32) -> f32 {
    if x < 1.0 { return not_a_number(); }
    if x > 1.0e9 { return log_of(x) + 0.6931472; }
    let above = x - 1.0;
    return log1p_of(above + sqrt(above * (above + 2.0)));
}
fn arctanh_of(x: f32) -> f32 {
    let a = abs(x);
    if a > 1.0 { return not_a_number(); }
    if a == 1.0 { return with_sign_of(infinity(), x); }
    return with_sign_of(0.5 * log1p_of(2.0 * a / (1.0 - a)), x);
}

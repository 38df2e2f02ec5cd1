// Functions in double precision, by the reductions and polynomials of fdlibm (Sun Microsystems
// 1993; https://www.netlib.org/fdlibm/): errors of about one unit in the last place.

fn not_a_number() -> f64 { return f64(bitcast<f32>(0x7fc00000u ^ params.nothing)); }
fn infinity() -> f64 { return f64(bitcast<f32>(0x7f800000u ^ params.nothing)); }

/// Returns 2^k for |k| < 1100, as a product of powers of single precision.
fn power_of_two(k: i32) -> f64 {
    var result = 1.0lf;
    var rest = k;
    for (var n = 0; n < 9; n++) {
        let part = clamp(rest, -126, 127);
        result *= f64(bitcast<f32>(u32(127 + part) << 23u));
        rest -= part;
    }
    return result;
}

fn exp_of(x: f64) -> f64 {
    if is_nan(x) { return x; }
    if x > 709.782712893384lf { return infinity(); }
    if x < -745.1332191019412lf { return 0.0lf; }
    let power = round(x * 1.4426950408889634lf);
    let high = x - power * 6.93147180369123816490e-1lf;
    let low = power * 1.90821492927058770002e-10lf;
    let rest = high - low;
    let square = rest * rest;
    let even = rest - square * (1.66666666666666019037e-1lf + square * (-2.77777777770155933842e-3lf
        + square * (6.61375632143793436117e-5lf + square * (-1.65339022054652515390e-6lf
        + square * 4.13813679705723846039e-8lf))));
    let result = 1.0lf - ((low - rest * even / (2.0lf - even)) - high);
    // Two factors, since 2^1024 and 2^-1074 are beyond normal numbers.
    let half = i32(power) / 2;
    return result * power_of_two(half) * power_of_two(i32(power) - half);
}

fn log_of(x: f64) -> f64 {
    if is_nan(x) { return x; }
    if x < 0.0lf { return not_a_number(); }
    if x == 0.0lf { return -infinity(); }
    if x > 1.7976931348623157e308lf { return x; }
    var m = x;
    var k = 0;
    // Into the range of single precision, in which the exponent is known.
    for (var n = 0; n < 10 && m >= 1.329227995784916e36lf; n++) { m *= power_of_two(-120); k += 120; }
    for (var n = 0; n < 10 && m < 7.52316384526264e-37lf; n++) { m *= power_of_two(120); k -= 120; }
    let exponent = i32(bitcast<u32>(f32(m)) >> 23u) - 127;
    m *= power_of_two(-exponent);
    k += exponent;
    if m > 1.4142135623730951lf { m *= 0.5lf; k += 1; }
    let f = m - 1.0lf;
    let s = f / (2.0lf + f);
    let z = s * s;
    let w = z * z;
    let odd = w * (3.999999999940941908e-1lf + w * (2.222219843214978396e-1lf + w * 1.531383769920937332e-1lf));
    let even = z * (6.666666666666735130e-1lf + w * (2.857142874366239149e-1lf
        + w * (1.818357216161805012e-1lf + w * 1.479819860511658591e-1lf)));
    let half = 0.5lf * f * f;
    let power = f64(k);
    return power * 6.93147180369123816490e-1lf
        - ((half - (s * (half + odd + even) + power * 1.90821492927058770002e-10lf)) - f);
}

// Logarithms to other bases, of powers of 2 exactly to the base 2.
fn log2_of(x: f64) -> f64 {
    let result = log_of(x) * 1.4426950408889634lf;
    let whole = round(result);
    return select(result, whole, abs(whole) < 1080.0lf && x == power_of_two(i32(clamp(whole, -1080.0lf, 1080.0lf))));
}

fn log10_of(x: f64) -> f64 {
    let result = log_of(x) * 4.34294481903251816668e-1lf;
    // Of 10^n exactly n, as far as 10^n is exact.
    let whole = round(result);
    if !(whole >= 0.0lf && whole <= 22.0lf) { return result; }
    var power = 1.0lf;
    for (var n = 0; n < i32(whole); n++) { power *= 10.0lf; }
    return select(result, whole, x == power);
}
fn tan_of(x: f64) -> f64 {
    let pair = sin_cos(x);
    return pair.x / pair.y;
}

/// Sine and cosine of x. NaN where |x| is beyond 8e5: half of pi in three parts is too short there.
fn sin_cos(x: f64) -> vec2<f64> {
    if !(abs(x) < 8.0e5lf) { return vec2<f64>(not_a_number()); }
    let turns = round(x * 6.36619772367581382433e-1lf);
    // Half of pi in parts of 33 bits, whose products with `turns` are exact.
    let first = x - turns * 1.57079632673412561417lf;
    let second = turns * 6.07710050630396597660e-11lf;
    let near = first - second;
    let third = turns * 2.02226624879595063154e-21lf - ((first - near) - second);
    let y = near - third;
    let tail = (near - y) - third;
    let z = y * y;
    let v = z * y;
    let r = 8.33333333332248946124e-3lf + z * (-1.98412698298579493134e-4lf + z * (2.75573137070700676789e-6lf
        + z * (-2.50507602534068634195e-8lf + z * 1.58969099521155010221e-10lf)));
    let sine = y - ((z * (0.5lf * tail - v * r) - tail) + v * 1.66666666666666324348e-1lf);
    let c = z * (4.16666666666666019037e-2lf + z * (-1.38888888888741095749e-3lf + z * (2.48015872894767294178e-5lf
        + z * (-2.75573143513906633035e-7lf + z * (2.08757232129817482790e-9lf + z * -1.13596475577881948265e-11lf)))));
    let w = 1.0lf - 0.5lf * z;
    let cosine = w + (((1.0lf - w) - 0.5lf * z) + (z * c - y * tail));
    switch u32(i32(turns)) & 3u {
        case 0u: { return vec2<f64>(sine, cosine); }
        case 1u: { return vec2<f64>(cosine, -sine); }
        case 2u: { return vec2<f64>(-sine, -cosine); }
        default: { return vec2<f64>(-cosine, sine); }
    }
}

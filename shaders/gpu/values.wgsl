// Functions of real numbers (Real: f32 or f64) and of complex ones, and tests of special values.

// The bits of a number in single precision. Tests for NaN and infinity look at bits, because
// compilers may assume that floats are finite.
fn single_bits(x: Real) -> u32 { return bitcast<u32>(f32(x)); }
fn is_nan(x: Real) -> bool { return (single_bits(x) & 0x7fffffffu) > 0x7f800000u; }
// Numbers of double precision beyond single precision have its bits of infinity.
fn is_infinite(x: Real) -> bool { return (single_bits(x) & 0x7fffffffu) == 0x7f800000u && x + x == x; }

fn is_finite(x: Real) -> bool { return !is_nan(x) && !is_infinite(x); }
fn are_equal(x: Real, y: Real) -> bool { return x == y && !is_nan(x) && !is_nan(y); }
fn truth(holds: bool) -> f32 { return select(0.0f, 1.0f, holds); }

fn larger(x: Real, y: Real) -> Real { return select(max(x, y), x + y, is_nan(x) || is_nan(y)); }
fn smaller(x: Real, y: Real) -> Real { return select(min(x, y), x + y, is_nan(x) || is_nan(y)); }
fn sign_of(x: Real) -> Real { return select(sign(x), x, is_nan(x)); }

/// Returns the square root of x^2 + y^2 without overflow of the squares.
fn hypotenuse(x: Real, y: Real) -> Real {
    let most = max(abs(x), abs(y));
    let least = min(abs(x), abs(y));
    if is_infinite(x) { return abs(x); }
    if is_infinite(y) { return abs(y); }
    if is_nan(x) || is_nan(y) { return x + y; }
    if least == Real(0.0) { return most; }
    let ratio = least / most;
    return most * sqrt(Real(1.0) + ratio * ratio);
}

#if complex
fn product(x: Value, y: Value) -> Value { return Value(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x); }

/// Returns x / y (Smith, Communications of the ACM 5 (1962)).
fn ratio(x: Value, y: Value) -> Value {
    if abs(y.x) >= abs(y.y) {
        if y.x == Real(0.0) { return Value(x.x / abs(y.x), x.y / abs(y.x)); }
        let part = y.y / y.x;
        let divisor = y.x + y.y * part;
        return Value((x.x + x.y * part) / divisor, (x.y - x.x * part) / divisor);
    }
    let part = y.x / y.y;
    let divisor = y.y + y.x * part;
    return Value((x.x * part + x.y) / divisor, (x.y * part - x.x) / divisor);
}

/// Returns the root with a real part of 0 or more.
fn root(x: Value) -> Value {
    if x.x == Real(0.0) && x.y == Real(0.0) { return Value(Real(0.0), x.y); }
    let half = sqrt(Real(0.5) * abs(x.x) + Real(0.5) * hypotenuse(x.x, x.y));
    let other = Real(0.5) * x.y / half;
    if x.x >= Real(0.0) { return Value(half, other); }
    return Value(abs(other), select(half, -half, x.y < Real(0.0)));
}
fn one() -> Value { return Value(Real(1.0), Real(0.0)); }
#else
fn product(x: Value, y: Value) -> Value { return x * y; }
fn ratio(x: Value, y: Value) -> Value { return x / y; }
fn root(x: Value) -> Value { return sqrt(x); }
fn one() -> Value { return Real(1.0); }
#endif

#if power
/// Returns x to the integer power params.exponent, by squaring.
fn integer_power(x: Value) -> Value {
    var square = x;
    var result = one();
    var power = u32(abs(params.exponent));
    for (; power > 0u; power >>= 1u) {
        if (power & 1u) == 1u { result = product(result, square); }
        square = product(square, square);
    }
    if params.exponent < 0 { return ratio(one(), result); }
    return result;
}
#endif

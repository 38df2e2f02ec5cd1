// Numbers of 53 bits that round like f64, to nearest and ties to even, and have no limits of
// exponents. They are made of 32-bit integers: devices without f64 have them, too, and those with
// it need not round its quotients correctly. The method is that of J. R. Hauser's SoftFloat:
// mantissas are aligned in 64 bits, whose last one also says that a bit was lost.

#import gpu::fixed

/// (high 2^32 + low) 2^exponent, with 2^52 <= high 2^32 + low < 2^53, or 0.
struct Double {
    low: u32,
    high: u32,
    exponent: i32,
    /// 1 for negative numbers.
    sign: u32,
}

fn is_positive(a: Double) -> bool { return a.sign == 0u && (a.low | a.high) != 0u; }

fn opposite(a: Double) -> Double { return Double(a.low, a.high, a.exponent, a.sign ^ 1u); }

/// Returns a 2^power.
fn times_power(a: Double, power: i32) -> Double { return Double(a.low, a.high, a.exponent + power, a.sign); }

/// Returns a 2^n without the bits beyond 64, for n of 63 at most.
fn up(a: vec2<u32>, n: u32) -> vec2<u32> {
    if n == 0u { return a; }
    if n >= 32u { return vec2<u32>(0u, a.x << (n - 32u)); }
    return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}

/// Returns a 2^-n; the last bit is 1 if a lost bit was.
fn down(a: vec2<u32>, n: u32) -> vec2<u32> {
    if n == 0u { return a; }
    if n >= 64u { return vec2<u32>(select(0u, 1u, (a.x | a.y) != 0u), 0u); }
    if n >= 32u {
        let lost = a.x | up(vec2<u32>(0u, a.y), 64u - n).y;
        return vec2<u32>((a.y >> (n - 32u)) | select(0u, 1u, lost != 0u), 0u);
    }
    return vec2<u32>((a.x >> n) | (a.y << (32u - n)) | select(0u, 1u, (a.x << (32u - n)) != 0u), a.y >> n);
}

/// Rounds a 2^exponent.
fn rounded(a: vec2<u32>, exponent: i32, sign: u32) -> Double {
    if (a.x | a.y) == 0u { return Double(0u, 0u, 0, 0u); }
    let shift = select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
    let top = up(a, shift);
    let rest = top.x & 0x7ffu;
    var low = (top.x >> 11u) | (top.y << 21u);
    var high = top.y >> 11u;
    var power = exponent - i32(shift) + 11;
    if rest > 0x400u || (rest == 0x400u && (low & 1u) == 1u) {
        low += 1u;
        high += select(0u, 1u, low == 0u);
    }
    if high == 0x200000u {
        high = 0x100000u;
        power += 1;
    }
    return Double(low, high, power, sign);
}

/// Returns an integer in two's complement times 2^exponent.
fn of_integer(a: vec2<u32>, exponent: i32) -> Double {
    let sign = a.y >> 31u;
    var magnitude = a;
    if sign == 1u { magnitude = negated(a); }
    return rounded(magnitude, exponent, sign);
}

/// Returns `true` if the magnitude of `a` is less.
fn is_shorter(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }

fn sum(a: Double, b: Double) -> Double {
    if (a.low | a.high) == 0u { return b; }
    if (b.low | b.high) == 0u { return a; }
    var first = a;
    var second = b;
    if a.exponent < b.exponent {
        first = b;
        second = a;
    }
    let x = up(vec2<u32>(first.low, first.high), 10u);
    let y = down(up(vec2<u32>(second.low, second.high), 10u), u32(first.exponent - second.exponent));
    let exponent = first.exponent - 10;
    if first.sign == second.sign { return rounded(plus(x, y), exponent, first.sign); }
    if is_shorter(x, y) { return rounded(plus(y, negated(x)), exponent, second.sign); }
    return rounded(plus(x, negated(y)), exponent, first.sign);
}

/// Returns the product of two words.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let middle = (a & 0xffffu) * (b >> 16u);
    let other = (a >> 16u) * (b & 0xffffu);
    let low = vec2<u32>((a & 0xffffu) * (b & 0xffffu), (a >> 16u) * (b >> 16u));
    return plus(plus(low, vec2<u32>(middle << 16u, middle >> 16u)), vec2<u32>(other << 16u, other >> 16u));
}

fn product(a: Double, b: Double) -> Double {
    if (a.low | a.high) == 0u || (b.low | b.high) == 0u { return Double(0u, 0u, 0, 0u); }
    let low = wide_product(a.low, b.low);
    let middle = plus(wide_product(a.low, b.high), wide_product(a.high, b.low));
    // Bits from 32 on: high parts have 21 bits, so that nothing is carried beyond 64.
    let upper = plus(middle, vec2<u32>(low.y, 0u));
    let high = plus(wide_product(a.high, b.high), vec2<u32>(upper.y, 0u));
    let top = vec2<u32>((upper.x >> 10u) | (high.x << 22u), (high.x >> 10u) | (high.y << 22u));
    let lost = low.x | (upper.x & 0x3ffu);
    return rounded(vec2<u32>(top.x | select(0u, 1u, lost != 0u), top.y), a.exponent + b.exponent + 42, a.sign ^ b.sign);
}

/// Returns a / b, for b that is not 0.
fn quotient(a: Double, b: Double) -> Double {
    if (a.low | a.high) == 0u { return Double(0u, 0u, 0, 0u); }
    let divisor = vec2<u32>(b.low, b.high);
    var rest = vec2<u32>(a.low, a.high);
    var bits = vec2<u32>(0u);
    // A bit before the point and 55 behind it.
    for (var n = 0u; n < 56u; n++) {
        bits = up(bits, 1u);
        if !is_shorter(rest, divisor) {
            rest = plus(rest, negated(divisor));
            bits.x |= 1u;
        }
        rest = up(rest, 1u);
    }
    bits = up(bits, 1u);
    bits.x |= select(0u, 1u, (rest.x | rest.y) != 0u);
    return rounded(bits, a.exponent - b.exponent - 56, a.sign ^ b.sign);
}

/// Returns `true` if a < b.
fn is_less(a: Double, b: Double) -> bool {
    let zeros = vec2<bool>((a.low | a.high) == 0u, (b.low | b.high) == 0u);
    if zeros.x { return !zeros.y && b.sign == 0u; }
    if zeros.y || a.sign != b.sign { return a.sign == 1u; }
    if a.exponent != b.exponent { return (a.exponent < b.exponent) == (a.sign == 0u); }
    let x = vec2<u32>(a.low, a.high);
    let y = vec2<u32>(b.low, b.high);
    if a.sign == 1u { return is_shorter(y, x); }
    return is_shorter(x, y);
}

/// Returns the bits of the f32 next to `a`; 0 if it is not a normal one.
fn single_of(a: Double) -> u32 {
    var kept = (a.high << 3u) | (a.low >> 29u);
    let rest = a.low & 0x1fffffffu;
    kept += select(0u, 1u, rest > 0x10000000u || (rest == 0x10000000u && (kept & 1u) == 1u));
    // The mantissa's top bit adds 1 to the exponent, and so does one carried beyond it.
    let exponent = a.exponent + 52 + 127;
    if kept == 0u || exponent < 1 || exponent + i32(kept >> 24u) > 254 { return 0u; }
    return (a.sign << 31u) | ((u32(exponent - 1) << 23u) + kept);
}

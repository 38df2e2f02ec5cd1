// Values as 64-bit integers in two words, low word first, and back: what is added in any order.

/// Returns the least power of two above all magnitudes of which `most` are the greatest bits.
fn top_of(most: u32) -> i32 { return i32(most >> 23u) - 126; }

/// Returns the two's complement.
fn negated(a: vec2<u32>) -> vec2<u32> { return vec2<u32>(~a.x + 1u, ~a.y + select(0u, 1u, a.x == 0u)); }

/// Returns the multiple of 2^-point next to a value that is less than 2^62 of them: low and high
/// word.
fn fixed(value: f32, point: i32) -> vec2<u32> {
    let bits = bitcast<u32>(value);
    let exponent = (bits >> 23u) & 0xffu;
    let mantissa = (bits & 0x7fffffu) | select(0u, 0x800000u, exponent > 0u);
    // The value is mantissa * 2^(exponent - 150).
    let shift = i32(max(exponent, 1u)) - 150 + point;
    var low = 0u;
    var high = 0u;
    if shift >= 32 {
        high = mantissa << u32(shift - 32);
    } else if shift > 0 {
        low = mantissa << u32(shift);
        high = mantissa >> u32(32 - shift);
    } else if shift > -25 {
        low = (mantissa + select(0u, 1u << u32(-shift - 1), shift < 0)) >> u32(-shift);
    }
    if (bits >> 31u) == 1u {
        return negated(vec2<u32>(low, high));
    }
    return vec2<u32>(low, high);
}

fn plus(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

/// 2^n for -126 <= n <= 127.
fn power(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }

/// Returns a number of multiples of 2^-point as a float.
fn value_of(integer: vec2<u32>, point: i32) -> f32 {
    let negative = (integer.y >> 31u) == 1u;
    let magnitude = select(integer, negated(integer), negative);
    let first = clamp(-point, -126, 127);
    // In two steps: the power may be beyond the range of f32 where the product is not.
    let value = (f32(magnitude.y) * 4294967296.0 + f32(magnitude.x)) * power(first) * power(clamp(-point - first, -126, 127));
    return select(value, -value, negative);
}

/// Returns a sum of terms of `bits` bits whose greatest magnitude has the bits `most`: NaN where
/// one of them was NaN or infinite.
fn sum_of_terms(integer: vec2<u32>, bits: u32, most: u32) -> f32 {
    let found = value_of(integer, i32(bits) - top_of(most));
    // Bits of a NaN, whatever the greatest magnitude was.
    return select(found, bitcast<f32>(most | 0x7fc00000u), most >= 0x7f800000u);
}

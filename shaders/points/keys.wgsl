// The place of each point on a space-filling curve, as a key of 63 bits (3 axes, 21 bits each) or
// 62 (2 axes, 31 bits).
//
// Layout: `positions` holds `params.dims` coordinates per point; `high` and `low` receive the two
// words of its key. The module of the curve turns cells into keys.
//
// A cell is floor((x - origin) 2^bits / span), clamped, where x - origin is rounded to f32 and all
// else is exact: a long division of the two mantissas, eight bits of the quotient at a time, in
// integers.
//
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> positions: array<f32>;
var<storage, read_write> high: array<u32>;
var<storage, read_write> low: array<u32>;

#if hilbert
#import points::hilbert
#else
#import points::morton
#endif

/// Mantissa and exponent of a float that is not negative: mantissa * 2^exponent, with the offset
/// that the exponent is stored with.
fn parts(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let exponent = (bits >> 23u) & 0xffu;
    let fraction = bits & 0x7fffffu;
    return select(vec2<u32>(fraction, 1u), vec2<u32>(fraction | 0x800000u, exponent), exponent > 0u);
}

/// Returns the cell that a coordinate lies in, along one axis.
fn cell(x: f32, origin: f32, span: f32, bits: u32) -> u32 {
    let offset = x - origin;
    if !(offset > 0.0) { return 0u; }
    if offset >= span { return select(0u, (1u << bits) - 1u, span > 0.0); }
    let a = parts(offset);
    let b = parts(span);
    let shift = b.y - a.y;
    if shift > bits { return 0u; }
    // Quotient and remainder before the point; the remainder stays below b.x < 2^24.
    var quotient = select(0u, 1u, a.x >= b.x);
    var rest = a.x - quotient * b.x;
    let inverse = 1.0 / f32(b.x);
    for (var left = bits - shift; left > 0u;) {
        let step = min(left, 8u);
        rest = rest << step;
        // An estimate, wrong by one at most.
        var digit = min(u32(f32(rest) * inverse), 255u);
        digit -= select(0u, 1u, digit * b.x > rest);
        rest -= digit * b.x;
        let more = rest >= b.x;
        digit += select(0u, 1u, more);
        rest -= select(0u, b.x, more);
        quotient = (quotient << step) | digit;
        left -= step;
    }
    return quotient;
}

fn each(point: u32) {
    let at = point * params.dims;
    let bits = select(31u, 21u, params.dims == 3u);
    let x = cell(load_positions(at), params.origin.x, params.span.x, bits);
    let y = cell(load_positions(at + 1u), params.origin.y, params.span.y, bits);
    var key = vec2<u32>(0u);
    if params.dims == 3u {
        key = key3(x, y, cell(load_positions(at + 2u), params.origin.z, params.span.z, bits));
    } else {
        key = key2(x, y);
    }
    store_high(point, key.x);
    store_low(point, key.y);
}

#each params.count

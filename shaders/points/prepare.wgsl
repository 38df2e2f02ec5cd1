// Wraps points into their domain, in place, and finds the first coordinate that is not finite, the
// bounds and the smallest magnitude.
//
// Layout: `positions` holds `params.dims` coordinates per point. `found` is reduced by atomic
// operations: [0] the index of the first coordinate that is not finite (minimum), [1..4] the least
// and [4..7] the greatest coordinate along each axis, as integers in the order of the reals
// (minimum, maximum), [7] the bits of the least magnitude that is a normal number (minimum). A
// coordinate along a periodic axis (side > 0) is wrapped by the period as it was given in f64 and
// then rounded, as `Domain::wrap` wraps f64: the period is `period_high * 2^32 + period_low` times
// `2^exponent`, and `side + rest` to the digits that matter near the box.
//
// Workgroup: GROUP invocations, ITEMS points each. Workgroup memory: 32 bytes, for the extremes of
// the workgroup.

var<uniform> params: Params;
var<storage, read_write> positions: array<f32>;
var<storage, read_write> found: array<atomic<u32>>;

const NONE: u32 = 0xffffffffu;

var<workgroup> group_found: array<atomic<u32>, 8>;

/// Returns `true` if a float is finite, by its bits: comparisons with NaN may be optimized away.
fn finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

/// Integers in the order of the reals.
fn image(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

/// 2^n for -126 <= n <= 127.
fn power(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }

/// An integer below 2^53 times 2^exponent, rounded once.
fn rounded(value: vec2<u32>, exponent: i32) -> f32 {
    var mantissa = value.x;
    var shift = 0u;
    if value.y > 0u {
        // The upper 32 bits; the last one also says whether any lower bit is set.
        shift = 32u - countLeadingZeros(value.y);
        mantissa = (value.y << (32u - shift)) | (value.x >> shift);
        mantissa |= select(0u, 1u, (value.x << (32u - shift)) != 0u);
    }
    // In two steps: the power may be below the range of f32 where the product is not.
    let first = max(exponent + i32(shift), -126);
    return f32(mantissa) * power(first) * power(max(exponent + i32(shift) - first, -126));
}

/// Returns the remainder of a coordinate at least one side from 0, by doubling the mantissa modulo
/// the period: at most 256 rounds.
fn far(x: f32, period: vec2<u32>, exponent: i32) -> f32 {
    let bits = bitcast<u32>(x);
    let doublings = i32((bits >> 23u) & 0xffu) - 150 - exponent;
    var left = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
    for (var n = 0; n < doublings; n++) {
        left = vec2<u32>(left.x << 1u, (left.y << 1u) | (left.x >> 31u));
        if left.y > period.y || (left.y == period.y && left.x >= period.x) {
            left = vec2<u32>(left.x - period.x, left.y - period.y - select(0u, 1u, left.x < period.x));
        }
    }
    if x < 0.0 && any(left > vec2<u32>(0u)) {
        left = vec2<u32>(period.x - left.x, period.y - left.y - select(0u, 1u, period.x < left.x));
    }
    return rounded(left, exponent);
}

fn wrapped(x: f32, side: f32, rest: f32, period: vec2<u32>, exponent: i32) -> f32 {
    if x >= 0.0 && x < side { return x; }
    var inside = 0.0;
    if x >= side && x < 2.0 * side {
        // The first difference is exact.
        inside = max((x - side) - rest, 0.0);
    } else if x < 0.0 && x > -side {
        let sum = side + x;
        inside = sum + ((x - (sum - side)) + rest);
    } else {
        inside = far(x, period, exponent);
    }
    return select(inside, 0.0, inside >= side);
}

fn each_workgroup(number: u32, lane: u32) {
    let is_minimum = lane < 4u || lane == 7u;
    if lane < 8u { atomicStore(&group_found[lane], select(0u, NONE, is_minimum)); }
    workgroupBarrier();
    var low = vec3<u32>(NONE);
    var high = vec3<u32>(0u);
    var not_finite = NONE;
    var least = NONE;
    for (var item = 0u; item < ITEMS; item++) {
        let point = (number * ITEMS + item) * GROUP + lane;
        if point < params.count {
            // Three axes, also of two: some compilers take indices of components only where they
            // unroll the loop.
            for (var axis = 0u; axis < 3u; axis++) {
                if axis >= params.dims { continue; }
                let at = point * params.dims + axis;
                let side = params.sides[axis];
                let before = load_positions(at);
                var x = before;
                if !finite(x) {
                    not_finite = min(not_finite, at);
                } else if side > 0.0 {
                    let period = vec2<u32>(params.periods_low[axis], params.periods_high[axis]);
                    x = wrapped(x, side, params.rests[axis], period, params.exponents[axis]);
                    if x != before { store_positions(at, x); }
                }
                low[axis] = min(low[axis], image(x));
                high[axis] = max(high[axis], image(x));
                let magnitude = bitcast<u32>(x) & 0x7fffffffu;
                least = min(least, select(NONE, magnitude, magnitude >= 0x00800000u));
            }
        }
    }
    if not_finite < NONE { atomicMin(&group_found[0], not_finite); }
    for (var axis = 0u; axis < 3u; axis++) {
        if axis >= params.dims { continue; }
        atomicMin(&group_found[1u + axis], low[axis]);
        atomicMax(&group_found[4u + axis], high[axis]);
    }
    atomicMin(&group_found[7], least);
    workgroupBarrier();
    if lane >= 8u { return; }
    if is_minimum { min_found(lane, atomicLoad(&group_found[lane])); } else { max_found(lane, atomicLoad(&group_found[lane])); }
}

#each_workgroup

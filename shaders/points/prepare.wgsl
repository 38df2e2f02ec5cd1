// Wraps points into their domain, in place, and finds the first coordinate that is not finite, the bounds and the smallest magnitude.
//
// Layout: `positions` holds `params.dims` coordinates per point. `found` is reduced by atomic operations:
// [0] the index of the first coordinate that is not finite (minimum),
// [1..4] the least and [4..7] the greatest coordinate along each axis, as integers in the order of the reals (minimum, maximum),
// [7] the bits of the least magnitude that is a normal number (minimum).
// A coordinate along a periodic axis (side > 0) is wrapped exactly: the remainder is made of subtractions of numbers within a factor
// of two of each other; only side - remainder is rounded.
//
// Workgroup: GROUP invocations, ITEMS points each. Workgroup memory: 32 bytes, for the extremes of the workgroup.

var<uniform> params: Params;
var<storage, read_write> positions: array<f32>;
var<storage, read_write> found: array<atomic<u32>>;

const NONE: u32 = 0xffffffffu;

var<workgroup> group_found: array<atomic<u32>, 8>;

/// Whether a float is finite, by its bits: comparisons with NaN may be optimised away.
fn finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

/// Integers in the order of the reals.
fn image(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn wrapped(x: f32, side: f32) -> f32 {
    if x >= 0.0 && x < side { return x; }
    var rest = abs(x);
    var step = side;
    while step <= rest * 0.5 { step = step + step; }
    loop {
        if rest >= step { rest = rest - step; }
        if step <= side { break; }
        step = step * 0.5;
    }
    if x < 0.0 && rest > 0.0 { rest = side - rest; }
    return select(rest, 0.0, rest >= side);
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
            // Three axes, also of two: some compilers take indices of components only where they unroll the loop.
            for (var axis = 0u; axis < 3u; axis++) {
                if axis >= params.dims { continue; }
                let at = point * params.dims + axis;
                let side = params.sides[axis];
                let before = load_positions(at);
                var x = before;
                if !finite(x) {
                    not_finite = min(not_finite, at);
                } else if side > 0.0 {
                    x = wrapped(x, side);
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

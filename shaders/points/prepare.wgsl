// Wraps points into their domain, in place, and looks at them: the first coordinate that is not finite, and the bounds.
//
// Layout: `positions` holds `dims` coordinates a point; `found` receives, by atomic minimum, the number of the first
// coordinate that is not finite [0], the least coordinates [1..4] and the least magnitude but for 0 [7], and by atomic maximum
// the greatest coordinates [4..7], as integers in the order of the reals. What is too small for a normal number counts as 0. A coordinate along a periodic axis (side > 0) is wrapped exactly: the remainder
// is made of subtractions of numbers within a factor of two of each other, only side - remainder is rounded.
//
// Workgroup: GROUP invocations, ITEMS points each. Workgroup memory: 32 bytes, for the extremes of the group.

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

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    if lane < 8u { atomicStore(&group_found[lane], select(0u, 0xffffffffu, lane < 4u || lane == 7u)); }
    workgroupBarrier();
    var low = vec3<u32>(0xffffffffu);
    var high = vec3<u32>(0u);
    var bad = 0xffffffffu;
    var least = 0xffffffffu;
    for (var item = 0u; item < ITEMS; item++) {
        let point = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if point < params.count {
            for (var axis = 0u; axis < params.dims; axis++) {
                let at = point * params.dims + axis;
                let side = params.sides[axis];
                let before = load_positions(at);
                var x = before;
                if !finite(x) {
                    bad = min(bad, at);
                } else if side > 0.0 {
                    x = wrapped(x, side);
                    if x != before { store_positions(at, x); }
                }
                low[axis] = min(low[axis], image(x));
                high[axis] = max(high[axis], image(x));
                let magnitude = bitcast<u32>(x) & 0x7fffffffu;
                least = min(least, select(0xffffffffu, magnitude, magnitude >= 0x00800000u));
            }
        }
    }
    if bad < 0xffffffffu { atomicMin(&group_found[0], bad); }
    for (var axis = 0u; axis < params.dims; axis++) {
        atomicMin(&group_found[1u + axis], low[axis]);
        atomicMax(&group_found[4u + axis], high[axis]);
    }
    atomicMin(&group_found[7], least);
    workgroupBarrier();
    if lane < 4u || lane == 7u { min_found(lane, atomicLoad(&group_found[lane])); }
    if lane >= 4u && lane < 7u { max_found(lane, atomicLoad(&group_found[lane])); }
}

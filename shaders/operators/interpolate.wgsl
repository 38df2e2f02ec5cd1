// The piecewise linear function through nodes at each x, and with `slope` its derivative.
//
// Layout: nodes are ascending abscissae, then their ordinates; params.nodes of each, at least two.
// The function is constant beyond the first and the last node, where the derivative is 0; at a node
// the derivative is that above it. NaN remains NaN.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> nodes: array<f32>;
var<storage, read> x: array<f32>;
var<storage, read_write> y: array<f32>;
#if slope
var<storage, read_write> d: array<f32>;
#endif

fn each(i: u32) {
    let at = load_x(i);
    // The first node of the interval: at most 31 halvings.
    var low = 0u;
    var high = params.nodes - 1u;
    for (var halving = 0u; halving < 32u && high - low > 1u; halving++) {
        let middle = low + (high - low) / 2u;
        if load_nodes(middle) <= at { low = middle; } else { high = middle; }
    }
    let ends = vec2<f32>(load_nodes(low), load_nodes(low + 1u));
    let values = vec2<f32>(load_nodes(params.nodes + low), load_nodes(params.nodes + low + 1u));
    let width = ends.y - ends.x;
    let share = (clamp(at, ends.x, ends.y) - ends.x) / width;
    let is_nan = (bitcast<u32>(at) & 0x7fffffffu) > 0x7f800000u;
    store_y(i, select(values.x * (1.0 - share) + values.y * share, at, is_nan));
#if slope
    store_d(i, select(0.0, (values.y - values.x) / width, at >= ends.x && at < ends.y));
#endif
}

#each params.count

// Computes masses and centers of mass of the nodes of one tree level from the level below.
//
// Layout: `moment` holds four words per node (mass, center), level after level; `params` as in
// nodes.wgsl. Sums run over the children in order, of offsets from the center of the first,
// weighted by fractions of the mass.
// Workgroup: GROUP invocations, a node of FAN nodes each. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> moment: array<f32>;

fn center_of(node: u32) -> vec3<f32> {
    return vec3<f32>(load_moment(4u * node + 1u), load_moment(4u * node + 2u), load_moment(4u * node + 3u));
}

fn each_invocation(node: u32) {
    let first = params.below + node * FAN;
    let end = min(first + FAN, params.first);
    let near = center_of(first);
    var mass = 0.0;
    for (var child = first; child < end; child++) { mass += load_moment(4u * child); }
    let whole = select(1.0, mass, mass != 0.0);
    var sum = vec3<f32>(0.0);
    for (var child = first; child < end; child++) {
        sum += load_moment(4u * child) / whole * (center_of(child) - near);
    }
    let center = near + select(vec3<f32>(0.0), sum, mass != 0.0);
    let to = 4u * (params.first + node);
    store_moment(to, mass);
    for (var axis = 0u; axis < 3u; axis++) { store_moment(to + 1u + axis, center[axis]); }
}

#each_invocation params.count

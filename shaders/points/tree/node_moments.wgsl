// Mass and centre of mass of one level of a tree from those of the level below.
//
// Layout: `moment` holds four words a node (mass, centre), levels one after the other; `params` as in nodes.wgsl. Sums run
// over the children in order, of offsets from the centre of the first, by parts of the mass.
// Workgroup: GROUP invocations, a node of FAN nodes each. No workgroup memory.

const FAN: u32 = 8u;

fn center_of(node: u32) -> vec3<f32> {
    return vec3<f32>(load_moment(4u * node + 1u), load_moment(4u * node + 2u), load_moment(4u * node + 3u));
}

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let node = group_number(id, count) * GROUP + lane;
    if node >= params.count { return; }
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

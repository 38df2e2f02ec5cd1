// Mass and centre of mass of the leaves of a tree.
//
// Layout: `sorted` holds DIMS words a point, `order` the number of each point in the input, which `mass_of` takes; `box` as in
// leaves.wgsl; `moment` four words a node: the mass, then the centre. Sums run over the points in order, of offsets
// from the middle of the leaf, so that a centre far from the origin is as good as one near it, by parts of the mass, so that no
// unit of either is too large.
// Workgroup: GROUP invocations, a leaf of LEAF points each. No workgroup memory.

const LEAF: u32 = 32u;

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let leaf = group_number(id, count) * GROUP + lane;
    let first = leaf * LEAF;
    if first >= params.count { return; }
    let end = min(first + LEAF, params.count);
    var middle = vec3<f32>(0.0);
    for (var axis = 0u; axis < 3u; axis++) {
        middle[axis] = 0.5 * bitcast<f32>(load_box(8u * leaf + axis)) + 0.5 * bitcast<f32>(load_box(8u * leaf + 3u + axis));
    }
    var mass = 0.0;
    for (var i = first; i < end; i++) { mass += mass_of(load_order(i)); }
    let whole = select(1.0, mass, mass != 0.0);
    var sum = vec3<f32>(0.0);
    for (var i = first; i < end; i++) {
        var at = vec3<f32>(0.0);
        for (var axis = 0u; axis < params.dims; axis++) { at[axis] = load_sorted(i * params.dims + axis); }
        sum += mass_of(load_order(i)) / whole * (at - middle);
    }
    let center = middle + select(vec3<f32>(0.0), sum, mass != 0.0);
    store_moment(4u * leaf, mass);
    for (var axis = 0u; axis < 3u; axis++) { store_moment(4u * leaf + 1u + axis, center[axis]); }
}

// Mass and center of mass of the leaves of a tree.
//
// Layout: `sorted` holds `params.dims` words per point, `order` the index of each in the input,
// `mass` the masses by that index (1 each without them); `box` as in leaves.wgsl; `moment` four
// words per node: the mass, then the center. Sums run over the points in order. They are of offsets
// from the middle of the leaf, so that a center far from the origin is as precise as one near it,
// and weighted by fractions of the mass, so that no unit of either overflows.
// Workgroup: GROUP invocations, a leaf of LEAF points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> sorted: array<f32>;
var<storage, read> order: array<u32>;
var<storage, read> box: array<u32>;
var<storage, read_write> moment: array<f32>;
#if masses
var<storage, read> mass: array<f32>;

fn mass_of(i: u32) -> f32 { return load_mass(i); }
#else

fn mass_of(i: u32) -> f32 { return 1.0; }
#endif

fn each_invocation(leaf: u32) {
    let first = leaf * LEAF;
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
        for (var axis = 0u; axis < 3u; axis++) {
            if axis < params.dims { at[axis] = load_sorted(i * params.dims + axis); }
        }
        sum += mass_of(load_order(i)) / whole * (at - middle);
    }
    let center = middle + select(vec3<f32>(0.0), sum, mass != 0.0);
    store_moment(4u * leaf, mass);
    for (var axis = 0u; axis < 3u; axis++) { store_moment(4u * leaf + 1u + axis, center[axis]); }
}

#each_invocation (params.count + LEAF - 1u) / LEAF

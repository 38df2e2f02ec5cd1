// Bounds of the leaves of a tree, the least index of a point in each, and their diagonals. With
// `gathers`, points are put in order at the same time.
//
// Layout: `source` (in the order of the input) and `sorted` hold `params.dims` words per point,
// `order` the index of each in the input;
// `box` eight words per node: the bits of low x, y, z and high x, y, z (0 behind the last axis),
// the least index, the bits of the length of the diagonal.
// Workgroup: 64 invocations, 8 leaves of LEAF points each, which are read and written as they lie
// in memory; four invocations share a leaf, one for each axis and one for indices. 4.5 KiB of
// workgroup memory, where a leaf takes four words more than it has, so that these 32 invocations
// access different banks.

var<uniform> params: Params;
#if gathers
var<storage, read> source: array<f32>;
var<storage, read_write> sorted: array<f32>;
#else
var<storage, read> sorted: array<f32>;
#endif
var<storage, read> order: array<u32>;
var<storage, read_write> box: array<u32>;

#import tree::diagonal

const LEAVES: u32 = GROUP / 8u;
const COORDINATES: u32 = 3u * LEAF + 4u;

var<workgroup> coordinates: array<f32, LEAVES * COORDINATES>;
var<workgroup> indices: array<u32, LEAVES * (LEAF + 1u)>;
var<workgroup> boxes: array<u32, LEAVES * 8u>;

/// Returns the place in `coordinates` of a word of the workgroup's leaves.
fn place(word: u32) -> u32 {
    let each = LEAF * params.dims;
    return word / each * COORDINATES + word % each;
}

fn fetch(first: u32, points: u32, lane: u32) {
    for (var w = lane; w < points; w += GROUP) {
        let index = load_order(first + w);
        indices[w / LEAF * (LEAF + 1u) + w % LEAF] = index;
#if gathers
        let at = place(w * params.dims);
        for (var axis = 0u; axis < params.dims; axis++) { coordinates[at + axis] = load_source(index * params.dims + axis); }
#endif
    }
#if !gathers
    for (var w = lane; w < points * params.dims; w += GROUP) { coordinates[place(w)] = load_sorted(first * params.dims + w); }
#endif
}

/// Writes the bounds of a leaf of `points` points along an axis.
fn bound(leaf: u32, points: u32, axis: u32) {
    var low = 0.0;
    var high = 0.0;
    if axis < params.dims {
        let first = leaf * COORDINATES + axis;
        low = coordinates[first];
        high = low;
        for (var i = 1u; i < points; i++) {
            let x = coordinates[first + i * params.dims];
            low = min(low, x);
            high = max(high, x);
        }
    }
    boxes[leaf * 8u + axis] = bitcast<u32>(low);
    boxes[leaf * 8u + 3u + axis] = bitcast<u32>(high);
}

fn least_index(leaf: u32, points: u32) {
    var least = indices[leaf * (LEAF + 1u)];
    for (var i = 1u; i < points; i++) { least = min(least, indices[leaf * (LEAF + 1u) + i]); }
    boxes[leaf * 8u + 6u] = least;
}

fn corner(at: u32) -> vec3<f32> {
    return vec3<f32>(bitcast<f32>(boxes[at]), bitcast<f32>(boxes[at + 1u]), bitcast<f32>(boxes[at + 2u]));
}

fn each_workgroup(number: u32, lane: u32) {
    let first = min(number * LEAVES * LEAF, params.count);
    let points = min(params.count - first, LEAVES * LEAF);
    fetch(first, points, lane);
    workgroupBarrier();
#if gathers
    for (var w = lane; w < points * params.dims; w += GROUP) { store_sorted(first * params.dims + w, coordinates[place(w)]); }
#endif
    let leaf = lane / 4u;
    let part = lane % 4u;
    let own = select(0u, min(points - min(leaf * LEAF, points), LEAF), leaf < LEAVES);
    if own > 0u && part < 3u { bound(leaf, own, part); }
    if own > 0u && part == 3u { least_index(leaf, own); }
    workgroupBarrier();
    if own > 0u && part == 3u { boxes[leaf * 8u + 7u] = bitcast<u32>(diagonal_of(corner(leaf * 8u), corner(leaf * 8u + 3u))); }
    workgroupBarrier();
    let leaves = (points + LEAF - 1u) / LEAF;
    for (var w = lane; w < leaves * 8u; w += GROUP) { store_box(first / LEAF * 8u + w, boxes[w]); }
}

#each_workgroup

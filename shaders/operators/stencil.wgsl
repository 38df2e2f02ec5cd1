// A stencil: each cell becomes the sum of weighted neighbors, in the order of the taps.
//
// Layout: `field` with ghosts along axes that are cut; along the others, whose bits in
// params.mesh.w are set, the mesh closes on itself. `taps` holds an offset along each axis and the
// bits of a weight for each tap. `out` the own cells, C order; both one field after the other.
// Neighboring invocations treat neighboring cells, so that a tap's loads are whole sectors, most
// of them in the cache.
// Workgroup: GROUP invocations, ITEMS cells each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> field: array<f32>;
var<storage, read> taps: array<i32>;
var<storage, read_write> out: array<f32>;

/// Returns the place along an axis of a neighbor of the cell that stands at `at` among ghosts.
fn place(at: u32, offset: i32, axis: u32) -> u32 {
    let moved = i32(at) + offset;
    let cells = i32(params.mesh[axis]);
    let wrapped = select(moved, moved - cells, moved >= cells);
    let closed = select(wrapped, wrapped + cells, wrapped < 0);
    return u32(select(moved, closed, ((params.mesh.w >> axis) & 1u) == 1u));
}

fn each(cell: u32) {
    let k = cell % params.own.z;
    let rest = cell / params.own.z;
    let j = rest % params.own.y;
    let i = rest / params.own.y % params.own.x;
    let first = params.field * (rest / params.own.y / params.own.x);
    var sum = 0.0;
    for (var tap = 0u; tap < params.taps; tap++) {
        let x = place(i + params.ghosts.x, load_taps(4u * tap), 0u);
        let y = place(j + params.ghosts.y, load_taps(4u * tap + 1u), 1u);
        let z = place(k + params.ghosts.z, load_taps(4u * tap + 2u), 2u);
        let weight = bitcast<f32>(load_taps(4u * tap + 3u));
        sum += weight * load_field(first + (x * params.shape.y + y) * params.shape.z + z);
    }
    store_out(cell, sum);
}

#each params.own.x * params.own.y * params.own.z * params.own.w

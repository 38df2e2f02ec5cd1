// Finds the cells of particles in a periodic box, their offsets from the nodes of these cells, and
// the ranks of these cells. Each particle is described by a vector.
//
// Vectors are positions, or with `lattice` displacements from the sites of a lattice; both in box
// units, of any size below 2^22 cells. Cells per length are the sum of `per_cell` and `rest`, so
// that the offset of a position is rounded once. A displacement counts in cells as in
// particle.wgsl.
//
// Layout: `moved` the vectors: all along x, then y, then z; `rank_of` the part of each cell along
// axis 0, then of each along axis 1; `owner` receives the rank of each particle; `placed` six words
// each: the cell of the whole mesh, then the offsets in cells, in `[0, 1)`. `faults[0]` counts
// particles without a position that f32 resolves, which come to the first cell.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> moved: array<f32>;
var<storage, read> rank_of: array<u32>;
var<storage, read_write> placed: array<u32>;
var<storage, read_write> owner: array<u32>;
var<storage, read_write> faults: array<atomic<u32>>;

#import mesh::window

struct Place {
    cell: u32,
    offset: f32,
}

/// Returns the place `offset` cells above node `node`.
fn place(node: i32, offset: f32, axis: u32) -> Place {
    let whole = floor(offset);
    // An offset just below 1 may be rounded to it.
    let is_next = offset - whole >= 1.0;
    let cells = i32(params.mesh[axis]);
    let cell = (node + i32(whole) + select(0, 1, is_next)) % cells;
    return Place(u32(select(cell, cell + cells, cell < 0)), select(offset - whole, 0.0, is_next));
}

#if lattice
fn along(at: f32, site: u32, axis: u32) -> Place {
    let node = cell_of_site(site, params.sites[axis], params.mesh[axis]);
    return place(i32(node.x), fma(f32(node.y), params.per_site[axis], at * params.per_cell[axis]), axis);
}
#else
fn along(at: f32, site: u32, axis: u32) -> Place {
    let node = floor(at * params.per_cell[axis]);
    return place(i32(node), fma(at, params.rest[axis], fma(at, params.per_cell[axis], -node)), axis);
}
#endif

fn each(i: u32) {
    let count = params.first.w;
    var at = vec3<f32>(load_moved(i), load_moved(count + i), load_moved(2u * count + i));
    if !sane(at * params.per_cell.xyz) {
        add_faults(0u, 1u);
        at = vec3<f32>(0.0);
    }
    let x = along(at.x, params.first.x + i / params.local.z / params.local.y, 0u);
    let y = along(at.y, params.first.y + i / params.local.z % params.local.y, 1u);
    let z = along(at.z, params.first.z + i % params.local.z, 2u);
    store_placed(6u * i, x.cell);
    store_placed(6u * i + 1u, y.cell);
    store_placed(6u * i + 2u, z.cell);
    store_placed(6u * i + 3u, bitcast<u32>(x.offset));
    store_placed(6u * i + 4u, bitcast<u32>(y.offset));
    store_placed(6u * i + 5u, bitcast<u32>(z.offset));
    store_owner(i, load_rank_of(x.cell) * params.sites.w + load_rank_of(params.mesh.x + y.cell));
}

#each params.first.w

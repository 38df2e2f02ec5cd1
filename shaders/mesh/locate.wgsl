// Cells of points in a periodic box, and their offsets from the nodes of the cells.
//
// Layout: `position` holds three coordinates per point, in `[0, side)`. With `owner`, `rank_of`
// holds the part of each cell along axis 0, then of each along axis 1, and `owner` receives the
// rank of each point; otherwise `cell` receives the index of the cell in this rank's array, ghosts
// included, and `x`, `y`, `z` the offsets, in cells, in `[0, 1)`. Cells per length are the sum of
// `per_length` and `rest`, so that an offset is rounded once. Both forms compute cells by the same
// operations.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> position: array<f32>;
#if owner
var<storage, read> rank_of: array<u32>;
var<storage, read_write> owner: array<u32>;
#else
var<storage, read_write> cell: array<u32>;
var<storage, read_write> x: array<f32>;
var<storage, read_write> y: array<f32>;
var<storage, read_write> z: array<f32>;
#endif

struct Place {
    cell: u32,
    offset: f32,
}

fn locate(at: f32, axis: u32) -> Place {
    var node = floor(at * params.per_length[axis]);
    var offset = fma(at, params.rest[axis], fma(at, params.per_length[axis], -node));
    if offset < 0.0 {
        node -= 1.0;
        offset += 1.0;
    }
    // A sum just below 1 may be rounded to it.
    if offset >= 1.0 {
        node += 1.0;
        offset -= 1.0;
    }
    let cells = i32(params.shape[axis]);
    var number = i32(node);
    number = select(number, number + cells, number < 0);
    number = select(number, number - cells, number >= cells);
    return Place(u32(number), offset);
}

fn each(i: u32) {
    let a = locate(load_position(3u * i), 0u);
    let b = locate(load_position(3u * i + 1u), 1u);
#if owner
    store_owner(i, load_rank_of(a.cell) * params.columns + load_rank_of(params.shape.x + b.cell));
#else
    let c = locate(load_position(3u * i + 2u), 2u);
    let steps = (vec3<u32>(a.cell, b.cell, c.cell) - params.start.xyz) * params.strides.xyz;
    store_cell(i, params.origin + steps.x + steps.y + steps.z);
    store_x(i, a.offset);
    store_y(i, b.offset);
    store_z(i, c.offset);
#endif
}

#each params.count

// The state at the start: a jet in geostrophic balance, with a ripple on its surface.
//
// Layout: `rows` holds the elevation, the ripple's part and u of each own row, one after the other;
// `columns` the ripple's part of each own column. `now` as in cells.wgsl, own cells only.
// Workgroup: GROUP invocations, ITEMS cells each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> rows: array<Real>;
var<storage, read> columns: array<Real>;
var<storage, read_write> now: array<Real>;

fn each(own: u32) {
    let row = own / params.own.x;
    let column = own - row * params.own.x;
    let at = (row + params.ghosts.y) * params.pitch + column + params.ghosts.x;
    let height = params.own.y;
    store_now(at, load_rows(row) + load_rows(height + row) * load_columns(column));
    store_now(params.field + at, load_rows(2u * height + row));
    store_now(2u * params.field + at, Real(0.0));
}

#each params.own.x * params.own.y

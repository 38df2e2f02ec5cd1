// Means of columns of cells: what a picture along the last axis shows.
//
// Layout: `cells` holds columns of `params.depth` cells one after the other; `means` receives a
// word for each.
// Workgroup: GROUP invocations, a column each, whose cells it reads one after the other: neighbors
// read other sectors at a time, and each sector is read once. Sums of 32 cells are added up, so
// that rounding stays small. No workgroup memory.

var<uniform> params: Params;
var<storage, read> cells: array<f32>;
var<storage, read_write> means: array<f32>;

fn each_invocation(column: u32) {
    var sum = 0.0;
    for (var first = 0u; first < params.depth; first += 32u) {
        var part = 0.0;
        for (var k = first; k < min(first + 32u, params.depth); k++) { part += load_cells(column * params.depth + k); }
        sum += part;
    }
    store_means(column, sum / f32(params.depth));
}

#each_invocation params.columns

// Three columns of numbers, one for each axis, as rows of three: particles as files and clouds have
// them.
//
// Layout: `x`, `y`, `z` hold a number for each particle; `rows` receives those of `count` particles
// from `first` on, three words each.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory. Reads are of neighbors;
// three writes of an invocation share a sector.

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read> y: array<f32>;
var<storage, read> z: array<f32>;
var<storage, read_write> rows: array<f32>;

fn each(i: u32) {
    let particle = params.first + i;
    store_rows(3u * i, load_x(particle));
    store_rows(3u * i + 1u, load_y(particle));
    store_rows(3u * i + 2u, load_z(particle));
}

#each params.count

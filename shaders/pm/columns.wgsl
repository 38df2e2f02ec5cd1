// Rows of three numbers as three columns, one for each axis: the way back of `rows`.
//
// Layout: `rows` holds `count` rows; `x`, `y`, `z` receive a number of each, from number `first`
// on.
// Workgroup: GROUP invocations, ITEMS rows each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> rows: array<f32>;
var<storage, read_write> x: array<f32>;
var<storage, read_write> y: array<f32>;
var<storage, read_write> z: array<f32>;

fn each(i: u32) {
    let particle = params.first + i;
    store_x(particle, load_rows(3u * i));
    store_y(particle, load_rows(3u * i + 1u));
    store_z(particle, load_rows(3u * i + 2u));
}

#each params.count

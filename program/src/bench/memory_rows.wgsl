// Reads rows of an array, one from each stride and then the next of each, as a pass over a strided
// axis does.
//
// Element i of this order is element w of row r of column c. Invocation i reads LOADS of them, a
// LOADS-th of all apart. Parameters are powers of two, given as logarithms. Workgroup: the device's
// tuned size.

const LOADS: u32 = 8u;

var<uniform> params: Params;
var<storage, read> x: array<vec2<f32>>;
var<storage, read_write> sums: array<f32>;

fn low(x: u32, bits: u32) -> u32 { return x & ((1u << bits) - 1u); }

fn place(i: u32) -> u32 {
    let row = i >> params.row_bits;
    let column = row >> params.rows_bits;
    return (low(row, params.rows_bits) << params.stride_bits) + (column << params.row_bits) + low(i, params.row_bits);
}

fn each(i: u32) {
    var sum = vec2<f32>();
    for (var k = 0u; k < LOADS; k += 1u) { sum += load_x(place(i + k * params.count)); }
    // A condition that is never true, so that no compiler leaves the loads out.
    if sum.x + sum.y == params.never { store_sums(0u, sum.x); }
}

#each params.count

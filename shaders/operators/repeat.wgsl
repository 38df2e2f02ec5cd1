// The sum of fields: out[i] = sum over c of x[c * params.count + i], in order of c.
//
// Layout: params.copies fields of params.count numbers in turn.
// Workgroup: GROUP invocations, ITEMS numbers each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    var sum = 0.0;
    for (var c = 0u; c < params.copies; c++) { sum += load_x(c * params.count + i); }
    store_out(i, sum);
}

#each params.count

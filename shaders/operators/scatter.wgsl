// out[index[i]] = x[i]: no index occurs twice.
//
// Layout: `x` and `out` hold a batch, whose fields begin at params.table_start and params.out_start.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read> index: array<u32>;
var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    let at = load_index(i);
    if at < params.entries { store_out(params.out_start + at, load_x(params.table_start + i)); }
}

#each params.count

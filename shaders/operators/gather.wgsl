// out[i] = table[index[i]], and 0 where the index is not below params.entries.
//
// Layout: `table` and `out` hold a batch, whose fields begin at params.table_start and params.out_start.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> table: array<f32>;
var<storage, read> index: array<u32>;
var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    let at = load_index(i);
    var value = 0.0;
    if at < params.entries { value = load_table(params.table_start + at); }
    store_out(params.out_start + i, value);
}

#each params.count

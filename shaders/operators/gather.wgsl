// out[i] = table[index[i]], and 0 where the index is not below params.entries; without `indexed`
// all are table[0]. With `scatter` the other way: out[index[i]] = table[i], where no index occurs
// twice.
//
// Layout: `table` and `out` hold a batch, whose fields begin at params.table_start and
// params.out_start.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> table: array<f32>;
#if indexed
var<storage, read> index: array<u32>;
#endif
var<storage, read_write> out: array<f32>;

fn each(i: u32) {
#if scatter
    let at = load_index(i);
    if at < params.entries { store_out(params.out_start + at, load_table(params.table_start + i)); }
#else
#if indexed
    let at = load_index(i);
#else
    let at = 0u;
#endif
    var value = 0.0;
    if at < params.entries { value = load_table(params.table_start + at); }
    store_out(params.out_start + i, value);
#endif
}

#each params.count

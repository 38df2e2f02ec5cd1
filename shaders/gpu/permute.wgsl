// Moves rows of words by an index: gathers rows source[index[i]] to row i, or (`scatter`) rows
// source[i] to row index[i].
//
// Layout: `source` and `destination` hold rows of `params.width` words; `index` one row number per
// row. Each element moves `params.run` words of one row, a divisor of the width; rows out of
// `params.rows` are not moved.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> source: array<u32>;
var<storage, read> index: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> destination: array<u32>;

#import gpu::counted

fn each(e: u32) {
    let parts = params.width / params.run;
    let i = e / parts;
    let other = load_index(i);
    if other >= params.rows { return; }
#if scatter
    let rows = vec2<u32>(i, other);
#else
    let rows = vec2<u32>(other, i);
#endif
    let first = (e % parts) * params.run;
    for (var c = first; c < first + params.run; c++) {
        store_destination(rows.y * params.width + c, load_source(rows.x * params.width + c));
    }
}

#each counted() * (params.width / params.run)

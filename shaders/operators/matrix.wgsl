// A sum over each segment of consecutive entries: out[i] = sum of values[e] * x[column of e] for e
// in offsets[i]..offsets[i + 1]. With `sums` it adds x[e] alone: sums of the segments of long rows.
//
// Layout: entries row by row, each segment in one row. With `sparse` the columns of entries are
// given; otherwise each row has params.columns entries, in order.
// Workgroup: GROUP invocations, ITEMS segments each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> offsets: array<u32>;
#if !sums
var<storage, read> values: array<f32>;
#if sparse
var<storage, read> columns: array<u32>;
#endif
#endif
var<storage, read> x: array<f32>;
var<storage, read_write> out: array<f32>;

// The term of entry e of a row that begins at entry `row`.
#if sums
fn term(e: u32, row: u32) -> f32 { return load_x(e); }
#else
#if sparse
fn term(e: u32, row: u32) -> f32 { return load_values(e) * load_x(load_columns(e)); }
#else
fn term(e: u32, row: u32) -> f32 { return load_values(e) * load_x(e - row); }
#endif
#endif

fn each(i: u32) {
    let begin = load_offsets(i);
    let end = load_offsets(i + 1u);
    let row = begin - begin % max(params.columns, 1u);
    var sum = 0.0;
    for (var e = begin; e < end; e++) { sum += term(e, row); }
    store_out(i, sum);
}

#each params.count

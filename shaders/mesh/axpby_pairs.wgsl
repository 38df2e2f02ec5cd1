// The axpby of BLAS for several pairs of arrays at once, y = a x + b y each: vectors of several
// leaves.
//
// Layout: pairs x0, y0 and so on, each of one length. `starts` are where the pairs begin in one
// count over the elements of all, and beyond the last pair the count of all.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x$: array<f32>;
var<storage, read_write> y$: array<f32>;

fn updated(x: f32, y: f32) -> f32 {
    // With b = 0, y may have been undefined, and NaN times 0 is NaN.
    return fma(params.a, x, select(params.b * y, 0.0, params.b == 0.0));
}

/// Returns the first element of a pair.
fn start(pair: u32) -> u32 {
    if pair < 4u { return params.starts[pair]; }
    if pair < 8u { return params.starts_more[pair - 4u]; }
    return params.count;
}

/// Updates the elements of a pair among those from `first` to before `last` of all. A pair that has
/// none there costs no round of the loop, where a condition on each element would be asked for each
/// pair.
fn update$(first: u32, last: u32, lane: u32) {
    let begin = start($u);
    let end = min(last, start($u + 1u));
    for (var i = max(first, begin) + lane; i < end; i += GROUP) {
        store_y$(i - begin, updated(load_x$(i - begin), load_y$(i - begin)));
    }
}

fn each_workgroup(number: u32, lane: u32) {
    let first = number * (ITEMS * GROUP);
    let last = first + ITEMS * GROUP;
    update$(first, last, lane);
}

#each_workgroup

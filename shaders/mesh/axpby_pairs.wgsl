// The axpby of BLAS for several pairs of arrays at once, y = a x + b y each: small vectors that would be a dispatch each.
//
// Layout: pairs x0, y0 and so on, each of one length. `starts` are where the pairs begin in one count over the elements of all, and of what is
// no pair the count of all.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x$: array<f32>;
var<storage, read_write> y$: array<f32>;

fn updated(x: f32, y: f32) -> f32 {
    // With b = 0, y may have been undefined, and NaN times 0 is NaN.
    return select(params.b * y, 0.0, params.b == 0.0) + params.a * x;
}

/// Where a pair begins.
fn start(pair: u32) -> u32 {
    if pair < 4u { return params.starts[pair]; }
    if pair < 8u { return params.starts_more[pair - 4u]; }
    return params.count;
}

fn each(i: u32) {
    if i >= start($u) && i < start($u + 1u) { store_y$(i - start($u), updated(load_x$(i - start($u)), load_y$(i - start($u)))); }
}

#each params.count

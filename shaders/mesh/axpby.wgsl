// The axpby of BLAS: y = a x + b y; with `product`, y = a x z + b y.
//
// Layout: arrays of one length.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read_write> y: array<f32>;
#if product
var<storage, read> z: array<f32>;
#endif

fn each(i: u32) {
#if product
    let added = load_x(i) * load_z(i);
#else
    let added = load_x(i);
#endif
    // With b = 0, y may have been undefined, and NaN times 0 is NaN.
    let kept = select(params.b * load_y(i), 0.0, params.b == 0.0);
    store_y(i, fma(params.a, added, kept));
}

#each params.count

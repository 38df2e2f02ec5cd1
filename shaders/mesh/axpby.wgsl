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
    let added = params.a * (load_x(i) * load_z(i));
#else
    let added = params.a * load_x(i);
#endif
    // With a factor of 0 nothing of y is left, whatever it held.
    let kept = select(params.b * load_y(i), 0.0, params.b == 0.0);
    store_y(i, kept + added);
}

#each params.count

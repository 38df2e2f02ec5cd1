// The axpby of BLAS: y = a x + b y; with `product`, y = a x z + b y.
//
// Layout: arrays of one length, of `Value`s: numbers, or four of them.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x: array<Value>;
var<storage, read_write> y: array<Value>;
#if product
var<storage, read> z: array<Value>;
#endif

fn each(i: u32) {
#if product
    let added = load_x(i) * load_z(i);
#else
    let added = load_x(i);
#endif
    // With b = 0, y may have been undefined, and NaN times 0 is NaN.
    let kept = select(params.b * load_y(i), Value(), params.b == 0.0);
    store_y(i, fma(Value(params.a), added, kept));
}

#each params.count

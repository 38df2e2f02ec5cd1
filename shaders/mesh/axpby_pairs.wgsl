// The axpby of BLAS for several pairs of arrays at once, y = a x + b y each: small vectors that would be a dispatch each.
//
// Layout: up to four pairs, each of one length; with `third` there are three at least, with `fourth` four. `ends` are the ends of the
// pairs in one count over the elements of all.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x0: array<f32>;
var<storage, read_write> y0: array<f32>;
var<storage, read> x1: array<f32>;
var<storage, read_write> y1: array<f32>;
#if third
var<storage, read> x2: array<f32>;
var<storage, read_write> y2: array<f32>;
#endif
#if fourth
var<storage, read> x3: array<f32>;
var<storage, read_write> y3: array<f32>;
#endif

fn updated(x: f32, y: f32) -> f32 {
    // With b = 0, y may have been undefined, and NaN times 0 is NaN.
    return select(params.b * y, 0.0, params.b == 0.0) + params.a * x;
}

fn each(i: u32) {
    if i < params.ends.x {
        store_y0(i, updated(load_x0(i), load_y0(i)));
        return;
    }
    if i < params.ends.y {
        let j = i - params.ends.x;
        store_y1(j, updated(load_x1(j), load_y1(j)));
        return;
    }
#if third
    if i < params.ends.z {
        let j = i - params.ends.y;
        store_y2(j, updated(load_x2(j), load_y2(j)));
        return;
    }
#endif
#if fourth
    let j = i - params.ends.z;
    store_y3(j, updated(load_x3(j), load_y3(j)));
#endif
}

#each params.count

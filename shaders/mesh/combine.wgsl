// Adds multiples of several arrays at once, y = y + a0 x0 + a1 x1 and so on, in this order: the
// bits of one update after the other.
//
// Layout: arrays of one length. `factors` are those of the first four, `factors_more` the others.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x$: array<f32>;
var<storage, read_write> y: array<f32>;

fn factor(number: u32) -> f32 {
    if number < 4u { return params.factors[number]; }
    return params.factors_more[number - 4u];
}

fn each(i: u32) {
    var sum = load_y(i);
    sum = fma(factor($u), load_x$(i), sum);
    store_y(i, sum);
}

#each params.count

// y = w x, place by place: `w` has one value for each place, `x` and `y` a batch of fields.
//
// Values of x and y are Value (numbers or pairs); with `complex_factor` so is w, a complex number,
// and with `conjugate` its conjugate counts.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x: array<Value>;
var<storage, read> w: array<Factor>;
var<storage, read_write> y: array<Value>;

fn each(i: u32) {
    let factor = load_w(i % params.places);
    let value = load_x(i);
#if complex_factor
#if conjugate
    let turn = vec2<f32>(factor.x, -factor.y);
#else
    let turn = factor;
#endif
    store_y(i, vec2<f32>(turn.x * value.x - turn.y * value.y, turn.x * value.y + turn.y * value.x));
#else
    store_y(i, factor * value);
#endif
}

#each params.count

// An approximate inverse of the metric of excited modes, where data know the field better at some
// places than at others. With `spread` each mode i is divided by the root of 1 + c a^2 for each of
// LEVELS levels c; with `weigh` the field of each level is weighted by how near the precision of
// the data at a place is to the level; with `gather` the modes of all levels are divided by the
// same roots and added up.
//
// Layout: arrays of `Value`s, numbers or four of them. `amplitude` a of each mode; `y` LEVELS
// fields or modes one after the other; `precision` the logarithm of the precision at each place.
// Lines with a `$` are written once for each level.
// Workgroup: GROUP invocations, ITEMS values each. No workgroup memory.

var<uniform> params: Params;
#if spread
var<storage, read> amplitude: array<Value>;
var<storage, read> x: array<Value>;
var<storage, read_write> y: array<Value>;
#endif
#if weigh
var<storage, read> precision: array<Value>;
var<storage, read_write> y: array<Value>;
#endif
#if gather
var<storage, read> amplitude: array<Value>;
var<storage, read> y: array<Value>;
var<storage, read_write> x: array<Value>;
#endif

#if weigh
fn scale_at(i: u32, level: u32, place: Value) {
    let weight = max(1.0 - abs(place - f32(level)), Value());
    store_y(i, weight * load_y(i));
}

fn each(i: u32) {
    let steps = (max(load_precision(i), Value(params.least)) - params.first) * params.per_step;
    let place = clamp(steps, Value(), Value(f32(LEVELS) - 1.0));
    scale_at($u * params.count + i, $u, place);
}
#else
fn root(a: Value, level: u32) -> Value { return 1.0 / sqrt(1.0 + params.levels[level] * a * a); }

#if spread
fn each(i: u32) {
    let a = load_amplitude(i);
    let value = load_x(i);
    store_y($u * params.count + i, root(a, $u) * value);
}
#else
fn each(i: u32) {
    let a = load_amplitude(i);
    var sum = Value();
    sum += root(a, $u) * load_y($u * params.count + i);
    store_x(i, params.scale * sum);
}
#endif
#endif

#each params.count

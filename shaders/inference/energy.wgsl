// The energy of each datum, -log of its probability up to a constant, as two floats, whose exact
// sum resolves differences that are lost in one.
//
// | flag | energy of the model's value s, datum d, weight w |
// |---|---|
// | gaussian | (w (s - d))^2 / 2 |
// | poisson | w (s - d log s) |
// | student | (dof + 1) / 2 log(1 + (w (s - d))^2 / dof) |
// | gaussian_inferred | w ((c (m - d))^2 / 2 - log c), s = (m, c) |
// | student_inferred | w ((dof + 1) / 2 log(1 + ((m - d) / c)^2 / dof) + log c), s = (m, c) |
// | categorical | w log sum exp(s - s_d), s one number for each class, d the class |
//
// Layout: components of s one after the other; `terms` the first floats of all data, then the
// second.
// Workgroup: GROUP invocations, ITEMS data each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> s: array<f32>;
var<storage, read> data: array<f32>;
#if weighted
var<storage, read> weight: array<f32>;
#endif
var<storage, read_write> terms: array<f32>;

#import gpu::two_floats

/// log(1 + x^2 / dof) (dof + 1) / 2.
fn student_of(x: vec2<f32>) -> vec2<f32> {
    let ratio = quotient2(product2(x, x), vec2<f32>(params.dof, 0.0));
    return product2(log2floats(sum2(vec2<f32>(1.0, 0.0), ratio)), 0.5 * two_sum(params.dof, 1.0));
}

fn energy(i: u32, w: f32) -> vec2<f32> {
    let d = load_data(i);
    let first = load_s(i);
    let away = two_sum(first, -d);
#if gaussian
    let x = product2(away, vec2<f32>(w, 0.0));
    return 0.5 * product2(x, x);
#endif
#if student
    return student_of(product2(away, vec2<f32>(w, 0.0)));
#endif
#if poisson
    // Rates are 0 or more.
    if first < 0.0 { return vec2<f32>(bitcast<f32>(0x7fc00000u ^ params.nothing), 0.0); }
    if d == 0.0 { return vec2<f32>(first, 0.0); }
    return sum2(vec2<f32>(first, 0.0), -product2(log2floats(vec2<f32>(first, 0.0)), vec2<f32>(d, 0.0)));
#endif
#if gaussian_inferred
    let c = vec2<f32>(load_s(params.count + i), 0.0);
    let x = product2(away, c);
    return sum2(0.5 * product2(x, x), -log2floats(c));
#endif
#if student_inferred
    let c = vec2<f32>(load_s(params.count + i), 0.0);
    return sum2(student_of(quotient2(away, c)), log2floats(c));
#endif
#if categorical
    let own = load_s(u32(d) * params.count + i);
    var most = own;
    for (var k = 0u; k < params.classes; k++) { most = max(most, load_s(k * params.count + i)); }
    var sum = vec2<f32>(0.0);
    for (var k = 0u; k < params.classes; k++) {
        sum = sum2(sum, exp2floats(two_sum(load_s(k * params.count + i), -most)));
    }
    return sum2(two_sum(most, -own), log2floats(sum));
#endif
}

fn each(i: u32) {
#if weighted
    let w = load_weight(i);
#else
    let w = params.weight;
#endif
    // Where a datum does not count, its energy is 0 whatever the model says.
    var found = vec2<f32>(0.0);
    if w != 0.0 { found = energy(i, w); }
    store_terms(i, found.x);
    store_terms(params.count + i, found.y);
}

#each params.count

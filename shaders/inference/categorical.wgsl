// What the categorical likelihood of logits s gives at each datum: with p = softmax(s),
//
// | flag | result |
// |---|---|
// | score | w (p - e_d), the gradient for the datum d |
// | right | w sqrt(p) (u - sum p u), the right square root of the metric diag(p) - p p^T |
// | left | w (sqrt(p) u - p sum sqrt(p) u), the left one |
//
// Layout: components of s, u and y one after the other, `classes` of them; without mask w is 1.
// Workgroup: GROUP invocations, ITEMS data each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> s: array<f32>;
#if score
var<storage, read> data: array<f32>;
#else
var<storage, read> u: array<f32>;
#endif
#if weighted
var<storage, read> weight: array<f32>;
#endif
var<storage, read_write> y: array<f32>;

fn each(i: u32) {
#if weighted
    let w = load_weight(i);
#else
    let w = 1.0;
#endif
    var most = load_s(i);
    for (var k = 1u; k < params.classes; k++) { most = max(most, load_s(k * params.count + i)); }
    var sum = 0.0;
    var along = 0.0;
    for (var k = 0u; k < params.classes; k++) {
        let at = k * params.count + i;
        let p = exp(load_s(at) - most);
        sum += p;
#if right
        along += p * load_u(at);
#endif
#if left
        along += sqrt(p) * load_u(at);
#endif
    }
    for (var k = 0u; k < params.classes; k++) {
        let at = k * params.count + i;
        let p = exp(load_s(at) - most) / sum;
#if score
        store_y(at, w * (p - select(0.0, 1.0, u32(load_data(i)) == k)));
#endif
#if right
        store_y(at, w * sqrt(p) * (load_u(at) - along / sum));
#endif
#if left
        store_y(at, w * (sqrt(p) * load_u(at) - p * along / sqrt(sum)));
#endif
    }
}

#each params.count

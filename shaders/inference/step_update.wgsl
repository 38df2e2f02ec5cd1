// A step of conjugate gradients: x = x - alpha d and r = r - alpha q; with `restarts` r = q - j,
// where q is the product with x. With `measures` also the greatest magnitudes of r r, r x and j x,
// and with `norm` that of r, for their sums. After the last step no array changes.
//
// Layout: arrays of one length, of `Value`s: numbers, or four of them; `words` are those of
// step_words.wgsl.
// Workgroup: GROUP invocations, params.per elements each, neighbors next to each other. Workgroup
// memory: a word for each sum.

var<uniform> params: Params;
var<storage, read> q: array<Value>;
var<storage, read> j: array<Value>;
#if restarts
var<storage, read> x: array<Value>;
#else
var<storage, read> d: array<Value>;
var<storage, read_write> x: array<Value>;
#endif
var<storage, read_write> r: array<Value>;
var<storage, read_write> words: array<atomic<u32>>;

#import exchange::element
#import exchange::value
#import inference::step_words

#if measures
var<workgroup> here: array<atomic<u32>, SUMS>;
#endif

fn each_workgroup(number: u32, lane: u32) {
    let goes_on = load_words(PLACE) == 0u;
    let along = bitcast<f32>(load_words(ALONG));
#if measures
    // After the last step, too: the integers of sums need the magnitudes.
    let per = params.per;
    if lane < SUMS { atomicStore(&here[lane], 0u); }
    workgroupBarrier();
    var most = vec4<u32>(0u);
#else
    let per = select(0u, params.per, goes_on);
#endif
    for (var item = 0u; item < per; item++) {
        let i = element(number * params.per + item, lane);
        if i < params.count {
            var x = load_x(i);
            var r = load_r(i);
            if goes_on {
#if restarts
                r = fma(Value(-1.0), load_j(i), load_q(i));
#else
                x = fma(Value(along), load_d(i), x);
                r = fma(Value(along), load_q(i), r);
                store_x(i, x);
#endif
                store_r(i, r);
            }
#if measures
            most = max(most, vec4<u32>(bits_of(r * r), bits_of(r * x), bits_of(load_j(i) * x), bits_of(r)));
#endif
        }
    }
#if measures
    atomicMax(&here[0], most.x);
    atomicMax(&here[1], most.y);
    atomicMax(&here[2], most.z);
#if norm
    atomicMax(&here[3], most.w);
#endif
    workgroupBarrier();
    if lane < SUMS { max_words(SUMS_AT + lane, atomicLoad(&here[lane])); }
#endif
}

#each_workgroup

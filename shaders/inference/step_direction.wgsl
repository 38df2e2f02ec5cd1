// The next direction of conjugate gradients, d = z + conjugate d. After the last step nothing
// changes.
//
// Layout: arrays of one length; `words` are those of step_words.wgsl.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> words: array<u32>;
var<storage, read> z: array<f32>;
var<storage, read_write> d: array<f32>;

#import inference::step_words

fn count() -> u32 { return select(0u, params.count, load_words(PLACE) == 0u); }

fn each(i: u32) {
    let kept = bitcast<f32>(load_words(CONJUGATE)) * load_d(i);
    store_d(i, fma(bitcast<f32>(load_words(ONE)), load_z(i), kept));
}

#each count()

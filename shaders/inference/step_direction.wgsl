// The next direction of conjugate gradients, d = z + conjugate d. After the last step nothing
// changes.
//
// Layout: arrays of one length, of `Value`s: numbers, or four of them; `words` are those of
// step_words.wgsl.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> words: array<u32>;
var<storage, read> z: array<Value>;
var<storage, read_write> d: array<Value>;

#import inference::step_words

/// Factors of `z`, which is 1, and of `d`.
var<private> one: f32;
var<private> conjugate: f32;

/// Returns the number of elements that change, before the first of them.
fn count() -> u32 {
    one = bitcast<f32>(load_words(ONE));
    conjugate = bitcast<f32>(load_words(CONJUGATE));
    return select(0u, params.count, load_words(PLACE) == 0u);
}

fn each(i: u32) { store_d(i, fma(Value(one), load_z(i), conjugate * load_d(i))); }

#each count()

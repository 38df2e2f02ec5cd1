// Sums in 64-bit integers as f32; NaN where a term was NaN or infinite.
//
// Layout: `words` as accumulate.wgsl leaves them; `out` one number per sum, from params.x_start on.
// Workgroup: GROUP invocations, ITEMS sums each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> words: array<u32>;
var<storage, read_write> out: array<f32>;

#import gpu::fixed

fn each(sum: u32) {
    let most = load_words(params.most);
    let at = params.start + 2u * sum;
    store_out(params.x_start + sum, sum_of_terms(vec2<u32>(load_words(at), load_words(at + 1u)), params.bits, most));
}

#each params.sums

// Adds the terms of sums as 64-bit integers, so that neither their order nor the number of ranks
// matters.
//
// The greatest magnitude of all terms is below 2^top; a term becomes a multiple of 2^(top -
// params.bits), rounded to the nearest. As many terms as params.bits was chosen for cannot
// overflow. With `binned` term i belongs to sum index[i], and to no sum where that is not below
// params.sums.
//
// Layout: `words[params.most]` are the bits of the greatest magnitude; from params.start on two
// words per sum, low word first, which must be 0 before.
// Workgroup: GROUP invocations, params.per elements each, neighbors next to each other. Workgroup
// memory: with `local` a copy of the sums, of which there are LOCAL at most; otherwise none.

var<uniform> params: Params;
var<storage, read> x: array<f32>;
#if product
var<storage, read> y: array<f32>;
#endif
#if binned
var<storage, read> index: array<u32>;
#endif
var<storage, read_write> words: array<atomic<u32>>;

#import exchange::element
#import exchange::term
#import gpu::fixed

#if local
var<workgroup> here: array<atomic<u32>, 2 * LOCAL>;
#endif

/// Adds to a sum of the array. What is 0 costs nothing.
fn add_to_sum(sum: u32, value: vec2<u32>) {
    if value.x == 0u && value.y == 0u { return; }
    let at = params.start + 2u * sum;
    let before = add_words(at, value.x);
    let high = value.y + select(0u, 1u, before + value.x < before);
    if high != 0u { add_words(at + 1u, high); }
}

/// Adds to a sum of the workgroup, or of the array where the workgroup has none.
fn add(sum: u32, value: vec2<u32>) {
#if local
    let before = atomicAdd(&here[2u * sum], value.x);
    atomicAdd(&here[2u * sum + 1u], value.y + select(0u, 1u, before + value.x < before));
#else
    add_to_sum(sum, value);
#endif
}

fn each_workgroup(number: u32, lane: u32) {
#if local
    for (var sum = lane; sum < 2u * params.sums; sum += GROUP) { atomicStore(&here[sum], 0u); }
    workgroupBarrier();
#endif
    let most = load_words(params.most);
    let top = top_of(most);
    // Terms of one sum one after the other are added in registers.
    var sum = 0u;
    var value = vec2<u32>(0u);
    for (var item = 0u; item < params.per; item++) {
        let i = element(number * params.per + item, lane);
        if i < params.count {
#if binned
            let own = load_index(i);
#else
            let own = 0u;
#endif
            if own < params.sums {
                if own != sum {
                    add(sum, value);
                    sum = own;
                    value = vec2<u32>(0u);
                }
                value = plus(value, fixed(term(i), i32(params.bits) - top));
            }
        }
    }
    add(sum, value);
#if local
    workgroupBarrier();
    for (var own = lane; own < params.sums; own += GROUP) {
        add_to_sum(own, vec2<u32>(atomicLoad(&here[2u * own]), atomicLoad(&here[2u * own + 1u])));
    }
#endif
}

#each_workgroup

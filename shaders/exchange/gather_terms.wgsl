// Adds the terms of each sum as accumulate.wgsl does, one sum in each invocation: without atomics,
// for renderers on processors, where an atomic takes longer than ten loads.
//
// Layout: the terms of sum s are those with the numbers order[starts[s]] to order[starts[s + 1] -
// 1]. `words[params.most]` are the bits of the greatest magnitude; from params.start on two words
// per sum, low word first.
// Workgroup: GROUP invocations, one sum each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read> starts: array<u32>;
var<storage, read> order: array<u32>;
var<storage, read_write> words: array<u32>;

#import exchange::term
#import gpu::fixed

fn each_workgroup(number: u32, lane: u32) {
    let sum = number * GROUP + lane;
    if sum >= params.sums { return; }
    let point = i32(params.bits) - top_of(load_words(params.most));
    let end = load_starts(sum + 1u);
    var value = vec2<u32>(0u);
    for (var at = load_starts(sum); at < end; at++) {
        value = plus(value, fixed(term(load_order(at)), point));
    }
    store_words(params.start + 2u * sum, value.x);
    store_words(params.start + 2u * sum + 1u, value.y);
}

#each_workgroup

// Adds the terms of several sums as 64-bit integers in one pass, as accumulate.wgsl does for one.
// Terms are those of magnitudes.wgsl.
//
// Layout: the words from params.most on are the bits of the greatest magnitudes, one for each sum;
// from params.start on two words per sum, low word first, which must be 0 before.
// Workgroup: GROUP invocations, params.per elements each, neighbors next to each other. Workgroup
// memory: two words for each sum.

var<uniform> params: Params;
var<storage, read> x$: array<Value>;
var<storage, read_write> words: array<atomic<u32>>;

/// The elements that terms are made of.
var<private> value$: Value;

#import exchange::element
#import exchange::terms
#import exchange::value

var<workgroup> here: array<atomic<u32>, 2 * SUMS>;

/// Adds to a sum of the workgroup.
fn add(sum: u32, own: vec2<u32>) {
    let before = atomicAdd(&here[2u * sum], own.x);
    atomicAdd(&here[2u * sum + 1u], own.y + select(0u, 1u, before + own.x < before));
}

/// Returns the bits of a term of a sum that come after the binary point.
fn point_of(sum: u32) -> i32 { return i32(params.bits) - top_of(load_words(params.most + sum)); }

fn each_workgroup(number: u32, lane: u32) {
    for (var n = lane; n < 2u * SUMS; n += GROUP) { atomicStore(&here[n], 0u); }
    workgroupBarrier();
    let point? = point_of(?u);
    var sum? = vec2<u32>(0u);
    for (var item = 0u; item < params.per; item++) {
        let i = element(number * params.per + item, lane);
        if i < params.count {
            value$ = load_x$(i);
            sum? = plus(sum?, integer(term?(), point?));
        }
    }
    add(?u, sum?);
    workgroupBarrier();
    for (var n = lane; n < SUMS; n += GROUP) {
        let low = atomicLoad(&here[2u * n]);
        let at = params.start + 2u * n;
        let before = add_words(at, low);
        let high = atomicLoad(&here[2u * n + 1u]) + select(0u, 1u, before + low < before);
        if high != 0u { add_words(at + 1u, high); }
    }
}

#each_workgroup

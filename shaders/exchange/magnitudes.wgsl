// The greatest magnitudes of the terms of several sums in one pass, as bits: those of NaN and
// infinity are the greatest.
//
// A term is a product of two of the arrays x0, x1 and so on, or the magnitude of one; each array
// comes from memory once for all of them. An element is a `Value`: a number, or with `quads` four.
//
// Layout: the words from params.most on take the bits, one for each sum, and must be 0 before.
// Workgroup: GROUP invocations, params.per elements each, neighbors next to each other. Workgroup
// memory: a word for each sum.

var<uniform> params: Params;
var<storage, read> x$: array<Value>;
var<storage, read_write> words: array<atomic<u32>>;

/// The elements that terms are made of.
var<private> value$: Value;

#import exchange::element
#import exchange::terms
#import exchange::value

var<workgroup> here: array<atomic<u32>, SUMS>;

fn each_workgroup(number: u32, lane: u32) {
    for (var n = lane; n < SUMS; n += GROUP) { atomicStore(&here[n], 0u); }
    workgroupBarrier();
    var most? = 0u;
    for (var item = 0u; item < params.per; item++) {
        let i = element(number * params.per + item, lane);
        if i < params.count {
            value$ = load_x$(i);
            most? = max(most?, bits_of(term?()));
        }
    }
    atomicMax(&here[?u], most?);
    workgroupBarrier();
    for (var n = lane; n < SUMS; n += GROUP) { max_words(params.most + n, atomicLoad(&here[n])); }
}

#each_workgroup

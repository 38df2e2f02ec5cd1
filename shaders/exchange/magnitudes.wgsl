// The greatest magnitudes of the terms of several sums in one pass, as bits: those of NaN and
// infinity are the greatest.
//
// A term is a product of two of the arrays x0, x1 and so on, or the magnitude of one; each array
// comes from memory once for all of them.
//
// Layout: the words from params.most on take the bits, one for each sum, and must be 0 before.
// Workgroup: GROUP invocations, params.per elements each, neighbors next to each other. Workgroup
// memory: a word for each sum.

var<uniform> params: Params;
var<storage, read> x$: array<f32>;
var<storage, read_write> words: array<atomic<u32>>;

/// The elements that terms are made of.
var<private> value$: f32;

#import exchange::element
#import exchange::terms

var<workgroup> here: array<atomic<u32>, SUMS>;

fn bits_of(term: f32) -> u32 { return bitcast<u32>(term) & 0x7fffffffu; }

fn each_workgroup(number: u32, lane: u32) {
    if lane < SUMS { atomicStore(&here[lane], 0u); }
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
    if lane < SUMS { max_words(params.most + lane, atomicLoad(&here[lane])); }
}

#each_workgroup

// The greatest magnitude of the terms of a sum, as bits: those of NaN and infinity are the
// greatest.
//
// A term is x[i], with `product` x[i] y[i].
//
// Layout: `words[params.most]` takes the bits and must be 0 before.
// Workgroup: GROUP invocations, params.per elements each, neighbors next to each other. Workgroup
// memory: one word.

var<uniform> params: Params;
var<storage, read> x: array<f32>;
#if product
var<storage, read> y: array<f32>;
#endif
var<storage, read_write> words: array<atomic<u32>>;

#import exchange::element
#import exchange::term

var<workgroup> here: atomic<u32>;

fn each_workgroup(number: u32, lane: u32) {
    if lane == 0u { atomicStore(&here, 0u); }
    workgroupBarrier();
    var most = 0u;
    for (var item = 0u; item < params.per; item++) {
        let i = element(number * params.per + item, lane);
        if i < params.count { most = max(most, bitcast<u32>(term(i)) & 0x7fffffffu); }
    }
    atomicMax(&here, most);
    workgroupBarrier();
    if lane == 0u { max_words(params.most, atomicLoad(&here)); }
}

#each_workgroup

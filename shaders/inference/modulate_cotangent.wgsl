// The cotangent of excitations, y = amplitude[index] x for a cotangent x of modes, and on the way
// the greatest magnitude of x times the modes at the point: of the terms that are summed for the
// cotangents of amplitudes, which need it (accumulate.wgsl). With `keeps_terms` the terms are
// written.
//
// Layout: modes of this rank as `Value`s; those of `index` are two words with `quads`. `words[0]`
// takes the bits of the magnitude and must be 0 before: those of NaN and infinity are the greatest.
// Workgroup: GROUP invocations, ITEMS values each. Workgroup memory: one word.

var<uniform> params: Params;
var<storage, read> index: array<Index>;
var<storage, read> amplitude: array<f32>;
var<storage, read> modes: array<Value>;
var<storage, read> x: array<Value>;
var<storage, read_write> y: array<Value>;
#if keeps_terms
var<storage, read_write> terms: array<Value>;
#endif
var<storage, read_write> words: array<atomic<u32>>;

#import exchange::value
#import inference::bins

var<workgroup> here: atomic<u32>;

fn each_workgroup(number: u32, lane: u32) {
    if lane == 0u { atomicStore(&here, 0u); }
    workgroupBarrier();
    let first = number * (ITEMS * GROUP);
    let end = min(first + ITEMS * GROUP, params.count);
    var most = 0u;
    for (var i = first + lane; i < end; i += GROUP) {
        let own = load_x(i);
        let term = own * load_modes(i);
        most = max(most, bits_of(term));
#if keeps_terms
        store_terms(i, term);
#endif
        let bins = bins_of(i);
        store_y(i, known(amplitude_of(existing(bins)) * own, bins));
    }
    atomicMax(&here, most);
    workgroupBarrier();
    if lane == 0u { max_words(0u, atomicLoad(&here)); }
}

#each_workgroup

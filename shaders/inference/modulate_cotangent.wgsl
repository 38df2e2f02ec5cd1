// The cotangent of excitations, y = amplitude[index] x for a cotangent x of modes, and on the way
// the greatest magnitude of x times the modes at the point: of the terms that are summed for the
// cotangents of amplitudes, which need it (accumulate.wgsl).
//
// Layout: modes of this rank; amplitudes of all bins, a table that stays in the cache. A mode in no
// bin becomes 0. `words[0]` takes the bits of the magnitude and must be 0 before: those of NaN and
// infinity are the greatest.
// Workgroup: GROUP invocations, ITEMS modes each. Workgroup memory: one word.

var<uniform> params: Params;
var<storage, read> index: array<u32>;
var<storage, read> amplitude: array<f32>;
var<storage, read> modes: array<f32>;
var<storage, read> x: array<f32>;
var<storage, read_write> y: array<f32>;
var<storage, read_write> words: array<atomic<u32>>;

var<workgroup> here: atomic<u32>;

fn each_workgroup(number: u32, lane: u32) {
    if lane == 0u { atomicStore(&here, 0u); }
    workgroupBarrier();
    let first = number * (ITEMS * GROUP);
    let end = min(first + ITEMS * GROUP, params.count);
    var most = 0u;
    for (var i = first + lane; i < end; i += GROUP) {
        let own = load_x(i);
        most = max(most, bitcast<u32>(own * load_modes(i)) & 0x7fffffffu);
        let bin = load_index(i);
        var value = 0.0;
        if bin < params.bins { value = load_amplitude(bin) * own; }
        store_y(i, value);
    }
    atomicMax(&here, most);
    workgroupBarrier();
    if lane == 0u { max_words(0u, atomicLoad(&here)); }
}

#each_workgroup

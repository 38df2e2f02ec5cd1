// y = amplitude[index] x: excitations of modes times the amplitude of their wavenumber. With
// `tangent` its derivative, dy = amplitude[index] dx + d_amplitude[index] x.
//
// Layout: modes of this rank; amplitudes of all bins, a table that stays in the cache. A mode in no
// bin becomes 0.
// Workgroup: GROUP invocations, ITEMS modes each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> index: array<u32>;
var<storage, read> amplitude: array<f32>;
var<storage, read> x: array<f32>;
#if tangent
var<storage, read> d_amplitude: array<f32>;
var<storage, read> dx: array<f32>;
#endif
var<storage, read_write> y: array<f32>;

fn each(i: u32) {
    let bin = load_index(i);
    var value = 0.0;
    if bin < params.bins {
#if tangent
        value = load_amplitude(bin) * load_dx(i) + load_d_amplitude(bin) * load_x(i);
#else
        value = load_amplitude(bin) * load_x(i);
#endif
    }
    store_y(i, value);
}

#each params.count

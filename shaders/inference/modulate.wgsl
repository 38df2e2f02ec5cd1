// y = amplitude[index] x: excitations of modes times the amplitude of their wavenumber. With
// `tangent` its derivative, dy = amplitude[index] dx + d_amplitude[index] x.
//
// Layout: modes of this rank as `Value`s; those of `index` are two words with `quads`; `pairs` of
// the amplitude of a bin and its tangent.
// Workgroup: GROUP invocations, ITEMS values each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> index: array<Index>;
#if tangent
var<storage, read> pairs: array<vec2<f32>>;
#else
var<storage, read> amplitude: array<f32>;
#endif
var<storage, read> x: array<Value>;
#if tangent
var<storage, read> dx: array<Value>;
#endif
var<storage, read_write> y: array<Value>;

#import inference::bins

fn each(i: u32) {
    let own = bins_of(i);
    let bins = existing(own);
#if tangent
    let value = varied(bins, load_x(i), load_dx(i));
#else
    let value = amplitude_of(bins) * load_x(i);
#endif
    store_y(i, known(value, own));
}

#each params.count

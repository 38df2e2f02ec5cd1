// Multiplies the modes of a half spectrum by amplitudes[m0^2 + m1^2 + m2^2].
//
// Layout: `spectrum` C order over `local` modes, the first of which is `first`; `shape` is the
// mesh. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> spectrum: array<vec2<f32>>;
var<storage, read> amplitudes: array<f32>;

fn square(index: u32, n: u32) -> u32 {
    let m = min(index, n - index);
    return m * m;
}

fn each(mode: u32) {
    let k = params.first.z + mode % params.local.z;
    let j = params.first.y + mode / params.local.z % params.local.y;
    let i = params.first.x + mode / params.local.z / params.local.y;
    let m = square(i, params.shape.x) + square(j, params.shape.y) + square(k, params.shape.z);
    store_spectrum(mode, load_spectrum(mode) * load_amplitudes(m));
}

#each params.local.x * params.local.y * params.local.z

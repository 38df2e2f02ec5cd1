// White noise of a lattice as modes of a half spectrum: a mode's numbers follow from its wave
// vector alone, so that lattices of any number of sites share those that they have in common. The
// f32 that `cosmology::mode_noise` computes in f64, to the last bit, in integers.
//
// Layout: `out` C order over `local` modes, the first of which is `first`, two numbers each.
// `table` is that of `normal`. `unsure[0]` counts numbers that are not sure, `unsure[1 ..]` are
// those, as far as there is room; the host computes them, some 15 in a million.
// Workgroup: GROUP invocations, ITEMS numbers each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> table: array<u32>;
var<storage, read_write> out: array<f32>;
var<storage, read_write> unsure: array<atomic<u32>>;

#import pm::normal

/// Returns the signed wavenumber; that of Nyquist, which is as much negative, counts positive.
fn signed(index: u32) -> i32 {
    return i32(index) - select(0, i32(params.side), 2u * index > params.side);
}

/// Its sign, which Nyquist's has none of.
fn direction(index: u32) -> i32 { return select(sign(signed(index)), 0, 2u * index == params.side); }

fn each(number: u32) {
    let mode = number >> 1u;
    let k = params.first.z + mode % params.local.z;
    let j = params.first.y + mode / params.local.z % params.local.y;
    let i = params.first.x + mode / params.local.z / params.local.y;
    // Of a mode and its conjugate twin the one with the first sign positive decides; a mode that is
    // its own twin is real.
    var towards = direction(k);
    if towards == 0 { towards = direction(j); }
    if towards == 0 { towards = direction(i); }
    let imaginary = (number & 1u) == 1u;
    if imaginary && towards == 0 {
        store_out(number, 0.0);
        return;
    }
    var wave = vec3<i32>(signed(i), signed(j), signed(k));
    if towards < 0 {
        let nyquist = vec3<bool>(2u * i == params.side, 2u * j == params.side, 2u * k == params.side);
        wave = select(-wave, wave, nyquist);
    }
    let found = normal(philox(vec4<u32>(bitcast<vec3<u32>>(wave), select(1u, 2u, imaginary)), params.seed));
    if found.sure {
        let size = found.value * select(params.scale.x, params.scale.y, towards == 0);
        store_out(number, select(size, -size, imaginary && towards < 0));
    } else {
        let place = add_unsure(0u, 1u) + 1u;
        if place <= params.room { store_unsure(place, number); }
    }
}

#each params.first.w

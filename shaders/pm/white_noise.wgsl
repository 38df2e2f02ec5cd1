// White noise of a lattice: the f32 that `cosmology::white_noise` computes in f64, to the last bit,
// in integers. A site's number is its place in the lattice, or (flag `numbered`) what `number`
// says, two words for each, low word first.
//
// Layout: `out` has one number per site of this rank, C order. `table` is that of `normal`.
// `unsure[0]` counts sites whose number is not sure, `unsure[1 ..]` are those sites, as far as
// there is room; the host computes them, some 15 in a million.
// Workgroup: GROUP invocations, ITEMS sites each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> table: array<u32>;
#if numbered
var<storage, read> number: array<u32>;
#endif
var<storage, read_write> out: array<f32>;
var<storage, read_write> unsure: array<atomic<u32>>;

#import pm::normal

fn each(site: u32) {
#if numbered
    let index = Wide(load_number(2u * site), load_number(2u * site + 1u));
#else
    let k = params.first.z + site % params.local.z;
    let j = params.first.y + site / params.local.z % params.local.y;
    let i = params.first.x + site / params.local.z / params.local.y;
    let index = add(product(i * params.shape.x + j, params.shape.y), Wide(k, 0u));
#endif
    let found = normal(philox(vec4<u32>(index.low, index.high, 0u, 0u), params.seed));
    if found.sure {
        store_out(site, found.value);
    } else {
        let place = add_unsure(0u, 1u) + 1u;
        if place <= params.room { store_unsure(place, site); }
    }
}

#each params.first.w

// The bin of each mode by the square of its wavenumber, in integers: exact and the same on every
// device.
//
// The square of a mode is the sum of one entry of `squares` for each axis, whose tables follow each
// other over the modes of this rank. Bin b has squares from limits[b] to limits[b + 1], the latter
// excluded; beyond all bins the number of bins is stored.
//
// Layout: `index` C order over the modes of this rank. A search by halving: its loads are of a
// table that stays in the cache.
// Workgroup: GROUP invocations, ITEMS modes each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> squares: array<u32>;
var<storage, read> limits: array<u32>;
var<storage, read_write> index: array<u32>;

fn each(mode: u32) {
    let k = mode % params.local.z;
    let j = mode / params.local.z % params.local.y;
    let i = mode / params.local.z / params.local.y;
    let square = load_squares(i) + load_squares(params.local.x + j) + load_squares(params.local.x + params.local.y + k);
    // The first limit above the square.
    var low = 0u;
    var high = params.local.w + 1u;
    while low < high {
        let middle = (low + high) / 2u;
        if load_limits(middle) <= square { low = middle + 1u; } else { high = middle; }
    }
    // None is above, or none is below.
    store_index(mode, select(low - 1u, params.local.w, low == 0u || low > params.local.w));
}

#each params.local.x * params.local.y * params.local.z

// Keys that put the rows of neighbor lists in order of the index: the row, found by halving, and
// behind it the index.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]` of `index`, of `params.index_bits` bits, 32
// at most; `high` and `low` receive the words of row * 2^index_bits + index.
// Workgroup: GROUP invocations, ITEMS entries each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> offset: array<u32>;
var<storage, read> index: array<u32>;
var<storage, read_write> high: array<u32>;
var<storage, read_write> low: array<u32>;

fn each(entry: u32) {
    // The last row that does not begin behind the entry.
    var row = 0u;
    var beyond = params.rows;
    while beyond - row > 1u {
        let middle = (row + beyond) / 2u;
        if load_offset(middle) <= entry { row = middle; } else { beyond = middle; }
    }
    var words = vec2<u32>(row, load_index(entry));
    if params.index_bits < 32u {
        // In two steps, since no shift may be 32.
        words = vec2<u32>((row >> (31u - params.index_bits)) >> 1u, (row << params.index_bits) | words.y);
    }
    store_high(entry, words.x);
    store_low(entry, words.y);
}

#each params.entries

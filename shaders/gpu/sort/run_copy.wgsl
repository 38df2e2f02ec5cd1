// Copies the indices of long runs from `order` to `compact`, where they lie together, and the low
// words of their keys to `words`; or, with `back`, indices the other way.
//
// Layout: `ends` as in long_runs.wgsl; `places` is where those of each block begin in `compact`;
// `low` holds the low words by index.
// Workgroup: GROUP invocations, a block each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> ends: array<u32>;
var<storage, read> places: array<u32>;
#if back
var<storage, read> compact: array<u32>;
var<storage, read_write> order: array<u32>;

fn transfer(at: u32, place: u32) { store_order(at, load_compact(place)); }
#else
var<storage, read> order: array<u32>;
var<storage, read> low: array<u32>;
var<storage, read_write> compact: array<u32>;
var<storage, read_write> words: array<u32>;

fn transfer(at: u32, place: u32) {
    let index = load_order(at);
    store_compact(place, index);
    store_words(place, load_low(index));
}
#endif

fn each_invocation(block: u32) {
    let both = load_ends(block);
    if both == 0u { return; }
    let leading = both & 0xffffu;
    let trailing = both >> 16u;
    let place = load_places(block);
    let first = block * BLOCK;
    for (var k = 0u; k < leading; k++) { transfer(first + k, place + k); }
    // A block that is followed by a long run is whole.
    for (var k = 0u; k < trailing; k++) { transfer(first + BLOCK - trailing + k, place + leading + k); }
}

#each_invocation params.parts

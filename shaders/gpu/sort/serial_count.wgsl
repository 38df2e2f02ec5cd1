// Radix sort for software renderers, upsweep: how many keys of every tile have each digit.
//
// Layout: tiles are consecutive keys, equally many (serial_tile.wgsl); `table` holds one word per
// digit and tile, digit by digit, and `words` how many words those are.
// Workgroup: GROUP invocations, one tile each. No workgroup memory, no barriers.

var<uniform> params: Params;
var<storage, read> keys: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> table: array<u32>;
var<storage, read_write> words: array<u32>;

#import gpu::counted
#import gpu::sort::digit
#import gpu::sort::serial_digits
#import gpu::sort::serial_tile

fn each_invocation(tile: u32) {
    let last = counted();
    if tile == 0u { store_words(0u, tiles_of(last) * (params.mask + 1u)); }
    if last == 0u { return; }
    let own = keys_of(tile, last);
    for (var i = own.x; i < own.y; i++) { count_one(digit(load_keys(i))); }
    for (var d = 0u; d <= params.mask; d++) { store_table(d * params.tiles + tile, keys_with(d)); }
}

#each_invocation params.tiles

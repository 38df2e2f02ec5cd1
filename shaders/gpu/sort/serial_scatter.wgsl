// Radix sort for software renderers, downsweep: every key goes behind those of smaller digits and
// earlier tiles.
//
// Layout: as serial_count.wgsl, with `table` scanned. What goes along with a key: place.wgsl.
// Workgroup: GROUP invocations, one tile each, in order, which makes it stable. No workgroup
// memory, no barriers.

var<uniform> params: Params;
var<storage, read> keys: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read> table: array<u32>;
#if indexed
var<storage, read> index: array<u32>;
#endif
var<storage, read_write> to_keys: array<u32>;
var<storage, read_write> to_index: array<u32>;

#import gpu::counted
#import gpu::sort::digit
#import gpu::sort::serial_digits
#import gpu::sort::serial_tile
#import gpu::sort::place

fn each_invocation(tile: u32) {
    let last = counted();
    if last == 0u { return; }
    let own = keys_of(tile, last);
    for (var i = own.x; i < own.y; i++) {
        let key = load_keys(i);
        let d = digit(key);
        place(load_table(d * params.tiles + tile) + keys_with(d), key, payload(i));
        count_one(d);
    }
}

#each_invocation params.tiles

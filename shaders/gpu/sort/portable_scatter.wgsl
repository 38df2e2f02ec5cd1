// Radix sort for GPUs without subgroups, downsweep: a tile is sorted by its digit in workgroup
// memory, four bits at a time, and its keys go behind those of smaller digits and earlier tiles.
//
// Layout: as group_count.wgsl, with `table` scanned. What goes along with a key: place.wgsl.
// Workgroup: 128 invocations, one tile of 2048 keys; 15 KiB of workgroup memory, padded, since an
// invocation has 16 consecutive keys and 8 consecutive counters.

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
#import gpu::padded
#import gpu::sort::digit
#import gpu::sort::group_tile
#import gpu::sort::place

// A key of the tile: its digit, shifted by 16, and its place in the tile.
var<workgroup> entries: array<u32, TILE + TILE / BANKS>;
// How many keys of an invocation have each half digit, then where they go: [half digit,
// 8][invocation]; the lower half of a word is for half digit h, the upper for h + 8.
var<workgroup> counters: array<u32, 1024 + 1024 / BANKS>;
// Sums of invocations, and of 16 of those: few barriers for a few more reads.
var<workgroup> sums: array<u32, 128>;
var<workgroup> blocks: array<u32, 8>;
// The first key of each digit within the tile, and where it goes.
var<workgroup> starts: array<u32, 256>;
var<workgroup> bases: array<u32, 256>;

var<private> mine: array<u32, EACH>;

fn half_digit(entry: u32, shift: u32) -> u32 { return (entry >> (16u + shift)) & 15u; }

/// Takes the invocation's entries and counts them.
fn tally(lane: u32, shift: u32) {
    for (var h = 0u; h < 8u; h++) { counters[padded(h * GROUP + lane)] = 0u; }
    for (var k = 0u; k < EACH; k++) {
        let entry = entries[padded(lane * EACH + k)];
        mine[k] = entry;
        let h = half_digit(entry, shift);
        counters[padded((h & 7u) * GROUP + lane)] += select(1u, 65536u, h > 7u);
    }
}

fn gather_sums(lane: u32) {
    var sum = 0u;
    for (var k = 0u; k < 8u; k++) { sum += counters[padded(lane * 8u + k)]; }
    sums[lane] = sum;
}

fn gather_blocks(lane: u32) {
    if lane < 8u {
        var sum = 0u;
        for (var k = 0u; k < 16u; k++) { sum += sums[lane * 16u + k]; }
        blocks[lane] = sum;
    }
}

/// Turns counters into places.
fn spread(lane: u32) {
    var before = 0u;
    var total = 0u;
    for (var b = 0u; b < 8u; b++) {
        if b < lane / 16u { before += blocks[b]; }
        total += blocks[b];
    }
    for (var j = lane / 16u * 16u; j < lane; j++) { before += sums[j]; }
    // All of the lower halves stand before the upper ones.
    before += total << 16u;
    for (var k = 0u; k < 8u; k++) {
        let own = counters[padded(lane * 8u + k)];
        counters[padded(lane * 8u + k)] = before;
        before += own;
    }
}

/// Puts the invocation's entries to their places.
fn settle(lane: u32, shift: u32) {
    for (var k = 0u; k < EACH; k++) {
        let h = half_digit(mine[k], shift);
        let c = padded((h & 7u) * GROUP + lane);
        let at = select(counters[c] & 65535u, counters[c] >> 16u, h > 7u);
        counters[c] += select(1u, 65536u, h > 7u);
        entries[padded(at)] = mine[k];
    }
}

fn each_workgroup(tile: u32, lane: u32) {
    let last = counted();
    let tiles = tiles_of(last);
    if tile >= tiles { return; }
    let base = tile * TILE;
    let here = min(TILE, last - base);
    for (var k = 0u; k < EACH; k++) {
        let at = k * GROUP + lane;
        // What is not there comes last.
        var d = 255u;
        if at < here { d = digit(load_keys(base + at)); }
        entries[padded(at)] = (d << 16u) | at;
    }
    for (var d = lane; d <= params.mask; d += GROUP) { bases[d] = load_table(d * tiles + tile); }
    workgroupBarrier();
    tally(lane, 0u);
    workgroupBarrier();
    gather_sums(lane);
    workgroupBarrier();
    gather_blocks(lane);
    workgroupBarrier();
    spread(lane);
    workgroupBarrier();
    settle(lane, 0u);
    workgroupBarrier();
    tally(lane, 4u);
    workgroupBarrier();
    gather_sums(lane);
    workgroupBarrier();
    gather_blocks(lane);
    workgroupBarrier();
    spread(lane);
    workgroupBarrier();
    settle(lane, 4u);
    workgroupBarrier();
    for (var k = 0u; k < EACH; k++) {
        let at = k * GROUP + lane;
        let d = entries[padded(at)] >> 16u;
        var first = true;
        if at > 0u { first = (entries[padded(at - 1u)] >> 16u) != d; }
        if first { starts[d] = at; }
    }
    workgroupBarrier();
    for (var k = 0u; k < EACH; k++) {
        let at = k * GROUP + lane;
        let d = entries[padded(at)] >> 16u;
        let i = entries[padded(at)] & 65535u;
        if i < here { place(bases[d] + at - starts[d], load_keys(base + i), payload(base + i)); }
    }
}

#each_workgroup

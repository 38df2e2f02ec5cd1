// The places of keys in a tile sorted by their digit, for GPUs without subgroups: the tile is
// sorted in workgroup memory, four bits at a time. See subgroup_rank.wgsl.
//
// Workgroup: 128 invocations, a tile of 2048 keys; 16 KiB of workgroup memory with digit_scan.wgsl,
// padded, since an invocation sorts 16 consecutive keys with 8 consecutive counters.

#import gpu::padded
#import gpu::sort::digit_scan

// A key of the tile: its digit, shifted by 16, and its place in the tile. Then what `put` sets.
var<workgroup> entries: array<u32, TILE + TILE / BANKS>;
// What `give` sets. Then how many keys of an invocation have each half digit, then where they go:
// [half digit, 8][invocation]; the lower half of a word is for half digit h, the upper for h + 8.
var<workgroup> counters: array<u32, 1024 + 1024 / BANKS>;
// Sums of 16 invocations: few barriers for a few more reads.
var<workgroup> blocks: array<u32, 8>;

var<private> mine: array<u32, EACH>;

// Words between those that an invocation has of consecutive rows of GROUP.
const ROW: u32 = GROUP + GROUP / BANKS;

fn own_place(k: u32, lane: u32) -> u32 { return k * GROUP + lane; }

fn give(d: u32, value: u32) { counters[d] = value; }
fn given(d: u32) -> u32 { return counters[d]; }
fn put(at: u32, value: u32) { entries[padded(at)] = value; }
fn got(at: u32) -> u32 { return entries[padded(at)]; }
fn got_in_row(k: u32, lane: u32) -> u32 { return entries[k * ROW + padded(lane)]; }

fn half_digit(entry: u32, shift: u32) -> u32 { return (entry >> (16u + shift)) & 15u; }

/// Takes the invocation's entries and counts them.
fn tally_halves(lane: u32, shift: u32) {
    for (var h = 0u; h < 8u; h++) { counters[h * ROW + padded(lane)] = 0u; }
    for (var k = 0u; k < EACH; k++) {
        let entry = entries[padded(lane * EACH) + k];
        mine[k] = entry;
        let h = half_digit(entry, shift);
        counters[(h & 7u) * ROW + padded(lane)] += select(1u, 65536u, h > 7u);
    }
}

fn gather_sums(lane: u32) {
    var sum = 0u;
    for (var k = 0u; k < 8u; k++) { sum += counters[padded(lane * 8u) + k]; }
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
        let own = counters[padded(lane * 8u) + k];
        counters[padded(lane * 8u) + k] = before;
        before += own;
    }
}

/// Puts the invocation's entries to their places.
fn put_entries(lane: u32, shift: u32) {
    for (var k = 0u; k < EACH; k++) {
        let h = half_digit(mine[k], shift);
        let c = (h & 7u) * ROW + padded(lane);
        let at = select(counters[c] & 65535u, counters[c] >> 16u, h > 7u);
        counters[c] += select(1u, 65536u, h > 7u);
        entries[padded(at)] = mine[k];
    }
}

/// Sorts the entries by four bits of their digits.
fn sort_halves(lane: u32, shift: u32) {
    tally_halves(lane, shift);
    workgroupBarrier();
    gather_sums(lane);
    workgroupBarrier();
    gather_blocks(lane);
    workgroupBarrier();
    spread(lane);
    workgroupBarrier();
    put_entries(lane, shift);
    workgroupBarrier();
}

fn prepare(lane: u32) {
    for (var d = lane; d < 256u; d += GROUP) { atomicStore(&totals[d], 0u); }
}

fn rank_key(k: u32, lane: u32, of_key: u32, here: u32) -> u32 {
    let at = own_place(k, lane);
    // What is not there comes last.
    entries[k * ROW + padded(lane)] = (select(255u, of_key, at < here) << 16u) | at;
    if at < here { atomicAdd(&totals[of_key], 1u); }
    return 0u;
}

fn end_ranks(lane: u32) { workgroupBarrier(); }

fn settle(lane: u32) {
    sort_halves(lane, 0u);
    sort_halves(lane, 4u);
    // From which key is at a place to the place of each key.
    for (var k = 0u; k < EACH; k++) { mine[k] = entries[k * ROW + padded(lane)] & 65535u; }
    workgroupBarrier();
    for (var k = 0u; k < EACH; k++) { entries[padded(mine[k])] = own_place(k, lane); }
    workgroupBarrier();
}

fn place_of(k: u32, lane: u32, rank: u32) -> u32 { return entries[k * ROW + padded(lane)]; }

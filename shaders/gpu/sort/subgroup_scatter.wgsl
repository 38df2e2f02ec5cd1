// Radix sort for GPUs with subgroups, downsweep: ballots find the keys of the same digit within a subgroup, counters in
// workgroup memory those of earlier subgroups, and every key goes behind those of smaller digits and earlier tiles.
//
// Layout: as group_count.wgsl, with `table` scanned. A tile is GROUP * 16 keys, of which each subgroup has consecutive
// ones. What goes along with a key: place.wgsl.
// Workgroup: GROUP invocations in at most 16 subgroups of any size up to 128; 9 KiB of workgroup memory.

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
#import gpu::sort::place

const EACH: u32 = 16u;
const ROWS: u32 = 16u;

// How many keys of a subgroup have each digit, then how many of the subgroups before: two digits per word.
var<workgroup> counters: array<atomic<u32>, 2048>;
// Where the first key of each digit goes.
var<workgroup> bases: array<u32, 256>;

fn bits(mask: vec4<u32>) -> u32 {
    let ones = countOneBits(mask);
    return ones.x + ones.y + ones.z + ones.w;
}

/// The invocations below `sub`, of the 32 that begin with `first`.
fn below(sub: u32, first: u32) -> u32 {
    if sub < first { return 0u; }
    if sub >= first + 32u { return 0xffffffffu; }
    return (1u << (sub - first)) - 1u;
}

fn lowest(mask: vec4<u32>) -> u32 {
    if mask.x != 0u { return countTrailingZeros(mask.x); }
    if mask.y != 0u { return 32u + countTrailingZeros(mask.y); }
    if mask.z != 0u { return 64u + countTrailingZeros(mask.z); }
    return 96u + countTrailingZeros(mask.w);
}

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) row: u32,
    @builtin(subgroup_invocation_id) sub: u32,
) {
    let tile = group_number(id, groups);
    let last = select(0u, counted(), tile < params.tiles);
    for (var c = lane; c < ROWS * 128u; c += GROUP) { atomicStore(&counters[c], 0u); }
    for (var d = lane; d <= params.mask; d += GROUP) {
        if last > 0u { bases[d] = load_table(d * params.tiles + tile); }
    }
    workgroupBarrier();
    let all = subgroupBallot(true);
    let width = bits(all);
    let lower = vec4<u32>(below(sub, 0u), below(sub, 32u), below(sub, 64u), below(sub, 96u));
    let begin = tile * GROUP * EACH + row * width * EACH + sub;
    // The digit and the rank among the subgroup's keys of that digit, shifted by 16.
    var ranks: array<u32, 16>;
    for (var k = 0u; k < EACH; k++) {
        let i = begin + k * width;
        // What is not there comes last.
        var d = 255u;
        if i < last { d = digit(load_keys(i)); }
        var same = all;
        for (var b = 0u; b < 8u; b++) {
            let voted = ((d >> b) & 1u) == 1u;
            let votes = subgroupBallot(voted);
            same &= select(~votes, votes, vec4<bool>(voted));
        }
        let rank = bits(same & lower);
        let half = (d & 1u) * 16u;
        var before = 0u;
        if rank == 0u { before = atomicAdd(&counters[row * 128u + (d >> 1u)], bits(same) << half); }
        before = subgroupShuffle(before, lowest(same));
        ranks[k] = d | ((((before >> half) & 65535u) + rank) << 16u);
    }
    workgroupBarrier();
    for (var c = lane; c < 128u; c += GROUP) {
        var before = 0u;
        for (var r = 0u; r < ROWS; r++) {
            let own = atomicLoad(&counters[r * 128u + c]);
            atomicStore(&counters[r * 128u + c], before);
            before += own;
        }
    }
    workgroupBarrier();
    for (var k = 0u; k < EACH; k++) {
        let i = begin + k * width;
        if i < last {
            let d = ranks[k] & 255u;
            let before = (atomicLoad(&counters[row * 128u + (d >> 1u)]) >> ((d & 1u) * 16u)) & 65535u;
            place(bases[d] + before + (ranks[k] >> 16u), load_keys(i), payload(i));
        }
    }
}

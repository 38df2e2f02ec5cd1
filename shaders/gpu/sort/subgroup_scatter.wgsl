// Radix sort for GPUs with subgroups, downsweep: ballots find the keys of the same digit within a
// subgroup, counters in workgroup memory those of earlier subgroups. A tile is put in order in
// workgroup memory, and neighboring invocations write neighboring keys of a digit behind those of
// smaller digits and earlier tiles.
//
// Layout: as group_count.wgsl, with `table` scanned. A tile is GROUP * EACH keys, of which each
// subgroup has consecutive ones. What goes along with a key: place.wgsl.
// Workgroup: GROUP invocations in at most 16 subgroups of any size up to 128, EACH keys each, which
// $ counts; 10.5 KiB of workgroup memory for 64 invocations, 14.5 KiB for 256.

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
#import gpu::sort::group_tile
#import gpu::sort::place

const ROWS: u32 = 16u;

// First how many keys of a subgroup have each digit, then how many of the subgroups before, two
// digits per word: [subgroup][128]. Then the keys of the tile in order, then what goes along with
// them.
var<workgroup> words: array<atomic<u32>, max(ROWS * 128u, TILE)>;
// How many keys of the tile have each digit, two digits per word, and sums of 16 words.
var<workgroup> totals: array<u32, 128>;
var<workgroup> sums: array<u32, 8>;
// Where the first key of each digit stands in the tile, and where it goes.
var<workgroup> starts: array<u32, 256>;
var<workgroup> bases: array<u32, 256>;

fn bits(mask: vec4<u32>) -> u32 {
    let ones = countOneBits(mask);
    return ones.x + ones.y + ones.z + ones.w;
}

/// Returns the invocations below `sub`, of the 32 that begin with `first`.
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

/// Returns the half of a word of two digits that a digit has.
fn half_of(word: u32, digit: u32) -> u32 { return (word >> ((digit & 1u) * 16u)) & 65535u; }

/// Returns the place of a key among those of its digit in its subgroup, `all`, of which `lower`
/// come before it; counts the digit in row `row`.
fn ranked(digit: u32, row: u32, all: vec4<u32>, lower: vec4<u32>) -> u32 {
    var same = all;
    for (var b = 0u; b < 8u; b++) {
        let voted = ((digit >> b) & 1u) == 1u;
        let votes = subgroupBallot(voted);
        same &= select(~votes, votes, vec4<bool>(voted));
    }
    let rank = bits(same & lower);
    var before = 0u;
    if rank == 0u { before = atomicAdd(&words[row * 128u + (digit >> 1u)], bits(same) << ((digit & 1u) * 16u)); }
    return half_of(subgroupShuffle(before, lowest(same)), digit) + rank;
}

/// Turns the counts of subgroups into those of the subgroups before, and adds them up.
fn add_rows(lane: u32) {
    for (var c = lane; c < 128u; c += GROUP) {
        var before = 0u;
        for (var r = 0u; r < ROWS; r++) {
            let own = atomicLoad(&words[r * 128u + c]);
            atomicStore(&words[r * 128u + c], before);
            before += own;
        }
        totals[c] = before;
    }
}

fn add_totals(lane: u32) {
    if lane < 8u {
        var sum = 0u;
        for (var k = 0u; k < 16u; k++) { sum += totals[lane * 16u + k]; }
        sums[lane] = sum;
    }
}

fn find_starts(lane: u32) {
    for (var c = lane; c < 128u; c += GROUP) {
        var before = 0u;
        for (var k = 0u; k < c / 16u; k++) { before += sums[k]; }
        for (var k = c / 16u * 16u; k < c; k++) { before += totals[k]; }
        let start = (before & 65535u) + (before >> 16u);
        starts[2u * c] = start;
        starts[2u * c + 1u] = start + (totals[c] & 65535u);
    }
}

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) row: u32,
    @builtin(subgroup_invocation_id) sub: u32,
) {
    let tile = group_number(id, groups);
    let last = counted();
    let tiles = tiles_of(last);
    if tile >= tiles { return; }
    let first = tile * TILE;
    let here = min(TILE, last - first);
    for (var c = lane; c < ROWS * 128u; c += GROUP) { atomicStore(&words[c], 0u); }
    for (var d = lane; d <= params.mask; d += GROUP) { bases[d] = load_table(d * tiles + tile); }
    workgroupBarrier();
    let all = subgroupBallot(true);
    let width = bits(all);
    let lower = vec4<u32>(below(sub, 0u), below(sub, 32u), below(sub, 64u), below(sub, 96u));
    let begin = row * width * EACH + sub;
    // All loads are under way before the first is waited for.
    var key$ = load_keys(first + min(begin + $u * width, here - 1u));
    // What is not there comes last.
    var digit$ = 255u;
    if begin + $u * width < here { digit$ = digit(key$); }
    var at$ = ranked(digit$, row, all, lower);
    workgroupBarrier();
    add_rows(lane);
    workgroupBarrier();
    add_totals(lane);
    workgroupBarrier();
    find_starts(lane);
    workgroupBarrier();
    at$ += starts[digit$] + half_of(atomicLoad(&words[row * 128u + (digit$ >> 1u)]), digit$);
    workgroupBarrier();
    atomicStore(&words[at$], key$);
    let payload$ = payload(first + min(begin + $u * width, here - 1u));
    workgroupBarrier();
    key$ = atomicLoad(&words[$u * GROUP + lane]);
    let to$ = bases[digit(key$)] + $u * GROUP + lane - starts[digit(key$)];
    if $u * GROUP + lane < here { store_to_keys(to$, key$); }
    workgroupBarrier();
    atomicStore(&words[at$], payload$);
    workgroupBarrier();
    if $u * GROUP + lane < here { store_to_index(to$, atomicLoad(&words[$u * GROUP + lane])); }
}

// The places of keys in a tile sorted by their digit, for GPUs with subgroups: ballots find the
// keys of the same digit within a subgroup, counters in workgroup memory those of earlier
// subgroups. Invocation `lane` has the keys number `own_place(k, lane)` of the tile, for k below
// EACH: each subgroup has consecutive ones.
//
// A kernel calls `prepare`, a barrier, `rank_key` for each of its keys, `end_ranks`, `scan_digits`,
// `settle`, and `place_of` with what `rank_key` returned. `put` and `got` exchange words by place,
// `got_in_row` by row of GROUP places and invocation.
// Workgroup: GROUP invocations in at most 16 subgroups of any size up to 128. 9 KiB of workgroup
// memory, or 4 bytes a key if that is more.

#import gpu::sort::digit_scan

const ROWS: u32 = 16u;

// First how many keys of a subgroup have each digit, then how many of the subgroups before, two
// digits per word: [subgroup][128]. Behind, what `give` sets. Then what `put` sets.
var<workgroup> words: array<atomic<u32>, max(ROWS * 128u + 256u, TILE)>;

// The subgroup's number, the place in it, and its invocations.
var<private> row: u32;
var<private> sub: u32;
var<private> width: u32;
// The invocations of the subgroup, and those before this one.
var<private> members: vec4<u32>;
var<private> lower: vec4<u32>;

fn own_place(k: u32, lane: u32) -> u32 { return (row * EACH + k) * width + sub; }

fn give(d: u32, value: u32) { atomicStore(&words[ROWS * 128u + d], value); }
fn given(d: u32) -> u32 { return atomicLoad(&words[ROWS * 128u + d]); }
fn put(at: u32, value: u32) { atomicStore(&words[at], value); }
fn got(at: u32) -> u32 { return atomicLoad(&words[at]); }
fn got_in_row(k: u32, lane: u32) -> u32 { return atomicLoad(&words[k * GROUP + lane]); }

fn bits(mask: vec4<u32>) -> u32 {
    let ones = countOneBits(mask);
    return ones.x + ones.y + ones.z + ones.w;
}

/// Returns the invocations below `sub`, of the 32 that begin with `first`.
fn below(first: u32) -> u32 {
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

/// Returns the digit of key number `k`, shifted by 16, and the place of the key among those of its
/// digit in its subgroup; counts the digit. What is not there comes last.
fn rank_key(k: u32, lane: u32, of_key: u32, here: u32) -> u32 {
    let digit = select(255u, of_key, own_place(k, lane) < here);
    var same = members;
    for (var b = 0u; b < 8u; b++) {
        let voted = ((digit >> b) & 1u) == 1u;
        let votes = subgroupBallot(voted);
        same &= select(~votes, votes, vec4<bool>(voted));
    }
    let rank = bits(same & lower);
    var before = 0u;
    if rank == 0u { before = atomicAdd(&words[row * 128u + (digit >> 1u)], bits(same) << ((digit & 1u) * 16u)); }
    return (digit << 16u) | (half_of(subgroupShuffle(before, lowest(same)), digit) + rank);
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
        atomicStore(&totals[2u * c], before & 65535u);
        atomicStore(&totals[2u * c + 1u], before >> 16u);
    }
}

fn prepare(lane: u32) {
    for (var c = lane; c < ROWS * 128u; c += GROUP) { atomicStore(&words[c], 0u); }
}

/// Sets what an invocation knows of its subgroup.
fn set_subgroup(number: u32, place: u32) {
    row = number;
    sub = place;
    members = subgroupBallot(true);
    width = bits(members);
    lower = vec4<u32>(below(0u), below(32u), below(64u), below(96u));
}

/// Sets `totals`.
fn end_ranks(lane: u32) {
    workgroupBarrier();
    add_rows(lane);
    workgroupBarrier();
}

fn settle(lane: u32) {}

fn place_of(k: u32, lane: u32, rank: u32) -> u32 {
    let d = rank >> 16u;
    return (rank & 65535u) + starts[d] + half_of(atomicLoad(&words[row * 128u + (d >> 1u)]), d);
}

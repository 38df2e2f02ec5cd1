// Sorts few keys in one workgroup: all keys, at most TILE, or, with `runs`, each run of keys that
// short_runs.wgsl lists. Digit by digit; digits on which the keys agree take no time.
//
// Layout: `high` and `low`, or `keys`, by index; `order` receives the indices in order, or has
// those of a run in the order of their codes. `scratch` has two halves of `params.count` words: a
// choice between two arrays would be a condition for each key, and SwiftShader compiles for minutes
// where 32 conditions follow each other. `tied` as in short_runs.wgsl.
// Workgroup: GROUP invocations, EACH keys each at a time, which $ counts; the workgroup memory of
// subgroup_rank.wgsl or portable_rank.wgsl.

var<uniform> params: Params;
#if wide
var<storage, read> high: array<u32>;
var<storage, read> low: array<u32>;
#else
var<storage, read> keys: array<u32>;
#endif
#if runs
var<storage, read> runs: array<u32>;
var<storage, read> tied: array<u32>;
#else
var<storage, read> count: array<u32>;
#endif
var<storage, read_write> order: array<u32>;
var<storage, read_write> scratch: array<u32>;

#import gpu::sort::group_tile
#import gpu::sort::rank
#import gpu::sort::ordered
#if runs
#import gpu::sort::two_words
#else
#import gpu::counted
#endif

// Bits on which not all keys agree, of low words and of high words.
var<workgroup> votes: array<atomic<u32>, 2>;
var<workgroup> differing: vec2<u32>;
// First bit of the digit that is sorted by.
var<private> shift: u32;

#if wide
const WORDS: u32 = 2u;
fn word(index: u32, w: u32) -> u32 {
    if w == 0u { return load_low(index); }
    return load_high(index) & params.mask;
}
#else
const WORDS: u32 = 1u;
fn word(index: u32, w: u32) -> u32 { return ordered(load_keys(index)) & params.mask; }
#endif

fn digit(word: u32) -> u32 { return (word >> shift) & 255u; }

/// Sets `differing`, and the order to begin with.
fn compare(first: u32, length: u32, lane: u32) {
    for (var w = lane; w < 2u; w += GROUP) { atomicStore(&votes[w], 0u); }
    workgroupBarrier();
    var found = vec2<u32>(0u);
    for (var i = lane; i < length; i += GROUP) {
#if runs
        let index = load_order(first + i);
        let other = load_order(first);
#else
        let index = i;
        let other = 0u;
#endif
        store_scratch(first + i, index);
        found |= vec2<u32>(word(index, 0u) ^ word(other, 0u), word(index, WORDS - 1u) ^ word(other, WORDS - 1u));
    }
    atomicOr(&votes[0], found.x);
    atomicOr(&votes[1], found.y);
    storageBarrier();
    workgroupBarrier();
    if lane == 0u { differing = vec2<u32>(atomicLoad(&votes[0]), atomicLoad(&votes[1])); }
}

#if runs
/// Sets `bases` to the number of keys with smaller digits in a word.
fn find_bases(first: u32, length: u32, w: u32, from_half: u32, lane: u32) {
    for (var d = lane; d < 256u; d += GROUP) { atomicStore(&totals[d], 0u); }
    workgroupBarrier();
    for (var i = lane; i < length; i += GROUP) { atomicAdd(&totals[digit(word(load_scratch(from_half + first + i), w))], 1u); }
    workgroupBarrier();
    for (var d = lane; d < 256u; d += GROUP) { give(d, atomicLoad(&totals[d])); }
    workgroupBarrier();
    scan_digits(lane, true);
}
#endif

/// Moves the keys of a tile to their places in the order of a digit: all keys if this is the only
/// tile.
fn move_tile(first: u32, begin: u32, here: u32, w: u32, from_half: u32, lane: u32) {
    prepare(lane);
    workgroupBarrier();
    let index$ = load_scratch(from_half + first + begin + min(own_place($u, lane), here - 1u));
    let key$ = word(index$, w);
    let rank$ = rank_key($u, lane, digit(key$), here);
    end_ranks(lane);
    scan_digits(lane, false);
    settle(lane);
    let at$ = place_of($u, lane, rank$);
    workgroupBarrier();
#if runs
    put(at$, key$);
    workgroupBarrier();
    let digit$ = digit(got_in_row($u, lane));
    let to$ = first + bases[digit$] + $u * GROUP + lane - starts[digit$];
    workgroupBarrier();
#else
    let to$ = $u * GROUP + lane;
#endif
    put(at$, index$);
    workgroupBarrier();
    if $u * GROUP + lane < here { store_scratch(params.count - from_half + to$, got_in_row($u, lane)); }
#if runs
    for (var d = lane; d < 256u; d += GROUP) { bases[d] += total_of(d, here); }
#endif
}

fn sort(first: u32, length: u32, lane: u32) {
    compare(first, length, lane);
    let differ = workgroupUniformLoad(&differing);
    // Where the half of `scratch` begins that has the keys.
    var from_half = 0u;
    for (var k = 0u; k < 4u * WORDS; k++) {
        let w = k / 4u;
        shift = 8u * (k % 4u);
        if ((select(differ.x, differ.y, w == 1u) >> (8u * (k % 4u))) & 255u) == 0u { continue; }
#if runs
        find_bases(first, length, w, from_half, lane);
        for (var begin = 0u; begin < length; begin += TILE) {
            move_tile(first, begin, min(TILE, length - begin), w, from_half, lane);
        }
#else
        move_tile(0u, 0u, length, w, from_half, lane);
#endif
        storageBarrier();
        workgroupBarrier();
        from_half = params.count - from_half;
    }
    for (var i = first + lane; i < first + length; i += GROUP) { store_order(i, load_scratch(from_half + i)); }
    workgroupBarrier();
}

#if runs
/// Sorts at most GROUP keys, each of which counts those before it.
fn sort_few(first: u32, length: u32, lane: u32) {
    var index = 0u;
    var own = vec2<u32>(0u);
    if lane < length {
        index = load_order(first + lane);
        own = vec2<u32>(word(index, 1u), word(index, 0u));
        put(lane, own.x);
        put(GROUP + lane, own.y);
    }
    workgroupBarrier();
    if lane < length {
        var before = 0u;
        for (var i = 0u; i < length; i++) {
            let other = vec2<u32>(got(i), got(GROUP + i));
            let same = other.x == own.x && other.y == own.y;
            before += select(0u, 1u, precedes(other, own) || (same && i < lane));
        }
        store_order(first + before, index);
    }
    workgroupBarrier();
}

fn each_alone(number: u32, groups: u32, lane: u32) {
    let last = load_tied(1u);
    for (var run = number; run < last; run += groups) {
        let first = load_runs(2u * run);
        let length = load_runs(2u * run + 1u);
        if length <= GROUP { sort_few(first, length, lane); } else { sort(first, length, lane); }
    }
}
#else
fn each_alone(number: u32, groups: u32, lane: u32) { sort(0u, counted(), lane); }
#endif

#if subgroups
@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) place: u32,
) {
    set_subgroup(subgroup, place);
    each_alone(group_number(id, groups), groups.x * groups.y, lane);
}
#else
@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    each_alone(group_number(id, groups), groups.x * groups.y, lane);
}
#endif

// Radix sort for GPUs, one pass (A. Adinets and D. Merrill, arXiv:2206.01784): a tile is put in
// order in workgroup memory, and neighboring invocations write neighboring keys of a digit behind
// those of smaller digits and earlier tiles.
//
// Layout: `table` holds the histogram of all keys, [digit of the key, 4][256], then the states of
// the tiles, twice [tile][256]: those of this pass begin at `params.states`, and are 0 at first;
// those of the next, which are made 0, at `params.next`. Tiles are TILE consecutive keys
// (group_tile.wgsl). What goes along with a key: place.wgsl.
// Workgroup: GROUP invocations, one tile, EACH keys each, which $ counts; the workgroup memory of
// subgroup_rank.wgsl or portable_rank.wgsl.

var<uniform> params: Params;
var<storage, read> keys: array<u32>;
var<storage, read> count: array<u32>;
#if indexed
var<storage, read> index: array<u32>;
#endif
var<storage, read_write> table: array<atomic<u32>>;
var<storage, read_write> to_keys: array<u32>;
var<storage, read_write> to_index: array<u32>;

#import gpu::counted
#import gpu::sort::digit
#import gpu::sort::group_tile
#import gpu::sort::place
#import gpu::sort::rank
#import gpu::sort::look_back

fn each_tile(tile: u32, lane: u32) {
    let last = counted();
    if tile >= tiles_of(last) { return; }
    let first = tile * TILE;
    let here = min(TILE, last - first);
    prepare(lane);
    if lane == 0u { atomicStore(&vote, 0u); }
    for (var d = lane; d < 256u; d += GROUP) { store_table(params.next + tile * 256u + d, 0u); }
    workgroupBarrier();
    // All loads are under way before the first is waited for.
    var key$ = load_keys(first + min(own_place($u, lane), here - 1u));
    let rank$ = rank_key($u, lane, digit(key$), here);
    end_ranks(lane);
    for (var d = lane; d < 256u; d += GROUP) {
        store_table(state_at(tile, d), first_state(tile, atomicLoad(&totals[d])));
        give(d, load_table(params.histogram + d));
    }
    workgroupBarrier();
    scan_digits(lane, true);
    settle(lane);
    look_back(tile, lane, here);
    let at$ = place_of($u, lane, rank$);
    workgroupBarrier();
    put(at$, key$);
    let payload$ = payload(first + min(own_place($u, lane), here - 1u));
    workgroupBarrier();
    key$ = got_in_row($u, lane);
    let to$ = bases[digit(key$)] + $u * GROUP + lane - starts[digit(key$)];
    if $u * GROUP + lane < here { store_to_keys(to$, key$); }
    workgroupBarrier();
    put(at$, payload$);
    workgroupBarrier();
    if $u * GROUP + lane < here { store_to_index(to$, got_in_row($u, lane)); }
}

#if subgroups
@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) place: u32,
) {
    set_subgroup(subgroup, place);
    each_tile(group_number(id, groups), lane);
}
#else
fn each_workgroup(tile: u32, lane: u32) { each_tile(tile, lane); }

#each_workgroup
#endif

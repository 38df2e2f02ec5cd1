// Counts the particles of each list of tile.wgsl, and gives each particle a place in its list.
//
// Layout: particles as in particle.wgsl; `counts` a word for each list, cleared before; `work` the
// list of each particle, then its place there, and from params.splits on two words that are cleared
// here (tile_paint.wgsl counts in them). `faults[0]` counts particles that were not painted, as in
// paint.wgsl; they belong to no list.
//
// Places depend on the order of the additions. With `pairs` neighbors in the subgroup that belong
// to the same list are counted by one addition.
//
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
#if listed
var<storage, read> site: array<vec2<u32>>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read_write> counts: array<atomic<u32>>;
var<storage, read_write> work: array<u32>;
var<storage, read_write> faults: array<atomic<u32>>;

#import mesh::particle
#import mesh::each_particle
#import mesh::tile

const NO_LIST: u32 = 0xffffffffu;

/// The tile along an axis where a window begins, and whether it reaches the next one.
struct Begin {
    tile: u32,
    reaches: bool,
}

fn begin_of(nodes: Nodes, axis: u32) -> Begin {
    let place = places(nodes.first, axis).x;
    let shorter = params.shorter[axis];
    let longer = params.longer[axis];
    let behind = select(0u, (place - longer) / shorter, place >= longer);
    let tile = max(place / (shorter + 1u), behind);
    let end = (tile + 1u) * shorter + min(tile + 1u, longer);
    return Begin(tile, params.tiles[axis] > 1u && place + u32(WIDTH) > end);
}

fn list_of(at: Located) -> u32 {
    let x = begin_of(at.x, 0u);
    let y = begin_of(at.y, 1u);
    let z = begin_of(at.z, 2u);
    let tile = (x.tile * params.tiles.y + y.tile) * params.tiles.z + z.tile;
    return 8u * tile + select(0u, 4u, x.reaches) + select(0u, 2u, y.reaches) + select(0u, 1u, z.reaches);
}

#if pairs
/// Returns the lanes up to `place`, of the 32 that begin with `first`.
fn lanes_up_to(place: u32, first: u32) -> u32 {
    if place < first { return 0u; }
    return select((2u << (place - first)) - 1u, 0xffffffffu, place >= first + 31u);
}

fn last_lane(lanes: vec4<u32>) -> u32 {
    if lanes.w != 0u { return 127u - countLeadingZeros(lanes.w); }
    if lanes.z != 0u { return 95u - countLeadingZeros(lanes.z); }
    if lanes.y != 0u { return 63u - countLeadingZeros(lanes.y); }
    return 31u - countLeadingZeros(lanes.x);
}

/// Returns the first of these lanes; 128 if there is none.
fn first_lane(lanes: vec4<u32>) -> u32 {
    if lanes.x != 0u { return countTrailingZeros(lanes.x); }
    if lanes.y != 0u { return 32u + countTrailingZeros(lanes.y); }
    if lanes.z != 0u { return 64u + countTrailingZeros(lanes.z); }
    return 96u + countTrailingZeros(lanes.w);
}

/// Counts the particle of each lane, and returns its place. The first lane of a run of lanes with
/// the same list adds for all of them.
fn count(list: u32) -> u32 {
    let before = subgroupShuffle(list, select(subgroup_place - 1u, 0u, subgroup_place == 0u));
    let begins = subgroupBallot(subgroup_place == 0u || before != list);
    let up_to = vec4<u32>(
        lanes_up_to(subgroup_place, 0u), lanes_up_to(subgroup_place, 32u),
        lanes_up_to(subgroup_place, 64u), lanes_up_to(subgroup_place, 96u),
    );
    let begin = last_lane(begins & up_to);
    let end = min(first_lane(begins & ~up_to), subgroup_lanes);
    var place = 0u;
    if subgroup_place == begin && list != NO_LIST { place = add_counts(list, end - begin); }
    return subgroupShuffle(place, begin) + subgroup_place - begin;
}
#else
fn count(list: u32) -> u32 {
    if list == NO_LIST { return 0u; }
    return add_counts(list, 1u);
}
#endif

fn each_particle(particle: u32) {
    let at = locate(particle);
    let is_painted = is_there && at.sane && all_inside(at);
    if is_there && !is_painted { add_faults(0u, 1u); }
    var list = NO_LIST;
    if is_painted { list = list_of(at); }
    let place = count(list);
    if !is_there { return; }
    store_work(particle, list);
    store_work(params.first.w + particle, place);
    if particle == 0u {
        store_work(params.splits.x, 0u);
        store_work(params.splits.x + 1u, 0u);
    }
}

#if pairs
#each_subgroup
#else
#each params.first.w
#endif

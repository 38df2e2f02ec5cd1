// The order in which kernels over the sites of a lattice take particles: the work on one of them is
// `each_particle`, and does not depend on the order.
//
// Where params.base.w is 1, the sites are a whole number of blocks of 32 x 32 x 32, and come block
// by block in bricks of 4 x 2 x 32: the cells that particles of a block share stay in the cache.

/// Returns the particle with number `i` in the order of work.
fn particle_at(i: u32) -> u32 {
    if params.base.w == 0 { return i; }
    // By bits of i: 15 of a block, of which 8 of a brick; 5 along z, 1 along y and 2 along x. The
    // bricks of a block are 16 along y and 8 along x.
    let blocks = params.local.xyz / 32u;
    let block = i / 32768u;
    let corner = vec3<u32>(block / blocks.z / blocks.y, block / blocks.z % blocks.y, block % blocks.z) * 32u;
    let x = corner.x + ((i >> 12u) & 7u) * 4u + ((i >> 6u) & 3u);
    let y = corner.y + ((i >> 8u) & 15u) * 2u + ((i >> 5u) & 1u);
    return (x * params.local.y + y) * params.local.z + corner.z + (i & 31u);
}

#if pairs
// Every lane of a subgroup has a partner, with whom it reads and writes the nodes of both: the two
// nodes of a particle that are neighbors along z are then neighbors in the subgroup, too, and one
// request of the memory serves both. All lanes work to the end; those without a particle of their
// own take the last one, and keep nothing.

/// Which of the two lanes this is.
var<private> is_second: bool;
/// Whether it has a particle of its own.
var<private> is_there: bool;
/// The place in the subgroup, and the lanes that this has.
var<private> subgroup_place: u32;
var<private> subgroup_lanes: u32;

fn each_subgroup(number: u32, lane: u32, size: u32, place: u32) {
    let i = number * GROUP + lane;
    is_second = (place & 1u) == 1u;
    subgroup_place = place;
    subgroup_lanes = size;
    is_there = i < params.first.w;
    each_particle(particle_at(min(i, params.first.w - 1u)));
}

fn partner(value: u32) -> u32 { return subgroupShuffleXor(value, 1u); }
#else
const is_there: bool = true;

fn each(i: u32) { each_particle(particle_at(i)); }
#endif

// How many keys of earlier tiles have each digit, while those tiles are still at work: a decoupled
// look-back (D. Merrill and M. Garland, NVR-2016-002) whose fallback assumes no forward progress
// (T. Smith, R. Levien and J. D. Owens, SPAA 2025): after SPINS fruitless looks a workgroup counts
// the keys of the tile that it waits for itself, and publishes them for all.
//
// A state is one word, so that it needs no order beside that of its own changes: 0 if nothing is
// known, else 1 + the keys of the tile with this digit, else TILE + 2 + the keys of the tile and of
// all before it. States only grow, whichever workgroup writes them.

var<workgroup> vote: atomic<u32>;
var<workgroup> agreed: u32;

fn state_at(tile: u32, d: u32) -> u32 { return params.states + tile * 256u + d; }

/// Returns the state of a tile from its own keys alone.
fn first_state(tile: u32, own: u32) -> u32 { return own + select(1u, TILE + 2u, tile == 0u); }

/// Counts the keys of an earlier tile, all of which are there, in `totals`, and publishes them.
fn publish_for(tile: u32, lane: u32) {
    for (var d = lane; d < 256u; d += GROUP) { atomicStore(&totals[d], 0u); }
    workgroupBarrier();
    for (var k = 0u; k < EACH; k++) { atomicAdd(&totals[digit(load_keys(tile * TILE + k * GROUP + lane))], 1u); }
    workgroupBarrier();
    for (var d = lane; d < 256u; d += GROUP) {
        max_table(state_at(tile, d), first_state(tile, atomicLoad(&totals[d])));
    }
}

/// Adds the keys of earlier tiles to `bases`, and publishes what that makes of the own tile, of
/// which `here` keys are there. Needs a barrier before others read `bases`; `vote` was 0.
fn look_back(tile: u32, lane: u32, here: u32) {
    var looks = 0u;
    for (var round = 0u; round < 256u / GROUP; round++) {
        let d = round * GROUP + lane;
        // The tiles from this one on are added up.
        var begin = tile;
        var before = 0u;
        var waits = tile > 0u;
        loop {
            while waits {
                let state = load_table(state_at(begin - 1u, d));
                if state > TILE + 1u {
                    before += state - (TILE + 2u);
                    waits = false;
                } else if state > 0u {
                    before += state - 1u;
                    begin--;
                } else {
                    looks++;
                    if looks > SPINS { break; }
                }
            }
            if waits { atomicMax(&vote, begin); }
            workgroupBarrier();
            if lane == 0u {
                agreed = atomicLoad(&vote);
                atomicStore(&vote, 0u);
            }
            let missing = workgroupUniformLoad(&agreed);
            if missing == 0u { break; }
            publish_for(missing - 1u, lane);
        }
        bases[d] += before;
        if tile > 0u { store_table(state_at(tile, d), TILE + 2u + before + total_of(d, here)); }
    }
}

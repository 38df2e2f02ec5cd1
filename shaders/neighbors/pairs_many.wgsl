// The same with more bins than an invocation holds: every pair is added at once.

alias State = u32;

fn pairs_step(low: u32, step: u32, distance: f32) -> u32 {
    let next = min(low + step, BINS);
    return select(low, next, low + step < BINS && load_edges(next) <= distance);
}

fn begin(query: u32, reach: f32) -> State { return 0u; }

fn each(state: State, near: Neighbor) -> State {
    if near.distance < load_edges(0u) || near.distance >= load_edges(BINS) { return state; }
    var low = 0u;
    low = pairs_step(low, 2048u, near.distance);
    low = pairs_step(low, 1024u, near.distance);
    low = pairs_step(low, 512u, near.distance);
    low = pairs_step(low, 256u, near.distance);
    low = pairs_step(low, 128u, near.distance);
    low = pairs_step(low, 64u, near.distance);
    low = pairs_step(low, 32u, near.distance);
    low = pairs_step(low, 16u, near.distance);
    low = pairs_step(low, 8u, near.distance);
    low = pairs_step(low, 4u, near.distance);
    low = pairs_step(low, 2u, near.distance);
    low = pairs_step(low, 1u, near.distance);
    if add_bins(2u * low, 1u) == 0xffffffffu { add_bins(2u * low + 1u, 1u); }
    return state;
}

fn end(query: u32, state: State) { }

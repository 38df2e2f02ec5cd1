// The same with more bins than an invocation holds: every pair is added at once.

alias State = u32;

fn begin(query: u32, reach: f32) -> State { return 0u; }

fn each(state: State, near: Neighbor) -> State {
    if near.distance < load_edges(0u) || near.distance >= load_edges(BINS) { return state; }
    var low = 0u;
    var high = BINS;
    while high - low > 1u {
        let middle = (low + high) / 2u;
        if load_edges(middle) <= near.distance { low = middle; } else { high = middle; }
    }
    if add_bins(2u * low, 1u) == 0xffffffffu { add_bins(2u * low + 1u, 1u); }
    return state;
}

fn end(query: u32, state: State) { }

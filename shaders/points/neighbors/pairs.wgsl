// Counts pairs by distance: a callback for searches within the last edge, which is told squares of distances.
//
// Layout: `edges` holds BINS + 1 edges as squares, `bins` two words a bin, low first. Each invocation counts privately and adds when a query
// of it ends: BINS + 1 and BINS private words.

alias State = u32;

var<private> pairs_edges: array<f32, BINS + 1u>;
var<private> pairs_count: array<u32, BINS>;
var<private> pairs_ready: bool = false;

fn pairs_edge(edge: u32) -> f32 { return pairs_edges[edge]; }

fn begin(query: u32, reach: f32) -> State {
    if !pairs_ready {
        for (var bin = 0u; bin <= BINS; bin++) { pairs_edges[bin] = load_edges(bin); }
        for (var bin = 0u; bin < BINS; bin++) { pairs_count[bin] = 0u; }
        pairs_ready = true;
    }
    return 0u;
}

fn each(state: State, near: Neighbor) -> State {
    if near.distance < pairs_edge(0u) || near.distance >= pairs_edge(BINS) { return state; }
    let bin = pairs_bin(near.distance);
    pairs_count[bin] += WEIGHT;
    if pairs_count[bin] == 0x80000000u {
        pairs_add(bin, pairs_count[bin]);
        pairs_count[bin] = 0u;
    }
    return state;
}

fn end(query: u32, state: State) {
    for (var bin = 0u; bin < BINS; bin++) {
        if pairs_count[bin] > 0u {
            pairs_add(bin, pairs_count[bin]);
            pairs_count[bin] = 0u;
        }
    }
}

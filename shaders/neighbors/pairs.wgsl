// Counts pairs by distance: a snippet for searches within the last edge.
//
// Layout: `edges` holds BINS + 1 edges, `bins` two words a bin, low first. Each invocation counts privately and adds when a query
// of it ends: BINS + 1 and BINS private words.

alias State = u32;

var<private> pairs_edge: array<f32, BINS + 1u>;
var<private> pairs_count: array<u32, BINS>;
var<private> pairs_ready: bool = false;

fn pairs_add(bin: u32, amount: u32) {
    let before = add_bins(2u * bin, amount);
    if before + amount < before { add_bins(2u * bin + 1u, 1u); }
}

fn pairs_step(low: u32, step: u32, distance: f32) -> u32 {
    let next = min(low + step, BINS);
    return select(low, next, low + step < BINS && pairs_edge[next] <= distance);
}

fn begin(query: u32, reach: f32) -> State {
    if !pairs_ready {
        for (var bin = 0u; bin <= BINS; bin++) { pairs_edge[bin] = load_edges(bin); }
        for (var bin = 0u; bin < BINS; bin++) { pairs_count[bin] = 0u; }
        pairs_ready = true;
    }
    return 0u;
}

fn each(state: State, near: Neighbor) -> State {
    if near.distance < pairs_edge[0] || near.distance >= pairs_edge[BINS] { return state; }
    // The last edge that is not above, by halving, without a loop: some drivers limit their rounds.
    var low = 0u;
    low = pairs_step(low, 32u, near.distance);
    low = pairs_step(low, 16u, near.distance);
    low = pairs_step(low, 8u, near.distance);
    low = pairs_step(low, 4u, near.distance);
    low = pairs_step(low, 2u, near.distance);
    low = pairs_step(low, 1u, near.distance);
    pairs_count[low]++;
    if pairs_count[low] == 0x80000000u {
        pairs_add(low, pairs_count[low]);
        pairs_count[low] = 0u;
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

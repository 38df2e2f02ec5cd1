// Counts pairs in BINS bins of distance: a callback for within.wgsl, which gives it squares of distances.
//
// Layout: `edges` holds BINS + 1 ascending edges as squares, `bins` two words per bin, low first. Every pair found adds WEIGHT.
// With `private_bins` each invocation counts in BINS private words, beside BINS + 1 private edges, and adds them to `bins` when a query of it
// ends; more bins than an invocation holds are added to at once. HALF is half of the least power of two from BINS on; lines with an `@`
// are written once for each halving.

var<storage, read> edges: array<f32>;
var<storage, read_write> bins: array<atomic<u32>>;

alias State = u32;

#if private_bins
var<private> pairs_edges: array<f32, BINS + 1u>;
var<private> pairs_count: array<u32, BINS>;
var<private> pairs_ready: bool = false;

fn edge_at(edge: u32) -> f32 { return pairs_edges[edge]; }
#else
fn edge_at(edge: u32) -> f32 { return load_edges(edge); }
#endif

/// Goes `step` bins on if the square is not below that bin's edge.
fn step_to_bin(low: u32, step: u32, square: f32) -> u32 {
    let next = min(low + step, BINS);
    return select(low, next, low + step < BINS && edge_at(next) <= square);
}

/// The bin of a square from the first edge on and below the last: by halving, without a loop, for some drivers limit their rounds.
fn bin_of(square: f32) -> u32 {
    var low = 0u;
    low = step_to_bin(low, HALF >> @u, square);
    return low;
}

fn add_to_bin(bin: u32, amount: u32) {
    let before = add_bins(2u * bin, amount);
    if before + amount < before { add_bins(2u * bin + 1u, 1u); }
}

fn is_counted(square: f32) -> bool {
    return !(square < edge_at(0u) || square >= edge_at(BINS));
}

#if private_bins
fn begin(query: u32, reach: f32) -> State {
    if !pairs_ready {
        for (var bin = 0u; bin <= BINS; bin++) { pairs_edges[bin] = load_edges(bin); }
        for (var bin = 0u; bin < BINS; bin++) { pairs_count[bin] = 0u; }
        pairs_ready = true;
    }
    return 0u;
}

fn each(state: State, near: Neighbor) -> State {
    if !is_counted(near.distance) { return state; }
    let bin = bin_of(near.distance);
    pairs_count[bin] += WEIGHT;
    // Before the word overflows.
    if pairs_count[bin] == 0x80000000u {
        add_to_bin(bin, pairs_count[bin]);
        pairs_count[bin] = 0u;
    }
    return state;
}

fn end(query: u32, state: State) {
    for (var bin = 0u; bin < BINS; bin++) {
        if pairs_count[bin] > 0u {
            add_to_bin(bin, pairs_count[bin]);
            pairs_count[bin] = 0u;
        }
    }
}
#else
fn begin(query: u32, reach: f32) -> State { return 0u; }

fn each(state: State, near: Neighbor) -> State {
    if is_counted(near.distance) { add_to_bin(bin_of(near.distance), WEIGHT); }
    return state;
}

fn end(query: u32, state: State) {}
#endif

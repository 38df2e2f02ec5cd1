// Counts pairs in BINS bins of distance, as pairs.wgsl does, where bins are few: each invocation
// counts in registers how many squares reach each edge, so that a pair takes a comparison and an
// addition for each edge, and neither loads nor atomics. What lies in a bin is the difference of
// two such counts. Lines with an `@` are written once for each of the BINS + 1 edges.
//
// Layout: as pairs.wgsl. A workgroup adds its invocations' counts up in BINS words of its memory
// when it has searched for all its queries.

var<storage, read> edges: array<f32>;
var<storage, read_write> bins: array<atomic<u32>>;

alias State = u32;

/// The loop that empties counts, and that over `WEIGHT`.
const NODE_ROUNDS: u32 = 2u + WEIGHT + 1u;

/// Counts from which on an invocation takes them to `bins` before the next leaf: long before a word
/// overflows.
const FULL: u32 = 0x10000u;

var<private> edge_@: f32;
/// Squares so far that are not below each edge.
var<private> reached_@: u32;

var<workgroup> histogram: array<atomic<u32>, BINS>;

fn add_to_bin(bin: u32, amount: u32) {
    let before = add_bins(2u * bin, amount);
    if before + amount < before { add_bins(2u * bin + 1u, 1u); }
}

fn begin_histogram(invocation: u32) {
    edge_@ = load_edges(@u);
    reached_@ = 0u;
    for (var bin = invocation; bin < BINS; bin += GROUP) { atomicStore(&histogram[bin], 0u); }
    workgroupBarrier();
}

/// A loop, which a software renderer does not execute where there is nothing to do.
fn empty_full() {
    while reached_0 >= FULL {
        var more = reached_0;
        if @u > 0u { add_to_bin(max(@u, 1u) - 1u, WEIGHT * (more - reached_@)); } more = reached_@; reached_@ = 0u;
    }
}

fn end_histogram(invocation: u32) {
    var more = reached_0;
    if @u > 0u { atomicAdd(&histogram[max(@u, 1u) - 1u], WEIGHT * (more - reached_@)); } more = reached_@;
    workgroupBarrier();
    for (var bin = invocation; bin < BINS; bin += GROUP) {
        let counted = atomicLoad(&histogram[bin]);
        if counted > 0u { add_to_bin(bin, counted); }
    }
}

fn begin(query: u32, reach: f32) -> State { return 0u; }

fn each(state: State, near: Neighbor) -> State {
    reached_@ += select(0u, 1u, near.distance >= edge_@);
    return state;
}

fn each_of(state: State, square: f32, count: u32) -> State {
    // Several nodes may follow each other without a leaf between them.
    empty_full();
    if count < FULL {
        reached_@ += select(0u, count, square >= edge_@);
        return state;
    }
    var bin = BINS;
    if square >= edge_@ { bin = @u; }
    if bin < BINS {
        for (var n = 0u; n < WEIGHT; n++) { add_to_bin(bin, count); }
    }
    return state;
}

/// Returns `true` if no edge lies between two squares.
fn is_alike(near: f32, far: f32) -> bool {
    var alike = true;
    alike = alike && (near >= edge_@) == (far >= edge_@);
    return alike;
}

fn end(query: u32, state: State) {}

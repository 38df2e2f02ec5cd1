// Counts pairs in BINS bins of distance: a callback for within.wgsl, which gives it squares of
// distances.
//
// Layout: `edges` holds BINS + 1 ascending edges as squares, `bins` two words per bin, low first.
// Every pair found adds WEIGHT. With `histogram` a workgroup counts in its own memory, BINS words,
// and adds them to `bins` when it has searched for all its queries; more bins than it holds are
// added to at once. HALF is half of the least power of two from BINS on; lines with an `@` are
// written once for each halving.

var<storage, read> edges: array<f32>;
var<storage, read_write> bins: array<atomic<u32>>;

alias State = u32;

/// The loop over `WEIGHT`.
const NODE_ROUNDS: u32 = WEIGHT + 1u;

/// The first edge and the last.
var<private> first_edge: f32;
var<private> last_edge: f32;

/// Goes `step` bins on if the square is not below that bin's edge.
fn step_to_bin(low: u32, step: u32, square: f32) -> u32 {
    let next = min(low + step, BINS);
    return select(low, next, low + step < BINS && load_edges(next) <= square);
}

/// Returns the bin of a square from the first edge on and below the last: by halving, without a
/// loop, for some drivers limit their rounds.
fn bin_of(square: f32) -> u32 {
    var low = 0u;
    low = step_to_bin(low, HALF >> @u, square);
    return low;
}

fn add_to_bin(bin: u32, amount: u32) {
    let before = add_bins(2u * bin, amount);
    if before + amount < before { add_bins(2u * bin + 1u, 1u); }
}

/// Adds more pairs than a word could hold in `histogram`.
fn add_many(bin: u32, count: u32) {
    for (var n = 0u; n < WEIGHT; n++) { add_to_bin(bin, count); }
}

#if histogram
/// An invocation that takes a count across a multiple of this takes as much to `bins`. So a count
/// never exceeds it by more than all invocations add at once, and no word overflows.
const FULL: u32 = 0x10000u;

var<workgroup> histogram: array<atomic<u32>, BINS>;

fn begin_histogram(invocation: u32) {
    for (var bin = invocation; bin < BINS; bin += GROUP) { atomicStore(&histogram[bin], 0u); }
    workgroupBarrier();
}

fn end_histogram(invocation: u32) {
    workgroupBarrier();
    for (var bin = invocation; bin < BINS; bin += GROUP) {
        let counted = atomicLoad(&histogram[bin]);
        if counted > 0u { add_to_bin(bin, counted); }
    }
}

fn count_pairs(bin: u32, count: u32) {
    if count >= FULL { add_many(bin, count); return; }
    let before = atomicAdd(&histogram[bin], WEIGHT * count);
    let full = (before + WEIGHT * count) / FULL - before / FULL;
    if full > 0u {
        atomicSub(&histogram[bin], full * FULL);
        add_to_bin(bin, full * FULL);
    }
}
#else
fn count_pairs(bin: u32, count: u32) { add_many(bin, count); }
#endif

/// Words are emptied by the pair that fills them.
fn empty_full() {}

fn begin(query: u32, reach: f32) -> State {
    first_edge = load_edges(0u);
    last_edge = load_edges(BINS);
    return 0u;
}

fn each(state: State, near: Neighbor) -> State { return each_of(state, near.distance, 1u); }

fn each_of(state: State, square: f32, count: u32) -> State {
    if square >= first_edge && square < last_edge { count_pairs(bin_of(square), count); }
    return state;
}

/// Returns `true` if no edge lies between two squares.
fn is_alike(near: f32, far: f32) -> bool {
    let next = select(bin_of(near) + 1u, 0u, near < first_edge);
    return near >= last_edge || far < load_edges(next);
}

fn end(query: u32, state: State) {}

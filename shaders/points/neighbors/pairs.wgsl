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

#if histogram
/// Counts from which on the invocation that reaches them takes them to `bins`: long before a word
/// overflows.
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

fn count_pair(bin: u32) {
    let before = atomicAdd(&histogram[bin], WEIGHT);
    if before < FULL && before + WEIGHT >= FULL {
        atomicSub(&histogram[bin], FULL);
        add_to_bin(bin, FULL);
    }
}
#else
fn count_pair(bin: u32) { add_to_bin(bin, WEIGHT); }
#endif

/// Words are emptied by the pair that fills them.
fn empty_full() {}

fn begin(query: u32, reach: f32) -> State {
    first_edge = load_edges(0u);
    last_edge = load_edges(BINS);
    return 0u;
}

fn each(state: State, near: Neighbor) -> State {
    let square = near.distance;
    if square >= first_edge && square < last_edge { count_pair(bin_of(square)); }
    return state;
}

fn end(query: u32, state: State) {}

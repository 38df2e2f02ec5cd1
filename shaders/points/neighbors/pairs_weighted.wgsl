// Counts pairs in BINS bins of distance and adds up the products of their weights: a callback for
// within.wgsl, which gives it squares of distances.
//
// Layout: `table` holds the bits of BINS + 1 ascending edges as squares, then an integer weight for
// each source and, with `other`, one for each query. `sums` holds WORDS words per bin, low first: a
// sum of products in 128 bits and a count in 64. A product has less than 64 bits, so neither can
// overflow. Integers make the sums independent of their order. Every pair found adds once. With
// `histogram` a workgroup adds in its own memory, BINS * WORDS words, and adds that to `sums` when
// it has searched for all its queries. HALF is half of the least power of two from BINS on; lines
// with an `@` are written once for each halving.

var<storage, read> table: array<u32>;
var<storage, read_write> sums: array<atomic<u32>>;

/// The weight of the query.
alias State = u32;

const WORDS: u32 = 6u;
/// The first weight of a source in `table`.
const WEIGHTS: u32 = BINS + 1u;

/// The first edge and the last.
var<private> first_edge: f32;
var<private> last_edge: f32;

fn edge(n: u32) -> f32 { return bitcast<f32>(load_table(n)); }

/// Goes `step` bins on if the square is not below that bin's edge.
fn step_to_bin(low: u32, step: u32, square: f32) -> u32 {
    let next = min(low + step, BINS);
    return select(low, next, low + step < BINS && edge(next) <= square);
}

/// Returns the bin of a square from the first edge on and below the last: by halving, without a
/// loop, for some drivers limit their rounds.
fn bin_of(square: f32) -> u32 {
    var low = 0u;
    low = step_to_bin(low, HALF >> @u, square);
    return low;
}

/// Returns the product of two integers: low and high word.
fn product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2<u32>((other << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}

/// Adds to a word of the result and returns the carry.
fn add_word(at: u32, amount: u32) -> u32 {
    if amount == 0u { return 0u; }
    let before = add_sums(at, amount);
    return select(0u, 1u, before + amount < before);
}

/// Adds a sum of 128 bits and a count of 64 bits to those of a bin.
fn add_to_bin(bin: u32, sum: vec4<u32>, count: vec2<u32>) {
    let at = WORDS * bin;
    var carry = add_word(at, sum.x);
    carry = add_word(at + 1u, sum.y) + add_word(at + 1u, carry);
    carry = add_word(at + 2u, sum.z) + add_word(at + 2u, carry);
    add_word(at + 3u, sum.w + carry);
    carry = add_word(at + 4u, count.x);
    add_word(at + 5u, count.y + carry);
}

#if histogram
var<workgroup> histogram: array<atomic<u32>, BINS * WORDS>;

fn begin_histogram(invocation: u32) {
    for (var word = invocation; word < BINS * WORDS; word += GROUP) { atomicStore(&histogram[word], 0u); }
    workgroupBarrier();
}

fn end_histogram(invocation: u32) {
    workgroupBarrier();
    for (var bin = invocation; bin < BINS; bin += GROUP) {
        let at = WORDS * bin;
        let count = vec2<u32>(atomicLoad(&histogram[at + 4u]), atomicLoad(&histogram[at + 5u]));
        if any(count > vec2<u32>(0u)) {
            let low = vec2<u32>(atomicLoad(&histogram[at]), atomicLoad(&histogram[at + 1u]));
            let high = vec2<u32>(atomicLoad(&histogram[at + 2u]), atomicLoad(&histogram[at + 3u]));
            add_to_bin(bin, vec4<u32>(low, high), count);
        }
    }
}

/// Adds to a word of the workgroup and returns the carry.
fn add_local(at: u32, amount: u32) -> u32 {
    if amount == 0u { return 0u; }
    let before = atomicAdd(&histogram[at], amount);
    return select(0u, 1u, before + amount < before);
}

fn count_pair(bin: u32, weight: vec2<u32>) {
    let at = WORDS * bin;
    var carry = add_local(at, weight.x);
    carry = add_local(at + 1u, weight.y) + add_local(at + 1u, carry);
    carry = add_local(at + 2u, carry);
    add_local(at + 3u, carry);
    carry = add_local(at + 4u, 1u);
    add_local(at + 5u, carry);
}
#else
fn count_pair(bin: u32, weight: vec2<u32>) { add_to_bin(bin, vec4<u32>(weight, 0u, 0u), vec2<u32>(1u, 0u)); }
#endif

/// Nothing is kept in registers.
fn empty_full() {}

fn begin(query: u32, reach: f32) -> State {
    first_edge = edge(0u);
    last_edge = edge(BINS);
#if other
    return load_table(WEIGHTS + params.sources + query);
#else
    return load_table(WEIGHTS + query);
#endif
}

fn each(state: State, near: Neighbor) -> State {
    let square = near.distance;
    if square >= first_edge && square < last_edge {
        count_pair(bin_of(square), product(state, load_table(WEIGHTS + near.index)));
    }
    return state;
}

fn end(query: u32, state: State) {}

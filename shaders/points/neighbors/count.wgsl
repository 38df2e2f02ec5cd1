// Counts the neighbors of each query, from the number that is there: a callback for within.wgsl.
//
// Layout: `counts` holds one word per query.

var<storage, read_write> counts: array<u32>;

alias State = u32;

/// No loops.
const NODE_ROUNDS: u32 = 0u;

fn begin(query: u32, reach: f32) -> State { return load_counts(query); }
fn each(state: State, near: Neighbor) -> State { return state + 1u; }
fn is_alike(near: f32, far: f32) -> bool { return true; }
fn each_of(state: State, square: f32, count: u32) -> State { return state + count; }
fn end(query: u32, state: State) { store_counts(query, state); }

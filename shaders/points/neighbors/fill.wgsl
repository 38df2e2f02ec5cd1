// Lists the neighbors of each query: a callback for within.wgsl.
//
// Layout: `next` holds for each query the place of its next entry in `index` and `distance`.

var<storage, read_write> next: array<u32>;
var<storage, read_write> index: array<u32>;
var<storage, read_write> distance: array<f32>;

alias State = u32;

fn begin(query: u32, reach: f32) -> State { return load_next(query); }

fn each(state: State, near: Neighbor) -> State {
    store_index(state, near.index);
    store_distance(state, near.distance);
    return state + 1u;
}

fn end(query: u32, state: State) { store_next(query, state); }

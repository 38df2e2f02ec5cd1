// Adds contributions returned from ghosts to the points that the ghosts are copies of: the adjoint
// of sending copies.
//
// Layout: `points` lists rows of `values` (`params.width` words each), each once. The contributions
// to point `i` are the rows `places[offsets[i]..offsets[i + 1]]` of `incoming`, in the order of the
// ranks they came from.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> points: array<u32>;
var<storage, read> offsets: array<u32>;
var<storage, read> places: array<u32>;
var<storage, read> incoming: array<f32>;
var<storage, read_write> values: array<f32>;

fn each(i: u32) {
    let row = load_points(i) * params.width;
    for (var column = 0u; column < params.width; column++) {
        var sum = 0.0;
        for (var j = load_offsets(i); j < load_offsets(i + 1u); j++) {
            sum += load_incoming(load_places(j) * params.width + column);
        }
        store_values(row + column, load_values(row + column) + sum);
    }
}

#each params.count

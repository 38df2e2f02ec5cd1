// Where those that are kept go when the others leave: behind one another; all ones for the others.
//
// Layout: `before[i]` of the elements before element `i` are kept, of which it is one if the next number is greater.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> before: array<u32>;
var<storage, read_write> places: array<u32>;

fn each(i: u32) {
    let place = load_before(i);
    store_places(i, select(0xffffffffu, place, load_before(i + 1u) > place));
}

#each params.count

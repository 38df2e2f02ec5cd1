// Writes the particles of each list of tile.wgsl one after the other.
//
// Layout: `work` as tile_count.wgsl leaves it; `starts` the number of particles of the lists before
// each list.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> work: array<u32>;
var<storage, read> starts: array<u32>;
var<storage, read_write> order: array<u32>;

fn each(i: u32) {
    let list = load_work(i);
    if list == 0xffffffffu { return; }
    store_order(load_starts(list) + load_work(params.count + i), i);
}

#each params.count

// Writes the cells of split tiles, after all parts of them were painted.
//
// Layout: `work` as in tile_paint.wgsl, `out` as in tile_store.wgsl.
// Workgroup: GROUP invocations, one split after the other. No workgroup memory.

var<uniform> params: Params;
var<storage, read> work: array<u32>;
#if density
var<storage, read_write> out: array<f32>;
#else
var<storage, read_write> out: array<vec2<u32>>;
#endif

#import mesh::tile
#import mesh::tile_store

fn each_workgroup(number: u32, lane: u32) {
    let splits = load_work(params.splits.x);
    for (var split = number; split < splits; split += params.splits.z) {
        let tile = tile_at(tile_places(load_work(params.splits.x + 2u + split)));
        let place = 2u * TILE_CELLS * split;
        for (var cell = lane; cell < TILE_CELLS; cell += GROUP) {
            store_cell(tile, cell, vec2<u32>(load_work(place + cell), load_work(place + TILE_CELLS + cell)));
        }
    }
}

#each_workgroup

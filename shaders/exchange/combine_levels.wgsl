// Combines blocks of numbers along several levels of a binary tree, in place, of which
// exchange::combine does one.
//
// Layout: `blocks` holds params.count blocks of params.block numbers one after the other; block b
// is item params.first + b of the tree. Items at a multiple of params.distance hold the nodes of
// the level below. A node becomes its first half combined with its second half if all of its items
// are there. A workgroup makes the nodes of params.ranks levels of 1 << params.ranks nodes.
// Numbers and what is done with two of them: exchange::combination.
// Workgroup: GROUP invocations, one tile. Memory: 8192 bytes.

var<uniform> params: Params;
var<storage, read_write> blocks: array<Word>;

#import exchange::combination

var<workgroup> tile: array<Number, 2048>;

fn each_workgroup(number: u32, lane: u32) {
    let nodes = 1u << params.ranks;
    let end = params.first + params.count;
    let corner = number * nodes;
    let all = nodes * params.block;
    for (var i = lane; i < all; i += GROUP) {
        let item = (corner + i / params.block) * params.distance;
        if item >= params.first && item < end {
            tile[i] = load_number((item - params.first) * params.block + i % params.block);
        }
    }
    workgroupBarrier();
    for (var level = 1u; level <= params.ranks; level++) {
        let made = (nodes >> level) * params.block;
        for (var m = lane; m < made; m += GROUP) {
            let node = (m / params.block) << level;
            let item = (corner + node) * params.distance;
            if item >= params.first && item + (params.distance << level) <= end {
                let i = node * params.block + m % params.block;
                tile[i] = combine(tile[i], tile[i + (params.block << (level - 1u))]);
            }
        }
        workgroupBarrier();
    }
    // A tile whose items are all there leaves one node. In other tiles, every second entry may hold
    // a node.
    let whole = corner * params.distance >= params.first && (corner + nodes) * params.distance <= end;
    let kept = select(nodes / 2u, 1u, whole) * params.block;
    for (var k = lane; k < kept; k += GROUP) {
        let node = 2u * (k / params.block);
        let item = (corner + node) * params.distance;
        if item >= params.first && item < end {
            store_number((item - params.first) * params.block + k % params.block, tile[node * params.block + k % params.block]);
        }
    }
}

#each_workgroup

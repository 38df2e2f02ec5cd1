// Combines pairs of blocks of numbers, in place: one level of a binary tree over blocks.
//
// Layout: `blocks` holds blocks of params.block numbers one after the other. Pair p is the block
// params.first + 2 p params.distance, which takes the result, and the one params.distance after it.
// Numbers and what is done with two of them: exchange::combination.
// Workgroup: GROUP invocations, ITEMS numbers each. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> blocks: array<Word>;

#import exchange::combination

fn each(i: u32) {
    let pair = i / params.block;
    let lower = params.first + 2u * pair * params.distance;
    let at = lower * params.block + (i - pair * params.block);
    store_number(at, combine(load_number(at), load_number(at + params.distance * params.block)));
}

#each params.count

// Replaces each block of numbers by its combination with all before it, in place.
//
// Layout: `blocks` holds params.ranks blocks of params.block numbers one after the other. Numbers
// and what is done with two of them: exchange::combination.
// Workgroup: GROUP invocations, ITEMS numbers of a block each, which take the blocks in order. No
// workgroup memory.

var<uniform> params: Params;
var<storage, read_write> blocks: array<Word>;

#import exchange::combination

fn each(i: u32) {
    var all = load_number(i);
    for (var rank = 1u; rank < params.ranks; rank++) {
        let at = rank * params.block + i;
        all = combine(all, load_number(at));
        store_number(at, all);
    }
}

#each params.block

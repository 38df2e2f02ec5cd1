// The rank that each row is sent to, by the place of the row in an order that is cut into a part
// for each rank.
//
// Layout: `order` lists rows; rank `r` gets the places `cuts[r]..cuts[r + 1]`; `recipients` gets a
// rank per row.
// Workgroup: GROUP invocations, ITEMS places each; a halving per bit of the number of ranks. No
// workgroup memory.

var<uniform> params: Params;
var<storage, read> order: array<u32>;
var<storage, read> cuts: array<u32>;
var<storage, read_write> recipients: array<u32>;

fn each(place: u32) {
    // The last rank whose part does not begin behind the place.
    var rank = 0u;
    var end = params.ranks;
    while end - rank > 1u {
        let middle = (rank + end) / 2u;
        if load_cuts(middle) <= place { rank = middle; } else { end = middle; }
    }
    store_recipients(load_order(place), rank);
}

#each params.count

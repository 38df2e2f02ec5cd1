// Exact sum of counts, in 64 bits: tells whether a sum in 32 bits would overflow.
//
// Layout: `total` holds two words, low first, cleared before. The high word takes a carry when the
// low one wraps.
// Workgroup: GROUP invocations, ITEMS counts each; one atomic addition per invocation. No workgroup
// memory.

var<uniform> params: Params;
var<storage, read> counts: array<u32>;
var<storage, read_write> total: array<atomic<u32>>;

fn each_workgroup(number: u32, lane: u32) {
    var low = 0u;
    var high = 0u;
    for (var item = 0u; item < ITEMS; item++) {
        let i = (number * ITEMS + item) * GROUP + lane;
        if i < params.count {
            let before = low;
            low += load_counts(i);
            high += u32(low < before);
        }
    }
    if low > 0u || high > 0u {
        let before = add_total(0u, low);
        add_total(1u, high + u32(before + low < before));
    }
}

#each_workgroup

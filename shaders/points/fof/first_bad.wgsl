// The first value that is not finite or, where none may be (`params.negative` = 0), below zero.
//
// Layout: `first[0]` is lowered to the index of such a value.
// Workgroup: GROUP invocations, ITEMS values each; an atomic operation per bad value. No workgroup
// memory.

var<uniform> params: Params;
var<storage, read> values: array<u32>;
var<storage, read_write> first: array<atomic<u32>>;

fn each(i: u32) {
    let bits = load_values(i);
    let infinite = (bits & 0x7f800000u) == 0x7f800000u;
    // Minus zero is not below zero.
    let below = params.negative == 0u && bits > 0x80000000u;
    if infinite || below { min_first(0u, i); }
}

#each params.count

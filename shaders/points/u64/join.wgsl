// 64-bit numbers as the host has them: two words next to each other, low first.
//
// Layout: `low` and, of numbers beyond 32 bits (`two`), `high` hold the words of all numbers, of which `params.count` from number `params.start`
// on are joined. Without high words a low word of all ones stands for 64 ones.
// Workgroup: GROUP invocations, ITEMS numbers each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> low: array<u32>;
#if two
var<storage, read> high: array<u32>;
#endif
var<storage, read_write> joined: array<u32>;

fn each(i: u32) {
    let word = load_low(params.start + i);
#if two
    let upper = load_high(params.start + i);
#else
    let upper = select(0u, word, word == 0xffffffffu);
#endif
    store_joined(2u * i, word);
    store_joined(2u * i + 1u, upper);
}

#each params.count

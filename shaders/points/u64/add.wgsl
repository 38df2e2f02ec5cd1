// 64-bit sums of numbers and a constant.
//
// Layout: `low` and, where sums reach beyond 32 bits (`two`), `high` get the words of the sum
// `params.first + numbers[i]`.
// Workgroup: GROUP invocations, ITEMS numbers each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> numbers: array<u32>;
var<storage, read_write> low: array<u32>;
#if two
var<storage, read_write> high: array<u32>;
#endif

fn each(i: u32) {
    let sum = params.first.x + load_numbers(i);
    store_low(i, sum);
#if two
    store_high(i, params.first.y + u32(sum < params.first.x));
#endif
}

#each params.count

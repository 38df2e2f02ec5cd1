// Consecutive numbers.
//
// Layout: `numbers[i]` = `params.first` + i.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> numbers: array<u32>;

fn each(i: u32) { store_numbers(i, params.first + i); }

#each params.count

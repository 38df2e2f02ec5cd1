// Numbers in equal steps.
//
// Layout: `numbers[i]` = `params.first` + `params.step` i.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> numbers: array<u32>;

fn each(i: u32) { store_numbers(i, params.first + params.step * i); }

#each params.count

// The sum of neighboring copies in a stack, along a binary tree.
//
// Layout: an element is a `Value`, a number or four of them; element i of copy c of `x` lies at
// c params.stride + i. The module `inference::tree` adds up the copies from params.first on.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> x: array<Value>;
var<storage, read_write> y: array<Value>;

fn copy(i: u32, number: u32) -> Value { return load_x((params.first + number) * params.stride + i); }

#import inference::tree

fn each(i: u32) { store_y(i, sum_of_copies(i)); }

#each params.count
